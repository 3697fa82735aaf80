"""One run, from its plan to the exit status of the command."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final

from untildone.cli.exit_status import READER_LEFT, TERMINATED
from untildone.cli.failures import show_trace
from untildone.cli.interrupts import Interrupts
from untildone.cli.outcome import Outcome, outcome_of
from untildone.cli.plan import Plan
from untildone.cli.view import View
from untildone.domain.log import LogEvent, ModelCallStarted
from untildone.domain.stream import EventType, StreamEvent
from untildone.run import aclose, run_agent

_log = logging.getLogger("untildone")
_TOLD_BY_EVENTS: Final = ("judging", "ai_judge")
"""The modules whose warnings say what the events say too, which the views show."""


def run_plan(plan: Plan, task: str, view: View) -> int:
    """Runs and shows it; gives the exit status."""
    with Interrupts(view.say) as interrupts, _warnings_shown_by(view):
        try:
            outcome = asyncio.run(_run(plan, task, view, interrupts))
            interrupts.settle()
            view.ended(outcome)
        except BrokenPipeError:
            _forget_stdout()
            return READER_LEFT
        finally:
            view.close()
        if outcome.error is not None:
            show_trace(outcome.error)
    return TERMINATED if interrupts.received == signal.SIGTERM else outcome.status


async def _run(plan: Plan, task: str, view: View, interrupts: Interrupts) -> Outcome:
    queue: asyncio.Queue[Any] = asyncio.Queue()
    began = time.monotonic()
    view.started(plan)
    messages = [{"role": "user", "content": task}]
    # One queue for both kinds of events keeps them in the order in which they happened.
    run = asyncio.create_task(run_agent(plan.agent, messages, queue=queue, log=_Feed(queue)))
    interrupts.watch(run)
    reply = _ReplySoFar()
    try:
        while (event := await queue.get()) is not None:
            reply.note(event)
            view.show(event)
        await asyncio.wait([run])
    finally:
        if not run.done():
            run.cancel()
            await asyncio.wait([run])
        await aclose()
    return outcome_of(run, time.monotonic() - began, reply.text)


class _ReplySoFar:
    """What has come of the reply that the model is giving, or gave last."""

    def __init__(self) -> None:
        self.text = ""

    def note(self, event: StreamEvent | LogEvent) -> None:
        if isinstance(event, ModelCallStarted):
            if event.purpose == "worker":
                self.text = ""
        elif isinstance(event, StreamEvent) and "branch" not in event.data:
            if event.event is EventType.TEXT_DELTA:
                self.text += event.data["chunk"]
            elif discarded := event.data.get("discard_chars"):
                self.text = self.text[:-discarded]


class _Feed:
    """Hands log events to the reader of the live ones."""

    def __init__(self, queue: asyncio.Queue[Any]) -> None:
        self._queue = queue

    def write(self, event: LogEvent) -> None:
        self._queue.put_nowait(event)


class _WarningLines(logging.Handler):
    """Log records of warning level as lines of the view, without tracebacks."""

    def __init__(self, view: View) -> None:
        super().__init__(logging.WARNING)
        self._view = view

    def emit(self, record: logging.LogRecord) -> None:
        if record.module in _TOLD_BY_EVENTS:
            return
        self._view.say(f"warning: {record.getMessage()}")


@contextmanager
def _warnings_shown_by(view: View) -> Generator[None]:
    handler = _WarningLines(view)
    propagate = _log.propagate
    _log.addHandler(handler)
    _log.propagate = False

    def show(message: Warning | str, *_: object, **__: object) -> None:
        view.say(f"warning: {message}")

    with warnings.catch_warnings():
        warnings.showwarning = show
        try:
            yield
        finally:
            _log.propagate = propagate
            _log.removeHandler(handler)


def _forget_stdout() -> None:
    """Python would complain at exit about what it could not write."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        return
