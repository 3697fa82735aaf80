"""Entries in memory, in the order in which they were stored, and what can be found in them.

Not thread-safe and not async: the providers that are built around it see to that.
"""

from __future__ import annotations

from untildone.memory.relevance import Index
from untildone.memory.scoped import Change, Found, accepts


class Notebook:
    """What a provider knows.

    Attributes:
        entries: Values by key, the one stored longest ago first. Changed by the methods only.
    """

    __slots__ = ("_index", "_stale", "entries")

    def __init__(self, entries: dict[str, str] | None = None) -> None:
        self.entries: dict[str, str] = {}
        self._index = Index()
        self._stale: dict[str, None] = {}
        if entries:
            self.become(entries)

    def store(self, key: str, value: str) -> None:
        """Keeps a value; its key becomes the one stored last."""
        if self.entries.pop(key, None) != value:
            self._stale[key] = None
        self.entries[key] = value

    def retrieve(self, key: str) -> str | None:
        """The value of a key, or None."""
        return self.entries.get(key)

    def drop(self, key: str) -> None:
        """Forgets a key, if it is known."""
        if self.entries.pop(key, None) is not None:
            self._stale[key] = None

    def update(self, key: str, change: Change) -> str | None:
        """Replaces a value by what ``change`` makes of it; None forgets the key."""
        value = change(self.entries.get(key))
        if value is None:
            self.drop(key)
        else:
            self.store(key, value)
        return value

    def listed(self, prefix: str) -> list[tuple[str, str]]:
        """The entries whose key begins so."""
        return [entry for entry in self.entries.items() if entry[0].startswith(prefix)]

    def trim(self, prefix: str, keep: int) -> int:
        """Forgets the entries whose key begins so, but for the ``keep`` stored last."""
        keys = [key for key in self.entries if key.startswith(prefix)]
        dropped = keys[: max(0, len(keys) - keep)]
        for key in dropped:
            self.drop(key)
        return len(dropped)

    def find(self, query: str, top_k: int, prefix: str) -> list[Found]:
        """The best first; of equally good ones the one stored last."""
        for key in self._stale:
            value = self.entries.get(key)
            if value is None:
                self._index.drop(key)
            else:
                self._index.put(key, f"{key} {value}")
        self._stale.clear()
        scores = self._index.scores(query, accepts(prefix))
        if not scores:
            return []
        latest_first = [key for key in reversed(self.entries) if key in scores]
        best = sorted(latest_first, key=lambda key: -scores[key])[:top_k]
        return [Found(key, self.entries[key], scores[key]) for key in best]

    def become(self, entries: dict[str, str]) -> None:
        """Takes over what somebody else has written; only what differs is read anew."""
        for key in self.entries.keys() | entries.keys():
            if self.entries.get(key) != entries.get(key):
                self._stale[key] = None
        self.entries = dict(entries)

    def clear(self) -> None:
        """Forgets everything."""
        self.become({})
