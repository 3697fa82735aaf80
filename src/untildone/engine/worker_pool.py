"""Threads for blocking tools: shared by all runs of the process, started when one is needed."""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context, copy_context
from queue import Empty, SimpleQueue
from typing import Any, Final

IDLE_S: Final = 5.0
"""An idle thread waits that long for work, in seconds, and ends."""


class WorkerPool:
    """Runs blocking functions of one run, at most ``size`` of them at once.

    One that waits for its turn waits for others of its own run only, so that a blocking tool which
    itself starts a run can never wait for a thread that only it could free. A function that is
    given up still runs, and still counts. None is waited for when the process ends.
    """

    __slots__ = ("_running", "_size", "_waiting")

    def __init__(self, size: int) -> None:
        self._size = size
        self._running = 0
        self._waiting: deque[_Call] = deque()

    async def __call__(self, function: Callable[[], Any]) -> Any:
        """Runs a function with the caller's context variables and gives what it returns.

        Raises:
            BaseException: What the function raises.
            RuntimeError: The system has no thread left to run it in.
        """
        call = _Call(function, copy_context(), asyncio.get_running_loop(), self._end)
        self._waiting.append(call)
        self._start()
        try:
            return await call.future
        finally:
            del call  # an error's traceback would keep it, and it the error

    def close(self) -> None:
        """Gives up what has not begun; what runs in a thread is not waited for."""
        for call in self._waiting:
            call.future.cancel()
        self._waiting.clear()

    def _start(self) -> None:
        while self._waiting and self._running < self._size:
            call = self._waiting.popleft()
            if call.future.done():  # it was cancelled while it waited
                continue
            try:
                _threads.run(call)
            except RuntimeError as error:
                call.future.set_exception(error)
            else:
                self._running += 1

    def _end(self) -> None:
        self._running -= 1
        self._start()


class _Call:
    """One function on its way through a thread and back into its loop."""

    __slots__ = ("_context", "_end", "_error", "_function", "_loop", "_value", "future")

    def __init__(
        self,
        function: Callable[[], Any],
        context: Context,
        loop: asyncio.AbstractEventLoop,
        end: Callable[[], None],
    ) -> None:
        self.future: asyncio.Future[Any] = loop.create_future()
        self._function = function
        self._context = context
        self._loop = loop
        self._end = end
        self._value: Any = None
        self._error: BaseException | None = None

    def run(self) -> None:
        """In the thread."""
        try:
            self._value = self._context.run(self._function)
        except StopIteration as error:  # no future can carry it
            self._error = RuntimeError(f"a blocking function raised {error!r}")
        except BaseException as error:
            self._error = error

    def tell(self) -> None:
        """In the thread: the loop is told, if it still runs."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        error, self._error = self._error, None
        if not self.future.done():
            if error is None:
                self.future.set_result(self._value)
            else:
                self.future.set_exception(error)
        self._end()


class _Threads:
    """The threads. They are daemons: Python joins all others before it ends."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """After a fork: a child has none of its parent's threads."""
        self._lock = threading.Lock()
        self._idle: dict[SimpleQueue[_Call], None] = {}

    def run(self, call: _Call) -> None:
        """Has an idle thread run it, or a new one.

        Raises:
            RuntimeError: No thread can be started.
        """
        with self._lock:
            inbox = self._idle.popitem()[0] if self._idle else None
        if inbox is None:
            inbox = SimpleQueue[_Call]()
            threading.Thread(
                target=self._work, args=(inbox,), name="untildone-tool", daemon=True
            ).start()
        inbox.put(call)

    def _work(self, inbox: SimpleQueue[_Call]) -> None:
        call = inbox.get()
        while True:
            call.run()
            with self._lock:
                self._idle[inbox] = None  # before the loop is told, which may have more work
            call.tell()
            del call
            try:
                call = inbox.get(timeout=IDLE_S)
            except Empty:
                with self._lock:
                    if self._idle.pop(inbox, inbox) is None:
                        return
                call = inbox.get()  # it was given some in this very moment


_threads: Final = _Threads()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_threads.forget)
