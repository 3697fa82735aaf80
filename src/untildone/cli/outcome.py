"""How a run ended, for whoever shows it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from untildone.cli.exit_status import STATUS_OF, USAGE
from untildone.domain.errors import ConfigError, LoopConvergedError, partial_result
from untildone.domain.exits import ExitReason
from untildone.domain.results import AgentResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a run ended.

    Attributes:
        reason: Why.
        result: The result; of a run that raised, the best so far, if any.
        error: What it raised, where that is a failure.
        seconds: How long it took.
        unfinished: What had come of a reply that was cut off: no reply, so in no result.
    """

    reason: ExitReason
    result: AgentResult | None
    error: BaseException | None
    seconds: float
    unfinished: str = ""

    @property
    def status(self) -> int:
        """The exit status of the command."""
        nothing_ran = self.result is None or not self.result.turns
        if isinstance(self.error, ConfigError) and nothing_ran:
            return USAGE
        return STATUS_OF[self.reason]

    @property
    def is_done(self) -> bool:
        """Whether the work is done."""
        return self.status == 0

    @property
    def text(self) -> str:
        """The answer, or the best so far; where there is none, what had come of it."""
        text = self.result.text if self.result is not None else ""
        return text or (self.unfinished if self.error is not None else "")


def outcome_of(task: asyncio.Task[AgentResult], seconds: float, unfinished: str = "") -> Outcome:
    """The outcome of a run whose task is done."""
    return replace(_outcome_of(task, seconds), unfinished=unfinished)


def _outcome_of(task: asyncio.Task[AgentResult], seconds: float) -> Outcome:
    try:
        result = task.result()
    except asyncio.CancelledError as error:
        return _raised(ExitReason.CANCELLED, error, seconds)
    except LoopConvergedError as error:
        return Outcome(
            reason=ExitReason.STOP_CONDITION, result=error.result, error=None, seconds=seconds
        )
    except Exception as error:
        return _raised(ExitReason.ERROR, error, seconds)
    reason = result.exit_reason or ExitReason.ERROR
    return Outcome(reason=reason, result=result, error=None, seconds=seconds)


def _raised(fallback: ExitReason, error: BaseException, seconds: float) -> Outcome:
    result = partial_result(error)
    reason = result.exit_reason if result is not None else None
    return Outcome(reason=reason or fallback, result=result, error=error, seconds=seconds)
