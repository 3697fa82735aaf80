"""The end of a run: its last event, and what its caller gets, a result or an exception."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from untildone.cancellation import forgiving_the_past
from untildone.domain.errors import (
    CriterionFailedError,
    LoopConvergedError,
    LoopUnsatisfiedError,
    MaxTurnsError,
    RunError,
    attach_partial_result,
    describe,
    partial_result,
)
from untildone.domain.exits import ExitReason
from untildone.domain.log import RunEnded
from untildone.domain.results import AgentResult
from untildone.engine.context import Run
from untildone.engine.remembering import learn, record_episode
from untildone.engine.tool_calls import answer_the_rest
from untildone.policy.outcome import final_result, update_totals


async def end_run(run: Run, reason: ExitReason) -> AgentResult:
    """Records the end for ``reason`` and gives the result, or raises what the reason calls for.

    What tools still do for the run ends before its last event, so that it counts what that cost.
    """
    await run.let_go()
    error = _error_text(run, reason)
    if run.loop is None and reason is not ExitReason.AWAITING_APPROVAL:
        await record_episode(run, None)
    await run.record(RunEnded(run.at(), reason, error))
    await learn(run, reason)
    return give_result(run)


def give_result(run: Run) -> AgentResult:
    """What the caller of an ended run gets."""
    state = run.state
    ended = state.ended
    if ended is None:
        msg = "the run has not ended"
        raise RuntimeError(msg)
    result = run.with_parsed(final_result(state, ended.reason, ended.error))
    loop = state.rules.loop
    match ended.reason:
        case ExitReason.STOP_CONDITION:
            raise _early_exit(run, result)
        case ExitReason.UNSATISFIED:
            msg = f"no iteration of {result.loop_iterations} was accepted"
            raise LoopUnsatisfiedError(msg, result)
        case ExitReason.CRITERION_ERROR if loop is not None and loop.fail_on_criterion_error:
            error = run.failure or CriterionFailedError(ended.error or "a criterion failed")
            attach_partial_result(error, result)
            raise error
        case ExitReason.MAX_TURNS if state.rules.raise_on_max_turns:
            raise _max_turns_error(run, result)
        case ExitReason.ERROR if ended_by_the_cap(run):
            raise _max_turns_error(run, result)
        case ExitReason.ERROR | ExitReason.CANCELLED:
            raise RunError(
                f"run {run.run_id} has already ended: {ended.reason} ({ended.error}); to go on from"
                f" before that, leave {_what_ended(run)} out",
                result,
            )
        case _:
            return result


async def ended_properly(run: Run, work: Awaitable[AgentResult]) -> AgentResult:
    """Awaits the loop; whatever it raises, the run is ended first and the best so far kept."""
    try:
        return await forgiving_the_past(work)
    except asyncio.CancelledError as error:
        _end_raising(run, ExitReason.CANCELLED, error)
        raise
    except Exception as error:
        _end_raising(run, ExitReason.ERROR, error)
        raise
    except BaseException as error:
        _end_raising(run, ExitReason.CANCELLED, error)
        raise


def _end_raising(run: Run, reason: ExitReason, error: BaseException) -> None:
    """The first terminal cause wins: a run that has ended stays as it ended."""
    state = run.state
    had_ended = state.ended is not None
    if not had_ended:
        for branch, agent_run in enumerate(state.runs):
            answer_the_rest(run, agent_run, run.at(branch=branch, turn=agent_run.turns))
        run.record.note(RunEnded(run.at(), reason, _in_words(run, error)))
    ended = state.ended
    if ended is not None and not (had_ended and partial_result(error) is not None):
        result = run.with_parsed(final_result(state, ended.reason, ended.error))
        attach_partial_result(error, result)


def _error_text(run: Run, reason: ExitReason) -> str | None:
    closed = run.state.closed
    if reason is ExitReason.CRITERION_ERROR and closed is not None:
        return closed.error
    if reason is ExitReason.ERROR:
        return f"MaxTurnsError: {max_turns_text(run)}"
    return None


def _early_exit(run: Run, result: AgentResult) -> LoopConvergedError:
    """The caller's own error where a predicate raised one, so that what it carries is kept."""
    error = run.early or LoopConvergedError(result)
    own: object = error.result
    if isinstance(own, AgentResult):
        own.exit_reason = result.exit_reason
        if own.run_id == run.run_id:
            update_totals(own, run.state)
            own.scores = result.scores
    else:
        error.result = result
    error.run_id = run.run_id
    return error


def _in_words(run: Run, error: BaseException) -> str:
    """What ended the run; where a candidate had raised it before a resume, as the log has it."""
    dropped = run.state.current.dropped if run.state.runs else None
    is_known = dropped is not None and dropped.error == str(error)
    return str(error) if type(error) is RunError and is_known else describe(error)


def _what_ended(run: Run) -> str:
    """The events without which a failed run is not over yet."""
    runs = run.state.runs
    if runs and all(each.dropped is not None for each in runs):
        return f"RunEnded and every CandidateDropped of iteration {run.state.iteration}"
    return "the log's last event (RunEnded)"


def ended_by_the_cap(run: Run) -> bool:
    """Whether the agent run that stands for the iteration used all its turns, which is an error."""
    state = run.state
    return (
        bool(state.runs)
        and state.rules.raise_on_max_turns
        and state.current.exit is ExitReason.MAX_TURNS
    )


def _max_turns_error(run: Run, result: AgentResult) -> MaxTurnsError:
    return MaxTurnsError(max_turns_text(run), result)


def max_turns_text(run: Run) -> str:
    """What a ``MaxTurnsError`` of the run says."""
    return (
        f"agent {run.agent.name!r} used all {run.state.rules.max_turns} turns without finishing;"
        " raise max_turns, split the task, or use on_max_turns='return'"
    )
