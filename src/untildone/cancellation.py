"""Tasks of a run: several at once, and whose cancellation a ``CancelledError`` is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Iterable
from contextvars import ContextVar
from typing import Any, TypeVar

T = TypeVar("T")

_begun_in: ContextVar[tuple[asyncio.Task[Any] | None, int]] = ContextVar(
    "untildone_begun_in", default=(None, 0)
)
"""The task that a run began in, and how often it had been cancelled before."""


def is_being_cancelled() -> bool:
    """Whether the running task itself was asked to stop, since its run began.

    A ``CancelledError`` without that comes out of something the task awaited, such as a future
    that somebody else cancelled; it is a failure of that thing and not the end of the run.
    """
    task = asyncio.current_task()
    begun_in, before = _begun_in.get()
    return task is None or task.cancelling() > (before if task is begun_in else 0)


class OwnCancellation:
    """The running task's own cancellation, for a loop in it that looks often: a tenth of the cost.

    Only for the task that it was made in.
    """

    __slots__ = ("_before", "_task")

    def __init__(self) -> None:
        self._task = asyncio.current_task()
        begun_in, before = _begun_in.get()
        self._before = before if self._task is begun_in else 0

    def stop_if_asked(self) -> None:
        """As ``stop_if_cancelled``.

        Raises:
            CancelledError: The task was asked to stop and nobody passed it on.
        """
        if self._task is None or self._task.cancelling() > self._before:
            raise asyncio.CancelledError


def stop_if_cancelled() -> None:
    """Raises the run's own cancellation where something that was awaited kept it to itself.

    Raises:
        CancelledError: The running task was asked to stop and nobody passed it on.
    """
    if is_being_cancelled():
        raise asyncio.CancelledError


async def forgiving_the_past(work: Awaitable[T]) -> T:
    """Awaits a run; that its task was cancelled before is over: cleaning up may need an agent."""
    task = asyncio.current_task()
    token = _begun_in.set((task, 0 if task is None else task.cancelling()))
    try:
        return await work
    finally:
        _begun_in.reset(token)


async def together(work: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Runs coroutines at once; when it returns or raises, none of them is left running.

    Raises:
        Exception: What the first of them raised, as itself: callers never see a group.
    """
    try:
        async with asyncio.TaskGroup() as group:
            for coroutine in work:
                group.create_task(coroutine)
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
