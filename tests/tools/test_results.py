"""Whatever a tool returns, the model gets a text, and not too long a one."""

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import itertools
import json
import pathlib
import types
import uuid
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, SecretStr

from untildone.policy.cutting import DEFAULT_MAX_RESULT_CHARS, cut_text
from untildone.policy.stuck import StuckDetector
from untildone.tools import result_text
from untildone.tools.results import MAX_ITERATED


class Color(enum.Enum):
    RED = "red"
    PAIR = (1, 2)


class Word(enum.StrEnum):
    YES = "yes"


class OldWord(str, enum.Enum):  # noqa: UP042
    NO = "no"


@dataclasses.dataclass
class Point:
    x: int
    tags: list[str] = dataclasses.field(default_factory=list)


class Place(BaseModel):
    city: str
    since: dt.date | None = None


class Pair(NamedTuple):
    a: int
    b: str


class Plain:
    def __str__(self) -> str:
        return "a plain one"


class Broken:
    def __str__(self) -> str:
        raise RuntimeError("no text")


class LyingText(str):  # noqa: SLOT000
    def __str__(self) -> str:
        raise RuntimeError("no text")


VALUES = [
    ("", ""),
    (" as it is\n", " as it is\n"),
    ("ünïcode ✓", "ünïcode ✓"),
    (None, "null"),
    (True, "true"),
    (3, "3"),
    (2.5, "2.5"),
    (float("nan"), "NaN"),
    ([], "[]"),
    ([1, "a", None], '[1,"a",null]'),
    ({"a": {"b": [1]}}, '{"a":{"b":[1]}}'),
    ({"größe": "✓"}, '{"größe":"✓"}'),
    ((1, 2), "[1,2]"),
    ({3, 1, 2}, "[1,2,3]"),
    (frozenset({"b", "a"}), '["a","b"]'),
    ({1, "a"}, """["a",1]"""),
    ({1: "a", None: "b", False: "c"}, '{"1":"a","null":"b","false":"c"}'),
    ({(1, 2): "a", Color.RED: "b"}, '{"[1,2]":"a","red":"b"}'),
    ({"a": {(1, 2): Point(1)}}, '{"a":{"[1,2]":{"x":1,"tags":[]}}}'),
    (Point(1, ["a"]), '{"x":1,"tags":["a"]}'),
    ([Point(1)], '[{"x":1,"tags":[]}]'),
    (Place(city="Bern", since=dt.date(1191, 1, 1)), '{"city":"Bern","since":"1191-01-01"}'),
    ({"at": Place(city="Bern")}, '{"at":{"city":"Bern","since":null}}'),
    (Pair(1, "x"), '[1,"x"]'),
    (Color.RED, "red"),
    (Color.PAIR, "[1,2]"),
    (Word.YES, "yes"),
    (OldWord.NO, "no"),
    ([Color.RED, Word.YES, OldWord.NO], '["red","yes","no"]'),
    (dt.datetime(2024, 2, 29, 12, 30, tzinfo=dt.UTC), "2024-02-29T12:30:00+00:00"),
    (dt.time(9, 5), "09:05:00"),
    (dt.timedelta(minutes=5), "0:05:00"),
    ([dt.date(2024, 2, 29)], '["2024-02-29"]'),
    (decimal.Decimal("1.50"), "1.50"),
    ({"price": decimal.Decimal("1.50")}, '{"price":"1.50"}'),
    (fractions.Fraction(1, 3), "1/3"),
    (pathlib.PurePosixPath("a/b"), "a/b"),
    (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    (b"\x00" * 2048, "[2,048 bytes, not shown]"),
    ([bytearray(b"ab"), memoryview(b"abc")], '["[2 bytes, not shown]","[3 bytes, not shown]"]'),
    (collections.deque([1, 2]), "[1,2]"),
    (collections.OrderedDict(a=1), '{"a":1}'),
    (types.MappingProxyType({"a": 1}), '{"a":1}'),
    ({"a": 1}.keys(), '["a"]'),
    (range(3), "range(0, 3)"),
    (map(str, [1, 2]), '["1","2"]'),
    (ValueError("bad"), "ValueError: bad"),
    (SecretStr("hidden"), "**********"),
    (Plain(), "a plain one"),
    ([Plain()], '["a plain one"]'),
    (Broken(), "<Broken without text: str() raised RuntimeError>"),
    ([Broken()], '["<Broken without text: str() raised RuntimeError>"]'),
    (LyingText("lies"), "lies"),
    (Place, f"<class '{__name__}.Place'>"),
    ("lone \ud800 surrogate", "lone ? surrogate"),
    (["\udcff"], '["?"]'),
]


@pytest.mark.parametrize(
    ("value", "text"),
    VALUES,
    ids=[f"{at}-{type(value).__name__}" for at, (value, _) in enumerate(VALUES)],
)
def test_values_as_text(value, text):
    assert result_text(value) == text


def test_circles_become_text_and_end():
    circle: list[Any] = [1]
    circle.append(circle)
    assert result_text(circle) == "[1, [...]]"


def test_depth_without_end_becomes_a_note():
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert result_text(deep) == "<list without text: str() raised RecursionError>"


def test_an_endless_iterator_is_cut():
    listed = json.loads(result_text(itertools.count()))
    assert listed[:3] == [0, 1, 2]
    assert len(listed) == MAX_ITERATED + 1
    assert "only the first 10,000" in listed[-1]


def test_a_model_that_cannot_be_written_becomes_text():
    class Odd(BaseModel):
        x: int = 1

        def model_dump(self, **_: Any) -> dict[str, Any]:
            raise RuntimeError

    assert result_text(Odd()) == "x=1"


def test_an_int_too_large_to_print_becomes_a_note():
    assert "without text" in result_text(10**5000)


class FakeArray:
    def tolist(self) -> list[int]:
        return [1, 2]


def test_numpy_values_become_lists():
    FakeArray.__module__ = "numpy"
    assert result_text(FakeArray()) == "[1,2]"
    assert result_text({"a": FakeArray()}) == '{"a":[1,2]}'


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False)
        | st.text()
        | st.binary()
        | st.dates()
        | st.decimals(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.tuples(inner, inner)
            | st.dictionaries(st.text() | st.integers() | st.dates(), inner, max_size=3)
        ),
        max_leaves=10,
    )
)
def test_any_value_becomes_a_text_that_can_be_sent(value):
    text = result_text(value)
    text.encode()
    if isinstance(value, list | tuple | dict):
        json.loads(text)


# ── Cutting ──────────────────────────────────────────────────────────────────────────────────────


def test_a_text_within_the_bound_is_not_touched():
    text = "x" * 1000
    assert cut_text(text, 1000) is text
    assert cut_text("x" * DEFAULT_MAX_RESULT_CHARS) == "x" * DEFAULT_MAX_RESULT_CHARS


def test_the_middle_is_left_out_with_a_mark_that_counts():
    text = "a" * 3_000_000 + "b" * 2_000_000
    cut = cut_text(text, 1000)
    assert len(cut) <= 1000
    assert cut.startswith("a" * 400)
    assert cut.endswith("b" * 400)
    mark = cut.strip("ab").strip()
    left_out = len(text) - (len(cut) - len(mark) - 2)
    assert mark.startswith(f"[… {left_out:,} of 5,000,000 characters left out; sha256 of all: ")


def test_five_megabytes_are_fifty_thousand_characters_by_default():
    assert len(cut_text("x" * 5_000_000)) == 50_000


def test_texts_that_differ_only_where_they_are_cut_stay_different():
    one = "a" * 5000 + "1" + "a" * 5000
    other = "a" * 5000 + "2" + "a" * 5000
    assert cut_text(one, 500) != cut_text(other, 500)
    assert cut_text(one, 500) == cut_text(str(one), 500)


def test_where_the_mark_has_no_room_it_stands_alone():
    assert cut_text("x" * 100, 10).strip().startswith("[… 100 of 100 characters left out")


@given(st.text(min_size=200), st.integers(200, 400))
def test_a_cut_text_is_never_longer_than_its_bound_and_cutting_again_changes_nothing(text, most):
    cut = cut_text(text * 3, most)
    assert len(cut) <= most
    assert cut_text(cut, most) == cut


def test_the_stuck_detector_sees_that_a_cut_result_is_another_one():
    detector = StuckDetector()

    def answer(text: str):
        call = {"id": "1", "function": {"name": "read", "arguments": "{}"}}
        detector.observe({"role": "assistant", "tool_calls": [call]})
        return detector.observe({"role": "tool", "tool_call_id": "1", "content": text})

    texts = ["a" * 9000 + str(number) + "a" * 9000 for number in range(8)]
    assert [answer(cut_text(text, 2000)) for text in texts] == [None] * 8
    signals = [answer(cut_text(texts[0], 2000)) for _ in range(4)]
    assert signals[-1] is not None
