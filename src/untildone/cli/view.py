"""What is seen of a run: its progress on stderr, its answer on stdout.

A view gets the run's events in order, those of the log and those for live readers in one row, and
decides nothing.
"""

from __future__ import annotations

import json
import sys
from typing import Any, Final, Protocol

from untildone.cli.failures import in_words
from untildone.cli.outcome import Outcome
from untildone.cli.plan import Plan
from untildone.cli.text import counted, shown_text
from untildone.domain.exits import ExitReason
from untildone.domain.log import LogEvent
from untildone.domain.results import AgentResult
from untildone.domain.stream import EventType, StreamEvent

_LAST: Final = (EventType.DONE, EventType.ERROR)


class View(Protocol):
    """Shows a run."""

    def started(self, plan: Plan) -> None:
        """The run is about to begin."""
        ...

    def show(self, event: StreamEvent | LogEvent) -> None:
        """Something happened."""
        ...

    def say(self, line: str) -> None:
        """Tells the person something that is no event; may be called from another thread."""
        ...

    def ended(self, outcome: Outcome) -> None:
        """The run is over."""
        ...

    def close(self) -> None:
        """Nothing more is shown, whatever happened; may be called twice."""
        ...


class QuietView:
    """The answer, and one line on stderr where the work is not done or the answer was cut."""

    def started(self, plan: Plan) -> None:
        """Shows nothing."""

    def show(self, event: StreamEvent | LogEvent) -> None:
        """Shows nothing."""

    def say(self, line: str) -> None:
        """Shows nothing."""

    def ended(self, outcome: Outcome) -> None:
        """Writes the answer."""
        write_answer(outcome.text)
        words = cut_in_words(outcome) if outcome.is_done else ending_in_words(outcome)
        if words:
            sys.stderr.write(f"{' · '.join(line.strip() for line in words.splitlines())}\n")

    def close(self) -> None:
        """Has nothing to close."""


class JsonView:
    """The live events, one JSON object a line, on stdout; the last one says how it ended."""

    def __init__(self) -> None:
        self._last: StreamEvent | None = None

    def started(self, plan: Plan) -> None:
        """Shows nothing: the run's own first event says it."""

    def show(self, event: StreamEvent | LogEvent) -> None:
        """Writes a live event; the last one waits for the outcome."""
        if not isinstance(event, StreamEvent):
            return
        if event.event in _LAST:
            self._last = event
        else:
            _write_line(event.to_dict())

    def say(self, line: str) -> None:
        """Shows nothing: a reader of JSON lines has the events."""

    def ended(self, outcome: Outcome) -> None:
        """Writes the last event, with what a script needs to go on."""
        kind = EventType.DONE if outcome.error is None else EventType.ERROR
        last = self._last or StreamEvent(kind)
        line = last.to_dict() | {
            "exit_reason": outcome.reason.value,
            "exit_status": outcome.status,
            "final_text": outcome.text,
            "seconds": round(outcome.seconds, 3),
        }
        result = outcome.result
        if result is not None:
            line |= {
                "best_iteration": result.best_iteration,
                "error": result.error,
                "finish_reason": result.finish_reason,
            }
        _write_line(line)
        cause = cause_in_words(outcome)
        if cause:
            sys.stderr.write(f"error: {cause}\n")

    def close(self) -> None:
        """Has nothing to close."""


def _write_line(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line, ensure_ascii=False, default=str) + "\n")
    sys.stdout.flush()


def write_answer(text: str) -> None:
    """Writes the answer to stdout: verbatim, but to a terminal without control characters."""
    if not text:
        return
    shown = shown_text(text) if sys.stdout.isatty() else text
    sys.stdout.write(shown if shown.endswith("\n") else f"{shown}\n")
    sys.stdout.flush()


def ending_in_words(outcome: Outcome) -> str:
    """Why the run ended with its facts; on further lines what failed and what was cut."""
    reason = outcome.reason
    parts = [f"{reason.value}: {reason.in_words}"]
    if outcome.result is not None:
        parts += _facts(outcome.result)
    parts.append(f"{outcome.seconds:.1f} s")
    more = [text for text in (cause_in_words(outcome), cut_in_words(outcome)) if text]
    return "\n  ".join([" · ".join(parts), *more])


_CUT: Final = {
    "length": "the reply was cut at its token limit: give a larger --max-tokens, or another model"
    " with --model",
    "content_filter": "the provider's content filter cut the reply: change the task, or give"
    " another model with --model",
}


def cut_in_words(outcome: Outcome) -> str:
    """That the reply is not whole, and what to do; ``""`` where it is."""
    reason = outcome.result.finish_reason if outcome.result is not None else None
    return _CUT.get(reason or "", "")


def cause_in_words(outcome: Outcome) -> str:
    """What failed, where something did; ``""`` otherwise."""
    if outcome.reason in (ExitReason.CANCELLED, ExitReason.UNSATISFIED):
        return ""  # the reason says it all
    if outcome.error is not None:
        return shown_text(in_words(outcome.error))
    error = outcome.result.error if outcome.result is not None else None
    return shown_text(" ".join(error.split())) if error else ""


def _facts(result: AgentResult) -> list[str]:
    facts: list[str] = []
    if result.loop_iterations:
        facts.append(counted(result.loop_iterations, "iteration"))
    if result.best_iteration and result.text and result.exit_reason is not ExitReason.CONVERGED:
        what = "best so far" if result.scores else "answer"
        facts.append(f"{what}: iteration {result.best_iteration}")
    facts += [counted(result.turns, "turn"), _tokens(result)]
    option = None if result.exit_reason is None else _MORE.get(result.exit_reason)
    if option is not None:
        facts.append(f"{option} allows more")
    if not result.text and result.turns:
        facts.append("the answer is empty")
    return facts


_MORE: Final = {
    ExitReason.MAX_ITERATIONS: "--max-iterations",
    ExitReason.MAX_TURNS: "--max-turns",
    ExitReason.UNSATISFIED: "--max-iterations",
}


def _tokens(result: AgentResult) -> str:
    if not result.unknown_usage_calls:
        return counted(result.total_tokens, "token")
    known = result.total_tokens
    return f"{counted(known, 'token')} or more" if known else "tokens unknown"
