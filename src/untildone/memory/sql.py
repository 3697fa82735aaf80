"""A memory in a SQL database: SQLite or PostgreSQL."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from untildone.domain.bounds import check_count
from untildone.domain.errors import ConfigError, MemoryProviderError
from untildone.memory.provider import Entries, EntriesProvider

if TYPE_CHECKING:
    from untildone.memory.sql_entries import Database

T = TypeVar("T")


class SQLMemoryProvider(EntriesProvider):
    """Keeps memories in a table of a SQLite or PostgreSQL database; needs ``untildone[sql]``.

    SQLite searches with its full-text index FTS5. Of PostgreSQL a process remembers what it has
    searched and reads only what is new, which suits thousands of entries in a scope, not millions.
    Processes may share a database; calls block threads of the provider's own, never the event
    loop.

    Args:
        url: ``sqlite:///memory.db`` (a relative path), ``sqlite:////var/lib/memory.db`` (an
            absolute one) or ``postgresql://user:password@host/name``.
        table: The table; it is made where it is missing. A letter or ``_``, then also digits.
        max_connections: Most connections to PostgreSQL at once; 1 or more. SQLite has one.

    Raises:
        ConfigError: A value is out of bounds, or SQLAlchemy is not installed.
    """

    def __init__(
        self, url: str, *, table: str = "untildone_memory", max_connections: int = 4
    ) -> None:
        check_count("SQLMemoryProvider.max_connections", max_connections)
        if not isinstance(table, str) or not table.isidentifier():  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(
                f"SQLMemoryProvider.table must be a name like 'untildone_memory', not {table!r}"
            )
        try:
            from untildone.memory import sql_entries

            self._url = sql_entries.checked_url(url)
        except ImportError as error:
            msg = f"SQLMemoryProvider cannot load {error.name}; pip install 'untildone[sql]'"
            raise ConfigError(msg) from error
        self._sql = sql_entries
        self._table = table
        self._threads = 1 if self._url.get_backend_name() == "sqlite" else max_connections
        self._guard = threading.Lock()
        self._opening = threading.Lock()  # held while connecting, so never by the event loop
        self._executor: ThreadPoolExecutor | None = None
        self._database: Database | None = None

    def __repr__(self) -> str:
        shown = self._url.set(query={}).render_as_string(hide_password=True)
        return f"SQLMemoryProvider({shown!r})"

    async def aclose(self) -> None:
        """Closes the connections; a later call opens new ones."""
        with self._guard:
            executor, self._executor = self._executor, None
        if executor is not None:
            await asyncio.get_running_loop().run_in_executor(executor, self._close)
            executor.shutdown(wait=False)

    async def _with_entries(self, work: Callable[[Entries], T], *, writes: bool) -> T:
        def in_thread() -> T:
            database = self._open()
            with database.transaction(writes=writes) as connection:
                return work(database.entries(connection))

        with self._guard:
            if self._executor is None:
                self._executor = ThreadPoolExecutor(
                    self._threads, thread_name_prefix="untildone-memory"
                )
            job = self._executor.submit(in_thread)
        try:
            return await asyncio.wrap_future(job)
        except self._sql.FAILURES as error:
            raise self._failure(error) from error

    def _open(self) -> Database:
        """The database, opened by whichever thread needs it first."""
        with self._opening:
            if self._database is None:
                self._database = self._sql.Database(self._url, self._table, self._threads)
            return self._database

    def _close(self) -> None:
        with self._opening:
            database, self._database = self._database, None
        if database is not None:
            database.dispose()

    def _failure(self, error: Any) -> MemoryProviderError:
        return MemoryProviderError(
            f"{self!r} failed: {self._sql.reason_of(error)}; see that the database can be reached"
            f" and that its user may create and change the table {self._table!r}"
        )
