"""Patterns and schemas from outside: they say what they say, in bounded time."""

from __future__ import annotations

import contextlib
import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.criteria.kit import context
from untildone import ConfigError, GradingError
from untildone.criteria.bounded_schema import BoundedJsonSchema, _Survey
from untildone.criteria.linear_regex import LONGEST_PATTERN, LinearRegex, _written_out

# ── Patterns ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("done", "all done.", True),
        ("^done$", "all done", False),
        ("(?m)^done$", "all\ndone\nnow", True),
        ("(?i)DONE", "done", True),
        ("\\d{4}-\\d{2}-\\d{2}", "on 2026-11-30", True),
        ("[äöü]", "für", True),
        ("a{3}", "aa", False),
    ],
)
def test_a_pattern_is_searched_for(pattern: str, text: str, found: bool):
    verdict = LinearRegex(pattern).evaluate(context(text))
    assert verdict.satisfied is found
    if not found:
        assert f"`{pattern}`" in (verdict.feedback or "")


def test_what_a_pattern_wants_can_be_said_in_words():
    verdict = LinearRegex("^#", feedback="Begin with a title.").evaluate(context("x"))
    assert verdict.feedback == "Begin with a title."


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$", "(.*)*b", "^(([a-z])+.)+[A-Z]([a-z])+$"])
def test_patterns_that_make_others_backtrack_for_ever_take_no_time(pattern: str):
    # On the engine of `re` each of these would take longer than the universe is old.
    assert (
        not LinearRegex(pattern).evaluate(context("a" * 50_000 + "!")).satisfied or "b" in pattern
    )


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("(a", "unclosed group"),
        ("a{2,1}", "invalid repetition count range"),
        ("(?=a)", "look-around, including look-ahead and look-behind, is not supported"),
        (r"(a)\1", "backreferences are not supported"),
        ("(?x) a b", "sets the flag x"),
        ("(?i-x:a)", "sets the flag x"),
        ("", "give a regular expression as text"),
        (None, "give a regular expression as text"),
        (3, "give a regular expression as text"),
        (b"a", "give a regular expression as text"),
        ("a" * (LONGEST_PATTERN + 1), "has 1,001 characters; the most is 1,000"),
        ("((a{0,100}){0,100}){0,10}x", "too large once its counted repeats are written out"),
        ("(?:a{50}){50}", "too large once its counted repeats are written out"),
        (r"\w{81}", "too large once its counted repeats are written out"),
        ("\ud800", "has half a character"),
    ],
)
def test_what_is_no_pattern_or_too_large_a_one_is_refused(pattern: Any, said: str):
    with pytest.raises(ConfigError, match=re.escape(said)):
        LinearRegex(pattern)


def test_an_answer_too_long_for_the_pattern_is_an_error_not_a_verdict():
    costly = LinearRegex("(?:[ab]{0,40}c){40}")
    assert not costly.evaluate(context("ab" * 1000)).satisfied
    with pytest.raises(GradingError, match="cannot search 100,000 characters in bounded time"):
        costly.evaluate(context("ab" * 50_000))
    assert LinearRegex("done$").evaluate(context("x" * 1_000_000 + "done")).satisfied


@pytest.mark.parametrize(
    ("pattern", "parts"),
    [
        ("a", 1),
        ("abc", 3),
        ("a{3}", 3),
        ("a{0,7}b", 8),
        ("(ab){10}", 20),
        ("((ab){10}c){2}", 42),
        ("(ab)+{5}", 10),
        ("a{2}{3}", 6),
        ("[a{9}(]{4}", 4),
        (r"\{5}", 3),
        (r"\p{L}{4}", 4),
        (r"\x{41}{4}", 4),
        ("a{,5}", 5),
        ("a{ 5 }", 5),
        ("()", 1),
        (")", 1),
        ("(", 1),
    ],
)
def test_counted_repeats_are_written_out(pattern: str, parts: int):
    assert _written_out(pattern, of_class=1) == parts


simple = st.recursive(
    st.sampled_from(["a", "[ab]", r"\d", ".", r"\w", "é"]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        inner.map(lambda part: f"(?:{part})"),
        inner.map(lambda part: f"(?:{part})*"),
        st.tuples(inner, st.integers(0, 4)).map(lambda pair: f"(?:{pair[0]}){{{pair[1]}}}"),
        st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
    ),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None)
@given(pattern=simple, text=st.text("ab1 é", max_size=8))
def test_it_finds_what_python_finds(pattern: str, text: str):
    assert LinearRegex(pattern).found_in(text) is (re.search(pattern, text) is not None)


@settings(max_examples=150, deadline=None)
@given(pattern=st.text("ab(){}[]|*+?,0123456789\\wpL^$.:-<>= #x", max_size=40))
def test_any_text_is_a_pattern_or_refused(pattern: str):
    with contextlib.suppress(ConfigError, GradingError):
        LinearRegex(pattern).evaluate(context("aaabbb123"))


# ── Schemas ──────────────────────────────────────────────────────────────────────────────────────


def fits(schema: dict[str, Any], answer: str) -> bool:
    return BoundedJsonSchema(schema).evaluate(context(answer)).satisfied


def test_a_schema_says_what_it_says():
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "name": {"type": "string", "pattern": "^[A-Z]"},
            "age": {"$ref": "#/$defs/age"},
        },
        "required": ["name"],
        "additionalProperties": False,
        "$defs": {"age": {"type": "integer", "minimum": 0}},
    }
    assert fits(schema, '{"name": "Ada", "age": 3}')
    assert not fits(schema, '{"name": "ada"}')
    assert not fits(schema, '{"name": "Ada", "age": -1}')
    assert not fits(schema, '{"name": "Ada", "x": 1}')
    assert not fits(schema, "no JSON")


def test_a_pattern_in_a_schema_is_told_when_it_does_not_match():
    verdict = BoundedJsonSchema({"pattern": "^[A-Z]"}).evaluate(context('"ada"'))
    assert "$: 'ada' does not match '^[A-Z]'" in (verdict.feedback or "")


def test_a_pattern_that_backtracks_takes_no_time():
    assert not fits({"type": "string", "pattern": "^(a+)+$"}, '"' + "a" * 50_000 + '!"')


def test_an_anchor_and_the_whole_schema_can_be_referred_to():
    tree = {"properties": {"left": {"$ref": "#"}, "leaf": {"$ref": "#leaf"}}, "$defs": {}}
    tree["$defs"] = {"leaf": {"$anchor": "leaf", "type": "integer"}}
    assert fits(tree, '{"left": {"leaf": 1}}')
    assert not fits(tree, '{"left": {"leaf": "x"}}')


def laughing(depth: int) -> dict[str, Any]:
    """A few lines that mean two to the power of ``depth`` checks."""
    defs: dict[str, Any] = {f"d{depth}": {"type": "integer"}}
    for level in range(depth):
        below = {"$ref": f"#/$defs/d{level + 1}"}
        defs[f"d{level}"] = {"allOf": [below, below]}
    return {"$ref": "#/$defs/d0", "$defs": defs}


@pytest.mark.parametrize("dialect", [None, "https://json-schema.org/draft/2020-12/schema"])
def test_references_that_fan_out_run_out_of_steps(dialect: str | None):
    schema = laughing(40) if dialect is None else {"$schema": dialect, **laughing(40)}
    assert fits(laughing(10), "3")
    with pytest.raises(GradingError, match="takes too many steps"):
        BoundedJsonSchema(schema).evaluate(context("3"))


def test_endless_recursion_is_an_error_not_a_verdict():
    for schema in ({"$ref": "#"}, {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}):
        with pytest.raises(GradingError, match="the schema cannot be applied"):
            BoundedJsonSchema(schema).evaluate(context("3"))


def test_comparing_many_items_in_pairs_costs_steps():
    items = json.dumps([{"a": number} for number in range(5000)])
    with pytest.raises(GradingError, match="takes too many steps"):
        BoundedJsonSchema({"uniqueItems": True}).evaluate(context(items))
    assert fits({"uniqueItems": True}, "[1, 2, 3]")


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"patternProperties": {"^(a+)+$": {}}}, "has 'patternProperties'"),
        ({"items": {"unevaluatedProperties": False}}, "has 'unevaluatedProperties'"),
        ({"$dynamicRef": "#x"}, "has '$dynamicRef'"),
        ({"items": {"$schema": "https://json-schema.org/draft/2020-12/schema"}}, "has '$schema'"),
        (
            {"$ref": "https://example.com/schema.json"},
            "refers to 'https://example.com/schema.json'",
        ),
        ({"$ref": "file:///etc/passwd"}, "refers to 'file:///etc/passwd'"),
        ({"$ref": "other.json"}, "refers to 'other.json'"),
        ({"$ref": "#/$defs/none"}, "refers to '#/$defs/none', which does not stand in it"),
        ({"$ref": "#none"}, "refers to '#none'"),
        ({"pattern": "(a"}, "is no regular expression in Rust's syntax"),
        ({"items": {"items": {"pattern": "(?=a)"}}}, "look-around"),
        ({"enum": list(range(6000))}, None),
        *(
            ({"$ref": f"#/{place}", place: {"patternProperties": {"^(a+)+$": True}}}, "refers to")
            for place in ("default", "const", "properties", "$defs", "dependencies")
        ),
        ({"$ref": "#/default/a", "default": {"a": {"pattern": "(a+)+$"}}}, "refers to"),
        ({"properties": {"a": {"$ref": "#/properties"}}}, "refers to '#/properties'"),
        ({"dependencies": {"default": {"patternProperties": {}}}}, "has 'patternProperties'"),
        ({"allOf": [{} for _ in range(2001)]}, "more than 2,000 values"),
        ({"type": "nonsense"}, "is no valid JSON Schema: at $.type"),
        ({"minimum": "three"}, "is no valid JSON Schema: at $.minimum"),
    ],
)
def test_what_cannot_be_bounded_or_is_no_schema_is_refused(
    schema: dict[str, Any], said: str | None
):
    if said is None:
        assert fits(schema, "3")
        return
    with pytest.raises(ConfigError, match=re.escape(said)):
        BoundedJsonSchema(schema)


def test_names_of_properties_and_plain_values_are_not_taken_for_keywords():
    schema = {
        "properties": {
            "pattern": {"type": "string"},
            "$ref": {"type": "string"},
            "patternProperties": {"type": "string"},
        },
        "default": {"pattern": "(a", "$ref": "nowhere"},
        "enum": [{"pattern": "(a"}],
        "dependentSchemas": {"patternProperties": {}},
    }
    assert fits(schema, '{"pattern": "(a"}')


HIDDEN = {"additionalProperties": False, "patternProperties": {"^(a+)+$": True}}


def test_only_what_the_survey_has_seen_is_ever_applied(monkeypatch: pytest.MonkeyPatch):
    # As if the survey were fooled: the pattern would take longer than the universe is old.
    monkeypatch.setattr(_Survey, "_check_reference", lambda self, reference: None)
    for schema in ({"$ref": "#/default", "default": HIDDEN}, {"$ref": "#/const", "const": HIDDEN}):
        criterion = BoundedJsonSchema(schema)
        with pytest.raises(GradingError, match="stands in a part that is no schema"):
            criterion.evaluate(context('{"%sb": 1}' % ("a" * 60)))


def test_a_refused_keyword_has_no_check_either(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_Survey, "_look_at_keyword", lambda self, key, value, is_root: None)
    criterion = BoundedJsonSchema({"patternProperties": {"^(a+)+$": True}})
    with pytest.raises(GradingError, match="a keyword that a definition's schema cannot have"):
        criterion.evaluate(context('{"%sb": 1}' % ("a" * 60)))


def test_an_identifier_inside_does_not_lead_a_reference_to_plain_data():
    inner = {"$id": "urn:inner", "$ref": "#/a/default", "a": {"default": HIDDEN}}
    schema = {"allOf": [inner], "a": {"x": 1}, "$defs": {"a": {"default": {}}}}
    with pytest.raises(ConfigError, match="refers to '#/a/default'"):
        BoundedJsonSchema(schema)


def wide(schema: Any, depth: int = 2) -> dict[str, Any]:
    """``schema`` applied 40 to the power of ``depth`` times to the same value."""
    defs: dict[str, Any] = {f"d{depth}": schema}
    for level in range(depth):
        defs[f"d{level}"] = {"anyOf": [{"$ref": f"#/$defs/d{level + 1}"}] * 40}
    return {"$ref": "#/$defs/d0", "$defs": defs}


@pytest.mark.parametrize(
    "schema",
    [
        wide({"anyOf": [{"type": "string"}] * 10}),
        wide({"anyOf": [False] * 100}),
        wide({"dependentSchemas": dict.fromkeys("abcdefgh", False)}),
        wide({"enum": ["x" * 100_000]}),
        wide({"not": {"description": "x" * 100_000}}),
        wide({"required": [f"name {number}" for number in range(1500)], "type": "object"}),
        wide({"oneOf": [{"title": "x" * 50_000}, {}]}),
        wide({"additionalProperties": False}),
    ],
)
def test_a_large_answer_or_schema_cannot_be_told_again_and_again(schema: dict[str, Any]):
    told = 0

    class Told(list[int]):
        """A list that counts how much of it is written out."""

        def __repr__(self) -> str:
            nonlocal told
            told += 1
            return super().__repr__()

    answer = dict.fromkeys("abcdefgh", Told(range(1000)))
    with pytest.raises(GradingError, match="takes too many steps"):
        BoundedJsonSchema(schema)._problems(answer)
    assert told <= 50_000 * 200 / 8000


def test_many_searches_of_a_long_text_run_out_of_steps():
    once = {"pattern": "(?:[ab]{0,40}c){40}"}
    text = json.dumps("ab" * 2000)
    assert not fits(once, text)
    with pytest.raises(GradingError, match="takes too many steps"):
        fits(wide(once), text)


def test_an_answer_of_many_records_is_checked():
    record = {
        "type": "object",
        "properties": {"name": {"type": "string", "pattern": "^[A-Z]"}, "age": {"type": "integer"}},
        "required": ["name", "age"],
        "additionalProperties": False,
    }
    answer = json.dumps([{"name": f"Ada {number}", "age": number} for number in range(4000)])
    assert len(answer) > 100_000
    assert fits({"type": "array", "items": record}, answer)


def test_a_pattern_may_be_one_that_python_does_not_know():
    assert fits({"type": "string", "pattern": r"^\p{L}+$"}, '"Zoë"')
    assert not fits({"type": "string", "pattern": r"^\p{L}+$"}, '"Z3"')


def test_an_older_draft_is_read_as_it_says():
    old = {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "maximum": 3,
        "exclusiveMaximum": True,
    }
    assert not fits(old, "3")
    assert fits(old, "2")


def test_one_object_serves_many_answers():
    criterion = BoundedJsonSchema(laughing(11))  # some 10,000 steps each time
    for _ in range(8):
        assert criterion.evaluate(context("3")).satisfied


def test_their_kinds_are_the_names_that_events_use():
    assert (LinearRegex("a").kind, BoundedJsonSchema({}).kind) == ("regex", "jsonSchema")
