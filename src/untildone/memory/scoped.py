"""What a memory provider may offer beyond S1's four methods, and how a memory lives without it.

All providers of this library offer it. With another one, memories still lose nothing inside one
process: whoever changes a value has its turn.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol, runtime_checkable
from weakref import WeakKeyDictionary

from untildone.domain.bounds import check_count
from untildone.domain.errors import ConfigError, MemoryProviderError
from untildone.ports import MemoryProvider

OWN_PREFIX: Final = "untildone/"
"""How the keys begin under which our memories keep their things; a plain search leaves them out."""

Change = Callable[[str | None], str | None]
"""Makes a new value of the old one; None stands for no value. Pure: it may be called again."""


@dataclass(frozen=True, slots=True)
class Found:
    """An entry that fits a query.

    Attributes:
        key: Its key.
        value: What is kept under it.
        score: How well it fits, above 0; only scores of one search compare.
    """

    key: str
    value: str
    score: float


@runtime_checkable
class ScopedMemoryProvider(MemoryProvider, Protocol):
    """A provider that changes a value atomically and tells keys apart by how they begin."""

    async def update(self, key: str, change: Change) -> str | None:
        """Replaces a value by what ``change`` makes of it, with nobody in between; gives it."""
        ...

    async def entries(self, prefix: str = "") -> list[tuple[str, str]]:
        """All entries whose key begins so, the one stored longest ago first."""
        ...

    async def trim(self, prefix: str, keep: int) -> int:
        """Forgets all entries whose key begins so but the ``keep`` stored last; gives how many."""
        ...

    async def find(self, query: str, top_k: int = 5, *, prefix: str = "") -> list[Found]:
        """What ``search`` finds among keys that begin so, with scores.

        With ``prefix=""``, keys beginning with ``OWN_PREFIX`` are left out.
        """
        ...


def key_of(*parts: str) -> str:
    """A key under our prefix; a part never runs into the next, whatever is in it."""
    return OWN_PREFIX + "/".join(part.replace("%", "%25").replace("/", "%2F") for part in parts)


PLAYBOOKS: Final = f"{key_of('playbook')}/"
"""How the keys of playbooks begin. They are read whole and written often, and nobody searches them,
so that an index which costs something to keep may leave them out."""


def accepts(prefix: str) -> Callable[[str], bool]:
    """Whether a search with this prefix looks at a key."""
    if prefix:
        return lambda key: key.startswith(prefix)
    return lambda key: not key.startswith(OWN_PREFIX)


def checked_backend(name: str, backend: Any) -> MemoryProvider:
    """``backend`` as a provider.

    Raises:
        ConfigError: It is none.
    """
    wanted = ("store", "retrieve", "search", "clear")
    if not isinstance(backend, type) and all(callable(getattr(backend, m, None)) for m in wanted):
        return backend
    raise ConfigError(
        f"{name} must be a memory provider with async store, retrieve, search and clear, not"
        f" {backend!r:.80}; use InMemoryProvider() or FileMemoryProvider('memory.json')"
    )


def check_text(provider: object, **texts: object) -> None:
    """Checks that keys and values are texts.

    Raises:
        MemoryProviderError: One is not; the error names it.
    """
    for name, text in texts.items():
        if not isinstance(text, str):
            raise MemoryProviderError(
                f"{type(provider).__name__} keeps text: {name} must be a str, not {text!r:.80}"
            )


def checked_change(provider: object, change: Change) -> Change:
    """``change``, which must make a text or None.

    Raises:
        MemoryProviderError: When it is called and makes something else.
    """

    def checked(old: str | None) -> str | None:
        new = change(old)
        if new is not None:
            check_text(provider, value=new)
        return new

    return checked


def check_search(query: object, top_k: object) -> None:
    """Checks what a search was asked.

    Raises:
        ConfigError: ``top_k`` is no whole number of 1 or more, or the query is no text.
    """
    check_count("top_k", top_k)
    if not isinstance(query, str):
        raise ConfigError(f"query must be a str, not {query!r:.80}")


def shown_url(url: object) -> str:
    """A URL as errors show it: without user, password and query, whatever else is wrong with it."""
    if not isinstance(url, str):
        return f"{url!r:.80}"
    scheme, sign, rest = url.partition("://" if "://" in url else ":")
    address, question, query = rest.partition("?")
    if "@" in query:  # a password with a question mark, or a query with an @: nobody can tell
        return f"{scheme}{sign}…"
    host = address.rpartition("@")[2]
    return f"{scheme}{sign}{host}{'?…' if question else ''}"[:120]


class Turns:
    """One at a time, in the order in which they came, also from different event loops."""

    __slots__ = ("_guard", "_last")

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._last: Future[None] | None = None

    @asynccontextmanager
    async def turn(self) -> AsyncGenerator[None]:
        """Waits for the turn, and gives it on at the end."""
        mine: Future[None] = Future()
        with self._guard:
            before, self._last = self._last, mine
        if before is not None:
            try:
                await asyncio.shield(asyncio.wrap_future(before))
            except BaseException:
                before.add_done_callback(partial(_give_on, mine))
                raise
        try:
            yield
        finally:
            mine.set_result(None)


def _give_on(turn: Future[None], _before: Future[None]) -> None:
    turn.set_result(None)


_turns: WeakKeyDictionary[Any, Turns] = WeakKeyDictionary()
_turns_of_the_rest: Final = Turns()


def _turns_of(backend: object) -> Turns:
    """The turns at a backend: all memories in this process that share it share them."""
    try:
        return _turns.setdefault(backend, Turns())
    except TypeError:  # it cannot be hashed or weakly held
        return _turns_of_the_rest


async def update_value(backend: MemoryProvider, key: str, change: Change) -> str | None:
    """Replaces a value by what ``change`` makes of it and gives the new one.

    Atomic everywhere where the backend can do that, and within this process where it cannot.
    """
    if isinstance(backend, ScopedMemoryProvider):
        return await backend.update(key, change)
    async with _turns_of(backend).turn():
        value = change(await backend.retrieve(key))
        if value is not None:
            await backend.store(key, value)
        return value
