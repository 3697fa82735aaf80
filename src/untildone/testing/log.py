"""A run's log in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import overload

from untildone.domain.log import LogEvent


class EventLog:
    """Keeps every event; pass it as ``log=`` to a door and read or slice it afterwards."""

    def __init__(self) -> None:
        self.events: list[LogEvent] = []

    def write(self, event: LogEvent) -> None:
        """Keeps one event."""
        self.events.append(event)

    def __iter__(self) -> Iterator[LogEvent]:
        return iter(self.events)

    def __len__(self) -> int:
        return len(self.events)

    @overload
    def __getitem__(self, index: int) -> LogEvent: ...
    @overload
    def __getitem__(self, index: slice) -> list[LogEvent]: ...
    def __getitem__(self, index: int | slice) -> LogEvent | list[LogEvent]:
        return self.events[index]
