"""The JSON Schema for editors: it takes what reading takes, and says why it does not take more."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from jsonschema import Draft202012Validator

from tests.definitions.strategies import definitions
from untildone.app.definitions import (
    AgentDefinition,
    DefinitionError,
    definition_schema,
    load_definition,
    parse_definition,
)
from untildone.app.definitions.kinds import KINDS
from untildone.app.definitions.writing import plain_data
from untildone.criteria.registry import BUILT_IN_KINDS

EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "definitions").glob("*.yaml"))
SCHEMA = definition_schema()
VALIDATOR = Draft202012Validator(SCHEMA)


def with_criterion(**criterion: Any) -> dict[str, Any]:
    return {
        "name": "a",
        "model": {"provider": "openai", "model": "gpt-5"},
        "harness": {"loop": {"criteria": [criterion]}},
    }


def test_it_is_a_schema_and_plain_json():
    Draft202012Validator.check_schema(SCHEMA)
    assert json.loads(json.dumps(SCHEMA)) == SCHEMA


@settings(max_examples=100, deadline=None)
@given(definition=definitions)
def test_it_takes_every_definition_as_it_is_written(definition: AgentDefinition):
    VALIDATOR.validate(plain_data(definition))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_it_takes_the_examples(path: Path):
    VALIDATOR.validate(plain_data(load_definition(path)))


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"name": "a"},
        {**with_criterion(kind="completionMarker", marker="x"), "extra": 1},
        {**with_criterion(kind="completionMarker", marker="x"), "mcpServers": [{"command": "x"}]},
        with_criterion(),
        with_criterion(kind=""),
        with_criterion(kind="completionMarker"),
        with_criterion(kind="completionMarker", marker=""),
        with_criterion(kind="completionMarker", marker=5),
        with_criterion(kind="completionMarker", marker="x", pattern="y"),
        with_criterion(kind="aiJudge", judgeCriteria="x"),
        with_criterion(kind="minScore", minScore=2),
        with_criterion(kind="anyOf", criteria=[{"kind": "regex"}]),
        {"name": "a", "model": {"provider": "x", "model": "y"}, "harness": {"loop": {}}},
        {
            "name": "a",
            "model": {"provider": "x", "model": "y"},
            "harness": {"loop": {"criteria": [], "maxIterations": 3}},
        },
        {
            "name": "a",
            "model": {"provider": "x", "model": "y"},
            "harness": {"maximumIterationsPerRequest": 0},
        },
        with_criterion(kind="completionMarker", marker="  "),
        with_criterion(kind="completionMarker", marker=None),
        with_criterion(kind="aiJudge", judgeCriteria=[]),
        with_criterion(kind="aiJudge", judgeCriteria=["x", " "]),
        with_criterion(kind="todoCompletion", modes=[]),
        with_criterion(kind="allOf", criteria=[]),
        with_criterion(kind="anyOf", criteria=[]),
        with_criterion(kind="not", criteria=[]),
        with_criterion(kind="not", criteria=[{"kind": "regex", "pattern": "a"}] * 2),
    ],
    ids=range(25),
)
def test_it_refuses_what_reading_refuses(data: dict[str, Any]):
    with pytest.raises(DefinitionError):
        parse_definition(json.dumps(data), "json")
    assert list(VALIDATOR.iter_errors(data))


@pytest.mark.parametrize(
    "data",
    [
        {**with_criterion(kind="regex", pattern="a"), "harness": None},
        {**with_criterion(kind="regex", pattern="a"), "harness": {"loop": None}},
        with_criterion(kind="todoCompletion", modes=None),
        with_criterion(kind="not", criteria=[{"kind": "regex", "pattern": "a"}], feedback=None),
    ],
)
def test_it_takes_null_where_reading_takes_it(data: dict[str, Any]):
    assert parse_definition(json.dumps(data), "json").name == "a"
    VALIDATOR.validate(data)


def test_a_kind_that_it_does_not_know_may_be_a_registered_one():
    VALIDATOR.validate(with_criterion(kind="mine", options={"a": 1}))


def test_it_offers_the_kinds_and_what_each_takes():
    criterion = SCHEMA["$defs"]["LoopCriterion"]
    assert criterion["properties"]["kind"]["anyOf"][0]["enum"] == list(BUILT_IN_KINDS)
    for rule, kind in zip(criterion["allOf"], BUILT_IN_KINDS, strict=True):
        assert rule["if"]["properties"]["kind"]["const"] == kind
        assert len(rule["then"]["required"]) == len(KINDS[kind].required)


def test_every_field_has_a_description():
    for part in (SCHEMA, *SCHEMA["$defs"].values()):
        assert part["description"]
        for field in part["properties"].values():
            assert field["description"]
            assert "``" not in field["description"]
