"""A model with a limit on the time of one try; it stands inside of retries."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from untildone.domain.errors import ModelTimeoutError
from untildone.domain.requests import Delta, DeltaSink, ModelReply, ModelRequest
from untildone.ports import Model


class TimeoutModel:
    """Ends a call that takes too long. Time in which a live reader is slow does not count.

    Args:
        inner: The model.
        timeout_s: Most seconds for one whole reply.
    """

    __slots__ = ("_inner", "_timeout_s")

    def __init__(self, inner: Model, timeout_s: float) -> None:
        self._inner = inner
        self._timeout_s = timeout_s

    @property
    def name(self) -> str:
        """The inner model's name."""
        return self._inner.name

    async def generate(
        self, request: ModelRequest, on_delta: DeltaSink | None = None
    ) -> ModelReply:
        """Gives the inner model's reply.

        Raises:
            ModelTimeoutError: It took too long.
        """
        limit = asyncio.timeout(self._timeout_s)
        try:
            async with limit:
                sink = _pausing(on_delta, limit) if on_delta is not None else None
                return await self._inner.generate(request, sink)
        except TimeoutError:
            if not limit.expired():
                raise
        # Out here it has no cause: that would lead to the HTTP client's frames, which hold the key.
        raise ModelTimeoutError(
            f"{self.name}: no whole reply within {self._timeout_s:g} s; where the model needs"
            " longer, raise timeout_s (Agent.timeout_s)"
        )


def _pausing(on_delta: DeltaSink, limit: asyncio.Timeout) -> Callable[[Delta], Awaitable[None]]:
    """The sink; while the reader makes us wait, the limit does not run."""
    time = asyncio.get_running_loop().time

    async def sink(delta: Delta) -> None:
        ends, begun = limit.when(), time()
        if ends is None or limit.expired():
            await on_delta(delta)
            return
        limit.reschedule(None)
        try:
            await on_delta(delta)
        finally:
            limit.reschedule(ends + time() - begun)

    return sink
