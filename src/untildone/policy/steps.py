"""What comes next: the decisions of both loops as values.

``next_step`` drives ``engine/refine.py``, ``next_turn`` drives ``engine/turns.py``. Both only read
the state, so asking twice gives the same answer, and asking after a crash goes on where the log
ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from untildone.domain.exits import ExitReason
from untildone.policy.branches import candidates_to_grade, candidates_to_run
from untildone.policy.iteration import evaluates_criteria
from untildone.policy.rules import LoopRules, RunRules
from untildone.policy.state import AgentRun, RunState
from untildone.policy.stuck import StuckSignal

# --- The refine loop ------------------------------------------------------------------------------


class StartIteration:
    """Begin the next iteration."""

    __slots__ = ()


class RunAgent:
    """Do turns until an inner exit."""

    __slots__ = ()


class RunBranches:
    """Take the candidates that have to run to their inner exits."""

    __slots__ = ()


class GradeBranches:
    """Grade the candidates, each once."""

    __slots__ = ()


class SelectBranch:
    """Choose the candidate that goes forward, or merge them."""

    __slots__ = ()


class AskStopCondition:
    """Ask ``stop_condition``."""

    __slots__ = ()


class Grade:
    """Ask the verifier, for a grade or for one more confirmation of a pass."""

    __slots__ = ()


class AskConvergence:
    """Ask ``convergence_fn``."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class AskCriterion:
    """Ask ``criteria[index]``."""

    index: int


class CloseIteration:
    """Decide about the iteration: everything that is asked has answered."""

    __slots__ = ()


class Refine:
    """Prepare what the next iteration is told."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class EndRun:
    """End the run."""

    reason: ExitReason


Step = (
    StartIteration
    | RunAgent
    | RunBranches
    | GradeBranches
    | SelectBranch
    | AskStopCondition
    | Grade
    | AskConvergence
    | AskCriterion
    | CloseIteration
    | Refine
    | EndRun
)

_START_ITERATION = StartIteration()
_RUN_AGENT = RunAgent()
_RUN_BRANCHES = RunBranches()
_GRADE_BRANCHES = GradeBranches()
_SELECT_BRANCH = SelectBranch()
_ASK_STOP_CONDITION = AskStopCondition()
_GRADE = Grade()
_ASK_CONVERGENCE = AskConvergence()
_CLOSE_ITERATION = CloseIteration()
_REFINE = Refine()


def next_step(state: RunState) -> Step:
    """The next step of a run that has started and not ended."""
    loop = state.rules.loop
    if loop is not None and not state.runs:
        return _START_ITERATION
    if loop is not None and loop.branches > 1 and not state.selected and state.closed is None:
        return _next_of_branches(state, loop)
    inner = state.current.exit
    if inner is None:
        return _RUN_AGENT
    if loop is None or inner is ExitReason.AWAITING_APPROVAL:
        return EndRun(inner)
    if state.closed is not None:
        return _REFINE if state.closed.exit is None else EndRun(state.closed.exit)
    if inner is ExitReason.MAX_TURNS and state.rules.raise_on_max_turns:
        return EndRun(ExitReason.ERROR)
    return _next_judgement(state, loop)


def _next_of_branches(state: RunState, loop: LoopRules) -> Step:
    if candidates_to_run(state, loop):
        return _RUN_BRANCHES
    if any(run.exit is ExitReason.AWAITING_APPROVAL for run in state.runs):
        return EndRun(ExitReason.AWAITING_APPROVAL)
    if loop.has_verifier and candidates_to_grade(state, loop):
        return _GRADE_BRANCHES
    return _SELECT_BRANCH


def _next_judgement(state: RunState, loop: LoopRules) -> Step:
    if loop.has_stop_condition and state.stop_verdict is None:
        return _ASK_STOP_CONDITION
    if state.stop_verdict:
        return _CLOSE_ITERATION
    grade = state.grade
    if loop.has_verifier and (
        grade is None or (grade.converged and state.gradings <= loop.confirmations)
    ):
        return _GRADE
    passed = grade is not None and grade.converged
    if loop.has_convergence_fn and not passed and state.convergence is None:
        return _ASK_CONVERGENCE
    if evaluates_criteria(state, loop):
        judged = state.verdicts
        all_satisfied = not judged or judged[-1].satisfied
        if all_satisfied and len(judged) < len(loop.criteria):
            return AskCriterion(len(judged))
    return _CLOSE_ITERATION


OUTPUT_REPAIRS: Final = 1
"""How often a reply that does not fit ``response_model`` is sent back."""

# --- The turn loop --------------------------------------------------------------------------------


class CallModel:
    """Ask the model for the next reply."""

    __slots__ = ()


class RunTools:
    """Answer the open calls of the batch."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Nudge:
    """Tell the agent once that it repeats itself."""

    signal: StuckSignal


@dataclass(frozen=True, slots=True)
class EndAgentRun:
    """End the agent run."""

    reason: ExitReason


class CheckOutput:
    """Hold the reply against ``response_model``."""

    __slots__ = ()


class RefuseOutput:
    """Fail: the reply does not fit, also after its repair."""

    __slots__ = ()


TurnStep = CallModel | RunTools | Nudge | CheckOutput | RefuseOutput | EndAgentRun

_CALL_MODEL = CallModel()
_RUN_TOOLS = RunTools()
_CHECK_OUTPUT = CheckOutput()
_REFUSE_OUTPUT = RefuseOutput()
_SATISFIED = EndAgentRun(ExitReason.SATISFIED)
_STUCK = EndAgentRun(ExitReason.STUCK)
_MAX_TURNS = EndAgentRun(ExitReason.MAX_TURNS)
_AWAITING_APPROVAL = EndAgentRun(ExitReason.AWAITING_APPROVAL)


def next_turn(run: AgentRun, rules: RunRules) -> TurnStep:
    """The next step of an agent run that has no exit yet (semantics.md, the turn loop)."""
    if run.calls:
        return _AWAITING_APPROVAL if _only_waits_for_people(run) else _RUN_TOOLS
    if run.replied_without_calls:
        if not rules.has_output or run.output_fits:
            return _SATISFIED
        return _CHECK_OUTPUT if run.output_problems <= OUTPUT_REPAIRS else _REFUSE_OUTPUT
    signal = run.signal
    if signal is not None:
        if rules.stuck.action == "nudge" and not run.nudged:
            return Nudge(signal)
        if signal.level == "stop":
            return _STUCK
    return _MAX_TURNS if run.turns >= rules.max_turns else _CALL_MODEL


def _only_waits_for_people(run: AgentRun) -> bool:
    if not run.approvals:
        return False
    return all(
        answer is not None or run.approvals.get(index, True) is None
        for index, answer in enumerate(run.answers)
    )
