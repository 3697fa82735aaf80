"""Memories that fail cost nothing: no answer, no iteration, no exit reason."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.behaviour.endings import ENDINGS
from tests.behaviour.kit import ask, until, watch
from tests.behaviour.manifest import requirement
from tests.behaviour.memory_kit import (
    EACH_FAILURE,
    LESSON,
    Broken,
    Hanging,
    Past,
    Playbook,
    agent_with,
    raising,
    reflection,
    speaking,
    system_prompts,
)
from tests.behaviour.refine_kit import loop_of, scoring
from untildone import (
    Agent,
    ConfigError,
    EventType,
    ExitReason,
    LoopConfig,
    VerifierFeedback,
    partial_result,
    run_agent,
)
from untildone.engine import remembering
from untildone.memory import InMemoryProvider
from untildone.testing import ScriptedModel

KINDS = ["procedural_memory", "episodic_memory", "memory"]


def agent_on(kind: str, memory: Any, script: Any = speaking) -> Agent:
    """An agent whose loop, or itself, has this memory."""
    loop: dict[str, Any] = {"max_iterations": 2, "verifier": scoring(0.1, 0.9)}
    if kind == "memory":
        return agent_with(LoopConfig(**loop), script, memory=memory)
    return agent_with(LoopConfig(**loop, **{kind: memory}), script)


@requirement("memory.failures-cost-nothing")
@pytest.mark.parametrize("kind", KINDS)
@EACH_FAILURE
async def test_a_failing_memory_is_reported_and_costs_nothing(
    kind: str, failing: Callable[[], Any], caplog: pytest.LogCaptureFixture
):
    agent = agent_on(kind, failing())
    with caplog.at_level(logging.WARNING, "untildone"):
        watched = await watch(agent)
    result = watched.result
    assert result is not None
    assert (result.text, result.exit_reason) == ("answer 2", ExitReason.CONVERGED)
    assert (result.loop_iterations, result.scores, result.error) == (2, [0.1, 0.9], None)
    assert result.episodes_recalled == 0
    assert system_prompts(agent) == ["", ""]
    assert watched.kinds[-1] is EventType.DONE
    assert not {EventType.PLAYBOOK_UPDATED, EventType.EPISODE_RECALLED} & set(watched.kinds)


@requirement("memory.failures-cost-nothing")
@pytest.mark.parametrize("kind", KINDS)
async def test_the_report_names_the_memory_the_agent_and_the_failure(
    kind: str, caplog: pytest.LogCaptureFixture
):
    provider = InMemoryProvider()

    async def full(*_: Any, **__: Any) -> Any:
        raise OSError("disk full")

    broken: Any = Playbook() if kind == "procedural_memory" else Past()
    if kind == "memory":
        broken = provider
    for method in ("load", "curate", "recall", "record", "search"):
        if hasattr(broken, method):
            setattr(broken, method, full)
    with caplog.at_level(logging.WARNING, "untildone"):
        await run_agent(agent_on(kind, broken), ask())
    words = kind.replace("procedural_", "procedural ").replace("episodic_", "episodic ")
    texts = [record.getMessage() for record in caplog.records]
    asked = {"procedural_memory": 2, "episodic_memory": 3, "memory": 1}[kind]
    assert texts == [f"{words} of agent 'tester' failed: OSError: disk full"] * asked


@requirement("memory.failures-cost-nothing")
@pytest.mark.parametrize("kind", KINDS)
async def test_a_memory_that_hangs_is_left_after_a_while_and_costs_nothing(
    kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(remembering, "MEMORY_TIMEOUT_S", 0.0)
    monkeypatch.setattr(remembering, "LEARNING_TIMEOUT_S", 0.0)
    agent = agent_on(kind, Hanging())
    with caplog.at_level(logging.WARNING, "untildone"):
        result = await asyncio.wait_for(run_agent(agent, ask()), 30)
    assert (result.text, result.exit_reason) == ("answer 2", ExitReason.CONVERGED)
    assert "no answer within 0 s" in caplog.text


@requirement("memory.failures-cost-nothing")
async def test_a_reflection_that_hangs_is_left_and_the_answer_is_given(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(remembering, "LEARNING_TIMEOUT_S", 0.0)

    async def hang(_: Any) -> str:
        await asyncio.Event().wait()
        return "never"

    playbook = Playbook(reflect_model=ScriptedModel([hang]))
    loop = LoopConfig(verifier=scoring(0.9), procedural_memory=playbook)
    result = await asyncio.wait_for(run_agent(agent_with(loop), ask()), 30)
    assert (result.text, result.exit_reason) == ("answer 1", ExitReason.CONVERGED)
    assert await playbook.load("tester") == []


@requirement("memory.failures-cost-nothing")
@pytest.mark.parametrize("line", ["I learned a lot.", OSError("down")], ids=repr)
async def test_a_failed_reflection_is_reported_and_the_playbook_still_counts(
    line: Any, caplog: pytest.LogCaptureFixture
):
    teacher = Playbook()
    model = ScriptedModel([reflection("Look twice.")])
    await teacher.curate("tester", VerifierFeedback(0.5), [], model=model)
    playbook = Playbook(backend=teacher.backend, reflect_model=ScriptedModel([line], then="repeat"))
    loop = LoopConfig(verifier=scoring(0.9), procedural_memory=playbook)
    with caplog.at_level(logging.WARNING, "untildone"):
        watched = await watch(agent_with(loop))
    assert watched.result is not None
    assert watched.result.text == "answer 1"
    assert "reflection failed" in caplog.text
    assert watched.data(EventType.PLAYBOOK_UPDATED) == [{"task_tag": "tester", "entry_count": 1}]
    (entry,) = await playbook.load("tester")
    assert (entry.content, entry.uses, entry.last_score) == ("Look twice.", 1, 0.9)


@requirement("memory.failures-cost-nothing")
@EACH_FAILURE
@pytest.mark.parametrize("ending", [pytest.param(e, id=n) for n, e in ENDINGS.items()])
async def test_every_ending_is_the_same_with_memories_that_fail(
    ending: Any, failing: Callable[[], Any]
):
    agent = ending.agent()
    memory = failing()
    loop = agent.loop_config
    if loop is not None and loop.verifier is not None:
        loop = replace(loop, procedural_memory=memory, episodic_memory=memory)
    agent = replace(agent, loop_config=loop, memory=memory, episodic_memory=memory)
    watched = await watch(agent)
    result = watched.result
    if ending.raises is None:
        assert watched.error is None
    else:
        assert type(watched.error) is ending.raises
        assert watched.error is not None
        result = partial_result(watched.error)
    assert result is not None
    assert (result.exit_reason, result.text) == (ending.reason, ending.text)


# --- Cancellation ---------------------------------------------------------------------------------


class Stubborn(Hanging):
    """One that makes another error of a cancellation, or a success."""

    def __init__(self, then: str) -> None:
        self.then = then
        self.reached = False

    async def load(self, *_: Any, **__: Any) -> Any:
        self.reached = True
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if self.then == "raises":
                raise OSError("interrupted") from None
            if self.then == "cancelled":
                raise
        return []

    curate = recall = record = search = load


@requirement("memory.cancelled")
@pytest.mark.parametrize("then", ["cancelled", "raises", "kept"])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_run_that_is_cancelled_inside_a_memory_is_cancelled(kind: str, then: str):
    memory = Stubborn(then)
    agent = agent_on(kind, memory)
    task = asyncio.create_task(run_agent(agent, ask()))
    await until(lambda: memory.reached)
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    result = partial_result(caught.value)
    assert result is not None
    assert result.exit_reason is ExitReason.CANCELLED
    assert system_prompts(agent) == []


@requirement("memory.cancelled")
async def test_a_run_that_is_cancelled_while_it_teaches_keeps_its_answer():
    playbook = Playbook()
    reached = asyncio.Event()

    async def hang(*_: Any, **__: Any) -> Any:
        reached.set()
        await asyncio.Event().wait()

    playbook.curate = hang
    loop = LoopConfig(verifier=scoring(0.9), procedural_memory=playbook)
    task = asyncio.create_task(run_agent(agent_with(loop), ask()))
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    result = partial_result(caught.value)
    assert result is not None
    assert (result.text, result.exit_reason) == ("answer 1", ExitReason.CONVERGED)


# --- Configuration --------------------------------------------------------------------------------


@requirement("memory.checked-when-built")
@pytest.mark.parametrize(
    ("name", "value", "instead"),
    [
        ("procedural_memory", object(), "ProceduralMemory"),
        ("procedural_memory", InMemoryProvider(), "ProceduralMemory"),
        ("procedural_memory", Playbook, "ProceduralMemory"),
        ("episodic_memory", object(), "EpisodicMemory"),
        ("episodic_memory", InMemoryProvider(), "EpisodicMemory"),
        ("episodic_memory", Playbook(), "EpisodicMemory"),
        ("memory", "memory.json", "InMemoryProvider"),
        ("memory", Past(), "InMemoryProvider"),
        ("memory", InMemoryProvider, "InMemoryProvider"),
        ("task_tag", 5, "text"),
        ("procedural_task_tag", 5, "text"),
    ],
)
def test_what_is_no_memory_is_refused_and_the_right_thing_is_named(
    name: str, value: Any, instead: str
):
    owners = {"memory": "Agent", "procedural_task_tag": "Agent", "task_tag": "LoopConfig"}
    if owners.get(name) != "LoopConfig":
        with pytest.raises(ConfigError, match=rf"Agent\.{name} is .*{instead}"):
            agent_with(None, **{name: value})
    if owners.get(name) != "Agent":
        with pytest.raises(ConfigError, match=rf"LoopConfig\.{name} is .*{instead}"):
            loop_of(verifier=scoring(1.0), **{name: value})


@requirement("memory.failures-cost-nothing")
async def test_one_memory_that_fails_takes_nothing_from_the_others():
    playbook = Playbook("Look twice.")
    loop = LoopConfig(
        max_iterations=1,
        verifier=scoring(0.9),
        procedural_memory=playbook,
        episodic_memory=Broken(raising(OSError("disk full"))),
    )
    provider = InMemoryProvider()
    await provider.store("note", "Go on and on.")
    agent = agent_with(loop, memory=provider)
    await run_agent(agent, ask())
    (prompt,) = system_prompts(agent)
    assert "Look twice." in prompt
    assert "note: Go on and on." in prompt
    assert LESSON in [entry.content for entry in await playbook.load("tester")]
