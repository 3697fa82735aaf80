"""Words of any script, and how an index of them answers."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from untildone.memory.notebook import Notebook
from untildone.memory.relevance import MOST_CHARS, Index, words_of, words_of_query


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        (" \n?! -- ", []),
        ("Read_file, then WRITE-file!", ["read", "file", "then", "write", "file"]),
        ("HTTP 404 in v2.1", ["http", "404", "in", "v2", "1"]),
        ("Café, ŁÓDŹ und Straße", ["cafe", "lodz", "und", "strasse"]),
        ("cafe\u0301", ["cafe"]),
        ("ﬁle \N{FULLWIDTH LATIN CAPITAL LETTER A}", ["file", "a"]),
        ("Ёлка йод", ["елка", "иод"]),
        ("Ελλάδα", ["ελλαδα"]),
        ("مَدْرَسَة", ["مدرسة"]),
        ("שָׁלוֹם", ["שלום"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("東京都", ["東", "京", "都", "東京", "京都"]),
        ("東京 Tokyo2020年", ["東", "京", "東京", "tokyo2020", "年"]),
        ("がぎ", ["が", "ぎ", "がぎ"]),
        ("한국", ["한", "국", "한국"]),
        ("ไทย", ["ไ", "ท", "ย", "ไท", "ทย"]),
        ("ที่นี่", ["ที่", "นี่", "ที่นี่"]),
        ("ship it 🚀🎉", ["ship", "it", "🚀", "🎉"]),
        ("\ud800 broken", ["broken"]),
    ],
)
def test_the_words_of_a_text(text: str, words: list[str]):
    assert words_of(text) == words


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("the river, the RIVER", ["the", "river"]),
        ("東京都", ["東京", "京都"]),
        ("京", ["京"]),
        ("是 a 是", ["是", "a"]),
    ],
)
def test_the_words_of_a_query_are_different_ones_and_pairs_where_there_are_pairs(
    query: str, words: list[str]
):
    assert words_of_query(query) == words


def test_only_the_first_characters_of_a_text_are_read():
    assert words_of("a" * 3 + " " * MOST_CHARS + "b") == ["aaa"]


def every(_: str) -> bool:
    return True


def test_a_rare_word_weighs_more_than_a_common_one():
    index = Index()
    for number in range(9):
        index.put(f"common{number}", "the river flows")
    index.put("rare", "a heron flows")
    scores = index.scores("river heron", every)
    assert scores["rare"] > 3 * scores["common0"] > 0


def test_the_same_words_weigh_more_in_a_short_text():
    index = Index()
    index.put("short", "heron")
    index.put("long", "heron " + "and many other words that say nothing of it " * 5)
    scores = index.scores("heron", every)
    assert scores["short"] > scores["long"] > 0


TEXTS = st.lists(st.sampled_from(["heron", "wren", "river", "東京", "ไทย"]), max_size=4).map(
    " ".join
)
STEPS = st.lists(st.tuples(st.sampled_from("abc"), st.none() | TEXTS), max_size=12)


@settings(deadline=None)
@given(STEPS)
def test_an_index_that_was_changed_answers_like_one_made_anew(steps: list[tuple[str, str | None]]):
    changed, texts = Index(), dict[str, str]()
    for key, text in steps:
        if text is None:
            changed.drop(key)
            texts.pop(key, None)
        else:
            changed.put(key, text)
            texts[key] = text
    fresh = Index()
    for key, text in texts.items():
        fresh.put(key, text)
    for query in ("heron wren", "東京", "ไทย river"):
        assert changed.scores(query, every) == fresh.scores(query, every)


@settings(deadline=None)
@given(STEPS)
def test_a_notebook_that_took_over_answers_like_one_that_lived_through_it(
    steps: list[tuple[str, str | None]],
):
    lived, follower = Notebook(), Notebook()
    for key, text in steps:
        lived.update(key, lambda _, text=text: text)
        follower.become(lived.entries)
        assert list(follower.entries.items()) == list(lived.entries.items())
        found = lived.find("heron river 東京", 5, "")
        assert follower.find("heron river 東京", 5, "") == found
        assert [each.key for each in found] == [
            each.key for each in sorted(found, key=lambda e: -e.score)
        ]
