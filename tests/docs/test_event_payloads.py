"""The payload keys in docs/concepts/events.md are the ones that runs send, no more and no fewer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import pytest

from tests.docs.pages import DOCS, spans, table_headed
from untildone import (
    Agent,
    AgentHooks,
    EventType,
    FallbackChain,
    LoopConfig,
    ModelReply,
    ModelRequest,
    RateLimitError,
    RetryPolicy,
    StreamEvent,
    ThinkingDelta,
    Verifier,
    VerifierConfig,
    VerifierFeedback,
    run_agent,
)
from untildone.memory import EpisodicMemory, InMemoryProvider, ProceduralMemory
from untildone.skills import SkillRegistry
from untildone.testing import FakeClock, ScriptedModel, call, reply

PAGE = DOCS / "concepts" / "events.md"
TASK = [{"role": "user", "content": "Go on."}]
NOT_SENT = {EventType.MEMORY_STORE}


def documented() -> dict[str, set[str]]:
    """The keys of each kind as the page has them."""
    keys: dict[str, set[str]] = {}
    for row in table_headed(PAGE, "event", "when"):
        for kind in spans(row[0]):
            keys[kind] = set(spans(row[2]))
    rows = table_headed(PAGE, "`loop_iteration`")
    keys["loop_iteration"] = {name for row in rows for name in spans(row[0])}
    return keys


async def events_of(agent: Agent, **options: Any) -> list[StreamEvent]:
    queue: asyncio.Queue[Any] = asyncio.Queue()
    await asyncio.gather(run_agent(agent, TASK, queue=queue, **options), return_exceptions=True)
    items = [queue.get_nowait() for _ in range(queue.qsize())]
    assert items[-1] is None
    return items[:-1]


def look(place: str) -> str:
    """Looks at a place."""
    return "nothing"


def score(value: float) -> Verifier:
    return Verifier(VerifierConfig(evaluate_fn=lambda _, __: VerifierFeedback(value, ["Short."])))


class Thinking:
    name = "thinking"

    async def generate(
        self, request: ModelRequest, on_delta: Callable[..., Awaitable[None]] | None = None
    ) -> ModelReply:
        if on_delta is not None:
            await on_delta(ThinkingDelta("hm"))
        return reply("done")


class Remembering(InMemoryProvider):
    async def search(self, query: str, top_k: int = 5) -> list[tuple[str, str]]:
        return [("colour", "blue")]


async def decide(_tool: str, args: dict[str, Any]) -> bool | None:
    return None if args["place"] == "attic" else False


def agents() -> dict[str, Agent]:
    """Runs that together send every kind of event, each in every form."""
    circling = ScriptedModel(lambda _: reply(None, call("look", place="shelf")))
    asking = [
        reply(None, call("look", place="cellar")),
        reply(None, call("look", place="attic")),
    ]
    provider = InMemoryProvider()
    episodes = EpisodicMemory(InMemoryProvider())
    reflecting = ScriptedModel(lambda _: '{"add": [], "helpful": [], "harmful": []}')
    return {
        "tools, a nudge, stuck": Agent("a", circling, tools=[look]),
        "a denial and an approval": Agent(
            "a", ScriptedModel(asking), tools=[look], hooks=AgentHooks(approve_tool=decide)
        ),
        "reasoning": Agent("a", Thinking()),
        "a retry and a fallback": Agent(
            "a",
            ScriptedModel([RateLimitError("429"), RateLimitError("429")]),
            retry_policy=RetryPolicy(max_retries=1),
            fallback_chain=FallbackChain([ScriptedModel(["done"])]),
        ),
        "a memory": Agent("a", ScriptedModel(["done"]), memory=Remembering()),
        "an error": Agent("a", ScriptedModel([ValueError("no")])),
        "a stop condition": Agent(
            "a", ScriptedModel(["done"]), loop_config=LoopConfig(stop_condition=lambda _: True)
        ),
        "a loop that learns": Agent(
            "a",
            ScriptedModel(lambda _: "done"),
            loop_config=LoopConfig(
                verifier=score(0.9),
                auto_extract_skill=True,
                procedural_memory=ProceduralMemory(provider, reflect_model=reflecting),
                episodic_memory=episodes,
            ),
        ),
        "the same with something to recall": Agent(
            "a",
            ScriptedModel(lambda _: "done"),
            loop_config=LoopConfig(verifier=score(0.9), episodic_memory=episodes),
        ),
        "a loop to its ceiling": Agent(
            "a",
            ScriptedModel(lambda _: "done"),
            loop_config=LoopConfig(max_iterations=2, verifier=score(0.1)),
        ),
        "candidates, the best": Agent(
            "a",
            ScriptedModel(lambda _: "done"),
            loop_config=LoopConfig(branches=2, verifier=score(0.9)),
        ),
        "candidates, merged": Agent(
            "a",
            ScriptedModel(lambda _: "done"),
            loop_config=LoopConfig(branches=2, max_iterations=1),
        ),
    }


@pytest.fixture
async def sent() -> AsyncGenerator[list[StreamEvent]]:
    SkillRegistry.clear()
    found: list[StreamEvent] = []
    for agent in agents().values():
        found += await events_of(agent, clock=FakeClock())
    yield found
    SkillRegistry.clear()


async def test_the_page_has_exactly_the_keys_that_runs_send(sent: list[StreamEvent]):
    seen: dict[str, set[str]] = {kind.value: set() for kind in EventType}
    for event in sent:
        seen[event.event.value] |= set(event.data) - {"branch"}
    assert seen == documented()


async def test_every_kind_but_the_ones_the_page_excepts_is_sent(sent: list[StreamEvent]):
    assert {event.event for event in sent} == set(EventType) - NOT_SENT


async def test_keys_are_always_the_same_ones(sent: list[StreamEvent]):
    """Only what the page calls optional may be missing: an iteration outside of a loop."""
    known = documented()
    for event in sent:
        optional = {"iteration"} if event.event is EventType.AGENT_START else set[str]()
        assert known[event.event] - optional <= set(event.data), event
