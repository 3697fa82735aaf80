"""What a model sent either fits exactly or is refused with words it can act on."""

import dataclasses
import datetime as dt
import decimal
import enum
import functools
import json
import math
import pathlib
from collections.abc import Iterable
from fractions import Fraction
from typing import Annotated, Any, Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, BeforeValidator, Field

from untildone.domain.errors import ToolError
from untildone.tools import as_tool, tool


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Item(BaseModel):
    name: str
    count: int = 1


@dataclasses.dataclass
class Point:
    x: int
    y: float = 0.0


def wipe(path: str = "/", depth: int = 3) -> None: ...
def search(query: str, limit: int = 5) -> None: ...
def now() -> None: ...
def anything(value: Any = None, others: list[Any] | None = None) -> None: ...


def everything(
    text: str,
    number: int,
    *,
    ratio: float | None = None,
    flag: bool = False,
    color: Color = Color.RED,
    items: list[Item] | None = None,
    table: dict[str, list[int]] | None = None,
    pair: tuple[int, str] | None = None,
    choice: int | str | None = None,
    mode: Literal["fast", "slow"] = "fast",
) -> None: ...


def refusal(function, sent: str) -> str:
    with pytest.raises(ToolError) as caught:
        as_tool(function).parse(sent)
    return str(caught.value)


# ── What fits ────────────────────────────────────────────────────────────────────────────────────


def test_values_arrive_as_the_types_of_the_function():
    def take(
        *,
        item: Item,
        point: Point,
        color: Color,
        day: dt.date,
        price: decimal.Decimal,
        path: pathlib.Path,
        names: set[str],
        pair: tuple[int, str],
        numbers: Iterable[int],
    ): ...

    sent = {
        "item": {"name": "tea"},
        "point": {"x": 1},
        "color": "blue",
        "day": "2024-02-29",
        "price": "1.50",
        "path": "a/b",
        "names": ["x"],
        "pair": [1, "y"],
        "numbers": [1, 2],
    }
    assert as_tool(take).parse(json.dumps(sent)) == {
        "item": Item(name="tea", count=1),
        "point": Point(1),
        "color": Color.BLUE,
        "day": dt.date(2024, 2, 29),
        "price": decimal.Decimal("1.50"),
        "path": pathlib.Path("a/b"),
        "names": {"x"},
        "pair": (1, "y"),
        "numbers": [1, 2],
    }


def test_what_was_left_out_is_not_in_the_arguments():
    assert as_tool(search).parse('{"query": "loops"}') == {"query": "loops"}


def test_texts_with_colons_quotes_and_brackets_are_texts():
    for text in ("http://a.b:80", '{"query": "x", "query": "y"}', "NaN", "a: b: c"):
        sent = json.dumps({"query": text, "limit": 2})
        assert as_tool(search).parse(sent) == {"query": text, "limit": 2}


def test_a_whole_number_with_a_fraction_of_zero_is_an_integer():
    assert as_tool(search).parse('{"query": "a", "limit": 5.0}') == {"query": "a", "limit": 5}
    assert type(as_tool(search).parse('{"query": "a", "limit": 5.0}')["limit"]) is int
    assert "must be" in refusal(search, '{"query": 3, "limit": 5.0}')
    assert "must be" in refusal(search, '{"query": "a", "limit": 5.5}')


def test_a_whole_number_is_a_number():
    def scale(ratio: float): ...

    assert as_tool(scale).parse('{"ratio": 2}') == {"ratio": 2.0}


def test_large_whole_numbers_are_exact():
    sent = '{"query": "a", "limit": 123456789012345678901234567890}'
    assert as_tool(search).parse(sent)["limit"] == 123456789012345678901234567890
    # 2 ** 53 + 1, which no float is
    sent = '{"query": "a", "limit": 9007199254740993.0}'
    assert as_tool(search).parse(sent)["limit"] == 2**53 + 1
    assert "must be a valid integer" in refusal(
        search, '{"query": "a", "limit": 9007199254740993.5}'
    )


def test_many_whole_numbers_with_a_fraction_of_zero_are_integers():
    sent = json.dumps({"text": "a", "number": 1, "table": {"a": [1.0] * 5_000}})
    assert as_tool(everything).parse(sent)["table"] == {"a": [1] * 5_000}


def test_an_empty_text_is_no_arguments_for_a_tool_without_parameters():
    for sent in ("", "  ", "{}", "\n{ }\n"):
        assert as_tool(now).parse(sent) == {}


def test_a_users_own_conversion_widens_what_is_taken():
    def take(number: Annotated[int, BeforeValidator(int)]): ...

    assert as_tool(take).parse('{"number": "5"}') == {"number": 5}


class Size(enum.StrEnum):
    S = "s"


def test_a_literal_of_enum_members_is_sent_as_their_values():
    def paint(
        one: Literal[Color.RED],
        some: list[Literal[Color.BLUE, "none", 3, Size.S]] | None = None,
        *,
        named: Annotated[dict[str, Literal[Color.RED, None]], "by name"] = {},  # noqa: B006, PYI061
    ) -> None: ...

    schema = as_tool(paint).spec.parameters["properties"]
    assert schema["one"] == {"const": "red", "type": "string"}
    assert schema["some"]["anyOf"][0]["items"] == {"enum": ["blue", "none", 3, "s"]}
    sent = '{"one": "red", "some": ["blue", "none", 3, "s"], "named": {"a": "red", "b": null}}'
    values = as_tool(paint).parse(sent)
    assert values == {
        "one": Color.RED,
        "some": [Color.BLUE, "none", 3, Size.S],
        "named": {"a": Color.RED, "b": None},
    }
    assert type(values["some"][3]) is Size
    for wrong in ('"blue"', '"RED"', "1", "null"):
        assert "`one` must be 'red', not" in refusal(paint, f'{{"one": {wrong}}}')
    assert "`some[0]` must be" in refusal(paint, '{"one": "red", "some": [true]}')


def test_an_alias_is_what_the_model_sends():
    def take(from_: Annotated[str, Field(alias="from")], to: str = ""): ...

    assert "from" in as_tool(take).spec.parameters["properties"]
    assert as_tool(take).parse('{"from": "a"}') == {"from_": "a"}


# ── What does not ────────────────────────────────────────────────────────────────────────────────

NOT_AN_OBJECT = ["null", "[]", "true", "3", '"{}"', '"text"', "[1, 2]"]
NOT_JSON = [
    '{"path": "/tm',
    '{"path": "/tmp"',
    '{"depth": 1',
    "{",
    "[",
    "{'path': '/'}",
    "{path: 1}",
    '{"path": "/",}',
    '{"path": "/"} {"path": "/"}',
    '{"path": "/"}}',
    "```json\n{}\n```",
    "path=/",
    '{"path": "\x00"}',
    "\ud800",
    '{"path": "\\ud800"}',
    "[" * 100_000,
    '{"path":' * 100_000,
    '{"depth": ' + "9" * 10_000 + "}",
    "\ufeff{}",
]
NOT_CLEAR = [
    '{"path": "/a", "path": "/b"}',
    '{"depth": 1, "depth": 1}',
    '{"depth": NaN}',
    '{"depth": Infinity}',
    '{"depth": -Infinity}',
    '{"depth": 1e999}',
]


@pytest.mark.parametrize("function", [wipe, now, search, anything])
@pytest.mark.parametrize(
    "sent", [*NOT_AN_OBJECT, *NOT_JSON, *NOT_CLEAR], ids=lambda sent: sent[:20]
)
def test_what_is_no_clear_json_object_runs_nothing(function, sent):
    text = refusal(function, sent)
    assert "Expected: {" in text
    assert len(text) < 700


@pytest.mark.parametrize("sent", ["", " ", "\n"])
def test_an_empty_text_never_stands_for_defaults(sent):
    for function in (wipe, search, anything):
        assert refusal(function, sent).startswith("There are no arguments. Expected: {")


def test_doubled_keys_are_refused_at_every_depth():
    assert "the key `a` is there twice" in refusal(anything, '{"value": {"a": 1, "a": 2}}')
    assert "twice" in refusal(anything, '{"value": 1, "value": 1}')
    assert "twice" in refusal(everything, '{"text": "a:b", "number": 1, "number": 2}')


def test_a_doubled_key_among_very_many_is_found():
    # Comparing each with each would take hours.
    keys = ",".join(f'"{number}":0' for number in range(300_000))
    assert "the key `299999` is there twice" in refusal(
        anything, f'{{"value": {{{keys},"299999":1}}}}'
    )


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
def test_numbers_that_are_none_are_refused_at_every_depth(number):
    def measure(value: float = 0.0): ...

    for function, sent in (
        (anything, f'{{"value": {number}}}'),
        (anything, f'{{"value": {{"a": [{number}]}}}}'),
        (measure, f'{{"value": {number}}}'),
        (everything, f'{{"text": "a", "number": 1, "ratio": {number}}}'),
    ):
        assert "Expected" in refusal(function, sent)


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        ('{"query": 5}', "`query` must be a valid string, not 5"),
        ('{"query": null}', "`query` must be a valid string, not null"),
        ('{"query": "a", "limit": "5"}', '`limit` must be a valid integer, not "5"'),
        ('{"query": "a", "limit": true}', "`limit` must be a valid integer, not true"),
        ('{"query": "a", "limit": null}', "`limit` must be a valid integer, not null"),
        ('{"query": "a", "limit": {}}', "`limit` must be a valid integer, not {}"),
        ("{}", "`query` is missing"),
        ('{"lmit": 3, "query": "a"}', "`lmit` is unknown"),
        ("[]", "The arguments must be a JSON object, not an array"),
        ("null", "The arguments must be a JSON object, not null"),
        ('"{}"', "The arguments must be a JSON object, not a string"),
        ('{"query": "a', "The arguments are not valid JSON: the text ends too early"),
    ],
)
def test_the_text_names_the_field_and_what_would_fit(sent, words):
    text = refusal(search, sent)
    assert words in text
    assert text.endswith('. Expected: {"query": string, "limit"?: integer}')


@pytest.mark.parametrize("value", ["1", '"true"', '"yes"', "0"])
def test_booleans_are_true_or_false(value):
    sent = f'{{"text": "a", "number": 1, "flag": {value}}}'
    assert "`flag` must be a valid boolean" in refusal(everything, sent)


def test_values_are_checked_as_strictly_inside_of_models():
    sent = '{"text": "a", "number": 1, "items": [{"name": "b", "count": "2"}, {"count": 2}]}'
    text = refusal(everything, sent)
    assert '`items[0].count` must be a valid integer, not "2"' in text
    assert "`items[1].name` is missing" in text


def test_choices_are_listed():
    text = refusal(everything, '{"text": "a", "number": 1, "color": "pink", "mode": "medium"}')
    assert "`color` must be 'red' or 'blue', not \"pink\"" in text
    assert "`mode` must be 'fast' or 'slow'" in text
    assert '"color"?: "red" | "blue"' in text


def test_the_branches_of_a_union_are_one_sentence():
    text = refusal(everything, '{"text": "a", "number": 1, "choice": []}')
    assert "`choice` must be a valid integer or a valid string, not []" in text


def test_only_the_first_problems_are_told():
    def many(a: int, b: int, c: int, d: int, e: int): ...

    text = refusal(many, "{}")
    assert "`c` is missing; and 2 more." in text
    assert "`d`" not in text


def test_very_many_problems_are_counted_and_not_listed():
    text = refusal(
        everything, json.dumps({"text": "a", "number": 1, "choice": 1, "items": [0] * 2_000})
    )
    assert text.startswith("The arguments do not fit in 2,000 places. Expected: {")
    few = json.dumps({"text": "a", "number": 1, "items": [0] * 1_000})
    assert refusal(everything, few).startswith("The arguments do not fit: `items[0]` must be")
    both = json.dumps({"text": "a", "number": 1, "table": {"a": ["x"] * 2_000 + [1.0]}})
    assert refusal(everything, both).startswith("The arguments do not fit in 2,000 places.")


def test_a_refusal_never_echoes_much():
    long = "x" * 100_000
    for function, sent in (
        (search, json.dumps({"query": "a", "limit": long})),
        (search, json.dumps({"query": "a", long: 1})),
        (everything, json.dumps({"text": [long], "number": long, "ratio": long, "flag": long})),
        (search, f'{{"query": "{long}'),
        (search, long),
    ):
        text = refusal(function, sent)
        assert text.count("x") < 200
        assert len(text) < 1200


def test_a_refusal_has_no_addresses_and_no_library_in_it():
    for sent in ("", "[]", "{", '{"query": 1}', '{"a": 1}'):
        text = refusal(search, sent)
        assert "http" not in text
        assert "pydantic" not in text
        assert "Arguments" not in text


def test_a_users_own_check_speaks_in_its_own_words():
    def even(value: int) -> int:
        if value % 2:
            raise ValueError("must be even, such as 4")
        return value

    def take(number: Annotated[int, AfterValidator(even)]): ...

    text = refusal(take, '{"number": 3}')
    assert "`number` does not fit (must be even, such as 4), not 3" in text


def test_a_users_own_check_that_breaks_is_a_refusal_too():
    class BrokenError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    def breaks(value: int) -> int:
        raise BrokenError

    def take(number: Annotated[int, AfterValidator(breaks)]): ...

    assert "The arguments do not fit" in refusal(take, '{"number": 3}')


def test_a_users_own_check_that_uses_pydantic_inside():
    def strictly(value: str) -> str:
        try:
            Item.model_validate_json(value)
        except ValueError as error:
            raise ValueError(str(error)) from None
        return value

    def take(item: Annotated[str, AfterValidator(strictly)]): ...

    text = refusal(take, '{"item": "{}"}')
    assert "`item` does not fit (1 validation error for Item" in text
    assert "http" not in text


def test_extra_keyword_arguments_do_not_stand_in_for_named_ones():
    def call(first: int, **extra: int): ...

    fixed = functools.partial(call, secret=1)
    assert as_tool(fixed).parse('{"first": 1, "extra": {"b": 2}}')
    assert "`first` has a place beside `extra`" in refusal(
        call, '{"first": 1, "extra": {"first": 2}}'
    )
    assert "`secret` is fixed" in refusal(fixed, '{"first": 1, "extra": {"secret": 2}}')


# ── For every text ───────────────────────────────────────────────────────────────────────────────

FUNCTIONS = [wipe, search, now, anything, everything]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)
NAMES = st.sampled_from(
    ["path", "depth", "query", "limit", "value", "others", "text", "number", "items", "table"]
)


def parsed(function, sent: str) -> dict[str, Any] | None:
    """The arguments, or None for a refusal; anything else raises."""
    try:
        return as_tool(function).parse(sent)
    except ToolError as error:
        text = str(error)
    assert 0 < len(text) < 1500
    return None


@given(st.text())
@example('{"depth":1}:')
@example("{}")
def test_any_text_is_arguments_or_a_refusal(sent):
    for function in FUNCTIONS:
        arguments = parsed(function, sent)
        assert arguments is None or isinstance(arguments, dict)


@given(JSON)
def test_any_json_is_arguments_or_a_refusal(value):
    sent = json.dumps(value)
    for function in FUNCTIONS:
        arguments = parsed(function, sent)
        assert arguments is None or (isinstance(value, dict) and set(arguments) == set(value))


@given(st.dictionaries(NAMES, JSON, max_size=4), st.data())
def test_any_object_with_known_names_is_arguments_or_a_refusal(value, data):
    sent = json.dumps(value)
    at = data.draw(st.integers(0, len(sent) - 1))
    for function in FUNCTIONS:
        arguments = parsed(function, sent)
        assert arguments is None or set(arguments) == set(value)
        assert parsed(function, sent[:at]) in (None, {})
        if function is not now:
            assert parsed(function, sent[:at]) is None


ITEMS = st.fixed_dictionaries({"name": st.text()}, optional={"count": st.integers()})
VALID = st.fixed_dictionaries(
    {"text": st.text(), "number": st.integers()},
    optional={
        "ratio": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "flag": st.booleans(),
        "color": st.sampled_from(["red", "blue"]),
        "items": st.none() | st.lists(ITEMS, max_size=3),
        "table": st.dictionaries(st.text(), st.lists(st.integers(), max_size=3), max_size=3),
        "pair": st.tuples(st.integers(), st.text()).map(list),
        "choice": st.none() | st.integers() | st.text(),
        "mode": st.sampled_from(["fast", "slow"]),
    },
)


def as_json(value: Any) -> Any:
    match value:
        case Item():
            return value.model_dump(exclude_unset=True)
        case Color():
            return value.value
        case list() | tuple():
            return [as_json(part) for part in value]
        case _:
            return value


@given(VALID, st.booleans())
def test_valid_values_come_back_as_they_were_sent(value, ascii_only):
    sent = json.dumps(value, ensure_ascii=ascii_only)
    arguments = as_tool(everything).parse(sent)
    assert {name: as_json(part) for name, part in arguments.items()} == value
    assert type(arguments["number"]) is int


@given(st.integers() | st.floats(allow_nan=False, allow_infinity=False))
def test_an_integer_parameter_takes_exactly_the_whole_numbers(number):
    arguments = parsed(search, json.dumps({"query": "a", "limit": number}))
    written = Fraction(json.dumps(number))
    if written.denominator == 1:
        assert arguments == {"query": "a", "limit": written.numerator}
    else:
        assert arguments is None


@tool
def nested(item: Item, table: dict[str, Any]) -> None: ...


@given(st.dictionaries(st.text(), JSON, max_size=3))
def test_free_form_objects_keep_their_values(table):
    def finite(value: Any) -> bool:
        match value:
            case float():
                return math.isfinite(value)
            case dict():
                return all(map(finite, value.values()))
            case list():
                return all(map(finite, value))
            case _:
                return True

    arguments = parsed(nested, json.dumps({"item": {"name": "a"}, "table": table}))
    if finite(table):
        assert arguments == {"item": Item(name="a"), "table": table}
    else:
        assert arguments is None
