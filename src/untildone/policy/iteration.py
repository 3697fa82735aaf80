"""What becomes of an iteration, once everything that judges it has spoken.

The order is the contract's (semantics.md, refine loop, steps 3 to 7).
"""

from __future__ import annotations

from untildone.domain.exits import ExitReason
from untildone.domain.log import At, IterationEnded
from untildone.policy.feedback import has_feedback
from untildone.policy.rules import LoopRules
from untildone.policy.state import RunState


def evaluates_criteria(state: RunState, loop: LoopRules) -> bool:
    """Whether ``criteria`` are asked in this iteration.

    They are when the verifier or ``convergence_fn``, if set, passed. On the last iteration there
    is nothing left to decide, unless the run would fail or the caller wants to know (S3).
    """
    if not loop.criteria or not _pair_passed(state, loop):
        return False
    is_last = state.iteration >= loop.max_iterations
    return not is_last or loop.fail_when_exhausted or loop.evaluate_final


def decide(state: RunState, loop: LoopRules, at: At) -> IterationEnded:
    """The decision about the current iteration, everything asked having answered."""
    score = state.grade.score if state.grade is not None else None
    ended = IterationEnded(
        at, exit=None, converged=False, score=score, agent_exit=state.current.exit
    )
    if state.stop_verdict:
        ended.exit = ExitReason.STOP_CONDITION
        ended.early_stop = "stop_condition"
    elif _accepted(state, loop):
        ended.exit = ExitReason.CONVERGED
        ended.converged = True
    elif _plateaued(state, loop, score):
        ended.early_stop = "plateau"
        _exhaust(ended, loop, ExitReason.PLATEAU)
    elif state.iteration >= loop.max_iterations:
        ended.ceiling_reached = True
        _exhaust(ended, loop, ExitReason.MAX_ITERATIONS)
    else:
        ended.continued_by, ended.criterion_index = _asking(state, loop)
        ended.has_feedback = has_feedback(state)
    return ended


def decide_failed(
    state: RunState, loop: LoopRules, at: At, *, name: str, index: int | None, error: str
) -> IterationEnded:
    """The decision about an iteration of which ``name`` raised instead of judging it."""
    return IterationEnded(
        at,
        exit=ExitReason.CRITERION_ERROR,
        converged=False,
        failed_criterion=name,
        criterion_index=index,
        fails_run=loop.fail_on_criterion_error,
        score=state.grade.score if state.grade is not None else None,
        agent_exit=state.current.exit,
        error=error,
    )


def _pair_passed(state: RunState, loop: LoopRules) -> bool:
    if not (loop.has_verifier or loop.has_convergence_fn):
        return True
    return bool(state.convergence) or (state.grade is not None and state.grade.converged)


def _accepted(state: RunState, loop: LoopRules) -> bool:
    if not _pair_passed(state, loop):
        return False
    if not loop.criteria:
        return loop.has_verifier or loop.has_convergence_fn
    judged = state.verdicts
    return len(judged) == len(loop.criteria) and judged[-1].satisfied


def _plateaued(state: RunState, loop: LoopRules, score: float | None) -> bool:
    if not loop.adaptive or score is None:
        return False
    return state.plateau.add(score, loop.min_improvement).reached(loop.plateau_patience)


def _exhaust(ended: IterationEnded, loop: LoopRules, reason: ExitReason) -> None:
    ended.fails_run = loop.fail_when_exhausted
    ended.exit = ExitReason.UNSATISFIED if loop.fail_when_exhausted else reason


def _asking(state: RunState, loop: LoopRules) -> tuple[str | None, int | None]:
    """Who asks for another iteration: its name, and its index where it is a criterion."""
    if state.verdicts and not state.verdicts[-1].satisfied:
        judged = state.verdicts[-1]
        return judged.name, judged.index
    if loop.has_verifier:
        return "verifier", None
    return ("convergence_fn", None) if loop.has_convergence_fn else (None, None)
