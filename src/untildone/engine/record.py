"""The only writer: an event is applied to the state, then goes to the sinks, then to live readers.

Applying and writing happen in one step that cannot be cancelled half-way; only live readers are
waited for.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from untildone.domain.log import LogEvent
from untildone.engine.live import LiveStream
from untildone.policy.fold import apply
from untildone.policy.state import RunState
from untildone.ports import EventSink

_log = logging.getLogger("untildone")


class Recorder:
    """Takes the events of one run."""

    __slots__ = ("_sinks", "live", "state")

    def __init__(
        self, state: RunState, sinks: Sequence[EventSink] = (), live: LiveStream | None = None
    ) -> None:
        self.state = state
        self.live = live
        self._sinks = list(sinks)

    def note(self, event: LogEvent) -> None:
        """Takes an event at once: for moments that must not wait, such as a cancellation."""
        apply(self.state, event)
        if self._sinks:
            self._write(event)

    async def __call__(self, event: LogEvent) -> None:
        """Takes an event and waits until live readers can have it."""
        apply(self.state, event)
        if self._sinks:
            self._write(event)
        if self.live is not None:
            await self.live.publish(event, self.state)

    def _write(self, event: LogEvent) -> None:
        for sink in list(self._sinks):
            try:
                sink.write(event)
            except Exception:
                # Without this event the rest would not fold; what it has is a whole prefix.
                self._sinks.remove(sink)
                _log.warning(
                    "event sink %r failed at %s and gets no more events of run %s",
                    sink,
                    type(event).__name__,
                    event.at.run,
                    exc_info=True,
                )
