"""The clock of the machine, behind the ``Clock`` port. Tests use ``untildone.testing``'s."""

from __future__ import annotations

import asyncio
import time


class SystemClock:
    """Real time."""

    __slots__ = ()

    def monotonic(self) -> float:
        """Seconds since some moment."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Waits; 0 or less lets other tasks run once."""
        await asyncio.sleep(seconds)
