"""Where the episodes of one namespace stand in a provider: each by itself, or all in one value."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Protocol

from untildone.domain.errors import MemoryProviderError
from untildone.memory.notebook import Notebook
from untildone.memory.scoped import Found, ScopedMemoryProvider, key_of, update_value
from untildone.ports import MemoryProvider


class Shelf(Protocol):
    """Texts of one namespace by id, bounded in number."""

    async def put(self, name: str, text: str) -> None:
        """Keeps a text; an older one of that name is replaced, the oldest of too many forgotten."""
        ...

    async def all(self) -> list[tuple[str, str]]:
        """All ids and texts, the one put longest ago first."""
        ...

    async def find(self, query: str, top_k: int) -> list[Found]:
        """What fits a query best, by id."""
        ...

    async def clear(self) -> None:
        """Forgets this namespace, and nothing else."""
        ...


def shelf_in(backend: MemoryProvider, namespace: str, most: int) -> Shelf:
    """The shelf of a namespace in the way that the backend allows."""
    if isinstance(backend, ScopedMemoryProvider):
        return _EachByItself(backend, f"{key_of('episodes', namespace)}/", most)
    return _AllInOne(backend, key_of("episodes", namespace), most)


class _EachByItself:
    """A key for each text, found by the backend's own search."""

    def __init__(self, backend: ScopedMemoryProvider, prefix: str, most: int) -> None:
        self._backend = backend
        self._prefix = prefix
        self._most = most

    async def put(self, name: str, text: str) -> None:
        await self._backend.store(self._prefix + name, text)
        await self._backend.trim(self._prefix, self._most)

    async def all(self) -> list[tuple[str, str]]:
        begin = len(self._prefix)
        entries = await self._backend.entries(self._prefix)
        return [(key[begin:], text) for key, text in entries][-self._most :]

    async def find(self, query: str, top_k: int) -> list[Found]:
        begin = len(self._prefix)
        found = await self._backend.find(query, top_k, prefix=self._prefix)
        return [Found(each.key[begin:], each.value, each.score) for each in found]

    async def clear(self) -> None:
        await self._backend.trim(self._prefix, 0)


class _AllInOne:
    """One JSON object under one key: for backends with S1's four methods and no more."""

    def __init__(self, backend: MemoryProvider, key: str, most: int) -> None:
        self._backend = backend
        self._key = key
        self._most = most

    async def put(self, name: str, text: str) -> None:
        def added(notebook: Notebook) -> None:
            notebook.store(name, text)
            notebook.trim("", self._most)

        await self._change(added)

    async def all(self) -> list[tuple[str, str]]:
        return (await self._read()).listed("")

    async def find(self, query: str, top_k: int) -> list[Found]:
        return (await self._read()).find(query, top_k, "")

    async def clear(self) -> None:
        await self._change(Notebook.clear)

    async def _read(self) -> Notebook:
        return self._notebook(await self._backend.retrieve(self._key))

    async def _change(self, change: Callable[[Notebook], object]) -> None:
        def changed(text: str | None) -> str:
            notebook = self._notebook(text)
            change(notebook)
            return json.dumps(notebook.entries, ensure_ascii=False)

        await update_value(self._backend, self._key, changed)

    def _notebook(self, text: str | None) -> Notebook:
        try:
            form: Any = json.loads(text) if text is not None else {}
            if not all(isinstance(value, str) for value in form.values()):
                raise TypeError("not every value in it is a text")
            return Notebook(form)
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise MemoryProviderError(
                f"the value of {self._key!r} is no JSON object of texts ({error}); it was left as"
                " it is: mend it, or move it to another key"
            ) from error
