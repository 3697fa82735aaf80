"""Many loops at once on one playbook and one set of episodes: what they leave, and what it costs.

The work is shared with the tests (``tests/behaviour/test_memory_properties.py``). The bench runs
``python -m bench.shared_memories WHERE LOOPS`` in a process of its own and reads the last line.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from untildone import (
    Agent,
    AgentResult,
    Episode,
    EpisodicMemory,
    FileMemoryProvider,
    InMemoryProvider,
    LoopConfig,
    PlaybookEntry,
    ProceduralMemory,
    RedisMemoryProvider,
    SQLMemoryProvider,
    UntildoneError,
    Verifier,
    VerifierConfig,
    VerifierFeedback,
    run_agent,
)
from untildone.testing import ScriptedModel, SeenRequest

POSTGRES = os.environ.get("BENCH_POSTGRES", "postgresql://root@127.0.0.1:5432/test")
REDIS = os.environ.get("BENCH_REDIS", "redis://127.0.0.1:6379/0")
TAG = "bench"


@dataclass(frozen=True)
class Memories:
    """A playbook and episodes on one provider, with room for all that so many loops leave."""

    playbook: ProceduralMemory
    episodes: EpisodicMemory

    @classmethod
    def on(cls, provider: Any, loops: int) -> Memories:
        """Both on a provider."""
        return cls(
            ProceduralMemory(provider, 10 * loops),
            EpisodicMemory(provider, max_episodes=10 * loops),
        )


@dataclass(frozen=True)
class Losses:
    """What is not as it should be after many loops; all 0 where it is.

    Attributes:
        entries: Episodes and lessons that are not there.
        strays: Episodes, lessons and answers that nobody, or another loop, made.
    """

    entries: int
    strays: int


async def loops_at_once(memories: Memories | None, loops: int) -> list[AgentResult]:
    """Many loops of one agent: two iterations each, and with memories a recall and a lesson."""
    loop = LoopConfig(
        verifier=Verifier(VerifierConfig(evaluate_fn=_grade)),
        procedural_memory=None if memories is None else memories.playbook,
        episodic_memory=None if memories is None else memories.episodes,
        task_tag=TAG,
    )
    agent = Agent("bench", ScriptedModel(_speak), loop_config=loop)
    return await asyncio.gather(
        *(run_agent(agent, [{"role": "user", "content": question(n)}]) for n in range(loops))
    )


def losses(
    results: Sequence[AgentResult], episodes: Sequence[Episode], entries: Sequence[PlaybookEntry]
) -> Losses:
    """Compares what was left with what each loop must have left."""
    kept = [(e.id, e.query, e.response, e.outcome, e.score) for e in episodes]
    wanted = {
        (f"{result.run_id}:{iteration}", question(n), answer(n, iteration), outcome, score)
        for n, result in enumerate(results)
        for iteration, outcome, score in ((1, "partial", 0.4), (2, "success", 0.9))
    }
    lessons = [entry.content for entry in entries]
    wanted_lessons = {lesson(n) for n in range(len(results))}
    strays = sum(each not in wanted for each in kept) + len(kept) - len(set(kept))
    strays += sum(each not in wanted_lessons for each in lessons) + len(lessons) - len({*lessons})
    strays += sum(result.text != answer(n, 2) for n, result in enumerate(results))
    return Losses(len(wanted - {*kept}) + len(wanted_lessons - {*lessons}), strays)


def question(number: int) -> str:
    """What the loop with this number is asked."""
    return f"Question of run{number} please"


def answer(number: int, iteration: int) -> str:
    """What it answers in an iteration."""
    return f"answer {iteration} of run{number} end"


def lesson(number: int) -> str:
    """What it teaches."""
    return f"Lesson of run {number}."


async def _speak(seen: SeenRequest) -> str:
    await asyncio.sleep(0)
    if seen.request.purpose == "reflection":
        taught = [{"kind": "helpful", "content": lesson(_number_in(seen.messages[1]))}]
        return json.dumps({"helped": [], "hurt": [], "lessons": taught})
    at = seen.request.at
    assert at is not None
    return answer(_number_in(next(m for m in seen.messages if m["role"] == "user")), at.iteration)


def _number_in(message: dict[str, Any]) -> int:
    """The number that a request carries: how the model knows which loop asks."""
    return int(message["content"].rpartition("Question of run")[2].split()[0])


def _grade(query: str, result: AgentResult) -> VerifierFeedback:
    if query.split()[2] not in result.text.split():
        raise AssertionError(f"{query!r} was answered with {result.text!r}")
    return VerifierFeedback(0.4 if result.loop_iterations == 1 else 0.9)


@asynccontextmanager
async def provider_in(where: str) -> AsyncGenerator[Any]:
    """An empty provider; what it kept is gone afterwards.

    Raises:
        UntildoneError: It cannot be used here; the text says why.
    """
    name = f"bench_{secrets.token_hex(6)}"
    with tempfile.TemporaryDirectory(prefix="untildone-bench-") as folder:
        match where:
            case "memory":
                yield InMemoryProvider()
            case "file":
                async with FileMemoryProvider(Path(folder) / "memory.json") as provider:
                    yield provider
            case "sqlite":
                async with SQLMemoryProvider(f"sqlite:///{folder}/memory.db") as provider:
                    yield provider
            case "postgresql":
                async with SQLMemoryProvider(POSTGRES, table=name) as provider:
                    await provider.retrieve("")
                    try:
                        yield provider
                    finally:
                        _drop_table(name)
            case "redis":
                async with RedisMemoryProvider(REDIS, prefix=name) as provider:
                    await provider.retrieve("")
                    try:
                        yield provider
                    finally:
                        await _forget(name)
            case _:
                raise ValueError(f"no provider is called {where!r}")


def _drop_table(name: str) -> None:
    import psycopg
    from psycopg import sql

    with psycopg.connect(POSTGRES) as connection:
        connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(sql.Identifier(name)))


async def _forget(prefix: str) -> None:
    from redis.asyncio import Redis

    async with Redis.from_url(REDIS) as client:
        await client.delete(*(f"{{{prefix}}}:{part}" for part in ("values", "order", "count")))


async def measured(where: str, loops: int) -> dict[str, Any]:
    """Seconds and losses of so many loops; why there are none where the provider is missing."""
    if where == "none":
        clock, cpu = time.perf_counter(), time.process_time()
        results = await loops_at_once(None, loops)
        seconds = {"wall_s": time.perf_counter() - clock, "cpu_s": time.process_time() - cpu}
        return seconds | {"strays": sum(r.text != answer(n, 2) for n, r in enumerate(results))}
    async with provider_in(where) as provider:
        memories = Memories.on(provider, loops)
        clock, cpu = time.perf_counter(), time.process_time()
        results = await loops_at_once(memories, loops)
        seconds = {"wall_s": time.perf_counter() - clock, "cpu_s": time.process_time() - cpu}
        found = losses(results, await memories.episodes.load(), await memories.playbook.load(TAG))
        return seconds | {"lost": found.entries, "strays": found.strays}


def main() -> None:
    """Prints one line of JSON."""
    where, loops = sys.argv[1], int(sys.argv[2])
    try:
        found = asyncio.run(measured(where, loops))
    except UntildoneError as error:
        found = {"missing": " ".join(str(error).split())}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
