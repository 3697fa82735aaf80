"""A memory that lasts as long as its process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from untildone.memory.notebook import Notebook
from untildone.memory.provider import Entries, EntriesProvider

T = TypeVar("T")


class InMemoryProvider(EntriesProvider):
    """Keeps memories in this process (S1); for tests, and for what need not outlive it.

    Runs, threads and event loops may share one.
    """

    def __init__(self) -> None:
        self._notebook = Notebook()
        self._guard = threading.Lock()

    def __repr__(self) -> str:
        return "InMemoryProvider()"

    async def aclose(self) -> None:
        """Does nothing: there is nothing open, and what is kept stays."""

    async def _with_entries(self, work: Callable[[Entries], T], *, writes: bool) -> T:  # noqa: ARG002
        with self._guard:
            return work(self._notebook)
