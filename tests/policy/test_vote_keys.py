"""Vote keys as text: the same text for equal plain data, and for nothing else."""

from __future__ import annotations

from decimal import Decimal
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from untildone.policy.vote_keys import key_text

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-2, 2)
    | st.sampled_from([0.0, -0.0, 1.0, 0.5, 2.0**60, float("inf")])
    | st.sampled_from([2**60, 2**60 + 1])
    | st.sampled_from(["", "1", "null", "a, b", '"a"', "True"])
    | st.sampled_from([b"", b"1"])
)
HASHABLE = SCALARS | st.lists(SCALARS, max_size=2).map(tuple) | st.frozensets(SCALARS, max_size=2)


@st.composite
def keys(draw: st.DrawFn, depth: int = 2) -> Any:
    """Plain data, small enough that two are often equal."""
    kind = draw(st.sampled_from(["hashable", "set", "list", "dict"]))
    match kind if depth else "hashable":
        case "set":
            return draw(st.sets(HASHABLE, max_size=2))
        case "list":
            return draw(st.lists(keys(depth=depth - 1), max_size=2))
        case "dict":
            return draw(st.dictionaries(SCALARS, keys(depth=depth - 1), max_size=2))
        case _:
            return draw(HASHABLE)


@given(keys(), keys())
def test_two_keys_have_one_text_exactly_if_they_are_equal(one: Any, other: Any):
    texts = key_text(one), key_text(other)
    assert None not in texts
    assert (texts[0] == texts[1]) == (one == other)


@given(st.data())
def test_the_order_of_a_dict_is_nothing(data: st.DataObject):
    key = data.draw(st.dictionaries(SCALARS, SCALARS | st.lists(SCALARS, max_size=2)))
    assert key_text(key) == key_text(dict(reversed(key.items())))


class Word(StrEnum):
    A = "a"


@pytest.mark.parametrize("key", [object(), Decimal(1), Word.A, [Word.A], {"a": object()}, len])
def test_what_only_knows_itself_what_it_equals_has_none(key: Any):
    assert key_text(key) is None


def test_what_holds_itself_has_none():
    key: list[Any] = []
    key.append(key)
    assert key_text(key) is None
