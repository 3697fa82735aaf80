"""What live readers see: a view of the log, text as it comes, and an end that always arrives."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from untildone.domain.log import (
    AgentRunEnded,
    ApprovalRequested,
    BranchSelected,
    ContextRecalled,
    EpisodeRecorded,
    Graded,
    IterationEnded,
    IterationStarted,
    LogEvent,
    ModelCallReplied,
    Nudged,
    PlaybookCurated,
    RunStarted,
    SkillDistilled,
    ToolFinished,
    approval_key,
)
from untildone.domain.messages import ToolCall
from untildone.domain.requests import (
    Delta,
    DeltaSink,
    FallbackTriggered,
    RetryAttempt,
    TextDelta,
    ThinkingDelta,
)
from untildone.domain.stream import EventType, StreamEvent
from untildone.policy.outcome import shown_arguments
from untildone.policy.state import RunState

_log = logging.getLogger("untildone")

EventQueue = asyncio.Queue[Any]
"""Holds ``StreamEvent``s and, last, ``None``."""


class LiveStream:
    """One run's events on their way into a queue. A bounded queue slows the run, losing nothing."""

    __slots__ = ("_agent_id", "_ended", "_last_shown", "_loop", "_queue")

    def __init__(
        self,
        queue: EventQueue,
        agent_id: str,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """``loop`` is the event loop that reads the queue, where it is not the running one."""
        self._loop = loop
        self._queue = queue
        self._agent_id = agent_id
        self._last_shown = False
        self._ended = False

    @property
    def queue(self) -> EventQueue:
        """The queue itself, for what shows events of its own."""
        return self._queue

    async def publish(self, event: LogEvent, state: RunState) -> None:
        """Shows what a log event means to a reader, if anything; ``state`` is after the event."""
        of_candidate = branches_of(state) > 1 and isinstance(event, _CANDIDATE_EVENTS)
        for kind, data in _view(event, state):
            if of_candidate:
                data["branch"] = event.at.branch
            await self._put(kind, data)

    def delta_sink(self, branch: int | None) -> DeltaSink:
        """Takes the pieces of one model call; ``branch`` where several candidates are at work."""

        async def take(delta: Delta) -> None:
            kind, data = _view_delta(delta)
            if branch is not None:
                data["branch"] = branch
            await self._put(kind, data)

        return take

    async def end(self, kind: EventType, data: dict[str, Any]) -> None:
        """Shows the last event, DONE or ERROR, then the end mark."""
        await self._put(kind, data)
        self._last_shown = True
        await self._give(None)
        self._ended = True

    def end_now(self, kind: EventType, data: dict[str, Any]) -> None:
        """Ends the queue of a cancelled run without waiting for a reader who may have left.

        Where the queue is full, the last event and the end mark take the place of the oldest.
        """
        if self._ended:
            return
        self._ended = True
        last = [] if self._last_shown else [StreamEvent(kind, data, self._agent_id)]
        if self._queue.maxsize == 1:
            last = []
        with suppress(Exception):
            for item in (*last, None):
                while self._queue.full():
                    self._queue.get_nowait()
                self._queue.put_nowait(item)

    async def _put(self, kind: EventType, data: dict[str, Any]) -> None:
        await self._give(StreamEvent(kind, data, self._agent_id))

    async def _give(self, item: StreamEvent | None) -> None:
        """Into the queue; one that refuses, such as one its reader shut down, costs no answer."""
        if self._ended:
            return
        try:
            if self._loop is None:
                await self._queue.put(item)
            else:
                given = asyncio.run_coroutine_threadsafe(self._queue.put(item), self._loop)
                await asyncio.wrap_future(given)
        except Exception:
            self._ended = True
            _log.warning("the queue of agent %r gets no more events", self._agent_id, exc_info=True)


_CANDIDATE_EVENTS = (ModelCallReplied, ToolFinished, AgentRunEnded, Nudged, ApprovalRequested)


def branches_of(state: RunState) -> int:
    """How many candidates an iteration has."""
    loop = state.rules.loop
    return 1 if loop is None else loop.branches


def _view(event: LogEvent, state: RunState) -> Iterator[tuple[EventType, dict[str, Any]]]:  # noqa: C901, PLR0912
    match event:
        case ModelCallReplied(purpose="worker"):
            for call in event.message.tool_calls:
                yield EventType.TOOL_CALL, _call_view(call)
        case ToolFinished():
            yield _answer_view(event)
        case RunStarted() if state.rules.loop is None:
            yield EventType.AGENT_START, {"model": event.model}
        case IterationStarted():
            model = state.started.model if state.started is not None else ""
            yield EventType.AGENT_START, {"model": model, "iteration": event.at.iteration}
        case AgentRunEnded():
            yield EventType.AGENT_DONE, _agent_done_view(event, state)
        case Nudged():
            data = {"text": event.text, "rule": event.rule, "evidence": event.evidence}
            yield EventType.NUDGED, data
        case BranchSelected():
            data = {
                "iteration": state.iteration,
                "branch_count": branches_of(state),
                "winning_index": event.winner,
                "winning_score": event.score,
            }
            yield EventType.BRANCH_SELECTED, data
            if _is_final_grade(state):
                yield EventType.VERIFIER_SCORED, _grade_view(state)
        case Graded() if _is_final_grade(state):
            yield EventType.VERIFIER_SCORED, _grade_view(state)
        case ContextRecalled():
            if event.memories:
                yield EventType.MEMORY_RETRIEVE, {"count": event.memories}
            if event.episodes:
                yield EventType.EPISODE_RECALLED, {"count": event.episodes}
        case EpisodeRecorded():
            yield EventType.EPISODE_RECORDED, {"outcome": event.outcome, "score": event.score}
        case PlaybookCurated():
            data = {"task_tag": event.task_tag, "entry_count": event.entries}
            yield EventType.PLAYBOOK_UPDATED, data
        case SkillDistilled():
            yield EventType.SKILL_EXTRACTED, {"skill_name": event.name, "score": event.score}
        case IterationEnded():
            yield EventType.LOOP_ITERATION, _iteration_view(event)
        case ApprovalRequested():
            call = ToolCall(event.call_id, event.tool, event.arguments)
            key = approval_key(event.at, event.index)
            yield EventType.APPROVAL_REQUESTED, {**_call_view(call), "approval_key": key}
        case _:
            return


def _view_delta(delta: Delta) -> tuple[EventType, dict[str, Any]]:
    match delta:
        case TextDelta(text):
            return EventType.TEXT_DELTA, {"chunk": text}
        case ThinkingDelta(text):
            return EventType.THINKING_DELTA, {"chunk": text}
        case RetryAttempt():
            return EventType.RETRY_ATTEMPT, {
                "attempt": delta.attempt,
                "model": delta.model,
                "delay": delta.delay_s,
                "discard_chars": delta.discard_chars,
                "error": delta.error,
            }
        case FallbackTriggered():
            return EventType.FALLBACK_TRIGGERED, {
                "from_model": delta.from_model,
                "to_model": delta.to_model,
                "discard_chars": delta.discard_chars,
                "error": delta.error,
            }


def _call_view(call: ToolCall) -> dict[str, Any]:
    return {"tool": call.name, "args": shown_arguments(call.arguments), "call_id": call.id}


def _answer_view(event: ToolFinished) -> tuple[EventType, dict[str, Any]]:
    data: dict[str, Any] = {"tool": event.tool, "result": event.text, "call_id": event.call_id}
    if event.denied:
        return EventType.TOOL_DENIED, data
    data["is_error"] = event.is_error
    return EventType.TOOL_RESULT, data


def _agent_done_view(event: AgentRunEnded, state: RunState) -> dict[str, Any]:
    return {
        "input_tokens": state.input_tokens,
        "output_tokens": state.output_tokens,
        "turns": state.runs[event.at.branch].turns,
        "exit_reason": event.reason.value,
    }


def _is_final_grade(state: RunState) -> bool:
    loop, grade = state.rules.loop, state.grade
    if loop is None or grade is None:
        return False
    return not grade.converged or state.gradings > loop.confirmations


def _grade_view(state: RunState) -> dict[str, Any]:
    grade = state.grade
    if grade is None:
        return {}
    return {"iteration": state.iteration, "score": grade.score, "issues": list(grade.issues)}


def _iteration_view(event: IterationEnded) -> dict[str, Any]:
    """S3's LoopIterationCompleted. No feedback text: a record of it may be public."""
    return {
        "iteration": event.at.iteration,
        "converged": event.converged,
        "continued": event.continued,
        "continued_by": event.continued_by,
        "has_feedback": event.has_feedback,
        "failed_criterion": event.failed_criterion,
        "criterion_index": event.criterion_index,
        "ceiling_reached": event.ceiling_reached,
        "fails_run": event.fails_run,
        "score": event.score,
        "agent_exit": event.agent_exit.value if event.agent_exit is not None else None,
        "early_stop": event.early_stop,
    }
