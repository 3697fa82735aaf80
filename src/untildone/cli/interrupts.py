"""Ctrl-C once: the run is stopped and the best so far shown. Twice: the process ends at once."""

from __future__ import annotations

import _thread
import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any, Final, Self

from untildone.cli.exit_status import STATUS_OF, TERMINATED
from untildone.domain.exits import ExitReason

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_TELLING_S: Final = 1.0
_SHOW_CURSOR: Final = b"\x1b[?25h\n"
"""What a line that moves has hidden, a process that just ends would leave hidden."""


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
        self._told = threading.Event()
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
        task = self._task
        if task is not None:
            task.get_loop().call_soon_threadsafe(task.cancel)
        if number == signal.SIGINT:
            # Not from here: what this handler has interrupted may hold the terminal's locks, which
            # the thread of the line that moves waits for. ``threading.Thread`` has locks too.
            _thread.start_new_thread(self._tell, ())

    def _tell(self) -> None:
        try:
            with suppress(OSError):
                self._say("stopping; Ctrl-C again quits at once")
        finally:
            self._told.set()

    def settle(self) -> None:
        """Waits until the person has been told, so that no later line comes before that one."""
        if self.received == signal.SIGINT:
            self._told.wait(_TELLING_S)

    def _quit(self, number: int) -> None:
        """Leaves without waiting for anything: a tool may be stuck where nothing can reach it."""
        if sys.stderr.isatty():
            os.write(sys.stderr.fileno(), _SHOW_CURSOR)
        is_term = number == signal.SIGTERM
        os._exit(TERMINATED if is_term else STATUS_OF[ExitReason.CANCELLED])
