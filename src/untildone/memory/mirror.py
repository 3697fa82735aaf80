"""What a process remembers of a remote scope, so that a search reads only what is new.

Whatever is stored gets a number that is never used again. A search first asks which numbers there
are, forgets what is gone and reads what is missing, so it never believes what was true a while ago.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from untildone.memory.notebook import Notebook
from untildone.memory.scoped import Turns

MOST_SCOPES: Final = 64
"""How many scopes one provider remembers; of the others it reads everything anew."""


class Mirror:
    """One scope. Whoever brings it up to date holds ``lock``, or has its turn.

    Attributes:
        notebook: The entries as they were when it was last brought up to date.
        lock: For threads.
        turns: For coroutines.
    """

    __slots__ = ("_keys", "_last", "lock", "notebook", "turns")

    def __init__(self) -> None:
        self.notebook = Notebook()
        self.lock = threading.Lock()
        self.turns = Turns()
        self._keys: dict[int, str] = {}
        self._last = 0

    def missing(self, numbers: Iterable[int]) -> list[int]:
        """Forgets all but these numbers, and gives those of them that are not known."""
        present = dict.fromkeys(numbers)
        for number in self._keys.keys() - present.keys():
            self.notebook.drop(self._keys.pop(number))
        return [number for number in present if number not in self._keys]

    def take(self, rows: Iterable[tuple[int, str, str]]) -> None:
        """Takes entries with their numbers; those known already are passed over."""
        late = False
        for number, key, value in sorted(rows):
            if number in self._keys:
                continue
            late = late or number < self._last
            self._last = max(self._last, number)
            self._keys[number] = key
            self.notebook.store(key, value)
        if late:  # numbers are given when a transaction begins and seen when it ends
            self._keys = dict(sorted(self._keys.items()))
            entries = self.notebook.entries
            self.notebook.become({key: entries[key] for key in self._keys.values()})


class Mirrors:
    """The scopes that were searched last."""

    __slots__ = ("_guard", "_mirrors")

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._mirrors: OrderedDict[str, Mirror] = OrderedDict()

    def of(self, prefix: str) -> Mirror:
        """The mirror of a scope; a new one knows nothing yet."""
        with self._guard:
            mirror = self._mirrors.get(prefix)
            if mirror is None:
                mirror = self._mirrors[prefix] = Mirror()
                if len(self._mirrors) > MOST_SCOPES:
                    self._mirrors.popitem(last=False)
            self._mirrors.move_to_end(prefix)
            return mirror
