"""What our providers share: checked arguments, and one way to the entries, wherever these are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol, Self, TypeVar

from untildone.memory.scoped import Change, Found, check_search, check_text, checked_change

T = TypeVar("T")


class Entries(Protocol):
    """Entries that can be reached at once: in memory, or inside a transaction."""

    def store(self, key: str, value: str) -> None:
        """Keeps a value; its key becomes the one stored last."""
        ...

    def retrieve(self, key: str) -> str | None:
        """The value of a key, or None."""
        ...

    def update(self, key: str, change: Change) -> str | None:
        """Replaces a value by what ``change`` makes of it; None forgets the key."""
        ...

    def listed(self, prefix: str) -> list[tuple[str, str]]:
        """The entries whose key begins so, the one stored longest ago first."""
        ...

    def trim(self, prefix: str, keep: int) -> int:
        """Forgets the entries whose key begins so, but for the ``keep`` stored last."""
        ...

    def find(self, query: str, top_k: int, prefix: str) -> list[Found]:
        """The best first; of equally good ones the one stored last."""
        ...

    def clear(self) -> None:
        """Forgets everything."""
        ...


class ClosingProvider(ABC):
    """A provider that searches by ``find`` and can be left open or closed."""

    @abstractmethod
    async def find(self, query: str, top_k: int = 5, *, prefix: str = "") -> list[Found]:
        """What ``search`` finds among keys that begin so, with scores."""

    async def search(self, query: str, top_k: int = 5) -> list[tuple[str, str]]:
        """The ``(key, value)`` pairs that fit a query best, best first (S1)."""
        return [(found.key, found.value) for found in await self.find(query, top_k)]

    @abstractmethod
    async def aclose(self) -> None:
        """Closes what is open; a later call opens it anew."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class EntriesProvider(ClosingProvider):
    """A provider around ``Entries``; the subclass says how they are reached."""

    @abstractmethod
    async def _with_entries(self, work: Callable[[Entries], T], *, writes: bool) -> T:
        """Does some work on the entries, with nobody in between."""

    async def store(self, key: str, value: str) -> None:
        """Keeps a value; what the key had before is replaced (S1)."""
        check_text(self, key=key, value=value)
        await self._with_entries(lambda entries: entries.store(key, value), writes=True)

    async def retrieve(self, key: str) -> str | None:
        """The value of a key, or None (S1)."""
        check_text(self, key=key)
        return await self._with_entries(lambda entries: entries.retrieve(key), writes=False)

    async def clear(self) -> None:
        """Forgets everything (S1)."""
        await self._with_entries(lambda entries: entries.clear(), writes=True)

    async def update(self, key: str, change: Change) -> str | None:
        """Replaces a value by what ``change`` makes of it, with nobody in between.

        Args:
            key: Whose value.
            change: ``(old value or None) -> new value``, or None to forget the key. It must be
                quick and have no effects: it may be called again.

        Returns:
            The new value.

        Raises:
            MemoryProviderError: The provider failed. What ``change`` raises is raised as it is,
                and nothing has changed then.
        """
        check_text(self, key=key)
        checked = checked_change(self, change)
        return await self._with_entries(lambda entries: entries.update(key, checked), writes=True)

    async def entries(self, prefix: str = "") -> list[tuple[str, str]]:
        """All entries whose key begins so, the one stored longest ago first."""
        check_text(self, prefix=prefix)
        return await self._with_entries(lambda entries: entries.listed(prefix), writes=False)

    async def trim(self, prefix: str, keep: int) -> int:
        """Forgets all entries whose key begins so but the ``keep`` stored last; gives how many."""
        check_text(self, prefix=prefix)
        return await self._with_entries(lambda entries: entries.trim(prefix, keep), writes=True)

    async def find(self, query: str, top_k: int = 5, *, prefix: str = "") -> list[Found]:
        """What ``search`` finds among keys that begin so, with scores."""
        check_search(query, top_k)
        check_text(self, prefix=prefix)
        return await self._with_entries(
            lambda entries: entries.find(query, top_k, prefix), writes=False
        )
