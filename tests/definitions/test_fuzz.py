"""Garbage in any form raises the one definition error, and nothing else."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.definitions.strategies import ODD_TEXTS, definitions, texts
from untildone.app.definitions import (
    AgentDefinition,
    DefinitionError,
    LoopCriterion,
    LoopSettings,
    ModelBinding,
    build_agent,
    dump_definition,
    load_definition,
    parse_definition,
)
from untildone.app.definitions.types import HarnessSettings
from untildone.criteria.registry import BUILT_IN_KINDS

FORMATS = ["json", "yaml", "toml"]
TYPES = [AgentDefinition, HarnessSettings, LoopSettings, LoopCriterion, ModelBinding]
KEYS = sorted({key for each in TYPES for key in each.model_fields} | {"judgeCriteria", "foo", ""})

leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.sampled_from([*BUILT_IN_KINDS, *ODD_TEXTS, "\ud800", "openai", "failRun"]),
    st.binary(max_size=3),
)
garbage = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.sampled_from(KEYS) | texts | st.integers(), inner, max_size=6),
    ),
    max_leaves=25,
)

only_ours = contextlib.suppress(DefinitionError)


@pytest.mark.parametrize("written", FORMATS)
@settings(max_examples=150, deadline=None)
@given(text=st.text(max_size=200) | st.text("{}[]:,-&*!|>'\"\\ \n\t#%@`=.abntrue019", max_size=80))
def test_garbage_text(text: str, written):
    with only_ours:
        parse_definition(text, written)


@pytest.mark.parametrize("written", FORMATS)
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_a_definition_with_some_characters_changed(data: st.DataObject, written):
    text = dump_definition(data.draw(definitions), written)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        length = data.draw(st.integers(0, 8))
        text = text[:at] + data.draw(st.text(max_size=4)) + text[at + length :]
    with only_ours:
        parse_definition(text, written)


@settings(max_examples=150, deadline=None)
@given(content=st.binary(max_size=200), ending=st.sampled_from([".json", ".yaml", ".toml", ".txt"]))
def test_a_file_with_any_bytes(content: bytes, ending: str, tmp_path_factory):
    path: Path = tmp_path_factory.getbasetemp() / f"fuzzed{ending}"
    path.write_bytes(content)
    with only_ours:
        load_definition(path)


@settings(max_examples=150, deadline=None)
@given(data=garbage)
def test_any_python_data(data: Any):
    with only_ours:
        build_agent(data)


@settings(max_examples=150, deadline=None)
@given(loop=st.dictionaries(st.sampled_from(KEYS), garbage, max_size=6))
def test_any_loop_inside_of_an_agent(loop: dict[str, Any]):
    with only_ours:
        build_agent(
            {
                "name": "a",
                "model": {"provider": "openai", "model": "gpt-5"},
                "harness": {"loop": loop},
            }
        )


@pytest.mark.parametrize("kind", TYPES)
@settings(max_examples=40, deadline=None)
@given(data=st.dictionaries(st.sampled_from(KEYS), garbage, max_size=6))
def test_any_keywords_in_python(kind, data: dict[str, Any]):
    with only_ours:
        kind(**data)


@pytest.mark.parametrize("kind", TYPES)
@settings(max_examples=60, deadline=None)
@given(data=garbage | st.dictionaries(st.sampled_from(KEYS), garbage, max_size=6))
def test_any_data_at_the_other_doors(kind, data: Any):
    with only_ours:
        kind.model_validate(data)
    with only_ours:
        kind.model_validate_strings(data)


@pytest.mark.parametrize("kind", TYPES)
@settings(max_examples=60, deadline=None)
@given(
    text=st.text(max_size=80) | st.text('{}[]:,"\\ \n0.eE-truefalsnyk', max_size=60) | st.binary()
)
def test_any_text_at_the_json_door(kind, text: str | bytes):
    with only_ours:
        kind.model_validate_json(text)


@pytest.mark.parametrize("kind", TYPES)
@settings(max_examples=60, deadline=None)
@given(data=st.dictionaries(st.sampled_from(KEYS), garbage, max_size=6))
def test_any_json_at_the_json_door(kind, data: dict[str, Any]):
    text = json.dumps(data, default=repr, skipkeys=True)
    with only_ours:
        kind.model_validate_json(text)


CYCLE: dict[str, Any] = {}
CYCLE["harness"] = CYCLE
HUGE = 10**5000


@pytest.mark.parametrize(
    "data",
    [
        CYCLE,
        {"name": HUGE},
        {"name": "a", "model": {"provider": "openai", "model": "m", "parameters": {"seed": HUGE}}},
        {"name": "a", "model": CYCLE},
        None,
        3,
        "name: a",
        [],
        {3: 4},
        {None: None},
        {"name": object()},
    ],
    ids=["cycle", "huge", "huge parameter", "inner cycle", "none", "3", "text", "list", *"abc"],
)
def test_what_python_can_say_and_files_cannot(data: Any):
    with pytest.raises(DefinitionError):
        build_agent(data)
