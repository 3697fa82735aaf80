"""The result of a run, made from its state."""

from __future__ import annotations

import json
from typing import Any

from untildone.domain.exits import ExitReason
from untildone.domain.results import AgentResult
from untildone.domain.usage import Usage
from untildone.policy.state import AgentRun, Finished, RunState


def iteration_result(state: RunState) -> AgentResult:
    """The current iteration's result, as those who judge it see it: it counts as finished."""
    unjudged = Finished(state.iteration, state.current, None, state.confidence)
    result = _result(state, unjudged)
    result.loop_iterations = state.iteration
    return result


def candidate_result(state: RunState, branch: int) -> AgentResult:
    """One candidate's result, as those who grade or merge candidates see it."""
    run = state.runs[branch]
    confidence = None if run.grade is None else run.grade.confidence
    result = _result(state, Finished(state.iteration, run, None, confidence))
    result.loop_iterations = state.iteration
    return result


def update_totals(result: AgentResult, state: RunState) -> None:
    """Brings usage, turns and scores of a result up to date with the state."""
    result.input_tokens = state.input_tokens
    result.output_tokens = state.output_tokens
    result.cached_tokens = state.cached_tokens
    result.unknown_usage_calls = state.unknown_usage_calls
    result.turns = state.turns


def usage_of(state: RunState) -> Usage:
    """What the run has spent so far."""
    return Usage(
        input_tokens=state.input_tokens,
        output_tokens=state.output_tokens,
        cached_tokens=state.cached_tokens,
        unknown_calls=state.unknown_usage_calls,
    )


def final_result(state: RunState, reason: ExitReason, error: str | None = None) -> AgentResult:
    """The result of a run that ends for ``reason``; for a failing one, the best so far."""
    result = _result(state, _returned(state, reason))
    result.loop_iterations = state.finished_iterations
    result.exit_reason = reason
    result.error = error
    return result


def _best_candidate(state: RunState) -> AgentRun:
    """What stands for an iteration before one of its candidates is selected."""
    loop = state.rules.loop
    if loop is None or loop.branches == 1 or state.selected:
        return state.current
    live = [run for run in state.runs if run.dropped is None] or state.runs
    graded = [run for run in live if run.grade is not None]
    if graded:
        return max(graded, key=lambda run: 0.0 if run.grade is None else run.grade.score)
    ended = [run for run in live if run.exit is not None]
    return next((run for run in (*ended, *live, *state.runs) if run.text), state.current)


def _returned(state: RunState, reason: ExitReason) -> Finished:
    """Which iteration is returned (semantics.md, refine loop, steps 5 to 7)."""
    underway = (
        Finished(state.iteration, _best_candidate(state), None, state.confidence)
        if state.runs
        else None
    )
    match reason:
        case ExitReason.CONVERGED | ExitReason.STOP_CONDITION | ExitReason.CRITERION_ERROR:
            chosen = state.last or underway
        case ExitReason.AWAITING_APPROVAL:
            chosen = underway
        case _:
            chosen = state.best or state.last or underway
    return chosen or Finished(0, AgentRun(state.conversation, len(state.conversation)), None, None)


def _result(state: RunState, finished: Finished) -> AgentResult:
    run, started = finished.run, state.started
    if started is None:
        raise ValueError("a run that has not started has no result")
    return AgentResult.with_long_fields_made_by(
        _Material(run, run.end or len(run.conversation), state.scores),
        agent_id=started.agent_id,
        text=run.text,
        input_tokens=state.input_tokens,
        output_tokens=state.output_tokens,
        model=run.model or started.model,
        confidence=finished.confidence,
        episodes_recalled=0 if state.recalled is None else state.recalled.episodes,
        cached_tokens=state.cached_tokens,
        turns=state.turns,
        best_iteration=finished.iteration,
        finish_reason=run.finish_reason,
        unknown_usage_calls=state.unknown_usage_calls,
        run_id=started.at.run,
    )


class _Material:
    """What the long fields of a result are made of: lists that only grow, and their length then."""

    __slots__ = ("_end", "_run", "_scored", "_scores")

    def __init__(self, run: AgentRun, end: int, scores: list[float]) -> None:
        self._run = run
        self._end = end
        self._scores = scores
        self._scored = len(scores)

    def __call__(self, field: str) -> list[Any]:
        if field == "messages":
            return [message.to_dict() for message in self._run.conversation[: self._end]]
        if field == "tool_calls":
            merged = self._run.merged_from
            if merged:
                return [call for run in merged for call in _tool_calls(run, run.end)]
            return _tool_calls(self._run, self._end)
        return self._scores[: self._scored]


def _tool_calls(run: AgentRun, end: int) -> list[dict[str, Any]]:
    """The calls of one agent run with their answers, in call order."""
    calls: list[dict[str, Any]] = []
    unanswered: list[dict[str, Any]] = []
    for message in run.conversation[run.start : end]:
        if message.tool_calls:
            unanswered = [
                {
                    "id": call.id,
                    "tool": call.name,
                    "args": shown_arguments(call.arguments),
                    "result": None,
                    "is_error": False,
                }
                for call in message.tool_calls
            ]
            calls += unanswered
        elif message.role == "tool" and unanswered:
            answered = unanswered.pop(0)
            answered["result"] = message.text
            answered["is_error"] = message.is_error
    return calls


def shown_arguments(text: str) -> Any:
    """A call's arguments for people to read; the raw text where they are no JSON."""
    try:
        return json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return text
