"""Tasks of a run: several at once, and whose cancellation a ``CancelledError`` is."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any


def is_being_cancelled() -> bool:
    """Whether the running task itself was asked to stop.

    A ``CancelledError`` without that comes out of something the task awaited, such as a future
    that somebody else cancelled; it is a failure of that thing and not the end of the run.
    """
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


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
