"""Memories in a table of a SQL database: what is sent to it. Loaded with the extra ``[sql]`` only.

Everything here blocks and happens inside a transaction that ``sql.py`` has begun.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.pool import StaticPool

from untildone.domain.errors import ConfigError, MemoryProviderError, describe
from untildone.memory.mirror import Mirrors
from untildone.memory.relevance import words_of, words_of_query
from untildone.memory.scoped import OWN_PREFIX, PLAYBOOKS, Change, Found, shown_url

_WAIT_S: Final = 30
_WRITES: Final = "untildone_writes"
_MOST_QUERY_WORDS: Final = 500
_FEW: Final = 500


def checked_url(url: object) -> URL:
    """A database URL, with the driver that the extra installs where it names none.

    Raises:
        ConfigError: It is none, or of a database or driver that this provider cannot use.
        ImportError: The driver is not installed.
    """
    try:
        known = make_url(url)  # pyright: ignore[reportArgumentType]
        if known.drivername in ("postgres", "postgresql"):
            known = known.set(drivername="postgresql+psycopg")
        dialect = known.get_dialect()
    except ArgumentError:
        msg = (
            "SQLMemoryProvider takes a database URL like 'sqlite:///memory.db' or"
            f" 'postgresql://user@host/name', not {shown_url(url)!r}"
        )
        raise ConfigError(msg) from None  # what it says may quote the password
    if known.get_backend_name() not in ("sqlite", "postgresql"):
        raise ConfigError(
            f"SQLMemoryProvider knows SQLite and PostgreSQL, not {known.drivername!r};"
            " for another database write a provider of your own: four async methods"
        )
    if dialect.is_async:
        raise ConfigError(
            f"SQLMemoryProvider uses threads, not an async driver such as {known.drivername!r};"
            f" use '{known.get_backend_name()}://...'"
        )
    dialect.import_dbapi()
    return known


class Database:
    """An engine and its table, made where it is missing."""

    def __init__(self, url: URL, table: str, threads: int) -> None:
        self._is_sqlite = url.get_backend_name() == "sqlite"
        self._mirrors = Mirrors()
        self._engine = _engine(url, threads)
        self._table = sa.Table(
            table,
            sa.MetaData(),
            sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
            sa.Column(
                "key",
                sa.Text().with_variant(sa.Text(collation="C"), "postgresql"),  # by code point
                nullable=False,
                unique=True,
            ),
            sa.Column("value", sa.Text, nullable=False),
            sqlite_autoincrement=True,
        )
        try:
            with self.transaction(writes=True) as connection:
                if not self._is_sqlite:
                    connection.execute(sa.select(_lock(table)))
                self._table.metadata.create_all(connection)
            self._words = self._words_table() if self._is_sqlite else None
        except BaseException:
            self._engine.dispose()
            raise

    @contextmanager
    def transaction(self, *, writes: bool) -> Generator[sa.Connection]:
        """A connection inside a transaction."""
        with (
            self._engine.connect() as connection,
            connection.execution_options(**{_WRITES: writes}).begin(),
        ):
            yield connection

    def entries(self, connection: sa.Connection) -> SqlEntries:
        """The entries as they are reached inside a transaction."""
        if self._is_sqlite:
            return SqliteEntries(connection, self._table, self._mirrors, self._words)
        return PostgresEntries(connection, self._table, self._mirrors)

    def dispose(self) -> None:
        """Closes all connections."""
        self._engine.dispose()

    def _words_table(self) -> sa.TableClause | None:
        """The full-text index beside the table, or None where this SQLite has no FTS5."""
        name = f"{self._table.name}_words"
        quoted = self._engine.dialect.identifier_preparer.quote(name)
        try:
            with self.transaction(writes=True) as connection:
                connection.exec_driver_sql(
                    f"CREATE VIRTUAL TABLE IF NOT EXISTS {quoted}"
                    " USING fts5(words, tokenize='ascii')"
                )
        except DBAPIError as error:
            if "fts5" in str(error.orig):
                return None
            raise
        return sa.table(name, sa.column("rowid"), sa.column("words"))


def _engine(url: URL, threads: int) -> sa.Engine:
    if url.get_backend_name() != "sqlite":
        return sa.create_engine(
            url, pool_size=threads, max_overflow=0, pool_pre_ping=True, hide_parameters=True
        )
    # One connection, used by one thread at a time; SQLite writes one transaction at a time anyway.
    engine = sa.create_engine(
        url,
        poolclass=StaticPool,
        connect_args={"timeout": _WAIT_S, "check_same_thread": False},
        hide_parameters=True,
    )
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # transactions are begun by _begin_sqlite
    for pragma in ("journal_mode = WAL", "synchronous = NORMAL"):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: sa.Connection) -> None:
    # A transaction that reads and then wants to write may be refused; one that says so at once
    # waits for its turn.
    writes = connection.get_execution_options().get(_WRITES)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


class SqlEntries:
    """The entries inside a transaction; what SQLite and PostgreSQL have in common."""

    def __init__(self, connection: sa.Connection, table: sa.Table, mirrors: Mirrors) -> None:
        self._connection = connection
        self._table = table
        self._mirrors = mirrors

    def store(self, key: str, value: str) -> None:
        """Keeps a value; its key becomes the one stored last."""
        _check_encodable(key=key, value=value)
        self._claim(key)
        self._replace(key, value)

    def retrieve(self, key: str) -> str | None:
        """The value of a key, or None."""
        _check_encodable(key=key)
        table = self._table
        return self._connection.scalar(sa.select(table.c.value).where(table.c.key == key))

    def update(self, key: str, change: Change) -> str | None:
        """Replaces a value by what ``change`` makes of it; None forgets the key."""
        _check_encodable(key=key)
        self._claim(key)
        value = change(self.retrieve(key))
        if value is not None:
            _check_encodable(value=value)
        self._replace(key, value)
        return value

    def listed(self, prefix: str) -> list[tuple[str, str]]:
        """The entries whose key begins so, the one stored longest ago first."""
        return self._read(self._begins(prefix))

    def trim(self, prefix: str, keep: int) -> int:
        """Forgets the entries whose key begins so, but for the ``keep`` stored last."""
        table = self._table
        newest_first = sa.select(table.c.id).where(self._begins(prefix)).order_by(table.c.id.desc())
        first_kept_out = self._connection.scalar(newest_first.offset(keep).limit(1))
        if first_kept_out is None:
            return 0
        return self._delete(self._begins(prefix) & (table.c.id <= first_kept_out))

    def find(self, query: str, top_k: int, prefix: str) -> list[Found]:
        """The best first; of equally good ones the one stored last."""
        if not words_of_query(query):
            return []
        table, searched = self._table, self._searched(prefix)
        mirror = self._mirrors.of(prefix)
        with mirror.lock:
            numbers = self._connection.scalars(sa.select(table.c.id).where(searched))
            missing = mirror.missing(numbers)
            if missing:
                few = len(missing) <= _FEW
                rows = sa.select(table.c.id, table.c.key, table.c.value).where(
                    table.c.id.in_(missing) if few else searched
                )
                mirror.take((row[0], row[1], row[2]) for row in self._connection.execute(rows))
            return mirror.notebook.find(query, top_k, prefix)

    def clear(self) -> None:
        """Forgets everything."""
        self._delete(sa.true())

    def _claim(self, key: str) -> None:
        """Lets nobody else write this key before the transaction ends."""

    def _replace(self, key: str, value: str | None) -> int | None:
        """Puts a value where another one was, or none; gives the id of the new row."""
        table = self._table
        self._delete(table.c.key == key)
        if value is None:
            return None
        inserted = self._connection.execute(sa.insert(table).values(key=key, value=value))
        primary_key = inserted.inserted_primary_key
        return None if primary_key is None else primary_key[0]

    def _delete(self, which: sa.ColumnElement[bool]) -> int:
        return self._connection.execute(sa.delete(self._table).where(which)).rowcount

    def _read(self, which: sa.ColumnElement[bool]) -> list[tuple[str, str]]:
        table = self._table
        rows = sa.select(table.c.key, table.c.value).where(which).order_by(table.c.id)
        return [(key, value) for key, value in self._connection.execute(rows)]

    def _begins(self, prefix: str) -> sa.ColumnElement[bool]:
        # A range, which an index can answer. No LIKE: SQLite's takes upper for lower case, and both
        # have wildcards.
        key, end = self._table.c.key, _after(prefix)
        begins = key >= prefix
        return begins if end is None else begins & (key < end)

    def _searched(self, prefix: str) -> sa.ColumnElement[bool]:
        return self._begins(prefix) if prefix else ~self._begins(OWN_PREFIX)


class SqliteEntries(SqlEntries):
    """The entries of a SQLite file, with a full-text index where it has FTS5."""

    def __init__(
        self,
        connection: sa.Connection,
        table: sa.Table,
        mirrors: Mirrors,
        words: sa.TableClause | None,
    ) -> None:
        super().__init__(connection, table, mirrors)
        self._words = words

    def find(self, query: str, top_k: int, prefix: str) -> list[Found]:
        """The best first by FTS5's own BM25; of equally good ones the one stored last."""
        words, table = self._words, self._table
        may_be_playbooks = bool(prefix) and (
            PLAYBOOKS.startswith(prefix) or prefix.startswith(PLAYBOOKS)
        )
        if words is None or may_be_playbooks:
            return super().find(query, top_k, prefix)
        wanted = words_of_query(query)[:_MOST_QUERY_WORDS]
        if not wanted:
            return []
        index: sa.ColumnClause[Any] = sa.literal_column(words.name)
        rank = sa.func.bm25(index)
        expression = " OR ".join(f'"{_ascii(word)}"' for word in wanted)
        rows = (
            sa.select(table.c.key, table.c.value, rank)
            .select_from(table.join(words, table.c.id == words.c.rowid))
            .where(index.op("MATCH")(expression), self._searched(prefix))
            .order_by(rank, table.c.id.desc())
            .limit(top_k)
        )
        return [Found(key, value, -score) for key, value, score in self._connection.execute(rows)]

    def _replace(self, key: str, value: str | None) -> int | None:
        row = super()._replace(key, value)
        if row is not None and self._words is not None and not key.startswith(PLAYBOOKS):
            found = words_of(f"{key} {value}")
            words = " ".join(found)
            if not words.isascii():
                words = " ".join(_ascii(word) for word in found)
            self._connection.execute(sa.insert(self._words).values(rowid=row, words=words))
        return row

    def _delete(self, which: sa.ColumnElement[bool]) -> int:
        if self._words is not None:
            gone = sa.select(self._table.c.id).where(which)
            self._connection.execute(sa.delete(self._words).where(self._words.c.rowid.in_(gone)))
        return super()._delete(which)


class PostgresEntries(SqlEntries):
    """The entries of a PostgreSQL database; who writes a key, or clears, waits for the others."""

    def clear(self) -> None:
        """Forgets everything."""
        self._connection.execute(sa.select(_lock(self._table.name)))
        super().clear()

    def _claim(self, key: str) -> None:
        name = self._table.name
        self._connection.execute(sa.select(_shared_lock(name), _lock(name, key)))


def _lock(*names: str) -> sa.ColumnElement[Any]:
    return sa.func.pg_advisory_xact_lock(_number(*names))


def _shared_lock(*names: str) -> sa.ColumnElement[Any]:
    return sa.func.pg_advisory_xact_lock_shared(_number(*names))


def _number(*names: str) -> int:
    """A number for a lock; two names that share one only wait for each other."""
    encoded = "\0".join(("untildone", *names)).encode()
    return (zlib.crc32(encoded) << 31) | (zlib.adler32(encoded) >> 1)


def _after(prefix: str) -> str | None:
    """The first text, by code points, after all those that begin so; None where there is none."""
    for index in range(len(prefix) - 1, -1, -1):
        code = ord(prefix[index]) + 1
        if code <= sys.maxunicode:
            return prefix[:index] + chr(0xE000 if code in range(0xD800, 0xE000) else code)
    return None


def _ascii(word: str) -> str:
    """A word as FTS5 cannot split it, whatever this SQLite knows of its script."""
    return word if word.isascii() else f"u{word.encode('utf-8', 'replace').hex()}"


def _check_encodable(**texts: str) -> None:
    for name, text in texts.items():
        if text.isascii():
            continue
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise MemoryProviderError(
                f"a database takes no half of a surrogate pair: {name} has one at character"
                f" {error.start}; use text.encode('utf-8', 'replace').decode()"
            ) from error


FAILURES: Final = SQLAlchemyError


def reason_of(error: SQLAlchemyError) -> str:
    """What went wrong, without the statement and its values."""
    cause = error.orig if isinstance(error, DBAPIError) else None
    return " ".join(describe(cause if cause is not None else error).split())
