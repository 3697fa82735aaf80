"""The Redis provider, against a real server."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncGenerator
from typing import Any

import pytest
import redis
import redis.asyncio

from tests.memory.places import REDIS, forget, needs, new_name, run_python
from untildone import ConfigError, MemoryProviderError
from untildone.memory import RedisMemoryProvider

WRITER = """
import asyncio, sys
from untildone.memory import RedisMemoryProvider

async def main(url, prefix, me):
    async with RedisMemoryProvider(url, prefix=prefix) as provider:
        for n in range(15):
            await asyncio.gather(
                provider.store(f"{me}:{n}", f"value {n}"),
                provider.update("count", lambda old: str(int(old or 0) + 1)),
            )

asyncio.run(main(*sys.argv[1:]))
"""


async def test_two_processes_lose_nothing():
    needs("Redis", 6379)
    async with RedisMemoryProvider(REDIS, prefix=new_name()) as provider:
        try:
            prefix = provider.prefix
            await asyncio.gather(*(run_python(WRITER, REDIS, prefix, me) for me in "ab"))
            entries = dict(await provider.entries())
            assert entries.pop("count") == "30"
            assert entries == {f"{me}:{n}": f"value {n}" for me in "ab" for n in range(15)}
        finally:
            await forget(provider)


async def test_it_touches_only_keys_under_its_prefix_and_clear_does_too():
    needs("Redis", 6379)
    async with redis.asyncio.Redis.from_url(REDIS) as client:
        one = RedisMemoryProvider(client=client, prefix=new_name())
        two = RedisMemoryProvider(client=client, prefix=new_name())
        try:
            await one.store("bird", "heron")
            await two.store("bird", "wren")
            kept: Any = await client.keys(f"*{one.prefix}*")
            assert sorted(bytes(key).decode() for key in kept) == [
                f"{{{one.prefix}}}:count",
                f"{{{one.prefix}}}:order",
                f"{{{one.prefix}}}:values",
            ]
            await one.clear()
            assert await one.retrieve("bird") is None
            assert await two.retrieve("bird") == "wren"
        finally:
            await forget(one)
            await forget(two)


@pytest.mark.parametrize("decode", [False, True])
async def test_a_client_of_the_callers_is_used_and_left_open(decode: bool):
    needs("Redis", 6379)
    async with redis.asyncio.Redis.from_url(REDIS, decode_responses=decode) as client:
        async with RedisMemoryProvider(client=client, prefix=new_name()) as provider:
            await provider.store("鳥", "a heron in 東京")
            assert await provider.update("鳥", lambda old: f"{old}!") == "a heron in 東京!"
            assert await provider.search("東京") == [("鳥", "a heron in 東京!")]
            assert await provider.entries() == [("鳥", "a heron in 東京!")]
        try:
            assert await client.ping()
        finally:
            await forget(provider)


async def test_an_update_is_made_again_where_another_process_was_faster():
    needs("Redis", 6379)
    async with (
        RedisMemoryProvider(REDIS, prefix=new_name()) as provider,
        redis.asyncio.Redis.from_url(REDIS) as client,
    ):
        other = RedisMemoryProvider(client=client, prefix=provider.prefix)
        blocking = redis.Redis.from_url(REDIS)
        seen: list[str | None] = []

        def overtaken(old: str | None) -> str:
            seen.append(old)
            if len(seen) == 1:  # between reading and writing, somebody else writes
                blocking.hset(f"{{{provider.prefix}}}:values", "k", "theirs")
            return f"{old or ''}+mine"

        try:
            assert await provider.update("k", overtaken) == "theirs+mine"
            assert seen == [None, "theirs"]
            assert await other.retrieve("k") == "theirs+mine"
        finally:
            blocking.close()
            await forget(provider)


async def test_a_thousand_calls_at_once_share_few_connections():
    needs("Redis", 6379)
    async with RedisMemoryProvider(REDIS, prefix=new_name()) as provider:
        try:
            await asyncio.gather(*(provider.store(f"k{n}", "v") for n in range(1000)))
            assert len(await provider.entries()) == 1000
            (opened,) = provider._opened.values()
            assert len(opened.client.connection_pool._available_connections) <= 16
        finally:
            await forget(provider)


async def test_what_a_search_remembers_of_the_server_is_never_older_than_the_server():
    needs("Redis", 6379)
    async with RedisMemoryProvider(REDIS, prefix=new_name()) as provider:
        other = RedisMemoryProvider(REDIS, prefix=provider.prefix)
        for bird in ("heron", "wren"):
            await other.store("bird", bird)
            assert await provider.search(f"{bird} bird") == [("bird", bird)]
        await forget(provider)  # the server lost everything, the counter too
        await other.store("note", "two were stored before")
        await other.store("bird", "magpie")
        assert await provider.search("wren") == []
        assert await provider.search("bird") == [("bird", "magpie")]
        assert await provider.search("heron") == []
        await other.update("bird", lambda _: None)
        assert await provider.search("bird") == []
        await forget(provider)
        await other.aclose()


async def test_a_server_that_is_not_there_is_an_error_without_the_password():
    async with RedisMemoryProvider("redis://ada:secret@127.0.0.1:1/0") as provider:
        with pytest.raises(
            MemoryProviderError, match=r"127\.0\.0\.1:1/0.*can be reached"
        ) as caught:
            await provider.retrieve("k")
        assert "secret" not in str(caught.value)
        assert "secret" not in repr(provider)


async def test_half_of_a_surrogate_pair_is_refused_with_its_place():
    async with RedisMemoryProvider("redis://127.0.0.1:1") as provider:
        with pytest.raises(MemoryProviderError, match=r"surrogate.*character 1"):
            await provider.store("k", "v\ud800")


def test_it_serves_one_event_loop_after_another_whose_ends_close_its_connections():
    needs("Redis", 6379)
    provider = RedisMemoryProvider(REDIS, prefix=new_name())

    async def add(name: str) -> int:
        await provider.store(name, name)
        return len(await provider.entries())

    assert [asyncio.run(add(name)) for name in "abc"] == [1, 2, 3]  # warnings are errors here
    assert provider._opened == {}
    asyncio.run(forget(provider))


@pytest.mark.parametrize(
    ("arguments", "settings", "named"),
    [
        (["memory"], {}, "redis://"),
        ([""], {}, "redis://"),
        ([None], {}, "redis://"),
        (["http://127.0.0.1"], {}, "redis://"),
        ([], {"prefix": ""}, "prefix"),
        ([], {"prefix": "{x}"}, "prefix"),
        ([], {"prefix": None}, "prefix"),
        ([], {"client": object()}, r"redis\.asyncio"),
        ([], {"client": redis.Redis}, r"redis\.asyncio"),
    ],
)
def test_a_setting_that_cannot_work_is_refused_at_once(
    arguments: list[Any], settings: dict[str, Any], named: str
):
    with pytest.raises(ConfigError, match=named):
        RedisMemoryProvider(*arguments, **settings)


def test_without_redis_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(ConfigError, match=r"redis.*pip install 'untildone\[redis\]'"):
        RedisMemoryProvider()


@pytest.mark.parametrize(
    "url", ["redis://127.0.0.1:1/0?password=s3cret", "redis://127.0.0.1:1/0?password=a@s3cret"]
)
async def test_a_password_in_the_query_is_shown_nowhere(url: str):
    async with RedisMemoryProvider(url) as provider:
        with pytest.raises(MemoryProviderError) as caught:
            await provider.retrieve("k")
    assert "s3cret" not in str(caught.value)
    assert "s3cret" not in repr(provider)


@pytest.mark.parametrize("url", ["http://ada:s3cret@host", "redis://:s3/cret@host:1"])
def test_a_url_that_is_refused_shows_no_password(url: str):
    with pytest.raises(ConfigError) as caught:
        RedisMemoryProvider(url)
    assert "s3" not in str(caught.value)
    assert caught.value.__cause__ is None


class Relay:
    """A server in front of Redis whose connections can be cut, also in the middle of a reply."""

    def __init__(self) -> None:
        self.writers: list[asyncio.StreamWriter] = []
        self.swallow = b""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner, outer = await asyncio.open_connection("127.0.0.1", 6379)
        self.writers += [writer, outer]
        await asyncio.gather(self._pass(reader, outer, writer), self._pass(inner, writer, None))

    async def _pass(self, source: Any, sink: Any, cut: Any) -> None:
        """Hands on what comes; after a command with ``swallow`` in it the caller is cut off."""
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                sink.write(data)
                await sink.drain()
                if cut is not None and self.swallow and self.swallow in data:
                    self.swallow = b""
                    await asyncio.sleep(0.05)  # Redis has done it by then
                    cut.transport.abort()
        sink.close()

    def cut(self, how: str) -> None:
        for writer in self.writers:
            writer.close() if how == "close" else writer.transport.abort()
        self.writers.clear()


@contextlib.asynccontextmanager
async def relayed() -> AsyncGenerator[tuple[Relay, RedisMemoryProvider]]:
    needs("Redis", 6379)
    relay = Relay()
    server = await asyncio.start_server(relay.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    provider = RedisMemoryProvider(f"redis://127.0.0.1:{port}/0", prefix=new_name())
    try:
        yield relay, provider
    finally:
        await forget(provider)
        await provider.aclose()
        relay.cut("abort")
        server.close()


@pytest.mark.parametrize("how", ["close", "abort"])
async def test_connections_that_the_server_dropped_cost_nothing(how: str):
    async with relayed() as (relay, provider):
        await asyncio.gather(*(provider.store(f"k{n}", "v") for n in range(40)))
        relay.cut(how)
        await asyncio.sleep(0.05)
        values = await asyncio.gather(*(provider.retrieve(f"k{n}") for n in range(40)))
        assert values == ["v"] * 40


async def test_a_change_whose_answer_was_lost_is_made_once():
    async with relayed() as (relay, provider):
        await provider.store("count", "1")
        relay.swallow = b":swap:"
        assert await provider.update("count", lambda old: str(int(old or 0) + 1)) == "2"
        assert relay.swallow == b""
        assert await provider.retrieve("count") == "2"
