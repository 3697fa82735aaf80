"""What is written reads back as the same: for generated definitions, in every format."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import pytest
from hypothesis import given, settings

from tests.definitions.strategies import definitions
from untildone.app.definitions import (
    AgentDefinition,
    DefinitionError,
    HarnessSettings,
    LoopCriterion,
    LoopSettings,
    ModelBinding,
    dump_definition,
    load_definition,
    parse_definition,
)
from untildone.domain.errors import ConfigError

FORMATS = ["json", "yaml", "toml"]


@pytest.mark.parametrize("written", FORMATS)
@settings(max_examples=100, deadline=None)
@given(definition=definitions)
def test_load_dump_load_is_equal(definition: AgentDefinition, written):
    text = dump_definition(definition, written)
    read = parse_definition(text, written)
    assert read == definition
    assert hash(read) == hash(definition)
    assert dump_definition(read, written) == text


@settings(max_examples=100, deadline=None)
@given(definition=definitions)
def test_python_itself_keeps_a_definition(definition: AgentDefinition):
    assert copy.deepcopy(definition) == definition
    assert pickle.loads(pickle.dumps(definition)) == definition
    assert AgentDefinition.model_validate(definition) == definition
    assert AgentDefinition(**dict(definition)) == definition
    by_name = definition.model_dump()
    assert AgentDefinition.model_validate(by_name) == definition


@pytest.mark.parametrize("written", FORMATS)
def test_a_file_reads_back_as_it_was_written(written, tmp_path: Path):
    definition = AgentDefinition(
        name="näme",
        model=ModelBinding(provider="openai", model="gpt-5", parameters={"stop": ["a", "b"]}),
        instructions="First line.\n\nThird line.\n",
    )
    path = tmp_path / f"agent.{written}"
    path.write_text(dump_definition(definition, written), "utf-8")
    assert load_definition(path) == load_definition(str(path)) == definition


def test_what_has_its_default_is_not_written():
    definition = AgentDefinition(name="a", model=ModelBinding(provider="openai", model="gpt-5"))
    assert dump_definition(definition) == "name: a\nmodel:\n  provider: openai\n  model: gpt-5\n"


def test_texts_of_several_lines_stay_readable_in_yaml():
    definition = AgentDefinition(
        name="a",
        model=ModelBinding(provider="openai", model="gpt-5"),
        instructions="You write.\nBe brief.\n",
    )
    assert "instructions: |\n  You write.\n  Be brief.\n" in dump_definition(definition)


def test_null_inside_of_a_value_is_refused_by_toml_with_its_place():
    definition = AgentDefinition(
        name="a",
        model=ModelBinding(provider="openai", model="gpt-5"),
        harness=HarnessSettings(
            loop=LoopSettings(
                criteria=[LoopCriterion(kind="jsonSchema", json_schema={"enum": [1, None]})]
            )
        ),
    )
    with pytest.raises(ConfigError, match=r"criteria\[0\].jsonSchema.enum\[1\] is null"):
        dump_definition(definition, "toml")
    for written in ("json", "yaml"):
        assert parse_definition(dump_definition(definition, written), written) == definition


def test_what_cannot_be_written_is_refused():
    with pytest.raises(ConfigError, match="takes an AgentDefinition"):
        dump_definition(LoopCriterion(kind="completionMarker", marker="x"))  # pyright: ignore[reportArgumentType]
    definition = AgentDefinition(name="a", model=ModelBinding(provider="openai", model="gpt-5"))
    with pytest.raises(ConfigError, match="format is 'xml'; use one of yaml, json, toml"):
        dump_definition(definition, "xml")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match="format is 'xml'; use one of yaml, json, toml"):
        parse_definition("", "xml")  # pyright: ignore[reportArgumentType]


def test_a_copy_that_no_definition_can_be_is_not_written():
    """``model_copy`` checks nothing; what is written must read back."""
    definition = AgentDefinition(name="a", model=ModelBinding(provider="openai", model="gpt-5"))
    loop = LoopSettings(criteria=[LoopCriterion(kind="completionMarker", marker="x")])
    broken = loop.model_copy(update={"max_iterations": 0, "criteria": ()})
    harness = HarnessSettings(loop=loop).model_copy(update={"loop": broken})
    for bad in (
        definition.model_copy(update={"harness": harness}),
        definition.model_copy(update={"name": ""}),
        AgentDefinition.model_construct(name="a"),
    ):
        for written in ("json", "yaml", "toml"):
            with pytest.raises(DefinitionError):
                dump_definition(bad, written)
    good = definition.model_copy(update={"name": "b"})
    assert parse_definition(dump_definition(good)) == good
