"""What a run makes of memories that exit, and of its own drafts among what they recall."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tests.behaviour.kit import ask
from untildone import (
    Agent,
    EpisodicMemory,
    InMemoryProvider,
    LoopConfig,
    Verifier,
    VerifierConfig,
    VerifierFeedback,
    resume_agent,
    run_agent,
)
from untildone.domain.episodes import Episode
from untildone.testing import EventLog, ScriptedModel

QUESTION = "Which sea is it?"


def agent(memory: Any) -> Agent:
    def grade(query: str, result: Any) -> VerifierFeedback:
        return VerifierFeedback(0.9 if result.text == "good" else 0.4)

    verifier = Verifier(VerifierConfig(evaluate_fn=grade))
    return Agent(
        "ada",
        ScriptedModel([f"{QUESTION} bad {n}" for n in range(3)] + ["good"]),
        episodic_memory=memory,
        loop_config=LoopConfig(max_iterations=4, verifier=verifier),
    )


async def test_own_drafts_take_no_place_of_what_a_resumed_run_recalls():
    memory = EpisodicMemory(InMemoryProvider(), recall_k=3)
    for n in range(5):
        await memory.record(Episode(QUESTION, f"old {n}", "success"))
    log = EventLog()
    first = await run_agent(agent(memory), ask(QUESTION), log=log)
    assert first.episodes_recalled == 3
    resumed = await resume_agent(agent(memory), log.events[:1])  # its sink had failed early
    assert resumed.episodes_recalled == 3


async def test_others_are_recalled_as_if_the_left_out_ones_were_not_there():
    memory = EpisodicMemory(InMemoryProvider(), recall_k=2)
    for n in range(3):
        await memory.record(Episode("heron", f"old {n}", "success", id=f"old:{n}"))
    wanted = [episode.id for episode in await memory.recall("heron")]
    for n in range(60):
        await memory.record(Episode("heron heron heron", "heron", "success", id=f"own:{n}"))
    assert [episode.id for episode in await memory.recall_others("heron", "own:")] == wanted


@pytest.mark.parametrize("method", ["recall", "record"])
async def test_a_memory_that_exits_costs_neither_the_run_nor_the_process(method: str, caplog: Any):
    memory = EpisodicMemory(InMemoryProvider())

    async def leave(*_: Any, **__: Any) -> Any:
        raise SystemExit(3)

    setattr(memory, method, leave)
    with caplog.at_level(logging.WARNING, "untildone"):
        result = await run_agent(agent(memory), ask(QUESTION))
    assert result.text == "good"
    assert "episodic memory of agent 'ada' failed: SystemExit: 3" in caplog.text
