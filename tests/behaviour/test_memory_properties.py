"""Memories change nothing of what the loop does otherwise, and many loops can share them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from bench.shared_memories import TAG, Losses, Memories, loops_at_once, losses
from tests.behaviour.kit import ask
from tests.behaviour.manifest import requirement
from tests.behaviour.memory_kit import FAILING, provider_with, reflection
from tests.behaviour.refine_kit import judging, loop_of, scoring
from tests.memory.places import EVERYWHERE, Place
from untildone import (
    Agent,
    AgentResult,
    CriterionVerdict,
    EventType,
    LoopConfig,
    LoopConvergedError,
    LoopOutcome,
    ServerError,
    StreamEvent,
    Usage,
    VerifierFeedback,
    partial_result,
    run_agent,
    tool,
)
from untildone.domain.episodes import Episode
from untildone.domain.log import (
    ContextRecalled,
    EpisodeRecorded,
    LogEvent,
    ModelCallReplied,
    ModelCallStarted,
    PlaybookCurated,
)
from untildone.memory import EpisodicMemory, InMemoryProvider, ProceduralMemory
from untildone.testing import EventLog, ScriptedModel, SeenRequest, call, reply

MOST = 4
SCORES = st.sampled_from([0.0, 0.3, 0.5, 0.5, 0.79, 0.8, 1.0])
JUDGEMENTS = st.sampled_from(["no", "no", "words", "yes", "raises", "early"])


@dataclass(frozen=True)
class World:
    """All that chance decides about a run."""

    scores: tuple[float, ...]
    judgements: tuple[str, ...]
    stops_at: int
    fails_at: int
    has_verifier: bool
    has_criterion: bool
    ceiling: int
    branches: int
    adaptive: bool
    fresh: bool
    fails: bool
    max_turns: int


WORLDS = st.builds(
    World,
    scores=st.tuples(*[SCORES] * MOST),
    judgements=st.tuples(*[JUDGEMENTS] * MOST),
    stops_at=st.integers(1, 9),
    fails_at=st.integers(2, 9),
    has_verifier=st.booleans(),
    has_criterion=st.booleans(),
    ceiling=st.integers(1, MOST),
    branches=st.integers(1, 2),
    adaptive=st.booleans(),
    fresh=st.booleans(),
    fails=st.booleans(),
    max_turns=st.integers(1, 3),
)
MEMORIES = st.sampled_from(["working", "empty", *FAILING])


@tool(idempotent=True)
async def look(where: str) -> str:
    """Looks."""
    return f"a heron in {where}"


def loop_in(world: World, memory: Any) -> LoopConfig:
    judge = {
        "no": False,
        "words": CriterionVerdict(satisfied=False, feedback="more"),
        "yes": True,
        "raises": OSError("down"),
        "early": LoopConvergedError(),
    }
    has_verifier = world.has_verifier or world.adaptive
    chosen: dict[str, Any] = {
        "max_iterations": world.ceiling,
        "branches": world.branches,
        "adaptive": world.adaptive,
        "fresh_context": world.fresh,
        "stop_condition": lambda result: result.loop_iterations == world.stops_at,
        "criteria": [judging(*(judge[each] for each in world.judgements))]
        if world.has_criterion
        else [],
        "verifier": scoring(*world.scores) if has_verifier else None,
    }
    if world.fails and (has_verifier or world.has_criterion):
        chosen["on_exhausted"] = LoopOutcome.FAIL_RUN
    if memory is not None:
        chosen["episodic_memory"] = memory[1]
        if has_verifier:
            chosen["procedural_memory"] = memory[0]
    return loop_of(**chosen)


def speaking_in(world: World) -> Callable[[SeenRequest], Any]:
    def speak(seen: SeenRequest) -> Any:
        request = seen.request
        if request.purpose == "reflection":
            return reflection("Name a source.")
        if request.purpose == "synthesizer" or request.at is None:
            return "merged\nCONFIDENCE: 0.5"
        at = request.at
        if at.iteration == world.fails_at:
            return ServerError("503", usage=Usage())
        if at.turn == 1:
            return reply(None, call("look", "c1", where=f"{at.iteration}.{at.branch}"))
        return f"answer {at.iteration}.{at.branch}"

    return speak


@dataclass
class Seen:
    """A run as everybody but its memories sees it."""

    result: dict[str, Any]
    error: str
    events: list[tuple[str, Any]]
    log: list[str]
    asked: list[Any]


MEMORIES_EVENTS = {
    EventType.EPISODE_RECALLED,
    EventType.EPISODE_RECORDED,
    EventType.MEMORY_RETRIEVE,
    EventType.PLAYBOOK_UPDATED,
}
COSTS = ("input_tokens", "output_tokens", "cached_tokens")
NOT_COMPARED = {*COSTS, "episodes_recalled", "run_id", "messages"}


def is_of_memories(event: LogEvent) -> bool:
    if isinstance(event, ModelCallStarted | ModelCallReplied):
        return event.purpose == "reflection"
    return isinstance(event, ContextRecalled | EpisodeRecorded | PlaybookCurated)


def without_system(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [message for message in messages if message["role"] != "system"]


async def run_in(world: World, memory: Any) -> Seen:
    model = ScriptedModel(speaking_in(world))
    agent = Agent(
        "tester",
        model,
        tools=[look],
        max_turns=world.max_turns,
        loop_config=loop_in(world, memory),
        memory=None if memory is None else memory[2],
    )
    queue: asyncio.Queue[StreamEvent | None] = asyncio.Queue()
    log = EventLog()
    error = ""
    try:
        result = await run_agent(agent, ask("herons?"), queue=queue, log=log)
    except Exception as raised:
        error = f"{type(raised).__name__}: {raised}"
        result = partial_result(raised)
    assert isinstance(result, AgentResult)
    told = [event for event in drained_of(queue) if event.event not in MEMORIES_EVENTS]
    return Seen(
        {
            **{
                f.name: getattr(result, f.name)
                for f in fields(result)
                if f.name not in NOT_COMPARED
            },
            "messages": without_system(result.messages),
        },
        error,
        [(event.event, {k: v for k, v in event.data.items() if k not in COSTS}) for event in told],
        [repr(e).replace(result.run_id, "run") for e in log.events if not is_of_memories(e)],
        [
            (seen.request.purpose, without_system(seen.messages), seen.request.temperature)
            for seen in model.requests
            if seen.request.purpose != "reflection"
        ],
    )


def drained_of(queue: asyncio.Queue[StreamEvent | None]) -> list[StreamEvent]:
    items = [queue.get_nowait() for _ in range(queue.qsize())]
    assert items.pop() is None
    return [item for item in items if item is not None]


async def memories(kind: str) -> tuple[Any, Any, Any]:
    """A playbook, episodes and a provider of one kind."""
    if kind in FAILING:
        return FAILING[kind](), FAILING[kind](), FAILING[kind]()
    provider = InMemoryProvider()
    past, playbook = EpisodicMemory(provider), ProceduralMemory(provider)
    if kind == "working":
        await past.record(Episode("herons?", "Yes.", id="old:1"))
        await playbook.curate("tester", VerifierFeedback(0.5, ["Look twice."]), [])
        return playbook, past, await provider_with(note="about herons?")
    return playbook, past, provider


@requirement("memory.changes-nothing-else")
@settings(max_examples=120, deadline=None)
@given(WORLDS, MEMORIES)
def test_memories_change_nothing_of_what_the_loop_does_otherwise(world: World, kind: str):
    async def compare() -> tuple[Seen, Seen]:
        return await run_in(world, None), await run_in(world, await memories(kind))

    without, with_memories = asyncio.run(compare())
    assert with_memories == without


# --- Many at once ---------------------------------------------------------------------------------


@requirement("memory.concurrent")
async def test_two_hundred_loops_at_once_lose_nothing_and_see_nothing_of_each_other():
    many = 200
    memories = Memories.on(InMemoryProvider(), many)
    await check_all(many, memories, await loops_at_once(memories, many))


@requirement("memory.concurrent")
@EVERYWHERE
async def test_twenty_loops_at_once_lose_nothing_anywhere(place: Place, tmp_path: Path):
    async with place(tmp_path) as provider:
        memories = Memories.on(provider, 20)
        await check_all(20, memories, await loops_at_once(memories, 20))


async def check_all(many: int, memories: Memories, results: list[AgentResult]) -> None:
    """Every loop gave its own answer, left its two episodes and its one lesson, and no other."""
    episodes, entries = await memories.episodes.load(), await memories.playbook.load(TAG)
    assert [result.text for result in results] == [f"answer 2 of run{n} end" for n in range(many)]
    assert len({result.run_id for result in results}) == many
    wanted = {
        f"{result.run_id}:{iteration}": (
            f"Question of run{n} please",
            f"answer {iteration} of run{n} end",
            outcome,
            score,
        )
        for n, result in enumerate(results)
        for iteration, outcome, score in ((1, "partial", 0.4), (2, "success", 0.9))
    }
    assert {e.id: (e.query, e.response, e.outcome, e.score) for e in episodes} == wanted
    assert len(episodes) == 2 * many
    lessons = sorted(entry.content for entry in entries)
    assert lessons == sorted(f"Lesson of run {n}." for n in range(many))
    assert losses(results, episodes, entries) == Losses(0, 0)


@requirement("memory.concurrent")
async def test_what_is_lost_or_strays_is_counted():
    memories = Memories.on(InMemoryProvider(), 3)
    results = await loops_at_once(memories, 3)
    episodes, entries = await memories.episodes.load(), await memories.playbook.load(TAG)
    assert losses(results, episodes[2:], entries[1:]) == Losses(3, 0)
    assert losses(results, [*episodes, episodes[0]], [*entries, entries[0]]) == Losses(0, 2)
    assert losses(results, [*episodes, Episode("?", "!", id="x")], entries) == Losses(0, 1)
    results[0].text = results[1].text
    assert losses(results, episodes, entries) == Losses(0, 1)


@requirement("memory.concurrent")
async def test_loops_of_different_tags_and_namespaces_on_one_provider_do_not_meet():
    provider = InMemoryProvider()

    async def one(name: str) -> tuple[list[str], list[str]]:
        past = EpisodicMemory(provider, namespace=name)
        playbook = ProceduralMemory(provider)

        def speak(seen: SeenRequest) -> str:
            if seen.request.purpose == "reflection":
                return reflection(f"Lesson of {name}.")
            return f"answer of {name}"

        loop = LoopConfig(
            verifier=scoring(0.9), procedural_memory=playbook, episodic_memory=past, task_tag=name
        )
        for _ in range(2):
            await run_agent(Agent("tester", ScriptedModel(speak), loop_config=loop), ask())
        answers = [episode.response for episode in await past.load()]
        return answers, [entry.content for entry in await playbook.load(name)]

    names = [f"team{n}" for n in range(20)]
    outcomes = await asyncio.gather(*(one(name) for name in names))
    assert outcomes == [([f"answer of {name}"] * 2, [f"Lesson of {name}."]) for name in names]
