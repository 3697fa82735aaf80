"""Why a run ended."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class ExitReason(StrEnum):
    """The reason a run, or one agent run inside a refine loop, ended.

    The value stands on every result, terminal event, log line, metric and stored run. The first
    three belong to the turn loop, the next six to the refine loop, the last four to both.
    """

    SATISFIED = "satisfied"
    """The model replied without asking for a tool."""
    MAX_TURNS = "max_turns"
    """The turn loop used its last turn (``Agent.max_turns``)."""
    STUCK = "stuck"
    """The stuck detector reached stop level after its one nudge."""

    CONVERGED = "converged"
    """Everything that judges the work accepted it."""
    STOP_CONDITION = "stop_condition"
    """``stop_condition`` was true, or ``LoopConvergedError`` was raised by a predicate."""
    PLATEAU = "plateau"
    """The verifier's score stopped improving (``adaptive=True``)."""
    MAX_ITERATIONS = "max_iterations"
    """The refine loop used its last iteration (``LoopConfig.max_iterations``)."""
    UNSATISFIED = "unsatisfied"
    """Nothing accepted the work and ``on_exhausted`` is ``FAIL_RUN``."""
    CRITERION_ERROR = "criterion_error"
    """Something that judges the work raised."""

    BUDGET = "budget"
    """The run's budget was spent."""
    AWAITING_APPROVAL = "awaiting_approval"
    """A tool call waits for a person; the run can be resumed."""
    CANCELLED = "cancelled"
    """The run's task was cancelled."""
    ERROR = "error"
    """The run failed with an exception."""

    @property
    def in_words(self) -> str:
        """The reason as a short sentence for people."""
        return _IN_WORDS[self]


_IN_WORDS: Final[dict[ExitReason, str]] = {
    ExitReason.SATISFIED: "the model answered and asked for no more tools",
    ExitReason.MAX_TURNS: "the agent used its last turn",
    ExitReason.STUCK: "the agent kept repeating itself after a nudge",
    ExitReason.CONVERGED: "every check accepted the answer",
    ExitReason.STOP_CONDITION: "the stop condition was met",
    ExitReason.PLATEAU: "the score stopped improving",
    ExitReason.MAX_ITERATIONS: "the last allowed iteration was used",
    ExitReason.UNSATISFIED: "no iteration was accepted",
    ExitReason.CRITERION_ERROR: "a check could not be evaluated",
    ExitReason.BUDGET: "the budget was spent",
    ExitReason.AWAITING_APPROVAL: "a tool call waits for approval",
    ExitReason.CANCELLED: "the run was cancelled",
    ExitReason.ERROR: "the run failed with an error",
}
