"""Counts what a live reader has seen of one call, so that it can be told what to drop."""

from __future__ import annotations

from untildone.domain.requests import Delta, DeltaSink, TextDelta, ThinkingDelta


class DeltaTally:
    """Stands before a ``DeltaSink``.

    Attributes:
        chars: Characters of text that the reader holds of the current try.
        reader_failed: Whether the reader raised: that is no failure of the model.
    """

    __slots__ = ("_sink", "chars", "reader_failed")

    def __init__(self, sink: DeltaSink) -> None:
        self._sink = sink
        self.chars = 0
        self.reader_failed = False

    async def __call__(self, delta: Delta) -> None:
        """Passes one delta on."""
        if isinstance(delta, TextDelta):
            self.chars += len(delta.text)
        elif not isinstance(delta, ThinkingDelta):
            self.chars = 0  # a wrapper inside has already voided what came before
        try:
            await self._sink(delta)
        except BaseException:
            self.reader_failed = True
            raise
