"""The refine loop: run the agent, judge its answer, refine, until there is a reason to stop.

What comes next is decided by ``policy.steps.next_step`` from the state alone, and every change of
the state is an event; so this loop can be cut anywhere and goes on from its log. A run without a
refine loop passes here too: it is one agent run and an end.
"""

from __future__ import annotations

from typing import assert_never

from untildone.cancellation import OwnCancellation
from untildone.domain.log import IterationStarted
from untildone.domain.results import AgentResult
from untildone.engine.branches import take_branches
from untildone.engine.context import Run
from untildone.engine.ending import end_run
from untildone.engine.judging import judge
from untildone.engine.refining import close_iteration, refine_for_next
from untildone.engine.turns import run_turns
from untildone.policy.steps import (
    AskConvergence,
    AskCriterion,
    AskStopCondition,
    CloseIteration,
    EndRun,
    Grade,
    GradeBranches,
    Refine,
    RunAgent,
    RunBranches,
    SelectBranch,
    StartIteration,
    next_step,
)


async def refine(run: Run) -> AgentResult:
    """Runs a started run to its end and gives its result, or raises what its exit calls for."""
    cancellation = OwnCancellation()
    while True:
        cancellation.stop_if_asked()
        step = next_step(run.state)
        match step:
            case StartIteration():
                await run.record(IterationStarted(run.at(iteration=run.state.iteration + 1)))
            case RunAgent():
                await run_turns(run)
            case RunBranches() | GradeBranches() | SelectBranch():
                await take_branches(run, step)
            case AskStopCondition() | Grade() | AskConvergence() | AskCriterion():
                await judge(run, step)
            case CloseIteration():
                await close_iteration(run)
            case Refine():
                await refine_for_next(run)
            case EndRun(reason):
                return await end_run(run, reason)
            case _:
                assert_never(step)
