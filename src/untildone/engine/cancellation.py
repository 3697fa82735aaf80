"""Whose cancellation a ``CancelledError`` is."""

from __future__ import annotations

import asyncio


def is_being_cancelled() -> bool:
    """Whether the running task itself was asked to stop.

    A ``CancelledError`` without that comes out of something the task awaited, such as a future
    that somebody else cancelled; it is a failure of that thing and not the end of the run.
    """
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
