"""The file provider: what other processes, broken files and full disks do to it."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.memory.places import run_python
from untildone import ConfigError, MemoryProviderError
from untildone.memory import FileMemoryProvider, file_lock
from untildone.memory.memory_file import MemoryFile

WRITER = """
import asyncio, sys
from untildone.memory import FileMemoryProvider

async def main(path, me):
    async with FileMemoryProvider(path) as provider:
        for n in range(50):
            await provider.store(f"{me}:{n}", f"value {n}")
            await provider.update("count", lambda old: str(int(old or 0) + 1))

asyncio.run(main(*sys.argv[1:]))
"""


def names_in(folder: Path, pattern: str = "*") -> list[str]:
    return sorted(path.name for path in folder.glob(pattern))


def texts_in(folder: Path, pattern: str) -> list[str]:
    return sorted(path.read_text() for path in folder.glob(pattern))


async def test_four_processes_of_fifty_writes_lose_nothing(tmp_path: Path):
    path = tmp_path / "memory.json"
    await asyncio.gather(*(run_python(WRITER, path, me) for me in "abcd"))
    entries = json.loads(path.read_text("utf-8"))
    assert entries.pop("count") == "200"
    assert entries == {f"{me}:{n}": f"value {n}" for me in "abcd" for n in range(50)}
    assert names_in(tmp_path) == ["memory.json", "memory.json.lock"]


async def test_two_providers_of_one_file_see_what_the_other_one_wrote(tmp_path: Path):
    path = tmp_path / "memory.json"
    async with FileMemoryProvider(path) as one, FileMemoryProvider(path) as other:
        await one.store("bird", "heron")
        assert await other.search("heron") == [("bird", "heron")]
        await other.store("bird", "wren")
        assert await one.retrieve("bird") == "wren"
        assert await one.search("heron") == []
        path.unlink()
        assert await one.entries() == []


async def test_the_file_is_plain_json_with_one_entry_a_line(tmp_path: Path):
    path = tmp_path / "deep" / "er" / "memory.json"
    async with FileMemoryProvider(path) as provider:
        await provider.store("b", "東京")
        await provider.store("a", 'x"\n')
    assert path.read_text("utf-8") == '{\n"b": "東京",\n"a": "x\\"\\n"\n}\n'
    async with FileMemoryProvider(str(path)) as provider:
        assert await provider.entries() == [("b", "東京"), ("a", 'x"\n')]


async def test_a_file_that_a_person_wrote_is_read(tmp_path: Path):
    path = tmp_path / "memory.json"
    path.write_bytes(b'\xef\xbb\xbf{"name": "Ada"}')
    async with FileMemoryProvider(path) as provider:
        assert await provider.search("name") == [("name", "Ada")]


async def test_half_of_a_surrogate_pair_survives_the_file(tmp_path: Path):
    path = tmp_path / "memory.json"
    async with FileMemoryProvider(path) as provider:
        await provider.store("k\udc80", "v\ud83d")
    async with FileMemoryProvider(path) as provider:
        assert await provider.retrieve("k\udc80") == "v\ud83d"


BROKEN = {
    "cut": b'{"name": "Ada", "ci',
    "no json": b"name = Ada",
    "a list": b'["Ada"]',
    "a number as value": b'{"name": 1}',
    "null": b"null",
    "no utf-8": b'{"name": "\xff\xfe"}',
    "nul bytes": b"\0" * 64,
    "too deep": b'{"a":' * 100_000,
}


@pytest.mark.parametrize("content", [pytest.param(c, id=n) for n, c in BROKEN.items()])
@pytest.mark.parametrize("first", ["retrieve", "store"])
async def test_a_corrupt_file_is_kept_aside_and_reported_and_never_wiped(
    content: bytes, first: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    path = tmp_path / "memory.json"
    path.write_bytes(content)
    async with FileMemoryProvider(path) as provider:
        with caplog.at_level(logging.WARNING, "untildone"):
            if first == "retrieve":
                assert await provider.retrieve("name") is None
            await provider.store("name", "Grace")
            assert await provider.retrieve("name") == "Grace"
    (name,) = names_in(tmp_path, "memory.json.corrupt-*")
    aside = tmp_path / name
    assert aside.read_bytes() == content
    (record,) = caplog.records
    assert repr(str(path)) in record.getMessage()
    assert repr(str(aside)) in record.getMessage()
    assert json.loads(path.read_bytes()) == {"name": "Grace"}


async def test_each_corrupt_file_is_kept_under_a_name_of_its_own(tmp_path: Path):
    path = tmp_path / "memory.json"
    async with FileMemoryProvider(path) as provider:
        for content in ("[1", "[2", "[3"):
            path.write_text(content)
            assert await provider.entries() == []
    assert texts_in(tmp_path, "memory.json.corrupt-*") == ["[1", "[2", "[3"]


@pytest.mark.parametrize("content", [b"", b"\n", b"{}"])
async def test_an_empty_file_is_an_empty_memory(
    content: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    path = tmp_path / "memory.json"
    path.write_bytes(content)
    async with FileMemoryProvider(path) as provider:
        assert await provider.entries() == []
        await provider.store("k", "v")
    assert json.loads(path.read_bytes()) == {"k": "v"}
    assert names_in(tmp_path, "*corrupt*") == []
    assert caplog.records == []


async def test_a_file_that_cannot_be_used_is_an_error_that_names_it(tmp_path: Path):
    folder = tmp_path / "memory.json"
    folder.mkdir()
    async with FileMemoryProvider(folder) as provider:
        with pytest.raises(MemoryProviderError, match=re.escape(str(folder))) as caught:
            await provider.retrieve("k")
        assert "must be a file" in str(caught.value)
        with pytest.raises(MemoryProviderError, match=re.escape(str(folder))):
            await provider.store("k", "v")
    in_a_file = tmp_path / "file"
    in_a_file.write_text("x")
    async with FileMemoryProvider(in_a_file / "memory.json") as provider:
        with pytest.raises(MemoryProviderError, match=r"memory\.json"):
            await provider.store("k", "v")


@pytest.mark.parametrize("path", ["", None, 5, [], object()], ids=repr)
def test_what_is_no_path_is_refused_at_once(path: Any):
    with pytest.raises(ConfigError, match=r"memory\.json"):
        FileMemoryProvider(path)


async def test_what_cannot_be_written_is_reported_to_its_writer_and_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "memory.json"
    async with FileMemoryProvider(path) as provider:
        await provider.store("old", "kept")

        def full(self: MemoryFile) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr(MemoryFile, "write", full)
            with pytest.raises(MemoryProviderError, match="No space left"):
                await provider.store("new", "lost")
            assert await provider.entries() == [("old", "kept")]
        await provider.store("newer", "kept too")
        assert await provider.entries() == [("old", "kept"), ("newer", "kept too")]


async def test_a_write_that_breaks_off_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "memory.json"
    async with FileMemoryProvider(path) as provider:
        await provider.store("old", "kept")
        before = path.read_bytes()

        def broken(_: int) -> None:
            raise OSError(5, "Input/output error")

        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", broken)
            with pytest.raises(MemoryProviderError, match="Input/output error"):
                await provider.store("new", "lost")
    assert path.read_bytes() == before
    assert names_in(tmp_path, "*.tmp") == []


async def test_one_failing_update_among_others_costs_the_others_nothing(tmp_path: Path):
    async with FileMemoryProvider(tmp_path / "memory.json") as provider:

        def fail(_: str | None) -> str:
            raise LookupError("mine")

        outcomes = await asyncio.gather(
            provider.store("a", "1"),
            provider.update("b", fail),
            provider.store("c", "3"),
            return_exceptions=True,
        )
        assert outcomes[0] is None
        assert isinstance(outcomes[1], LookupError)
        assert outcomes[2] is None
        assert await provider.entries() == [("a", "1"), ("c", "3")]


async def test_a_file_keeps_who_may_read_it(tmp_path: Path):
    path = tmp_path / "memory.json"
    path.write_text("{}")
    path.chmod(0o600)
    async with FileMemoryProvider(path) as provider:
        await provider.store("k", "v")
    assert path.stat().st_mode & 0o777 == 0o600


async def test_a_link_to_the_file_stays_a_link(tmp_path: Path):
    path, link = tmp_path / "memory.json", tmp_path / "link.json"
    path.write_text("{}")
    link.symlink_to(path)
    async with FileMemoryProvider(link) as provider:
        await provider.store("k", "v")
    assert link.is_symlink()
    assert json.loads(path.read_text()) == {"k": "v"}


async def test_a_lock_that_somebody_keeps_is_an_error_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "memory.json"
    async with FileMemoryProvider(path) as provider:
        await provider.store("k", "v")
        monkeypatch.setattr(file_lock, "WAIT_S", 0.0)
        with file_lock.locked(path.with_name("memory.json.lock")):
            with pytest.raises(MemoryProviderError, match=r"another process.*memory\.json\.lock"):
                await provider.store("k", "w")
            assert await provider.retrieve("k") == "v"  # reading needs no lock
        await provider.store("k", "x")
        assert await provider.retrieve("k") == "x"


async def test_a_cancelled_call_that_has_not_begun_does_nothing(tmp_path: Path):
    async with FileMemoryProvider(tmp_path / "memory.json") as provider:
        held, go_on = threading.Event(), threading.Event()

        def wait(old: str | None) -> str:
            held.set()
            assert go_on.wait(30)
            return "done"

        first = asyncio.create_task(provider.update("first", wait))
        await asyncio.to_thread(held.wait, 30)
        second = asyncio.create_task(provider.store("second", "v"))
        await asyncio.sleep(0)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        go_on.set()
        assert await first == "done"
        assert await provider.entries() == [("first", "done")]


def test_it_serves_one_event_loop_after_another_and_is_opened_anew_after_closing(tmp_path: Path):
    provider = FileMemoryProvider(tmp_path / "memory.json")

    async def add(name: str) -> int:
        await provider.store(name, name)
        await provider.aclose()
        await provider.aclose()
        return len(await provider.entries())

    assert [asyncio.run(add(name)) for name in "abc"] == [1, 2, 3]
    asyncio.run(provider.aclose())
    assert repr(provider) == f"FileMemoryProvider({str(tmp_path / 'memory.json')!r})"


async def test_what_is_no_regular_file_is_refused_and_left_as_it_is(tmp_path: Path):
    pipe = tmp_path / "memory.json"
    os.mkfifo(pipe)
    async with FileMemoryProvider(pipe) as provider:
        with pytest.raises(MemoryProviderError, match="no regular file; it must be a file"):
            await provider.retrieve("k")
        with pytest.raises(MemoryProviderError, match="no regular file"):
            await provider.store("k", "v")
    assert pipe.is_fifo()


async def test_what_a_killed_writer_left_is_removed_by_the_next_one(tmp_path: Path):
    path = tmp_path / "memory.json"
    kept = ["memory.json.1-0123456.tmp", "memory.json.x.tmp", "memoryxjson.1-01234567.tmp"]
    for name in ("memory.json.1-01234567.tmp", "memory.json.77-89abcdef.tmp", *kept):
        (tmp_path / name).write_text("{")
    async with FileMemoryProvider(path) as provider:
        await provider.store("k", "v")
    assert names_in(tmp_path) == sorted(["memory.json", "memory.json.lock", *kept])
