"""A run with memories, cut anywhere and continued, ends as if it had not been cut.

The memory that a resumed run finds is what the first one had left in it by then: at the earliest
what was there when the last event of the prefix was written, at the latest what was there when the
next one was, and, where only the log was lost, all of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import pytest

from tests.behaviour.kit import ask
from tests.behaviour.manifest import requirement
from tests.behaviour.memory_kit import reflection
from tests.behaviour.refine_kit import in_turn, scoring
from untildone import (
    Agent,
    AgentResult,
    LoopConfig,
    LoopOutcome,
    VerifierFeedback,
    event_from_dict,
    event_to_dict,
    partial_result,
    resume_agent,
    run_agent,
    tool,
)
from untildone.domain.episodes import Episode
from untildone.domain.log import (
    ContextRecalled,
    LogEvent,
    ModelCallReplied,
    ModelCallStarted,
    ToolFinished,
    ToolStarted,
)
from untildone.memory import EpisodicMemory, InMemoryProvider, ProceduralMemory
from untildone.testing import ScriptedModel, SeenRequest, call, reply

Entries = dict[str, str]
QUESTION = "How do herons fish?"


def speaking(seen: SeenRequest) -> Any:
    """Replies by what it is asked: each iteration takes a tool call and an answer."""
    request = seen.request
    if request.purpose == "worker":
        assert request.at is not None
        at = request.at
        if at.turn == 1:
            return reply(None, call("look", "c1", where=f"{at.iteration}.{at.branch}"))
        return f"answer {at.iteration}.{at.branch}"
    if 'lesson"' in seen.messages[0]["content"] and "lessons" not in seen.messages[0]["content"]:
        return '{"lesson": "Wait longer."}'
    return reflection("Name a source.", "Look twice.")


@tool(idempotent=True)
async def look(where: str) -> str:
    """Looks."""
    return f"a heron in {where}"


def grading(*scores: float) -> Any:
    return scoring(*(VerifierFeedback(score, [f"issue {n}"]) for n, score in enumerate(scores)))


CASES: dict[str, Callable[[], dict[str, Any] | None]] = {
    "no loop": lambda: None,
    "converged": lambda: {"verifier": grading(0.1, 0.5, 0.9)},
    "at the ceiling": lambda: {"verifier": grading(0.1, 0.7, 0.3), "max_iterations": 3},
    "plateau": lambda: {"verifier": grading(0.5, 0.5, 0.5), "adaptive": True},
    "a stop condition": lambda: {
        "verifier": grading(0.5),
        "stop_condition": in_turn(False, True),
    },
    "unsatisfied": lambda: {
        "verifier": grading(0.1, 0.1),
        "max_iterations": 2,
        "on_exhausted": LoopOutcome.FAIL_RUN,
    },
    "fresh context": lambda: {"verifier": grading(0.1, 0.9), "fresh_context": True},
    "branches": lambda: {"verifier": grading(0.1, 0.9), "branches": 2},
}
EACH_CASE = pytest.mark.parametrize("loop", [pytest.param(c, id=n) for n, c in CASES.items()])


async def seeded() -> Entries:
    """What the memory knows before the run."""
    provider = InMemoryProvider()
    await provider.store("note", "Herons are patient.")
    past = EpisodicMemory(provider)
    await past.record(Episode("Do herons fish?", "Yes.", id="old:1", timestamp="2026-01-01"))
    playbook = ProceduralMemory(provider)
    await playbook.curate("tester", VerifierFeedback(0.5, ["No fish was named."]), [])
    return dict(provider._notebook.entries)


@dataclass
class Life:
    """One life of a run: its memory, its log, what the memory had at each event, what it gave."""

    entries: Entries
    events: list[LogEvent] = field(default_factory=list[LogEvent])
    kept: list[Entries] = field(default_factory=list[Entries])
    result: dict[str, Any] = field(default_factory=dict[str, Any])
    error: str = ""

    def __post_init__(self) -> None:
        self.provider = InMemoryProvider()
        self.provider._notebook.become(self.entries)
        self.model = ScriptedModel(speaking)

    def write(self, event: LogEvent) -> None:
        """Takes an event, as a sink."""
        self.events.append(event)
        self.kept.append(dict(self.provider._notebook.entries))

    def agent(self, settings: dict[str, Any] | None) -> Agent:
        past = EpisodicMemory(self.provider, reflect_model=self.model)
        loop = None
        if settings is not None:
            playbook = ProceduralMemory(self.provider)
            loop = LoopConfig(procedural_memory=playbook, **settings)
        return Agent(
            "tester",
            self.model,
            tools=[look],
            loop_config=loop,
            episodic_memory=past,
            memory=self.provider,
        )

    async def live(self, work: Any) -> Life:
        try:
            result = await work
        except Exception as error:
            self.error = f"{type(error).__name__}: {error}"
            result = partial_result(error)
        assert isinstance(result, AgentResult)
        self.result = {each.name: getattr(result, each.name) for each in fields(result)}
        return self

    @property
    def left(self) -> Entries:
        """What the memory has in the end, times apart: a resumed run records at another time."""
        left: Entries = {}
        for key, value in self.provider._notebook.entries.items():
            before, mark, after = value.partition('"timestamp": "')
            left[key] = before + after.partition('"')[2] if mark else value
        return left


async def undisturbed(settings: dict[str, Any] | None) -> Life:
    life = Life(await seeded())
    agent = life.agent(settings)
    return await life.live(run_agent(agent, ask(QUESTION), log=life))


async def resumed(
    settings: dict[str, Any] | None, prefix: list[LogEvent], entries: Entries
) -> Life:
    life = Life(entries)
    through_json = [event_from_dict(event_to_dict(event)) for event in prefix]
    return await life.live(resume_agent(life.agent(settings), through_json, log=life))


def unanswered(prefix: Sequence[LogEvent]) -> list[LogEvent]:
    """The calls of a prefix that were begun and have no answer in it."""
    begun: list[LogEvent] = []
    for event in prefix:
        if isinstance(event, ModelCallStarted | ToolStarted):
            begun.append(event)
        elif isinstance(event, ModelCallReplied | ToolFinished):
            kind = ToolStarted if isinstance(event, ToolFinished) else ModelCallStarted
            begun.remove(next(e for e in begun if isinstance(e, kind) and e.at == event.at))
    return begun


def text_of(events: Sequence[LogEvent]) -> Counter[str]:
    return Counter(repr(event) for event in events)


@requirement("memory.resume")
@EACH_CASE
@pytest.mark.parametrize("latest", [False, True], ids=["earliest", "latest"])
async def test_a_run_cut_anywhere_and_continued_ends_as_if_it_had_not_been_cut(
    loop: Callable[[], dict[str, Any] | None], latest: bool
):
    whole = await undisturbed(loop())
    assert whole.result["episodes_recalled"] == 1
    for length in range(1, len(whole.events) + 1):
        prefix = whole.events[:length]
        if length == len(whole.events):
            entries = dict(whole.provider._notebook.entries)
        else:
            entries = whole.kept[length if latest else length - 1]
        again = await resumed(loop(), prefix, entries)
        where = f"after {length} events, the last of them {prefix[-1]!r}"
        assert again.result == whole.result, where
        assert again.error == whole.error, where
        assert again.left == whole.left, where
        repeated = text_of(unanswered(prefix))
        assert text_of([*prefix, *again.events]) == text_of(whole.events) + repeated, where


@requirement("memory.resume", "memory.own-drafts")
@EACH_CASE
async def test_where_only_the_log_was_lost_nothing_is_recalled_recorded_or_taught_twice(
    loop: Callable[[], dict[str, Any] | None],
):
    whole = await undisturbed(loop())
    for length in range(1, len(whole.events) + 1):
        prefix = whole.events[:length]
        again = await resumed(loop(), prefix, dict(whole.provider._notebook.entries))
        where = f"after {length} events, the last of them {prefix[-1]!r}"
        assert sorted(again.left) == sorted(whole.left), where
        assert again.left["untildone/playbook/tester"] == whole.left["untildone/playbook/tester"], (
            where
        )
        for event in [*prefix, *again.events]:
            if isinstance(event, ContextRecalled):
                assert "answer" not in event.text, where
        for name in ("text", "exit_reason", "loop_iterations", "scores", "turns"):
            assert again.result[name] == whole.result[name], where


@requirement("memory.resume")
async def test_a_run_that_lost_its_memories_is_resumed_with_what_it_was_told():
    """What was recalled stands in the log, so a resumed run needs no memory for it."""
    settings = {"verifier": grading(0.1, 0.9)}
    whole = await undisturbed(settings)
    told = next(event for event in whole.events if isinstance(event, ContextRecalled))
    prefix = whole.events[: whole.events.index(told) + 1]
    model = ScriptedModel(speaking)
    agent = Agent("tester", model, tools=[look], loop_config=LoopConfig(**settings))
    result = await resume_agent(agent, prefix)
    assert result.text == whole.result["text"]
    assert result.episodes_recalled == 1
    system = model.requests[0].messages[0]["content"]
    assert "Herons are patient." in system
    assert "No fish was named." in system
