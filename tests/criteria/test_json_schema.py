"""``jsonSchema``: the answer is JSON that fits."""

import sys

import pytest
from pydantic import BaseModel

from tests.criteria.kit import context
from untildone import ConfigError, GradingError
from untildone.criteria import JsonSchema
from untildone.criteria.bounded_schema import BoundedJsonSchema

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0},
        "born": {"type": "string", "format": "date"},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}


def feedback_on(answer: str, schema=PERSON) -> str:
    return JsonSchema(schema).evaluate(context(answer)).feedback or ""


@pytest.mark.parametrize(
    "answer",
    [
        '{"name": "Ada", "age": 36}',
        '\n  {"name": "Ada", "age": 36}\n',
        '\ufeff{"name": "Ada", "age": 36}',
        '```json\n{"name": "Ada", "age": 36}\n```',
        '```\r\n{"name": "Ada", "age": 36}\r\n```',
        'Here it is:\n\n```json\n{"name": "Ada", "age": 36}\n```\nAnything else?',
        '{"name": "```", "age": 36}',
    ],
)
def test_json_that_fits_is_done_bare_or_in_one_fence(answer: str):
    assert JsonSchema(PERSON).evaluate(context(answer)).satisfied


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ('{"name": "Ada"}', "- $: 'age' is a required property"),
        ('{"name": "Ada", "age": "36"}', "- $.age: '36' is not of type 'integer'"),
        ('{"name": "Ada", "age": -1}', "- $.age: -1 is less than the minimum of 0"),
        ('{"name": "Ada", "age": 1, "x": 1}', "Additional properties are not allowed ('x'"),
        ('{"name": "Ada", "age": 1, "born": "May"}', "- $.born: 'May' is not a 'date'"),
        ("[]", "- $: [] is not of type 'object'"),
        ("null", "- $: None is not of type 'object'"),
        ("", "- it is empty"),
        ("Ada is 36.", "- it is not JSON: Expecting value at line 1, column 1, near 'Ada is 36.'"),
        ('{"name": "Ada", "age": 36', "- it is not JSON: Expecting ',' delimiter at line 1"),
        ('{"name": "Ada", "age": NaN}', "- it is not JSON: NaN is no JSON number"),
        ("```json\n{}\n```\n```json\n{}\n```", "- there are 2 fenced blocks; give one"),
        ("```json\n{oops}\n```", "- it is not JSON: Expecting property name"),
        ("[" * 100_000, "- it is not JSON"),
        ("1" * 10_000, "- "),
    ],
)
def test_what_does_not_fit_is_named_with_its_place(answer: str, said: str):
    feedback = feedback_on(answer)
    assert feedback.startswith("The answer must be JSON that fits the schema, and nothing else.")
    assert said in feedback


@pytest.mark.parametrize("make", [JsonSchema, BoundedJsonSchema])
@pytest.mark.parametrize("answer", ["1e400", "-1e400", "[1e400]", "1" + "0" * 400])
def test_a_number_that_is_too_large_asks_for_another_one(make, answer: str):
    schema = {"type": "number", "multipleOf": 0.5}
    verdict = make(schema).evaluate(context(answer))
    assert not verdict.satisfied
    assert "too large" in (verdict.feedback or "")


def test_a_large_whole_number_fits_where_it_can_be_checked():
    assert (
        JsonSchema({"type": "integer", "multipleOf": 5})
        .evaluate(context("1" + "0" * 400))
        .satisfied
    )


def test_where_a_number_is_too_large_to_be_checked_not_goes_on_too():
    verdict = JsonSchema({"multipleOf": 0.5}).evaluate(context("1" + "0" * 400))
    assert verdict.undecided


def test_of_many_problems_the_first_five_are_told_each_short():
    feedback = feedback_on(
        '["' + "x" * 5000 + '"' + ', "a"' * 50 + "]", {"items": {"type": "number"}}
    )
    assert feedback.count("\n- ") == 6
    assert feedback.endswith("- … and more")
    assert len(feedback) < 1500


def test_of_alternatives_the_nearest_is_explained():
    schema = {"anyOf": [{"type": "null"}, PERSON]}
    assert "$.age: 'x' is not of type 'integer'" in feedback_on('{"name": "A", "age": "x"}', schema)


def test_a_pydantic_model_is_a_schema():
    class Person(BaseModel):
        name: str
        age: int

    assert JsonSchema(Person).evaluate(context('{"name": "Ada", "age": 36}')).satisfied
    assert "$.age" in feedback_on('{"name": "Ada", "age": "36"}', Person)


def test_references_inside_the_schema_are_followed():
    schema = {"$defs": {"age": {"type": "integer"}}, "items": {"$ref": "#/$defs/age"}}
    assert JsonSchema(schema).evaluate(context("[1, 2]")).satisfied
    assert "$[1]: 'x' is not of type 'integer'" in feedback_on('[1, "x"]', schema)


@pytest.mark.parametrize(
    "reference", ["http://127.0.0.1:9/schema.json", "file:///etc/passwd", "#/$defs/missing"]
)
def test_nothing_is_fetched(reference: str):
    with pytest.raises(GradingError, match="the schema cannot be applied"):
        JsonSchema({"$ref": reference}).evaluate(context("{}"))


def test_older_drafts_are_read_as_they_say():
    draft4 = {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "minimum": 1,
        "exclusiveMinimum": True,
    }
    assert not JsonSchema(draft4).evaluate(context("1")).satisfied
    with pytest.raises(ConfigError, match=r"at \$.exclusiveMinimum"):
        JsonSchema({"exclusiveMinimum": True})


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"type": "objekt"}, r"no valid JSON Schema: at \$.type: 'objekt' is not valid"),
        ([], "give a JSON Schema, a dict"),
        ("{}", "give a JSON Schema, a dict"),
        (None, "give a JSON Schema, a dict"),
    ],
)
def test_what_is_no_schema_is_refused_with_its_place(schema, said: str):
    with pytest.raises(ConfigError, match=said):
        JsonSchema(schema)


def test_without_the_validator_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "jsonschema.validators", None)
    with pytest.raises(ConfigError, match=r"pip install 'untildone\[cli\]'"):
        JsonSchema({})


def test_true_takes_any_json_and_false_takes_none():
    assert JsonSchema(True).evaluate(context("3")).satisfied
    assert not JsonSchema(False).evaluate(context("3")).satisfied
    assert not JsonSchema(True).evaluate(context("three")).satisfied


def test_its_kind_is_the_name_that_events_use():
    assert JsonSchema({}).kind == "jsonSchema"
