"""Arguments against a JSON Schema that somebody else wrote."""

import sys
from typing import Any

import pytest

from untildone import ToolError
from untildone.tools.json_arguments import JsonArguments

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "minLength": 1},
        "limit": {"type": ["integer", "null"]},
        "filters": {"type": "array", "items": {"$ref": "#/$defs/filter"}},
        "anything": True,
    },
    "required": ["query"],
    "$defs": {"filter": {"type": "object", "required": ["field"]}},
}


@pytest.mark.parametrize(
    "text",
    [
        '{"query": "a"}',
        '{"query": "a", "limit": 5.0}',
        '{"query": "a", "limit": null, "filters": [{"field": 1}], "anything": [[]]}',
        '{"query": "a", "unknown": 1}',
    ],
)
def test_what_fits_is_taken_as_it_is(text: str):
    assert JsonArguments(SCHEMA).parse(text)["query"] == "a"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"query": ""}', "`query`"),
        ('{"query": "a", "limit": "5"}', "`limit`"),
        ('{"query": "a", "limit": true}', "`limit`"),
        ('{"query": "a", "filters": [{}]}', "`filters[0]`: 'field' is a required property"),
        ('{"query": "a", "anything": 1e999}', "too large"),
        ('{"query": "a", "anything": NaN}', "NaN is not JSON"),
        ('{"query": "a", "anything": {"x": 1, "x": 2}}', "`x` is there twice"),
        ("[" * 100_000, "not valid JSON"),
        ("null", "not null"),
    ],
)
def test_what_does_not_fit_runs_nothing_and_shows_what_would(text: str, told: str):
    with pytest.raises(ToolError) as caught:
        JsonArguments(SCHEMA).parse(text)
    assert told in str(caught.value)
    assert 'Expected: {"query": string, ' in str(caught.value)


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object", "properties": None},
        {"type": "nonsense"},
        {"properties": {"a": {"$ref": "https://127.0.0.1:9/schema"}}},
        {"properties": {"a": {"$ref": "#/nowhere"}}},
        {"properties": {"a": {"pattern": "("}}},
    ],
)
def test_a_schema_that_cannot_be_applied_refuses_nothing(schema: dict[str, Any]):
    assert JsonArguments(schema).parse('{"a": "b"}') == {"a": "b"}


def test_an_empty_text_stands_for_no_arguments_only_where_there_are_none():
    assert JsonArguments({"type": "object"}).parse(" ") == {}
    with pytest.raises(ToolError, match="There are no arguments"):
        JsonArguments({"properties": {"a": {}}}).parse("")


def test_without_the_library_names_are_checked(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "jsonschema.validators", None)
    strict = JsonArguments({**SCHEMA, "additionalProperties": False})
    assert strict.parse('{"query": 5}') == {"query": 5}
    with pytest.raises(ToolError, match="`query` is missing; `more` is unknown"):
        strict.parse('{"more": 1}')
