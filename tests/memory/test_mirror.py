"""What a process remembers of a remote scope."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from untildone.memory.mirror import MOST_SCOPES, Mirror, Mirrors
from untildone.memory.notebook import Notebook


def follow(mirror: Mirror, rows: dict[int, tuple[str, str]]) -> list[int]:
    """Brings a mirror up to date with all rows there are; gives what it had to read."""
    missing = mirror.missing(rows)
    mirror.take((number, *rows[number]) for number in missing)
    return missing


def test_only_what_is_new_is_read():
    mirror = Mirror()
    rows = {1: ("a", "heron"), 2: ("b", "wren")}
    assert follow(mirror, rows) == [1, 2]
    assert follow(mirror, rows) == []
    rows[3] = ("c", "heron")
    assert follow(mirror, rows) == [3]
    assert [found.key for found in mirror.notebook.find("heron", 9, "")] == ["c", "a"]


def test_what_is_gone_or_stored_again_is_forgotten():
    mirror = Mirror()
    follow(mirror, {1: ("a", "heron"), 2: ("b", "wren")})
    assert follow(mirror, {2: ("b", "wren"), 3: ("a", "magpie")}) == [3]
    assert mirror.notebook.find("heron", 9, "") == []
    assert mirror.notebook.entries == {"b": "wren", "a": "magpie"}
    assert follow(mirror, {}) == []
    assert mirror.notebook.entries == {}


def test_a_row_that_becomes_visible_late_stands_where_its_number_says():
    mirror = Mirror()
    follow(mirror, {2: ("b", "heron")})
    follow(mirror, {1: ("a", "heron"), 2: ("b", "heron")})
    assert list(mirror.notebook.entries) == ["a", "b"]
    assert [found.key for found in mirror.notebook.find("heron", 9, "")] == ["b", "a"]


def test_rows_that_are_known_already_or_come_twice_change_nothing():
    mirror = Mirror()
    mirror.take([(1, "a", "heron"), (1, "a", "heron")])
    mirror.take([(1, "a", "heron"), (2, "b", "wren")])
    assert mirror.notebook.entries == {"a": "heron", "b": "wren"}


@settings(deadline=None)
@given(st.lists(st.dictionaries(st.integers(1, 9), st.sampled_from("abc"), max_size=4), max_size=6))
def test_a_mirror_shows_what_a_notebook_shows_that_read_everything_anew(
    states: list[dict[int, str]],
):
    """Numbers mean the same for ever, so here a number's key and text follow from it."""
    mirror = Mirror()
    for state in states:
        rows = {number: (f"k{number}", f"text {number} of heron") for number in state}
        follow(mirror, rows)
        anew = Notebook({key: value for _, (key, value) in sorted(rows.items())})
        assert list(mirror.notebook.entries.items()) == list(anew.entries.items())
        assert mirror.notebook.find("heron", 9, "") == anew.find("heron", 9, "")


def test_only_so_many_scopes_are_remembered():
    mirrors = Mirrors()
    first = mirrors.of("first")
    others = [mirrors.of(f"{number}") for number in range(MOST_SCOPES - 1)]
    assert mirrors.of("first") is first
    mirrors.of("one more")
    assert mirrors.of("first") is first
    assert mirrors.of("0") is not others[0]
