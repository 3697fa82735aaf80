"""Ctrl-C once: the run is stopped and the best so far shown. Twice: the process ends at once."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Final, Self

from untildone.cli.exit_status import STATUS_OF, TERMINATED
from untildone.domain.exits import ExitReason

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """Cancels a task when the process is asked to stop. Use it around the event loop.

    A handler of the loop would never run while a tool or check of the user blocks it, so these
    are the process's own.

    Args:
        say: Shows a line to the person at the terminal.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._before: dict[int, Any] = {}
        self._task: asyncio.Task[Any] | None = None
        self.received: int | None = None
        """The signal that stopped the run, if one did."""

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def watch(self, task: asyncio.Task[Any]) -> None:
        """The task to cancel."""
        self._task = task
        if self.received is not None:
            task.cancel()

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self.received is not None:
            self._quit(number)
        self.received = number
        if number == signal.SIGINT:
            self._say("stopping; Ctrl-C again quits at once")
        task = self._task
        if task is not None:
            task.get_loop().call_soon_threadsafe(task.cancel)

    def _quit(self, number: int) -> None:
        """Leaves without waiting for anything: a tool may be stuck where nothing can reach it."""
        is_term = number == signal.SIGTERM
        os._exit(TERMINATED if is_term else STATUS_OF[ExitReason.CANCELLED])
