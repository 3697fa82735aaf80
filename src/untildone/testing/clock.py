"""A clock that moves only when something sleeps."""

from __future__ import annotations

import asyncio


class FakeClock:
    """Time without waiting: ``sleep`` moves it on and gives other tasks one turn.

    Attributes:
        slept: How long each sleep was asked to be, in seconds, in order.
    """

    def __init__(self, start: float = 0.0) -> None:
        self._now = start
        self.slept: list[float] = []

    def monotonic(self) -> float:
        """Seconds since the clock's start."""
        return self._now

    async def sleep(self, seconds: float) -> None:
        """Moves the clock on by ``seconds``."""
        self.slept.append(seconds)
        self._now += seconds
        await asyncio.sleep(0)
