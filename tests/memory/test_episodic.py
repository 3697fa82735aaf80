"""EpisodicMemory: what is kept, what is recalled, and in which order, on every provider."""

from __future__ import annotations

import asyncio
import json
import logging
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.memory.places import EVEN_FOREIGN, FourMethods, Place
from untildone import ConfigError, MemoryProviderError, ServerError
from untildone.domain.episodes import Episode
from untildone.memory import EpisodicMemory, InMemoryProvider
from untildone.testing import ScriptedModel, SeenRequest


def at(day: int) -> str:
    return f"2026-01-{day:02d}T12:00:00+00:00"


def names(episodes: list[Episode]) -> list[str]:
    return [episode.id for episode in episodes]


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"backend": None}, r"backend.*InMemoryProvider"),
        ({"backend": "memory.json"}, r"backend.*FileMemoryProvider"),
        ({"namespace": ""}, "namespace"),
        ({"namespace": None}, "namespace"),
        ({"max_episodes": 0}, "max_episodes"),
        ({"max_episodes": None}, "max_episodes"),
        ({"recall_k": 0}, "recall_k"),
        ({"recall_k": math.nan}, "recall_k"),
        ({"reflect_model": 5}, "reflect_model"),
    ],
)
def test_a_setting_that_cannot_work_is_refused_at_once(settings: dict[str, Any], named: str):
    backend = settings.pop("backend", InMemoryProvider())
    with pytest.raises(ConfigError, match=f"EpisodicMemory.{named}"):
        EpisodicMemory(backend, **settings)


@EVEN_FOREIGN
async def test_an_episode_comes_back_as_it_was(place: Place, tmp_path: Path):
    async with place(tmp_path) as provider:
        memory = EpisodicMemory(provider)
        episode = Episode(
            query="What is the capital of 日本?",
            response='東京 (Tokyo),\n"the eastern capital" \0 🎉',
            outcome="partial",
            score=0.5,
            tools_used=["search", "read"],
            reflection="Look it up first.",
            tags=["geography"],
            timestamp="2026-01-31T12:00:00.000000+00:00",
            agent_id="ada",
            id="run:1",
        )
        await memory.record(episode)
        assert await memory.load() == [episode]
        assert await memory.recall("capital") == [episode]
        assert await memory.recall("東京") == [episode]


async def test_an_episode_of_a_query_and_a_response_is_enough():
    memory = EpisodicMemory(InMemoryProvider())
    before = datetime.now(UTC)
    one, two = Episode("q", "a"), Episode("q", "a")
    await memory.record(one)
    await memory.record(two)
    kept = await memory.load()
    assert names(kept) == [one.id, two.id]
    assert one.id != two.id
    for episode in kept:
        moment = datetime.fromisoformat(episode.timestamp)
        assert moment.utcoffset() is not None
        assert episode.timestamp.endswith("+00:00")
        assert before <= moment <= datetime.now(UTC)
        assert (episode.outcome, episode.score, episode.reflection) == ("unknown", None, None)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("2026-01-31T12:00:00+02:00", "2026-01-31T10:00:00.000000+00:00"),
        ("2026-01-31T12:00:00", "2026-01-31T12:00:00.000000+00:00"),
        ("2026-01-31", "2026-01-31T00:00:00.000000+00:00"),
        ("2026-01-31T12:00:00.5Z", "2026-01-31T12:00:00.500000+00:00"),
    ],
)
async def test_times_are_kept_in_utc(given: str, kept: str):
    memory = EpisodicMemory(InMemoryProvider())
    await memory.record(Episode("q", "a", timestamp=given))
    assert [episode.timestamp for episode in await memory.load()] == [kept]


@EVEN_FOREIGN
async def test_an_episode_with_a_known_id_is_replaced(place: Place, tmp_path: Path):
    async with place(tmp_path) as provider:
        memory = EpisodicMemory(provider)
        await memory.record(Episode("about herons", "draft", id="run:1", timestamp=at(1)))
        await memory.record(Episode("about wrens", "other", id="run:2", timestamp=at(2)))
        await memory.record(Episode("about magpies", "final", id="run:1", timestamp=at(3)))
        assert [(e.id, e.response) for e in await memory.load()] == [
            ("run:2", "other"),
            ("run:1", "final"),
        ]
        assert await memory.recall("herons") == []


@EVEN_FOREIGN
async def test_namespaces_do_not_meet(place: Place, tmp_path: Path):
    async with place(tmp_path) as provider:
        spaces = ["a", "A", "a/b", "a%2Fb", "default", "日本"]
        memories = [EpisodicMemory(provider, namespace=space, max_episodes=2) for space in spaces]
        for memory, space in zip(memories, spaces, strict=True):
            for number in range(3):
                await memory.record(
                    Episode("heron", space, id=f"{number}", timestamp=at(number + 1))
                )
        for memory, space in zip(memories, spaces, strict=True):
            assert [(e.id, e.response) for e in await memory.load()] == [("1", space), ("2", space)]
            assert {e.response for e in await memory.recall("heron", top_k=9)} == {space}
        await memories[0].clear()
        assert [len(await memory.load()) for memory in memories] == [0, 2, 2, 2, 2, 2]
        assert await memories[0].recall("heron") == []


@EVEN_FOREIGN
async def test_the_episodes_recorded_longest_ago_make_room(place: Place, tmp_path: Path):
    async with place(tmp_path) as provider:
        memory = EpisodicMemory(provider, max_episodes=3)
        for number in range(5):
            await memory.record(
                Episode(f"heron {number}", "a", id=f"{number}", timestamp=at(number + 1))
            )
        await memory.record(Episode("heron 2", "again", id="2", timestamp=at(9)))
        await memory.record(Episode("heron 5", "a", id="5", timestamp=at(10)))
        assert names(await memory.load()) == ["4", "2", "5"]
        assert sorted(names(await memory.recall("heron", top_k=9))) == ["2", "4", "5"]


@EVEN_FOREIGN
async def test_concurrent_records_lose_nothing(place: Place, tmp_path: Path):
    async with place(tmp_path) as provider:
        memories = [EpisodicMemory(provider, max_episodes=60) for _ in range(3)]
        await asyncio.gather(
            *(
                memories[n % 3].record(Episode(f"question {n}", f"answer {n}", id=f"{n}"))
                for n in range(60)
            )
        )
        kept = await memories[0].load()
        assert sorted((e.id, e.response) for e in kept) == sorted(
            (f"{n}", f"answer {n}") for n in range(60)
        )


@EVEN_FOREIGN
async def test_what_is_relevant_is_recalled_best_first_and_what_is_not_is_left(
    place: Place, tmp_path: Path
):
    async with place(tmp_path) as provider:
        memory = EpisodicMemory(provider)
        for number in range(12):
            await memory.record(
                Episode(
                    f"Summarise the report on topic{number}",
                    "A summary.",
                    id=f"noise{number}",
                    timestamp=at(20),
                )
            )
        await memory.record(
            Episode("How do herons catch fish?", "They wait.", id="best", timestamp=at(1))
        )
        await memory.record(Episode("What do wrens eat?", "Not fish.", id="some", timestamp=at(25)))
        assert names(await memory.recall("how do herons catch fish in the river")) == [
            "best",
            "some",
        ]
        assert names(await memory.recall("herons", top_k=1)) == ["best"]
        assert await memory.recall("quantum chromodynamics") == []
        assert await memory.recall("") == []


@EVEN_FOREIGN
async def test_of_equally_relevant_episodes_the_newer_comes_first(place: Place, tmp_path: Path):
    async with place(tmp_path) as provider:
        memory = EpisodicMemory(provider)
        for day in (3, 1, 4, 2):
            await memory.record(
                Episode("How do herons fish?", "They wait.", id=f"day{day}", timestamp=at(day))
            )
        for _ in range(2):
            assert names(await memory.recall("herons fish")) == ["day4", "day3", "day2"]


@EVEN_FOREIGN
async def test_any_script_is_recalled(place: Place, tmp_path: Path):
    async with place(tmp_path) as provider:
        memory = EpisodicMemory(provider)
        asked = {
            "ja": "日本の首都の人口を調べてください",
            "zh": "请总结这份关于北京交通的报告",
            "ko": "서울의 날씨를 알려 주세요",
            "th": "ช่วยสรุปรายงานเรื่องการขนส่ง",
            "hi": "दिल्ली की जनसंख्या बताइए",
            "ar": "لخّص التقرير عن النقل",
            "tr": "İstanbul'daki ulaşım raporunu özetle",  # noqa: RUF001
            "ru": "Обобщи отчёт о транспорте",  # noqa: RUF001
        }
        for name, query in asked.items():
            await memory.record(Episode(query, "…", id=name))
        for name, query in [
            ("ja", "日本の人口"),
            ("zh", "北京的交通"),
            ("ko", "서울 날씨"),
            ("th", "รายงานการขนส่ง"),
            ("hi", "दिल्ली जनसंख्या"),
            ("ar", "تقرير النقل"),
            ("tr", "ISTANBUL ULAŞIM"),
            ("ru", "ОТЧЕТ транспорте"),
        ]:
            assert names(await memory.recall(query))[:1] == [name], query


async def test_words_of_the_stored_form_are_not_words_of_the_episode():
    memory = EpisodicMemory(InMemoryProvider())
    await memory.record(Episode("How do herons fish?", "They wait."))
    for word in ("query", "response", "outcome", "unknown", "timestamp", "episodes", "default"):
        assert await memory.recall(word) == []


async def test_the_response_the_tags_and_the_lesson_are_searched_too():
    memory = EpisodicMemory(InMemoryProvider())
    await memory.record(
        Episode("q", "Herons wait.", reflection="Count twice.", tags=["birds"], id="it")
    )
    for word in ("herons", "twice", "BIRDS"):
        assert names(await memory.recall(word)) == ["it"]


@pytest.mark.parametrize("top_k", [0, -1, True, 1.5, "3", math.nan])
async def test_a_number_of_episodes_that_is_none_is_refused(top_k: Any):
    with pytest.raises(ConfigError, match="top_k"):
        await EpisodicMemory(InMemoryProvider()).recall("q", top_k=top_k)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"query": None}, "query is None"),
        ({"response": 5}, "response is 5"),
        ({"outcome": "great"}, r"outcome is 'great'.*success"),
        ({"score": 1.5}, r"score is 1\.5"),
        ({"score": math.nan}, "score is nan"),
        ({"score": True}, "score is True"),
        ({"tools_used": "search"}, "tools_used is 'search'"),
        ({"tags": [1]}, r"tags is \[1\]"),
        ({"reflection": 5}, "reflection is 5"),
        ({"timestamp": "yesterday"}, r"timestamp is 'yesterday'.*ISO 8601"),
        ({"id": None}, "id is None"),
    ],
)
async def test_a_field_that_cannot_be_kept_is_refused_by_name(fields: dict[str, Any], named: str):
    memory = EpisodicMemory(InMemoryProvider())
    with pytest.raises(ConfigError, match=named):
        await memory.record(Episode(**{"query": "q", "response": "a", **fields}))
    with pytest.raises(ConfigError, match="Episode"):
        await memory.record(cast_any({"query": "q"}))
    assert await memory.load() == []


def cast_any(value: Any) -> Any:
    return value


async def test_half_of_a_surrogate_pair_costs_no_episode():
    memory = EpisodicMemory(InMemoryProvider())
    await memory.record(Episode("q \ud83d", "a \ud83d"))
    assert [(e.query, e.response) for e in await memory.load()] == [("q ?", "a ?")]


async def test_what_is_no_episode_is_passed_over_and_reported_and_left_as_it_is(
    caplog: pytest.LogCaptureFixture,
):
    backend = InMemoryProvider()
    memory = EpisodicMemory(backend)
    await memory.record(Episode("heron", "a", id="good"))
    junk = ["heron", "[]", "null", '{"query": "heron"}', json.dumps({**_form(), "score": "heron"})]
    for number, value in enumerate(junk):
        await backend.store(f"untildone/episodes/default/junk{number}", value)
    with caplog.at_level(logging.WARNING, "untildone"):
        assert names(await memory.load()) == ["good"]
        assert names(await memory.recall("heron")) == ["good"]
    assert all(f"junk{number}" in caplog.text for number in range(len(junk)))
    assert len(await backend.entries()) == 1 + len(junk)


def _form() -> dict[str, Any]:
    episode = Episode("heron", "a", id="x")
    return {name: getattr(episode, name) for name in Episode.__slots__}


async def test_a_value_of_a_foreign_provider_that_is_none_of_ours_is_left_as_it_is():
    backend = FourMethods()
    await backend.store("untildone/episodes/default", "not ours")
    memory = EpisodicMemory(backend)
    for attempt in (memory.load(), memory.recall("q"), memory.record(Episode("q", "a"))):
        with pytest.raises(MemoryProviderError, match="untildone/episodes/default"):
            await attempt
    assert await backend.retrieve("untildone/episodes/default") == "not ours"


QUERIES = st.lists(
    st.sampled_from(["heron", "wren", "fish", "東京", "report"]), min_size=1, max_size=4
)


@settings(deadline=None)
@given(st.lists(QUERIES, max_size=8), QUERIES, st.integers(1, 4))
def test_recall_gives_different_known_episodes_with_a_word_in_common_and_always_the_same(
    asked: list[list[str]], query: list[str], top_k: int
):
    async def recall() -> list[list[str]]:
        memory = EpisodicMemory(InMemoryProvider())
        for number, words in enumerate(asked):
            await memory.record(
                Episode(" ".join(words), "…", id=f"{number}", timestamp=at(number + 1))
            )
        return [names(await memory.recall(" ".join(query), top_k=top_k)) for _ in range(2)]

    first, second = asyncio.run(recall())
    assert first == second
    assert len(set(first)) == len(first) <= top_k
    assert all(set(query) & set(asked[int(name)]) for name in first)
    assert bool(first) == any(set(query) & set(words) for words in asked)


# --- Lessons --------------------------------------------------------------------------------------


async def test_without_a_reflect_model_nobody_is_asked():
    memory = EpisodicMemory(InMemoryProvider())
    model = ScriptedModel([])
    await memory.record(Episode("q", "a"), model=model)
    assert [e.reflection for e in await memory.load()] == [None]


async def test_a_reflect_model_draws_a_lesson_from_material_that_is_framed():
    model = ScriptedModel(['{"lesson": "Look it\\n up first."}'])
    memory = EpisodicMemory(InMemoryProvider(), reflect_model=model)
    await memory.record(
        Episode("the request", "the answer " + "x" * 50_000, outcome="failure", score=0.1)
    )
    assert [e.reflection for e in await memory.load()] == ["Look it up first."]
    (seen,) = model.requests
    assert seen.request.purpose == "reflection"
    asked = seen.messages[1]["content"]
    assert "<request-" in asked
    assert "<answer-" in asked
    assert "failure, score 0.1" in asked
    assert len(asked) < 20_000


async def test_an_episode_that_has_a_lesson_keeps_it():
    memory = EpisodicMemory(InMemoryProvider(), reflect_model=ScriptedModel([]))
    await memory.record(Episode("q", "a", reflection="mine"))
    assert [e.reflection for e in await memory.load()] == ["mine"]


@pytest.mark.parametrize(
    "line",
    ["Well …", '{"lesson": 5}', '{"lesson": " "}', ServerError("503"), asyncio.CancelledError()],
    ids=repr,
)
async def test_a_failed_reflection_is_reported_and_the_episode_kept(
    line: Any, caplog: pytest.LogCaptureFixture
):
    memory = EpisodicMemory(InMemoryProvider(), reflect_model=ScriptedModel([line], then="repeat"))
    with caplog.at_level(logging.WARNING, "untildone"):
        await memory.record(Episode("q", "a"))
    assert [(e.query, e.reflection) for e in await memory.load()] == [("q", None)]
    assert "reflection failed" in caplog.text


async def test_a_reflection_that_is_cancelled_with_its_run_records_nothing():
    async def cancel_self(_: SeenRequest) -> str:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)
        return "never"

    memory = EpisodicMemory(InMemoryProvider(), reflect_model=ScriptedModel([cancel_self]))
    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(memory.record(Episode("q", "a")))
    assert await memory.load() == []
