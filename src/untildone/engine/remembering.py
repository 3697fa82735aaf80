"""Memories around a run: recalled once before it, told of each iteration, taught at its end.

Whatever fails in here is reported and never costs an answer, nor changes one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from untildone.domain.episodes import Episode, Outcome
from untildone.domain.errors import describe
from untildone.domain.exits import ExitReason
from untildone.domain.grading import VerifierFeedback
from untildone.domain.log import (
    ContextRecalled,
    EpisodeRecorded,
    IterationEnded,
    PlaybookCurated,
    SkillDistilled,
)
from untildone.domain.results import AgentResult
from untildone.engine.cancellation import is_being_cancelled
from untildone.engine.context import Run
from untildone.policy.framing import framed
from untildone.policy.outcome import final_result
from untildone.ports import Episodes, Playbook

_log = logging.getLogger("untildone")

T = TypeVar("T")

_LEARNING_EXITS: Final = frozenset(ExitReason) - {
    ExitReason.CANCELLED,
    ExitReason.BUDGET,
    ExitReason.ERROR,
    ExitReason.AWAITING_APPROVAL,
}
"""The exits after which a run may teach something: the others broke off in the middle."""


def remembers(run: Run) -> bool:
    """Whether any memory is set."""
    return _playbook(run) is not None or _episodes(run) is not None or run.agent.memory is not None


async def recall_context(run: Run) -> None:
    """Reads every memory once and puts what they know into the instructions."""
    parts: list[str] = []
    playbook, episodes, memory = _playbook(run), _episodes(run), run.agent.memory
    if playbook is not None:
        entries = await _guarded(run, "procedural memory", lambda: playbook.load(task_tag(run)))
        parts.append(playbook.render(entries) if entries else "")
    recalled = None
    if episodes is not None:
        recalled = await _guarded(run, "episodic memory", lambda: episodes.recall(run.query))
        parts += [_episode_in_words(episode) for episode in recalled or ()]
    found = None
    if memory is not None:
        found = await _guarded(run, "memory", lambda: memory.search(run.query))
        parts += [framed("memory", f"{key}: {value}") for key, value in found or ()]
    text = "\n\n".join(part for part in parts if part)
    await run.record(ContextRecalled(run.at(), text, len(recalled or ()), len(found or ())))


async def record_episode(run: Run, ended: IterationEnded | None) -> None:
    """Tells episodic memory of the iteration that is about to be closed.

    Args:
        run: The run.
        ended: The decision about it; None for a run without a refine loop.
    """
    episodes = _episodes(run)
    if episodes is None or run.state.episode_recorded:
        return
    result = run.judged_result()
    score = None if ended is None else ended.score
    outcome = "unknown" if ended is None else _outcome(run, ended)
    episode = Episode(
        query=run.query,
        response=result.text,
        outcome=outcome,
        score=score,
        tools_used=sorted({call["tool"] for call in result.tool_calls}),
        agent_id=run.agent_id,
        id=f"{run.run_id}:{run.state.iteration}",
    )

    async def record() -> bool:
        await episodes.record(episode)
        return True

    if await _guarded(run, "episodic memory", record):
        await run.record(EpisodeRecorded(run.at(), outcome, score))


async def learn(run: Run, reason: ExitReason) -> None:
    """Curates the playbook and distils a skill, where the run ended in a way that teaches."""
    if run.loop is None or reason not in _LEARNING_EXITS:
        return
    await _curate(run, reason)
    await _distil(run, reason)


async def _curate(run: Run, reason: ExitReason) -> None:
    playbook = None if run.loop is None else run.loop.procedural_memory
    state = run.state
    if playbook is None or not state.graded or state.curated:
        return
    returned = final_result(state, reason).best_iteration
    grade = next(
        (seen.grade for seen in state.graded if seen.iteration == returned), state.graded[-1].grade
    )
    feedback = VerifierFeedback(
        grade.score, list(grade.issues), grade.suggestion, converged=grade.converged
    )
    trajectory = [
        AgentResult(run.agent_id, seen.text, scores=[seen.grade.score], run_id=run.run_id)
        for seen in state.graded
    ]
    tag = task_tag(run)
    count = await _guarded(
        run,
        "procedural memory",
        lambda: playbook.curate(tag, feedback, trajectory, model=run.judge_model),
    )
    if count is not None:
        await run.record(PlaybookCurated(run.at(), tag, count))


async def _distil(run: Run, reason: ExitReason) -> None:
    loop, state = run.loop, run.state
    if loop is None or run.distil is None or reason is not ExitReason.CONVERGED or state.distilled:
        return
    returned = state.last
    quality = None
    if returned is not None:
        quality = returned.score if returned.score is not None else returned.confidence
    if quality is None or quality < loop.skill_confidence_threshold:
        return
    distil = run.distil
    name = await _guarded(run, "skill distillation", lambda: distil(task_tag(run), run.query))
    if name is not None:
        await run.record(SkillDistilled(run.at(), name, quality))


def task_tag(run: Run) -> str:
    """The playbook's name: the loop's tag, else the agent's, else the agent's name (S1)."""
    tag = None if run.loop is None else run.loop.task_tag
    return tag or run.agent.procedural_task_tag or run.agent.name


def _playbook(run: Run) -> Playbook | None:
    own = None if run.loop is None else run.loop.procedural_memory
    return own if own is not None else run.agent.procedural_memory


def _episodes(run: Run) -> Episodes | None:
    own = None if run.loop is None else run.loop.episodic_memory
    return own if own is not None else run.agent.episodic_memory


def _outcome(run: Run, ended: IterationEnded) -> Outcome:
    """Accepted is a success; else half the way to the threshold parts partial from failure."""
    if ended.converged or ended.exit is ExitReason.STOP_CONDITION:
        return "success"
    if ended.score is None:
        return "unknown"
    verifier = None if run.loop is None else run.loop.verifier
    threshold = 1.0 if verifier is None else verifier.threshold
    return "partial" if ended.score >= threshold / 2 else "failure"


def _episode_in_words(episode: Episode) -> str:
    score = "" if episode.score is None else f", score {episode.score:g}"
    lesson = f"\nLesson: {episode.reflection}" if episode.reflection else ""
    body = f"Request: {episode.query}\nAnswer: {episode.response}{lesson}"
    return f"An earlier attempt ({episode.outcome}{score}):\n{framed('episode', body)}"


async def _guarded(run: Run, what: str, ask: Callable[[], Awaitable[T]]) -> T | None:
    """What a memory gives, or None where it fails; a failure is reported."""
    try:
        return await ask()
    except (Exception, asyncio.CancelledError) as error:
        if isinstance(error, asyncio.CancelledError) and is_being_cancelled():
            raise
        _log.warning("%s of agent %r failed: %s", what, run.agent.name, describe(error))
        return None
