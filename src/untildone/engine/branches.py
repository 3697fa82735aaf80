"""Several candidates an iteration: run at once, graded each once, and one answer goes forward.

A candidate that fails is out and costs the others nothing; only when all are out does the iteration
fail, with the first one's error.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, assert_never

from untildone.cancellation import is_being_cancelled, stop_if_cancelled, together
from untildone.domain.errors import (
    GradingError,
    LoopConvergedError,
    MaxTurnsError,
    RunError,
    describe,
)
from untildone.domain.exits import ExitReason
from untildone.domain.log import BranchSelected, CandidateDropped, PredicateJudged, Voted
from untildone.domain.messages import Message
from untildone.domain.results import AgentResult
from untildone.engine.context import Run
from untildone.engine.ending import ended_by_the_cap, max_turns_text
from untildone.engine.judging import confidence_of, fail_judging, grade_answer
from untildone.engine.turns import run_turns
from untildone.policy.branches import (
    best_graded,
    candidates_to_grade,
    candidates_to_run,
    live_candidates,
    overtaken_candidates,
    stand_in,
    winner_by_vote,
)
from untildone.policy.outcome import candidate_result
from untildone.policy.steps import GradeBranches, RunBranches, SelectBranch
from untildone.policy.vote_keys import key_text
from untildone.ports import Synthesizer

_log = logging.getLogger("untildone")

_GIVEN = 3
"""How many arguments ``synthesize`` is given by position: query, results, queue."""

CandidateWork = Callable[[Run, int], Awaitable[None]]


async def take_branches(run: Run, step: RunBranches | GradeBranches | SelectBranch) -> None:
    """Takes the candidates of an iteration one step on.

    Raises:
        Exception: Every candidate failed; the first one's.
    """
    match step:
        case RunBranches():
            await _run_branches(run)
        case GradeBranches():
            await _at_once(run, _grade_candidate, candidates_to_grade(run.state, run.loop_rules))
        case SelectBranch():
            await _select_branch(run)
        case _:
            assert_never(step)


async def _run_branches(run: Run) -> None:
    """Takes the candidates that have to run to their inner exits, all at once."""
    loop = run.loop_rules
    wanted = candidates_to_run(run.state, loop)
    if loop.branch_early_stop:  # graded as soon as they end, not all together
        await _race(run, wanted)
    else:
        await _at_once(run, _run_candidate, wanted)


async def _select_branch(run: Run) -> None:
    """Sends one answer forward: the best graded, the most voted for, the only one, or a merge."""
    state, loop = run.state, run.loop_rules
    for branch in overtaken_candidates(state, loop):  # of a run that was cut off in between
        await run.record(CandidateDropped(run.at(branch=branch), None))
    live = live_candidates(state)
    if not live:
        await _all_failed(run)
    elif loop.has_verifier:
        winner = best_graded(state)
        grade = state.runs[winner].grade
        score = None if grade is None else grade.score
        early = run.branch_failures.get(winner)
        if state.runs[winner].stopped is not None and isinstance(early, LoopConvergedError):
            run.early = early  # what it carries is the caller's
        await run.record(BranchSelected(run.at(), winner, score))
    elif loop.votes:
        await run.record(BranchSelected(run.at(), winner_by_vote(state)))
    elif len(live) == 1:
        await run.record(BranchSelected(run.at(), live[0]))
    else:
        await _merge(run, live)


async def _merge(run: Run, live: list[int]) -> None:
    if run.synthesizer is None:
        raise RuntimeError("several candidates and nothing to merge them")
    results = [run.with_parsed(candidate_result(run.state, branch)) for branch in live]
    live_stream = run.record.live
    queue = None if live_stream is None else live_stream.queue
    try:
        merged = await _merged(run, run.synthesizer, results, queue)
    except (Exception, asyncio.CancelledError) as error:
        stop_if_cancelled()
        # The candidates are paid for: one of them goes forward rather than none.
        winner = stand_in(run.state)
        _log.warning(
            "merging the candidates of agent %r failed, candidate %d goes forward: %s",
            run.agent.name,
            winner,
            describe(error),
        )
        await run.record(BranchSelected(run.at(), winner))
        return
    message = Message("assistant", merged.text)
    confidence = confidence_of(run, merged)
    selected = BranchSelected(run.at(), None, merged=message, confidence=confidence)
    selected.finish_reason, selected.model = merged.finish_reason, merged.model
    await run.record(selected)


async def _merged(
    run: Run, synthesizer: Synthesizer, results: list[AgentResult], queue: Any
) -> AgentResult:
    """What a synthesizer makes of the candidates, given those things of the run that it takes.

    Raises:
        GradingError: It gave no answer.
        OutputParseError: What it gave does not fit ``response_model``.
    """
    synthesize: Any = synthesizer.synthesize
    offered = {"model": run.judge_model, "output": run.output}
    taken = {name: offered[name] for name in _keywords(synthesize) if name in offered}
    merged: object = await synthesize(run.query, results, queue, **taken)
    if not isinstance(merged, AgentResult) or not isinstance(merged.text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise GradingError(
            f"synthesize gave {merged!r:.80}; it must give an AgentResult with a text"
        )
    if not merged.text.strip():
        raise GradingError("synthesize gave an empty text; the merged answer must stand there")
    if run.output is not None:
        run.output.read(merged.text)
    return merged


def _keywords(synthesize: Any) -> list[str]:
    """The parameters that are not among the three given by position."""
    try:
        parameters = inspect.signature(synthesize).parameters.values()
    except (TypeError, ValueError):  # written in C, or no function at all
        return []
    return [
        each.name
        for place, each in enumerate(parameters)
        if each.kind is each.KEYWORD_ONLY or place >= _GIVEN
    ]


async def _all_failed(run: Run) -> None:
    """Failed gradings are a criterion error; failed candidates fail the run.

    What was raised before the run was resumed is only known by its text.
    """
    state = run.state
    dropped = state.current.dropped
    failure = run.branch_failures.get(state.winner)
    text = "every candidate failed" if dropped is None or not dropped.error else dropped.error
    if dropped is not None and dropped.in_grading:
        await fail_judging(run, "verifier", None, failure or text)
        return
    if ended_by_the_cap(run):
        raise MaxTurnsError(max_turns_text(run))
    if isinstance(failure, Exception):
        raise failure
    raise RunError(text) from failure  # a cancellation of something else is not the run's


async def _run_candidate(run: Run, branch: int) -> None:
    """One candidate to its inner exit, and its vote where candidates vote."""
    agent_run = run.state.runs[branch]
    if agent_run.exit is None:
        await run_turns(run, branch)
    if agent_run.exit is ExitReason.MAX_TURNS and run.agent.on_max_turns == "raise":
        raise MaxTurnsError(max_turns_text(run))
    vote_key = run.loop.branch_vote if run.loop is not None else None
    if vote_key is not None and agent_run.exit is not ExitReason.AWAITING_APPROVAL:
        result = run.with_parsed(candidate_result(run.state, branch))
        key: Any = vote_key(result)
        key = await key if inspect.isawaitable(key) else key
        vote = None if key is None else _vote_text(run, key)
        await run.record(Voted(run.at(branch=branch), vote))


def _vote_text(run: Run, key: Any) -> str:
    """A key as the log has it: equal keys have one text, and others never share it."""
    known = run.vote_keys
    for other, text in known:
        if other is key or other == key:
            return text
    text = key_text(key)
    if text is None:
        text = f"{type(key).__name__}: {key!r}"
        if any(text == taken for _, taken in known):
            text = f"{text} (no. {len(known)})"
    known.append((key, text))
    return text


async def _grade_candidate(run: Run, branch: int) -> None:
    result = run.with_parsed(candidate_result(run.state, branch))
    at = run.at(branch=branch)
    try:
        event = await grade_answer(run, at, result)
    except LoopConvergedError as error:
        if error.run_id is not None:  # another run's success, which its caller did not catch
            await _drop(run, branch, error, in_grading=True)
            return
        run.branch_failures[branch] = error
        confidence = confidence_of(run, result)
        await run.record(PredicateJudged(at, "stop_condition", True, confidence))
        return
    except (Exception, asyncio.CancelledError) as error:
        stop_if_cancelled()
        await _drop(run, branch, error, in_grading=True)
        return
    await run.record(event)


async def _race(run: Run, wanted: list[int]) -> None:
    """Candidates run and are graded at once; the first that passes ends the others."""
    tasks: dict[int, asyncio.Task[Any] | None] = {}
    state, ended = run.state, False

    async def run_and_grade(run: Run, branch: int) -> None:
        nonlocal ended
        await _run_candidate(run, branch)
        if state.runs[branch].exit is ExitReason.AWAITING_APPROVAL:
            return
        await _grade_candidate(run, branch)
        if state.first_passed is not None and not ended:
            ended = True
            for other, task in tasks.items():
                if other not in (branch, state.first_passed) and task is not None:
                    task.cancel()

    async def guarded(branch: int) -> None:
        tasks[branch] = asyncio.current_task()
        try:
            if state.first_passed is not None:  # before this one had begun
                raise asyncio.CancelledError
            await _dropping_failures(run, branch, run_and_grade)
        except asyncio.CancelledError:
            if branch not in overtaken_candidates(state, run.loop_rules):
                raise
            run.record.note(CandidateDropped(run.at(branch=branch), None))

    await together(guarded(branch) for branch in wanted)


async def _at_once(run: Run, work: CandidateWork, branches: Iterable[int]) -> None:
    await together(_dropping_failures(run, branch, work) for branch in branches)


async def _dropping_failures(run: Run, branch: int, work: CandidateWork) -> None:
    try:
        await work(run, branch)
    except asyncio.CancelledError as error:
        if is_being_cancelled():
            raise
        await _drop(run, branch, error)
    except Exception as error:
        await _drop(run, branch, error)


async def _drop(run: Run, branch: int, error: BaseException, *, in_grading: bool = False) -> None:
    run.branch_failures[branch] = error
    _log.warning(
        "candidate %d of agent %r is out in iteration %d, its %s failed: %s",
        branch,
        run.agent.name,
        run.state.iteration,
        "grading" if in_grading else "run",
        describe(error),
    )
    await run.record(
        CandidateDropped(run.at(branch=branch), describe(error), in_grading=in_grading)
    )
