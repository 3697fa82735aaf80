"""Worker threads for blocking tools: made when first needed, gone when the run ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor


class WorkerPool:
    """Runs blocking functions of one run in at most ``size`` threads.

    A pool of its own for each run, so that a blocking tool which itself starts a run can never
    wait for a thread that only it could free.
    """

    __slots__ = ("_executor", "_size")

    def __init__(self, size: int) -> None:
        self._size = size
        self._executor: ThreadPoolExecutor | None = None

    async def __call__(self, function: Callable[[], Any]) -> Any:
        """Runs a function with the caller's context variables and gives what it returns."""
        if self._executor is None:
            from concurrent.futures import ThreadPoolExecutor

            self._executor = ThreadPoolExecutor(self._size, thread_name_prefix="untildone-tool")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, copy_context().run, function)

    def close(self) -> None:
        """Lets the threads end; a function still running there is not waited for."""
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)
            self._executor = None
