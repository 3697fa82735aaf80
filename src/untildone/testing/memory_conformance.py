"""What every memory provider does: checks to run against one of your own. Public.

    @pytest.mark.parametrize("check", MEMORY_CHECKS, ids=lambda check: check.__name__)
    async def test_my_provider(check):
        await check(MyProvider())

Each check clears the provider first, so never give them one whose memories you want to keep. They
raise ``AssertionError`` with a sentence that says what is wrong. ``SCOPED_MEMORY_CHECKS`` are for
providers that also have ``update``, ``entries``, ``trim`` and ``find``, as all of ours do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from untildone.ports import MemoryProvider

MemoryCheck = Callable[[Any], Awaitable[None]]
"""One check: it takes a provider, clears it, and raises ``AssertionError`` where it fails."""

_AT_ONCE: Final = 40

TEXTS: Final = (
    "plain",
    "",
    " spaces around \t",
    "two\nlines\r\n",
    "quotes ' \" ` and \\ backslashes",
    "'; DROP TABLE untildone_memory; --",
    "100% _under_ [brackets] {braces} *stars*",
    "Grüße, Łódź, naïve café",
    "東京は日本の首都です",
    "서울은 한국의 수도이다",
    "กรุงเทพมหานครเป็นเมืองหลวงของประเทศไทย",
    "दिल्ली भारत की राजधानी है",
    "القاهرة عاصمة مصر",
    "Москва — столица России",
    "emoji 👩‍🚀🎉 and \U0001f9e0",
    "caf\u00e9 composed",
    "cafe\u0301 decomposed",
    "x" * 100_000,
)
"""Texts that any provider must give back as they were."""

_CAPITALS: Final = {
    "japan": "東京は日本の首都です。人口は千四百万人です。",
    "china": "北京是中国的首都，也是政治中心。",  # noqa: RUF001
    "korea": "서울은 한국의 수도이다",
    "thailand": "กรุงเทพมหานครเป็นเมืองหลวงของประเทศไทย",
    "india": "दिल्ली भारत की राजधानी है",
    "egypt": "القاهرة هي عاصمة مصر",
    "israel": "ירושלים היא עיר עתיקה",
    "russia": "Москва — столица России",
    "greece": "Η Αθήνα είναι η πρωτεύουσα της Ελλάδας",  # noqa: RUF001
    "poland": "Łódź leży w środkowej Polsce",
    "france": "Paris est la capitale de la France",
}
_QUESTIONS: Final = (
    ("日本の首都はどこですか", "japan"),
    ("中国的首都", "china"),
    ("한국의 수도", "korea"),
    ("เมืองหลวงของไทย", "thailand"),
    ("भारत की राजधानी", "india"),
    ("عاصمة مصر", "egypt"),
    ("עיר עתיקה", "israel"),
    ("СТОЛИЦА россии?", "russia"),
    ("πρωτευουσα ελλαδας", "greece"),
    ("lodz", "poland"),
    ("What is the CAPITALE of france?", "france"),
)


async def unknown_keys_have_no_value(provider: MemoryProvider) -> None:
    """``retrieve`` gives None for what was never stored."""
    await provider.clear()
    _expect(await provider.retrieve("nobody"), None, "retrieve of an unknown key")


async def values_come_back_as_they_were(provider: MemoryProvider) -> None:
    """Any text is a value, whatever its script, length and special characters."""
    await provider.clear()
    for number, text in enumerate(TEXTS):
        await provider.store(f"text-{number}", text)
    for number, text in enumerate(TEXTS):
        _expect(await provider.retrieve(f"text-{number}"), text, f"the value {text[:40]!r}")


async def keys_are_told_apart_exactly(provider: MemoryProvider) -> None:
    """Keys that differ in case, spaces, wildcards or Unicode form are different keys."""
    await provider.clear()
    keys = ["a", "A", " a", "a ", "a%", "a_", "ab", "a/b", "é", "e\u0301", "'a'", "東京", "a\nb"]
    for key in keys:
        await provider.store(key, f"value of {key}")
    for key in keys:
        _expect(await provider.retrieve(key), f"value of {key}", f"the value of key {key!r}")


async def storing_again_replaces(provider: MemoryProvider) -> None:
    """A key has one value, the last one, and the former is not found any more."""
    await provider.clear()
    await provider.store("bird", "a magpie")
    await provider.store("bird", "a heron")
    _expect(await provider.retrieve("bird"), "a heron", "retrieve after storing twice")
    _expect(await provider.search("magpie"), [], "a search for the replaced value")
    _expect(await provider.search("heron"), [("bird", "a heron")], "a search for the new value")


async def clear_forgets_everything(provider: MemoryProvider) -> None:
    """After ``clear`` nothing is retrieved or found, and the provider can be used on."""
    await provider.clear()
    await provider.store("bird", "a heron")
    await provider.clear()
    _expect(await provider.retrieve("bird"), None, "retrieve after clear")
    _expect(await provider.search("heron"), [], "a search after clear")
    await provider.store("bird", "a wren")
    _expect(await provider.retrieve("bird"), "a wren", "retrieve of what was stored after clear")


async def concurrent_stores_lose_nothing(provider: MemoryProvider) -> None:
    """Many stores at once are all kept."""
    await provider.clear()
    await asyncio.gather(*(provider.store(f"k{n}", f"value {n}") for n in range(_AT_ONCE)))
    kept = await asyncio.gather(*(provider.retrieve(f"k{n}") for n in range(_AT_ONCE)))
    _expect(list(kept), [f"value {n}" for n in range(_AT_ONCE)], "the values stored at once")


async def search_puts_the_best_first(provider: MemoryProvider) -> None:
    """What shares more and rarer words with the query comes first; what shares none, not at all."""
    await provider.clear()
    await provider.store("one", "The heron stands in the river")
    await provider.store("two", "The heron eats fish in the river at dawn")
    await provider.store("three", "The magpie sits on the roof")
    await provider.store("four", "Stones and sand")
    found = await provider.search("when does a heron eat fish at dawn")
    _expect([key for key, _ in found][:2], ["two", "one"], "the order of what was found")
    _expect("four" in dict(found), False, "whether a value without a common word is found")


async def search_breaks_ties_by_the_latest(provider: MemoryProvider) -> None:
    """Of equally good values the one stored last comes first, every time."""
    await provider.clear()
    for key in ("b", "a", "d", "c"):
        await provider.store(key, "the same words")
    await provider.store("b", "the same words")
    for _ in range(3):
        found = await provider.search("same words")
        _expect([key for key, _ in found], ["b", "c", "d", "a"], "the order of equal values")


async def search_gives_no_more_than_asked(provider: MemoryProvider) -> None:
    """``top_k`` bounds what is found; five where nobody says."""
    await provider.clear()
    for number in range(8):
        await provider.store(f"k{number}", f"heron number {number}")
    _expect(len(await provider.search("heron")), 5, "how many are found by default")
    _expect(len(await provider.search("heron", 2)), 2, "how many are found with top_k=2")
    _expect(len(await provider.search("heron", top_k=20)), 8, "how many are found with top_k=20")


async def search_reads_any_script(provider: MemoryProvider) -> None:
    """Words are found in any script, whatever their case and accents, spaced or not."""
    await provider.clear()
    for key, value in _CAPITALS.items():
        await provider.store(key, value)
    for query, wanted in _QUESTIONS:
        found = [key for key, _ in await provider.search(query)]
        _expect(found[:1], [wanted], f"the best match for {query!r}")


async def search_takes_queries_as_plain_text(provider: MemoryProvider) -> None:
    """No query is an error or a command, whatever signs and operators are in it."""
    await provider.clear()
    await provider.store("bird", "a heron")
    for query in ('"', "'", "heron AND NOT heron", "heron*", "NEAR(", "-heron", "bird:heron", "%_"):
        found = [key for key, _ in await provider.search(query)]
        _expect(found, ["bird"] if "heron" in query else [], f"what is found by {query!r}")
    for query in ("", "   ", "?!", "\n"):
        _expect(await provider.search(query), [], f"what is found by {query!r}")
    long = " ".join(f"word{number}" for number in range(2_000))
    _expect(await provider.search(f"heron {long}"), [("bird", "a heron")], "a very long query")


async def update_sees_the_old_value(provider: Any) -> None:
    """``update`` gives ``change`` the old value or None, keeps the new one, and returns it."""
    await provider.clear()
    seen: list[str | None] = []

    def grow(old: str | None) -> str:
        seen.append(old)
        return _adding("x")(old)

    _expect(await provider.update("k", grow), "x", "what the first update gives")
    _expect(await provider.update("k", grow), "xx", "what the second update gives")
    _expect(seen, [None, "x"], "the old values that the updates saw")
    _expect(await provider.retrieve("k"), "xx", "the value after both")
    _expect(await provider.search("xx"), [("k", "xx")], "a search for the updated value")


async def update_to_none_forgets(provider: Any) -> None:
    """``change`` may give None: then the key is forgotten."""
    await provider.clear()
    await provider.store("k", "a heron")
    _expect(await provider.update("k", _nothing), None, "what the update gives")
    _expect(await provider.retrieve("k"), None, "the value after it")
    _expect(await provider.entries(), [], "the entries after it")
    _expect(await provider.search("heron"), [], "a search after it")
    _expect(await provider.update("k", _nothing), None, "an update of an unknown key")


async def an_update_that_raises_changes_nothing(provider: Any) -> None:
    """What ``change`` raises reaches the caller as it is, and the value stays."""
    await provider.clear()
    await provider.store("k", "old")

    def fail(_: str | None) -> str:
        raise LookupError("on purpose")

    try:
        await provider.update("k", fail)
    except LookupError as error:
        _expect(str(error), "on purpose", "the text of what the update raised")
    else:
        raise AssertionError("an update whose change raises must raise that")
    _expect(await provider.retrieve("k"), "old", "the value after it")
    _expect(await provider.update("k", _adding("er")), "older", "the next update")


async def concurrent_updates_lose_nothing(provider: Any) -> None:
    """Updates of one key at once all count."""
    await provider.clear()

    updates = (provider.update("names", _adding(f"{number},")) for number in range(_AT_ONCE))
    await asyncio.gather(*updates)
    names = (await provider.retrieve("names") or "").rstrip(",").split(",")
    _expect(sorted(names, key=int), [str(n) for n in range(_AT_ONCE)], "what the updates added")


async def updates_of_other_keys_do_not_meet(provider: Any) -> None:
    """Updates of several keys at once each see their own key only."""
    await provider.clear()
    keys = [f"k{number % 4}" for number in range(_AT_ONCE)]
    await asyncio.gather(*(provider.update(key, _adding(f"{key} ")) for key in keys))
    for key in sorted(set(keys)):
        wanted = f"{key} " * keys.count(key)
        _expect(await provider.retrieve(key), wanted, f"the value of {key!r}")


async def entries_come_in_the_order_of_storing(provider: Any) -> None:
    """``entries`` lists what begins with a prefix, the one stored longest ago first."""
    await provider.clear()
    for key in ("a/1", "b/1", "a/3", "a/2", "A/1", "a"):
        await provider.store(key, f"value of {key}")
    await provider.store("a/1", "newer")
    await provider.update("a/3", _adding("!"))
    wanted = [("a/2", "value of a/2"), ("a/1", "newer"), ("a/3", "value of a/3!")]
    _expect(await provider.entries("a/"), wanted, "the entries that begin with 'a/'")
    keys = [key for key, _ in await provider.entries()]
    _expect(keys, ["b/1", "a/2", "A/1", "a", "a/1", "a/3"], "the keys of all entries")
    _expect(await provider.entries("%"), [], "the entries that begin with '%'")


async def trim_keeps_the_latest(provider: Any) -> None:
    """``trim`` forgets all but the last stored of a prefix, and touches nothing else."""
    await provider.clear()
    for number in range(6):
        await provider.store(f"a/{number}", f"heron {number}")
        await provider.store(f"b/{number}", "wren")
    await provider.store("a/0", "heron again")
    _expect(await provider.trim("a/", 2), 4, "how many trim forgot")
    kept = [("a/5", "heron 5"), ("a/0", "heron again")]
    _expect(await provider.entries("a/"), kept, "what trim kept")
    _expect(len(await provider.entries("b/")), 6, "the entries of another prefix")
    _expect({key for key, _ in await provider.search("heron")}, {"a/0", "a/5"}, "what is found")
    _expect(await provider.trim("a/", 2), 0, "how many a second trim forgot")
    _expect(await provider.trim("a/", 0), 2, "how many trim to nothing forgot")
    _expect(await provider.entries("a/"), [], "what trim to nothing kept")


async def find_stays_inside_a_prefix(provider: Any) -> None:
    """``find`` looks only at keys that begin with its prefix, and gives falling scores above 0."""
    await provider.clear()
    await provider.store("a/1", "heron")
    await provider.store("a/2", "heron heron heron and a wren")
    await provider.store("A/1", "heron")
    await provider.store("ab", "heron")
    found = await provider.find("heron wren", 9, prefix="a/")
    _expect([each.key for each in found], ["a/2", "a/1"], "the keys that were found")
    _expect([each.value for each in found][1], "heron", "the value of the second")
    scores = [each.score for each in found]
    _expect(scores == sorted(scores, reverse=True) and scores[-1] > 0, True, f"scores {scores}")


async def plain_searches_leave_our_own_keys_out(provider: Any) -> None:
    """What memories keep under ``untildone/`` is found with a prefix and not without one."""
    await provider.clear()
    await provider.store("untildone/episodes/x/1", "heron")
    await provider.store("note", "heron")
    _expect(await provider.search("heron"), [("note", "heron")], "a plain search")
    found = await provider.find("heron", prefix="untildone/episodes/x/")
    _expect([each.key for each in found], ["untildone/episodes/x/1"], "a search with a prefix")


MEMORY_CHECKS: Final[tuple[MemoryCheck, ...]] = (
    unknown_keys_have_no_value,
    values_come_back_as_they_were,
    keys_are_told_apart_exactly,
    storing_again_replaces,
    clear_forgets_everything,
    concurrent_stores_lose_nothing,
    search_puts_the_best_first,
    search_breaks_ties_by_the_latest,
    search_gives_no_more_than_asked,
    search_reads_any_script,
    search_takes_queries_as_plain_text,
)
"""For every ``MemoryProvider``: S1's four methods."""

SCOPED_MEMORY_CHECKS: Final[tuple[MemoryCheck, ...]] = (
    update_sees_the_old_value,
    update_to_none_forgets,
    an_update_that_raises_changes_nothing,
    concurrent_updates_lose_nothing,
    updates_of_other_keys_do_not_meet,
    entries_come_in_the_order_of_storing,
    trim_keeps_the_latest,
    find_stays_inside_a_prefix,
    plain_searches_leave_our_own_keys_out,
)
"""For a provider that is also a ``ScopedMemoryProvider``."""


def _adding(text: str) -> Callable[[str | None], str]:
    return lambda old: f"{old or ''}{text}"


def _nothing(_: str | None) -> None:
    """A change that forgets."""


def _expect(got: object, wanted: object, what: str) -> None:
    if got != wanted:
        raise AssertionError(f"{what}: got {got!r:.200}, wanted {wanted!r:.200}")
