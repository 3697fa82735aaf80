"""The SQL provider: several processes, servers that are not there, values no database takes."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.behaviour.kit import until
from tests.memory.places import POSTGRES, drop_table, needs, new_name, run_python
from untildone import ConfigError, MemoryProviderError
from untildone.memory import SQLMemoryProvider, sql_entries

WRITER = """
import asyncio, sys
from untildone.memory import SQLMemoryProvider

async def main(url, table, me):
    async with SQLMemoryProvider(url, table=table, max_connections=2) as provider:
        for n in range(15):
            await asyncio.gather(
                provider.store(f"{me}:{n}", f"value {n}"),
                provider.update("count", lambda old: str(int(old or 0) + 1)),
            )

asyncio.run(main(*sys.argv[1:]))
"""


async def write_from_two_processes(url: str, table: str) -> None:
    """Two processes begin at once, so that they also meet while they make the table."""
    await asyncio.gather(*(run_python(WRITER, url, table, me) for me in "ab"))
    async with SQLMemoryProvider(url, table=table) as provider:
        entries = dict(await provider.entries())
        assert entries.pop("count") == "30"
        assert entries == {f"{me}:{n}": f"value {n}" for me in "ab" for n in range(15)}
        assert len(await provider.search("value 7", 99)) == 30


async def test_two_processes_lose_nothing_in_sqlite(tmp_path: Path):
    await write_from_two_processes(f"sqlite:///{tmp_path}/memory.db", "memories")


async def test_two_processes_lose_nothing_in_postgresql():
    needs("PostgreSQL", 5432)
    table = new_name()
    try:
        await write_from_two_processes(POSTGRES, table)
    finally:
        drop_table(table)


async def test_many_who_make_the_table_at_once_do_not_meet():
    needs("PostgreSQL", 5432)
    table = new_name()
    providers = [SQLMemoryProvider(POSTGRES, table=table, max_connections=1) for _ in range(8)]
    try:
        await asyncio.gather(*(p.store(f"k{n}", "v") for n, p in enumerate(providers)))
        assert len(await providers[0].entries()) == 8
    finally:
        await asyncio.gather(*(provider.aclose() for provider in providers))
        drop_table(table)


async def test_a_search_in_postgresql_sees_what_others_stored_replaced_and_forgot():
    needs("PostgreSQL", 5432)
    table = new_name()
    async with (
        SQLMemoryProvider(POSTGRES, table=table) as provider,
        SQLMemoryProvider(POSTGRES, table=table) as other,
    ):
        try:
            for bird in ("heron", "wren"):
                await other.store("bird", bird)
                assert await provider.search("bird") == [("bird", bird)]
            assert await provider.search("heron") == []
            await other.update("bird", lambda _: None)
            assert await provider.search("bird") == []
        finally:
            drop_table(table)


async def test_a_sqlite_file_keeps_its_memories_and_its_index(tmp_path: Path):
    url = f"sqlite:///{tmp_path}/memory.db"
    async with SQLMemoryProvider(url) as provider:
        await provider.store("bird", "a heron in 東京")
    async with SQLMemoryProvider(url) as provider:
        assert await provider.search("東京") == [("bird", "a heron in 東京")]
        await provider.aclose()
        assert await provider.retrieve("bird") == "a heron in 東京"


async def test_playbooks_cost_no_full_text_index_and_are_found_all_the_same(tmp_path: Path):
    path = tmp_path / "memory.db"
    async with SQLMemoryProvider(f"sqlite:///{path}") as provider:
        await provider.update("untildone/playbook/herons", lambda _: "wait for the heron")
        await provider.store("untildone/episodes/x/1", "a heron came")
        for prefix in ("untildone/playbook/", "untildone/playbook/herons"):
            found = await provider.find("heron", prefix=prefix)
            assert [each.key for each in found] == ["untildone/playbook/herons"]
        found = await provider.find("heron", prefix="untildone/")
        assert {each.key for each in found} == {
            "untildone/playbook/herons",
            "untildone/episodes/x/1",
        }
        assert await provider.search("heron") == []
    with contextlib.closing(sqlite3.connect(path)) as connection:
        words = connection.execute("SELECT words FROM untildone_memory_words").fetchall()
    assert [text.split()[-3:] for (text,) in words] == [["a", "heron", "came"]]


async def test_sqlite_really_searches_with_fts5(tmp_path: Path):
    async with SQLMemoryProvider(f"sqlite:///{tmp_path}/memory.db", table="mine") as provider:
        await provider.store("bird", "a heron")
        await provider.store("bird", "a wren")
    connection = sqlite3.connect(tmp_path / "memory.db")
    (made,) = connection.execute("SELECT sql FROM sqlite_master WHERE name = 'mine_words'")
    rows = list(connection.execute("SELECT words FROM mine_words"))
    connection.close()
    assert "USING fts5" in made[0]
    assert rows == [("bird a wren",)]


@pytest.mark.parametrize("url", ["sqlite", POSTGRES])
async def test_a_prefix_is_exact_whatever_its_last_character(url: str, tmp_path: Path):
    table = new_name()
    if url == POSTGRES:
        needs("PostgreSQL", 5432)
    else:
        url = f"sqlite:///{tmp_path}/memory.db"
    async with SQLMemoryProvider(url, table=table) as provider:
        try:
            prefixes = ["a", "a\ud7ff", "a\U0010ffff", "\U0010ffff", "a%", "aa", "\x7f", "~", "é"]
            keys = [
                prefix + rest for prefix in prefixes for rest in ("", "b", "\U0010ffff", "\x01")
            ]
            for key in dict.fromkeys(keys):
                await provider.store(key, "heron")
            for prefix in prefixes:
                wanted = {key for key in keys if key.startswith(prefix)}
                assert {key for key, _ in await provider.entries(prefix)} == wanted
                found = await provider.find("heron", 99, prefix=prefix)
                assert {each.key for each in found} == wanted
            assert await provider.trim("a", 0) == len({key for key in keys if key[0] == "a"})
            left = {key for key, _ in await provider.entries()}
            assert left == {key for key in keys if key[0] != "a"}
        finally:
            if url == POSTGRES:
                drop_table(table)


async def test_nobody_else_writes_a_sqlite_file_while_an_update_thinks(tmp_path: Path):
    path = tmp_path / "memory.db"
    refused: list[str] = []

    def think(old: str | None) -> str:
        with contextlib.closing(sqlite3.connect(path, timeout=0)) as other:
            try:
                other.execute("DELETE FROM untildone_memory")
            except sqlite3.OperationalError as error:
                refused.append(str(error))
        return f"{old}er"

    async with SQLMemoryProvider(f"sqlite:///{path}") as provider:
        await provider.store("k", "old")
        assert await provider.update("k", think) == "older"
        assert refused == ["database is locked"]


async def test_providers_of_different_tables_do_not_meet(tmp_path: Path):
    url = f"sqlite:///{tmp_path}/memory.db"
    async with (
        SQLMemoryProvider(url, table="one") as one,
        SQLMemoryProvider(url, table="two") as two,
    ):
        await one.store("bird", "heron")
        assert await two.retrieve("bird") is None
        assert await two.search("heron") == []
        await two.clear()
        assert await one.retrieve("bird") == "heron"


async def test_a_database_in_memory_lasts_until_it_is_closed():
    provider = SQLMemoryProvider("sqlite://")
    await asyncio.gather(*(provider.store(f"k{n}", "v") for n in range(9)))
    assert len(await provider.entries()) == 9
    await provider.aclose()
    assert await provider.entries() == []
    await provider.aclose()


async def test_a_server_that_is_not_there_is_an_error_without_the_password():
    provider = SQLMemoryProvider("postgresql://ada:secret@127.0.0.1:1/test")
    for _ in range(2):
        with pytest.raises(
            MemoryProviderError, match=r"127\.0\.0\.1:1/test.*can be reached"
        ) as caught:
            await provider.retrieve("k")
        assert "secret" not in str(caught.value)
    assert "secret" not in repr(provider)
    await provider.aclose()


async def test_a_file_that_is_no_database_is_an_error_that_names_it(tmp_path: Path):
    path = tmp_path / "memory.db"
    path.write_text("no database, but a text that is long enough to look like a header" * 20)
    async with SQLMemoryProvider(f"sqlite:///{path}") as provider:
        with pytest.raises(MemoryProviderError, match=r"memory\.db.*not a database"):
            await provider.store("k", "v")
    assert path.read_text().startswith("no database")


@pytest.mark.parametrize(("key", "value"), [("k\ud800", "v"), ("k", "v\ud800")])
async def test_half_of_a_surrogate_pair_is_refused_with_its_place(
    key: str, value: str, tmp_path: Path
):
    async with SQLMemoryProvider(f"sqlite:///{tmp_path}/memory.db") as provider:
        with pytest.raises(MemoryProviderError, match=r"surrogate.*character 1"):
            await provider.store(key, value)
        with pytest.raises(MemoryProviderError, match="surrogate"):
            await provider.update(key, lambda _: value)
        assert await provider.entries() == []


async def test_postgresql_takes_no_nul_and_says_so():
    needs("PostgreSQL", 5432)
    table = new_name()
    async with SQLMemoryProvider(POSTGRES, table=table) as provider:
        try:
            with pytest.raises(MemoryProviderError, match="NUL"):
                await provider.store("k", "a\0b")
            assert await provider.entries() == []
        finally:
            drop_table(table)


async def test_postgresql_clears_before_or_after_an_update_and_never_inside_one():
    needs("PostgreSQL", 5432)
    table = new_name()
    provider = SQLMemoryProvider(POSTGRES, table=table)
    waiting = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    with psycopg.connect(POSTGRES) as writer, psycopg.connect(POSTGRES, autocommit=True) as watcher:
        try:
            await provider.store("k", "v")
            # What an update in another process holds until it is done:
            lock = "SELECT pg_advisory_xact_lock_shared(%s)"
            writer.execute(lock, [sql_entries._number(table)])
            clearing = asyncio.create_task(provider.clear())
            await until(lambda: watcher.execute(waiting).fetchone() is not None)
            assert not clearing.done()
            assert await provider.retrieve("k") == "v"
            writer.commit()
            await clearing
            assert await provider.entries() == []
        finally:
            await provider.aclose()
            drop_table(table)


async def test_an_update_in_postgresql_holds_what_a_clear_waits_for():
    needs("PostgreSQL", 5432)
    table = new_name()
    got: list[object] = []

    def think(old: str | None) -> str:
        with psycopg.connect(POSTGRES) as other:
            ask = "SELECT pg_try_advisory_xact_lock(%s)"
            got.append(other.execute(ask, [sql_entries._number(table)]).fetchone())
        return "v"

    async with SQLMemoryProvider(POSTGRES, table=table) as provider:
        try:
            assert await provider.update("k", think) == "v"
            assert got == [(False,)]
        finally:
            drop_table(table)


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("memory.db", "sqlite:///memory.db"),
        ("", "sqlite:///memory.db"),
        (None, "sqlite:///memory.db"),
        (5, "sqlite:///memory.db"),
        ("mysql://root@localhost/test", "mysql"),
        ("sqlite+aiosqlite:///memory.db", "sqlite://"),
        ("postgresql+asyncpg://root@127.0.0.1/test", "postgresql://"),
        ("postgresql+nobody://root@127.0.0.1/test", "nobody"),
    ],
)
def test_a_url_that_cannot_work_is_refused_at_once(url: Any, named: str):
    with pytest.raises(ConfigError, match=named):
        SQLMemoryProvider(url)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"table": "my table"}, "table"),
        ({"table": ""}, "table"),
        ({"table": 'x"; DROP TABLE y; --'}, "table"),
        ({"table": None}, "table"),
        ({"max_connections": 0}, "max_connections"),
        ({"max_connections": None}, "max_connections"),
    ],
)
def test_a_setting_that_cannot_work_is_refused_by_name(settings: dict[str, Any], named: str):
    with pytest.raises(ConfigError, match=f"SQLMemoryProvider.{named}"):
        SQLMemoryProvider("sqlite://", **settings)


def test_without_sqlalchemy_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    monkeypatch.delitem(sys.modules, "untildone.memory.sql_entries", raising=False)
    monkeypatch.delattr("untildone.memory.sql_entries", raising=False)
    with pytest.raises(ConfigError, match=r"sqlalchemy.*pip install 'untildone\[sql\]'"):
        SQLMemoryProvider("sqlite://")


def test_without_psycopg_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ConfigError, match=r"psycopg.*pip install 'untildone\[sql\]'"):
        SQLMemoryProvider("postgresql://root@127.0.0.1/test")
    SQLMemoryProvider("sqlite://")


def test_it_serves_one_event_loop_after_another(tmp_path: Path):
    provider = SQLMemoryProvider(f"sqlite:///{tmp_path}/memory.db")

    async def add(name: str) -> int:
        await provider.store(name, name)
        return len(await provider.entries())

    assert [asyncio.run(add(name)) for name in "abc"] == [1, 2, 3]
    asyncio.run(provider.aclose())


@pytest.mark.parametrize(
    "url",
    [
        "postgresql:/root:s3cret@host/name",
        "postgres+x://root:s3cret@host/name",
        "postgres+x://root:s3/c@ret@host/name",
        "postgres+x://host/name?password=s3cret",
        "postgres+x://root:s3?c@ret/host",
    ],
)
def test_a_url_that_is_refused_shows_no_password(url: str):
    with pytest.raises(ConfigError) as caught:
        SQLMemoryProvider(url)
    assert "s3" not in str(caught.value)
    assert "ret" not in str(caught.value)
    assert caught.value.__cause__ is None


async def test_a_password_in_the_query_is_shown_nowhere():
    provider = SQLMemoryProvider("postgresql://root@127.0.0.1:1/test?password=s3cret")
    async with provider:
        with pytest.raises(MemoryProviderError) as caught:
            await provider.retrieve("k")
    assert "s3cret" not in str(caught.value)
    assert "s3cret" not in repr(provider)
    assert "127.0.0.1:1/test" in repr(provider)
