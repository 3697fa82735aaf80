"""Those who judge an answer: predicates, the verifier, criteria.

What one of them raises ends the loop at once; nothing is taken for a verdict that is none.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncGenerator, Generator
from typing import Any, assert_never

from untildone.agent import LoopConfig, criterion_name
from untildone.cancellation import is_being_cancelled
from untildone.domain.errors import GradingError, LoopConvergedError, describe
from untildone.domain.grading import CriterionContext, CriterionVerdict
from untildone.domain.log import At, CriterionJudged, Graded, PredicateJudged
from untildone.domain.results import AgentResult
from untildone.engine.context import Run
from untildone.engine.remembering import record_episode
from untildone.policy.feedback import grade_in_words
from untildone.policy.grading import checked_confidence, graded, judged
from untildone.policy.iteration import decide_failed
from untildone.policy.rules import DEFAULT_THRESHOLD
from untildone.policy.steps import AskConvergence, AskCriterion, AskStopCondition, Grade
from untildone.ports import Grader

_log = logging.getLogger("untildone")

Judgement = AskStopCondition | Grade | AskConvergence | AskCriterion


async def judge(run: Run, step: Judgement) -> None:
    """Asks one judge and records its answer; a failing one closes the iteration."""
    at = run.at()
    result = run.judged_result()
    try:
        event = await _ask(run, step, at, result)
    except LoopConvergedError as error:
        if error.run_id is not None:
            # Another run's success, which its caller did not catch; it says nothing of this one.
            await _fail(run, step, error)
            return
        run.early = error
        event = PredicateJudged(at, "stop_condition", True, confidence_of(run, result))
    except asyncio.CancelledError as error:
        if is_being_cancelled():
            raise
        await _fail(run, step, error)
        return
    except Exception as error:
        if is_being_cancelled():
            # The judge made another error of the run's own cancellation.
            raise asyncio.CancelledError from error
        await _fail(run, step, error)
        return
    await run.record(event)


async def _ask(
    run: Run, step: Judgement, at: At, result: AgentResult
) -> PredicateJudged | Graded | CriterionJudged:
    loop = _loop(run)
    match step:
        case AskStopCondition():
            met = await _predicate(loop.stop_condition, result)
            return PredicateJudged(at, "stop_condition", met, confidence_of(run, result))
        case AskConvergence():
            met = await _predicate(loop.convergence_fn, result)
            return PredicateJudged(at, "convergence_fn", met, confidence_of(run, result))
        case Grade():
            return await grade_answer(run, at, result)
        case AskCriterion(index):
            criterion = loop.criteria[index]
            answer = await _criterion(run, at, criterion, result)
            return judged(at, index, criterion_name(criterion), answer)
        case _:
            assert_never(step)


async def _predicate(predicate: Any, result: AgentResult) -> bool:
    """A predicate's answer; an awaitable is awaited, never taken as true."""
    answer = predicate(result)
    while not isinstance(answer, bool) and inspect.isawaitable(answer):
        answer = await answer
    if isinstance(answer, tuple | Generator | AsyncGenerator) or callable(answer):
        # Each would count as true, also (False, "why") and what has not run yet.
        raise GradingError(
            f"a predicate gave {answer!r:.80}; give a bool: (bool, feedback) is for criteria"
        )
    return bool(answer)


async def grade_answer(run: Run, at: At, result: AgentResult) -> Graded:
    """The verifier's grade of an answer, once."""
    verifier = _loop(run).verifier
    if verifier is None:
        raise RuntimeError("a grade was asked for without a verifier")
    return await _grade(run, at, verifier, result)


def confidence_of(run: Run, result: AgentResult) -> float | None:
    """The confidence that somebody set; one that is none is told of in the log and not kept."""
    value: object = result.confidence
    confidence = checked_confidence(value)
    if confidence is None and value is not None:
        _log.warning(
            "the confidence of an answer of agent %r was set to %.80r and is left out: set"
            " result.confidence to a number from 0 to 1",
            run.agent.name,
            value,
        )
    return confidence


async def _grade(run: Run, at: At, grader: Grader, result: AgentResult) -> Graded:
    judge = run.judge_of_branch(at.branch) if at.branch else run.judge_model
    feedback = await grader.evaluate(run.query, result, default_model=judge)
    threshold = getattr(grader, "threshold", DEFAULT_THRESHOLD)
    return graded(at, feedback, threshold, confidence_of(run, result))


async def _criterion(run: Run, at: At, criterion: Any, result: AgentResult) -> object:
    if _is_grader(criterion):
        return await _grader_as_criterion(run, at, criterion, result)
    evaluate = getattr(criterion, "evaluate", criterion)
    answer = evaluate(_context(run, result))
    while not isinstance(answer, bool | CriterionVerdict) and inspect.isawaitable(answer):
        answer = await answer
    return answer


def _is_grader(criterion: Any) -> bool:
    return all(hasattr(criterion, name) for name in ("evaluate", "threshold", "confirmations"))


async def _grader_as_criterion(
    run: Run, at: At, grader: Grader, result: AgentResult
) -> CriterionVerdict:
    """A verifier among the criteria: a pass is confirmed, the score chooses nothing."""
    for _ in range(1 + grader.confirmations):
        grade = await _grade(run, at, grader, result)
        if not grade.converged:
            return CriterionVerdict(satisfied=False, feedback=grade_in_words(grade) or None)
    return CriterionVerdict(satisfied=True)


def _context(run: Run, result: AgentResult) -> CriterionContext:
    state = run.state
    return CriterionContext(
        iteration=state.iteration,
        result=result,
        original=() if state.started is None else state.started.messages,
        feedback_log=tuple(state.feedback_log),
        agent_name=run.agent.name,
        query=run.query,
        model=run.judge_model,
        attempts=tuple(state.attempts),
    )


async def _fail(run: Run, step: Judgement, error: BaseException) -> None:
    name, index = _name_of(_loop(run), step)
    await fail_judging(run, name, index, error)


async def fail_judging(run: Run, name: str, index: int | None, error: BaseException | str) -> None:
    """Closes the iteration because ``name`` raised instead of judging.

    Of what it raised before the run was resumed there is only the text.
    """
    run.failure = None if isinstance(error, str) else error
    text = error if isinstance(error, str) else describe(error)
    _log.warning(
        "%s of agent %r raised in iteration %d: %s",
        name,
        run.agent.name,
        run.state.iteration,
        text,
    )
    ended = decide_failed(run.state, run.loop_rules, run.at(), name=name, index=index, error=text)
    await record_episode(run, ended)
    await run.record(ended)


def _name_of(loop: LoopConfig, step: Judgement) -> tuple[str, int | None]:
    match step:
        case AskStopCondition():
            return "stop_condition", None
        case AskConvergence():
            return "convergence_fn", None
        case Grade():
            return "verifier", None
        case AskCriterion(index):
            return criterion_name(loop.criteria[index]), index
        case _:
            assert_never(step)


def _loop(run: Run) -> LoopConfig:
    if run.loop is None:
        msg = "nothing is judged outside a refine loop"
        raise RuntimeError(msg)
    return run.loop
