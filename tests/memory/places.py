"""Every place where memories can be kept, each empty and gone after the test.

A service that does not run is skipped by name on a developer's machine; where ``CI`` is set the
test fails, so that nothing goes untested unseen.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from untildone.memory import (
    FileMemoryProvider,
    InMemoryProvider,
    RedisMemoryProvider,
    SQLMemoryProvider,
)

POSTGRES: Final = "postgresql://root@127.0.0.1:5432/test"
REDIS: Final = "redis://127.0.0.1:6379/0"

Place = Callable[[Path], AbstractAsyncContextManager[Any]]


class FourMethods:
    """A provider with S1's four methods and not one more, as somebody else may have written it."""

    def __init__(self) -> None:
        self._inner = InMemoryProvider()
        self.store = self._inner.store
        self.retrieve = self._inner.retrieve
        self.search = self._inner.search
        self.clear = self._inner.clear


def needs(service: str, port: int) -> None:
    """Skips the test, or fails it in CI, where a service does not answer on this machine."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=2).close()
    except OSError as error:
        told = f"{service} does not answer on 127.0.0.1:{port}: {error}"
        if os.environ.get("CI"):
            pytest.fail(told)
        pytest.skip(told)


async def run_python(script: str, *arguments: object) -> None:
    """Runs a script in a process of its own, which must succeed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, *map(str, arguments), stderr=asyncio.subprocess.PIPE
    )
    _, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()


def new_name() -> str:
    """A name that no other test and no other run of the tests has."""
    return f"test_{secrets.token_hex(6)}"


@asynccontextmanager
async def in_memory(_: Path) -> AsyncGenerator[InMemoryProvider]:
    yield InMemoryProvider()


@asynccontextmanager
async def in_a_file(folder: Path) -> AsyncGenerator[FileMemoryProvider]:
    async with FileMemoryProvider(folder / "memory.json") as provider:
        yield provider


@asynccontextmanager
async def in_sqlite(folder: Path) -> AsyncGenerator[SQLMemoryProvider]:
    async with SQLMemoryProvider(f"sqlite:///{folder}/memory.db") as provider:
        yield provider


@asynccontextmanager
async def in_sqlite_without_fts5(folder: Path) -> AsyncGenerator[SQLMemoryProvider]:
    from untildone.memory.sql_entries import Database

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Database, "_words_table", lambda _: None)
        async with in_sqlite(folder) as provider:
            yield provider


@asynccontextmanager
async def in_postgres(_: Path) -> AsyncGenerator[SQLMemoryProvider]:
    needs("PostgreSQL", 5432)
    table = new_name()
    async with SQLMemoryProvider(POSTGRES, table=table) as provider:
        try:
            yield provider
        finally:
            drop_table(table)


@asynccontextmanager
async def in_redis(_: Path) -> AsyncGenerator[RedisMemoryProvider]:
    needs("Redis", 6379)
    async with RedisMemoryProvider(REDIS, prefix=new_name()) as provider:
        try:
            yield provider
        finally:
            await forget(provider)


def drop_table(table: str) -> None:
    import psycopg
    from psycopg import sql

    with psycopg.connect(POSTGRES) as connection:
        connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(sql.Identifier(table)))


async def forget(provider: RedisMemoryProvider) -> None:
    """Removes a provider's keys from the server, its counter included."""
    import redis.asyncio

    async with redis.asyncio.Redis.from_url(REDIS) as client:
        await client.delete(*provider._keys)


PLACES: Final[dict[str, Place]] = {
    "memory": in_memory,
    "file": in_a_file,
    "sqlite": in_sqlite,
    "sqlite without FTS5": in_sqlite_without_fts5,
    "postgresql": in_postgres,
    "redis": in_redis,
}
"""Every provider of ours."""

_OURS: Final = [pytest.param(place, id=name) for name, place in PLACES.items()]

EVERYWHERE: Final = pytest.mark.parametrize("place", _OURS)


@asynccontextmanager
async def with_four_methods(_: Path) -> AsyncGenerator[FourMethods]:
    yield FourMethods()


@asynccontextmanager
async def with_four_methods_unhashable(_: Path) -> AsyncGenerator[FourMethods]:
    class Unhashable(FourMethods):
        __hash__ = None  # pyright: ignore[reportAssignmentType]

    yield Unhashable()


EVEN_FOREIGN: Final = pytest.mark.parametrize(
    "place",
    [
        *_OURS,
        pytest.param(with_four_methods, id="four methods"),
        pytest.param(with_four_methods_unhashable, id="four methods, unhashable"),
    ],
)
"""Ours, and one with the four methods that are all a memory may ask for."""
