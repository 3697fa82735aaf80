"""What a playbook learns: deltas, counters, and who goes when it is full."""

from __future__ import annotations

import json
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from untildone import ConfigError, MemoryProviderError
from untildone.memory import PlaybookEntry
from untildone.memory.playbook import (
    MOST_CHARS,
    Delta,
    Playbook,
    cleaned,
    playbook_from_text,
    playbook_to_text,
)

HELPFUL, HARMFUL = "helpful", "harmful"


def entry(content: str, **fields: Any) -> PlaybookEntry:
    return PlaybookEntry(content, fields.pop("kind", HELPFUL), **fields)


def contents(playbook: Playbook) -> list[str]:
    return [each.content for each in playbook.entries]


def test_an_entry_has_the_fields_that_s1_names():
    made = PlaybookEntry("Cite sources.", "helpful")
    assert (made.content, made.kind, made.uses, made.last_score) == (
        "Cite sources.",
        "helpful",
        0,
        None,
    )
    assert PlaybookEntry("x", "harmful", 3, 0.5) == PlaybookEntry(
        content="x", kind="harmful", uses=3, last_score=0.5
    )


@pytest.mark.parametrize("kind", ["good", "", None, 5])
def test_an_entry_of_another_kind_is_refused(kind: Any):
    with pytest.raises(ConfigError, match=r"'helpful'.*'harmful'"):
        PlaybookEntry("x", kind)


def test_the_same_lesson_in_other_spelling_has_the_same_id_and_in_other_order_another_one():
    assert entry("Call A, before B!").id == entry("call a before b").id
    assert entry("Call A before B").id != entry("Call B before A").id
    assert entry("Call A").id != entry("Call A", kind=HARMFUL).id
    assert entry("Set it to 30 s").id != entry("Set it to 60 s").id
    assert entry("先に表を作る").id == entry("先に表を作る。").id
    assert entry("!!!").id != entry("???").id


def test_entries_that_were_shown_are_counted_and_others_are_not():
    one, two = entry("one"), entry("two", uses=2, last_score=0.9)
    playbook = Playbook([one, two])
    playbook.learn(Delta(score=0.4, shown=frozenset({two.id})), 9)
    assert (one.uses, one.last_score, two.uses, two.last_score) == (0, None, 3, 0.4)
    playbook.learn(Delta(score=0.5), 9)
    assert (one.uses, one.last_score, two.uses, two.last_score) == (1, 0.5, 4, 0.5)


def test_votes_are_counted_and_votes_on_nobody_are_ignored():
    one, two = entry("one"), entry("two")
    playbook = Playbook([one, two])
    votes = Delta(helped=frozenset({one.id, "nobody"}), hurt=frozenset({two.id, ""}))
    playbook.learn(votes, 9)
    assert (one.helped, one.hurt, two.helped, two.hurt) == (1, 0, 0, 1)


def test_a_lesson_that_is_known_is_a_vote_for_it_and_no_second_entry():
    known = entry("Cite sources")
    playbook = Playbook([known])
    playbook.learn(Delta(lessons=(entry("cite SOURCES."), entry("Be brief"))), 9)
    assert contents(playbook) == ["Cite sources", "Be brief"]
    assert known.helped == 1
    again = Delta(helped=frozenset({known.id}), lessons=(entry("Cite sources"),))
    playbook.learn(again, 9)
    assert known.helped == 2


def test_one_lesson_twice_in_a_reply_is_one_entry():
    playbook = Playbook()
    playbook.learn(Delta(lessons=(entry("Be brief"), entry("be brief!"))), 9)
    assert contents(playbook) == ["Be brief"]


def test_a_full_playbook_still_learns_and_the_least_useful_go():
    playbook = Playbook(
        [
            entry("voted for", helped=2),
            entry("voted against", hurt=1, last_score=1.0),
            entry("of bad runs", last_score=0.2),
            entry("of good runs", last_score=0.9),
            entry("not tried yet"),
        ]
    )
    seen: list[list[str]] = []
    for number in range(4):
        playbook.learn(Delta(shown=frozenset(), lessons=(entry(f"new {number}", helped=9),)), 5)
        seen.append(contents(playbook))
    assert seen[0] == ["voted for", "of bad runs", "of good runs", "not tried yet", "new 0"]
    assert seen[1] == ["voted for", "of good runs", "not tried yet", "new 0", "new 1"]
    assert seen[2] == ["voted for", "of good runs", "new 0", "new 1", "new 2"]
    assert seen[3] == ["voted for", "new 0", "new 1", "new 2", "new 3"]


def test_of_equally_useful_entries_the_oldest_goes():
    playbook = Playbook([entry("old"), entry("newer")])
    playbook.learn(Delta(shown=frozenset(), lessons=(entry("newest"),)), 2)
    assert contents(playbook) == ["newer", "newest"]


def test_of_more_lessons_than_there_is_room_the_first_stay():
    playbook = Playbook([entry("old")])
    playbook.learn(Delta(lessons=(entry("first"), entry("second"), entry("third"))), 2)
    assert contents(playbook) == ["first", "second"]


@pytest.mark.parametrize(
    ("most", "left"),
    [
        (5, ["best", "good", "new 0", "new 1", "new 2"]),
        (3, ["best", "good", "new 0"]),
        (2, ["best", "new 0"]),
        (1, ["new 0"]),
    ],
)
def test_what_has_helped_makes_room_for_one_new_lesson_at_most(most: int, left: list[str]):
    playbook = Playbook([entry("best", helped=90), entry("good", helped=2), entry("untried")])
    playbook.learn(Delta(lessons=tuple(entry(f"new {number}") for number in range(5))), most)
    assert contents(playbook) == left


def test_what_has_helped_stays_run_after_run():
    playbook = Playbook([entry("best", helped=90), entry("good", helped=2)])
    for number in range(9):
        playbook.learn(Delta(lessons=tuple(entry(f"{number} {n}") for n in range(5))), 3)
    assert contents(playbook) == ["best", "good", "8 0"]


def test_a_smaller_bound_than_before_is_kept_from_then_on():
    playbook = Playbook([entry(f"number {number}", helped=number) for number in range(9)])
    playbook.learn(Delta(), 3)
    assert contents(playbook) == ["number 6", "number 7", "number 8"]


def test_what_was_learned_again_does_not_make_room_for_what_is_new():
    playbook = Playbook([entry("known"), entry("other", helped=1)])
    playbook.learn(Delta(lessons=(entry("known"), entry("new"))), 2)
    assert contents(playbook) == ["known", "new"]
    playbook.learn(Delta(lessons=(entry("new"), entry("newer"))), 1)
    assert contents(playbook) == ["new"]


def test_an_entry_that_misled_twice_more_than_it_helped_is_dropped():
    playbook = Playbook([entry("bad", helped=1, hurt=2), entry("good")])
    playbook.learn(Delta(), 9)
    assert contents(playbook) == ["bad", "good"]
    playbook.learn(Delta(hurt=frozenset({playbook.entries[0].id})), 9)
    assert contents(playbook) == ["good"]


def test_a_run_teaches_once():
    one = entry("one")
    playbook = Playbook([one])
    delta = Delta(score=0.5, helped=frozenset({one.id}), lessons=(entry("two"),), run_id="r" * 32)
    playbook.learn(delta, 9)
    playbook.learn(delta, 9)
    assert (one.uses, one.helped, contents(playbook)) == (1, 1, ["one", "two"])
    assert playbook.knows("r" * 32)
    assert not playbook.knows("s" * 32)
    assert not playbook.knows("")


def test_runs_without_an_id_teach_each_time():
    one = entry("one")
    playbook = Playbook([one])
    for _ in range(3):
        playbook.learn(Delta(score=0.5), 9)
    assert (one.uses, playbook.runs) == (3, [])


def test_the_runs_that_taught_are_remembered_for_a_while():
    playbook = Playbook()
    for number in range(700):
        playbook.learn(Delta(run_id=f"{number:032d}"[::-1]), 9)
    assert len(playbook.runs) == 500
    assert playbook.knows(f"{699:032d}"[::-1])


ENTRIES = [entry(name) for name in ("alpha", "beta", "gamma")]
IDS = st.frozensets(st.sampled_from([each.id for each in ENTRIES]))
DELTAS = st.builds(
    Delta,
    shown=st.none() | IDS,
    helped=IDS,
    lessons=st.lists(st.sampled_from(["alpha", "delta", "epsilon"]), max_size=2).map(
        lambda names: tuple(entry(name) for name in names)
    ),
)


@settings(deadline=None)
@given(st.lists(DELTAS, max_size=3))
def test_deltas_add_up_to_the_same_counts_in_any_order(deltas: list[Delta]):
    outcomes: set[frozenset[tuple[str, int]]] = set()
    for order in permutations(deltas):
        playbook = Playbook([entry(each.content) for each in ENTRIES])
        for delta in order:
            playbook.learn(delta, 99)
        counts = {each.content: each.helped for each in playbook.entries}
        assert set(counts) >= {"alpha", "beta", "gamma"}
        outcomes.add(frozenset(counts.items()))
    assert len(outcomes) == 1


@settings(deadline=None)
@given(st.lists(DELTAS, max_size=8), st.integers(1, 4))
def test_a_playbook_is_never_over_full_and_has_what_was_learned_last(
    deltas: list[Delta], most: int
):
    playbook = Playbook()
    for delta in deltas:
        playbook.learn(delta, most)
        assert len(playbook.entries) <= most
        if delta.lessons:
            assert delta.lessons[0].id in {each.id for each in playbook.entries}
    assert playbook_from_text(playbook_to_text(playbook), "k") == playbook


@pytest.mark.parametrize(
    "text",
    ["", "null", "[]", "{}", "5", "{", '{"format": 2, "entries": [], "runs": []}',
     '{"format": 1, "entries": 5, "runs": []}', '{"format": 1, "entries": [{}], "runs": []}',
     json.dumps({"format": 1, "entries": [{"content": "x", "kind": "odd", "uses": 0,
                 "last_score": None, "helped": 0, "hurt": 0}], "runs": []})],
)  # fmt: skip
def test_what_is_no_playbook_is_an_error_that_names_its_key(text: str):
    with pytest.raises(MemoryProviderError, match=r"'the key'.*left as it is"):
        playbook_from_text(text, "the key")


@pytest.mark.parametrize(
    ("content", "kept"),
    [
        (" two\nlines\tand  spaces ", "two lines and spaces"),
        ("x" * MOST_CHARS, "x" * MOST_CHARS),
        ("x" * (MOST_CHARS + 1), "x" * (MOST_CHARS - 1) + "…"),
        ("half \ud83d pair", "half ? pair"),
    ],
)
def test_a_lesson_is_kept_as_one_line_that_is_not_too_long(content: str, kept: str):
    assert cleaned(content) == kept
