"""A memory on a Redis server."""

from __future__ import annotations

import asyncio
import inspect
import secrets
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any, Final, cast

from untildone.domain.errors import ConfigError, MemoryProviderError, describe
from untildone.memory.mirror import Mirrors
from untildone.memory.provider import ClosingProvider
from untildone.memory.relevance import words_of_query
from untildone.memory.scoped import (
    OWN_PREFIX,
    Change,
    Found,
    Turns,
    check_search,
    check_text,
    checked_change,
    shown_url,
)

_MOST_CONNECTIONS: Final = 16
_WAIT_S: Final = 30
_AT_ONCE: Final = 500
_MARK_S: Final = 10
_RETRIES: Final = 3
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 0.5

# Each script is one atomic step. KEYS: the hash of values, the sorted set of their order, the
# counter that numbers what is stored. Keys of entries are compared as bytes. A counter that is new
# begins at the time in microseconds: no number comes twice, also if the server lost everything.
_PUT: Final = """
local function put(key, value)
  if redis.call('EXISTS', KEYS[3]) == 0 then
    local now = redis.call('TIME')
    redis.call('SET', KEYS[3], string.format('%d%06d', now[1], now[2]))
  end
  redis.call('HSET', KEYS[1], key, value)
  redis.call('ZADD', KEYS[2], redis.call('INCR', KEYS[3]), key)
end
"""
_STORE: Final = f"{_PUT} put(ARGV[1], ARGV[2])"
# What the network made somebody send twice is done once: a swap leaves its mark for some seconds.
_SWAP: Final = f"""
{_PUT}
if redis.call('EXISTS', KEYS[4]) == 1 then return 1 end
local old = redis.call('HGET', KEYS[1], ARGV[1])
if (old or '') ~= ARGV[3] or (old and '1' or '0') ~= ARGV[2] then return 0 end
if ARGV[4] == '1' then
  put(ARGV[1], ARGV[5])
else
  redis.call('HDEL', KEYS[1], ARGV[1])
  redis.call('ZREM', KEYS[2], ARGV[1])
end
redis.call('SET', KEYS[4], '', 'EX', {_MARK_S})
return 1
"""
_ENTRIES: Final = """
local found = {}
for _, key in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
  if string.sub(key, 1, #ARGV[1]) == ARGV[1] then
    found[#found + 1] = key
    found[#found + 1] = redis.call('HGET', KEYS[1], key)
  end
end
return found
"""
_NUMBERS: Final = """
local numbers = {}
local listed = redis.call('ZRANGE', KEYS[2], 0, -1, 'WITHSCORES')
for i = 1, #listed, 2 do
  local begins = string.sub(listed[i], 1, #ARGV[1]) == ARGV[1]
  if begins == (ARGV[2] == '1') then
    numbers[#numbers + 1] = listed[i + 1]
  end
end
return table.concat(numbers, ' ')
"""
_NUMBERED: Final = """
local found = {}
for _, number in ipairs(ARGV) do
  local key = redis.call('ZRANGEBYSCORE', KEYS[2], number, number)[1]
  if key then
    found[#found + 1] = number
    found[#found + 1] = key
    found[#found + 1] = redis.call('HGET', KEYS[1], key)
  end
end
return found
"""
_TRIM: Final = """
local dropped, kept = 0, 0
for _, key in ipairs(redis.call('ZREVRANGE', KEYS[2], 0, -1)) do
  if string.sub(key, 1, #ARGV[1]) == ARGV[1] then
    if kept < tonumber(ARGV[2]) then
      kept = kept + 1
    else
      redis.call('HDEL', KEYS[1], key)
      redis.call('ZREM', KEYS[2], key)
      dropped = dropped + 1
    end
  end
end
return dropped
"""


@dataclass(slots=True)
class _Open:
    """A client of one event loop, and what closes it together with the loop."""

    client: Any
    keeper: AsyncGenerator[None]


class RedisMemoryProvider(ClosingProvider):
    """Keeps memories on a Redis server (S1); needs the extra ``untildone[redis]``.

    Three keys of the server are used: ``{prefix}:values``, ``{prefix}:order``, ``{prefix}:count``,
    braces included, so that a cluster keeps them together, and for some seconds after a change a
    mark under the same prefix. What a broken connection did not answer is asked again. A process
    remembers what it has searched and reads only what is new, which suits thousands of entries in a
    scope, not millions.

    Args:
        url: ``redis://host:6379/0``, ``rediss://…`` or ``unix://…``.
        prefix: Tells the memories of one application from another's.
        client: A ``redis.asyncio.Redis`` of your own instead of ``url``; you close it.

    Raises:
        ConfigError: A value cannot work, or redis is not installed.
    """

    def __init__(
        self,
        url: str = "redis://127.0.0.1:6379/0",
        *,
        prefix: str = "untildone",
        client: Any | None = None,
    ) -> None:
        if not isinstance(prefix, str) or not prefix or set(prefix) & set("{}"):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(
                f"RedisMemoryProvider.prefix must be a text without braces, not {prefix!r:.80}"
            )
        try:
            from redis import RedisError
            from redis.asyncio import connection
        except ModuleNotFoundError as error:
            msg = f"RedisMemoryProvider cannot load {error.name}; pip install 'untildone[redis]'"
            raise ConfigError(msg) from error
        if client is not None and not inspect.iscoroutinefunction(
            getattr(client, "execute_command", None)
        ):
            raise ConfigError(
                f"RedisMemoryProvider.client must be a redis.asyncio.Redis, not {client!r:.80}"
            )
        try:
            connection.parse_url(url)
        except (ValueError, TypeError, AttributeError):
            raise ConfigError(
                "RedisMemoryProvider takes a URL like 'redis://127.0.0.1:6379/0'"
                f" ('rediss://…' for TLS, 'unix://…' for a socket), not {shown_url(url)!r}"
            ) from None  # what it says may quote the password
        self.prefix = prefix
        self._url = url
        self._client = client
        self._keys = [f"{{{prefix}}}:{part}" for part in ("values", "order", "count")]
        self._failures: tuple[type[Exception], ...] = (RedisError, OSError)
        self._opened: dict[asyncio.AbstractEventLoop, _Open] = {}
        self._turns = Turns()
        self._mirrors = Mirrors()

    def __repr__(self) -> str:
        where = "your client" if self._client is not None else shown_url(self._url)
        return f"RedisMemoryProvider({where!r})"

    async def store(self, key: str, value: str) -> None:
        """Keeps a value; what the key had before is replaced (S1)."""
        check_text(self, key=key, value=value)
        await self._eval(_STORE, _encoded(key), _encoded(value))

    async def retrieve(self, key: str) -> str | None:
        """The value of a key, or None (S1)."""
        check_text(self, key=key)
        return _text(await self._call("hget", self._keys[0], _encoded(key)))

    async def clear(self) -> None:
        """Forgets everything under the prefix (S1)."""
        await self._call("delete", *self._keys[:2])

    async def update(self, key: str, change: Change) -> str | None:
        """Replaces a value by what ``change`` makes of it, with nobody in between.

        Args:
            key: Whose value.
            change: ``(old value or None) -> new value``, or None to forget the key. It must be
                quick and have no effects: it is called again where somebody else was faster.

        Returns:
            The new value.
        """
        check_text(self, key=key)
        checked = checked_change(self, change)
        async with self._turns.turn():  # only other processes can be faster then
            while True:
                old = await self.retrieve(key)
                new = checked(old)
                swap = (
                    *(("0", b"") if old is None else ("1", _encoded(old))),
                    *(("0", b"") if new is None else ("1", _encoded(new))),
                )
                mark = f"{{{self.prefix}}}:swap:{secrets.token_hex(8)}"
                if await self._eval(_SWAP, _encoded(key), *swap, more_keys=(mark,)):
                    return new

    async def entries(self, prefix: str = "") -> list[tuple[str, str]]:
        """All entries whose key begins so, the one stored longest ago first."""
        check_text(self, prefix=prefix)
        flat = _texts(await self._eval(_ENTRIES, _encoded(prefix)))
        return list(zip(flat[::2], flat[1::2], strict=True))

    async def trim(self, prefix: str, keep: int) -> int:
        """Forgets all entries whose key begins so but the ``keep`` stored last; gives how many."""
        check_text(self, prefix=prefix)
        return await self._eval(_TRIM, _encoded(prefix), keep)

    async def find(self, query: str, top_k: int = 5, *, prefix: str = "") -> list[Found]:
        """What ``search`` finds among keys that begin so, with scores.

        Args:
            query: What to look for.
            top_k: Most entries, 1 or more.
            prefix: How their keys begin; ``""`` for all but our own.
        """
        check_search(query, top_k)
        check_text(self, prefix=prefix)
        if not words_of_query(query):
            return []
        mirror = self._mirrors.of(prefix)
        async with mirror.turns.turn():
            missing = mirror.missing(await self._numbers(prefix))
            for begin in range(0, len(missing), _AT_ONCE):
                mirror.take(await self._numbered(missing[begin : begin + _AT_ONCE]))
            return mirror.notebook.find(query, top_k, prefix)

    async def aclose(self) -> None:
        """Closes the running event loop's connections; a later call opens new ones."""
        opened = self._opened.get(asyncio.get_running_loop())
        if opened is not None:
            await opened.keeper.aclose()

    async def _numbers(self, prefix: str) -> list[int]:
        """The numbers of the entries that a search with this prefix looks at."""
        begins = ("1", prefix) if prefix else ("0", OWN_PREFIX)
        numbers = await self._eval(_NUMBERS, _encoded(begins[1]), begins[0])
        return [int(number) for number in (_text(numbers) or "").split()]

    async def _numbered(self, numbers: list[int]) -> list[tuple[int, str, str]]:
        """The entries with these numbers, as far as they are still there."""
        flat = _texts(await self._eval(_NUMBERED, *numbers))
        parts = zip(flat[::3], flat[1::3], flat[2::3], strict=True)
        return [(int(number), key, value) for number, key, value in parts]

    async def _eval(
        self, script: str, *arguments: bytes | str | int, more_keys: tuple[str, ...] = ()
    ) -> Any:
        keys = (*self._keys, *more_keys)
        return await self._call("eval", script, len(keys), *keys, *arguments)

    async def _call(self, command: str, *arguments: Any) -> Any:
        try:
            client = self._client if self._client is not None else await self._connected()
            return await getattr(client, command)(*arguments)
        except self._failures as error:
            raise MemoryProviderError(
                f"{self!r} failed: {describe(error)}; see that the server can be reached and that"
                " its user may read, write and run scripts"
            ) from error

    async def _connected(self) -> Any:
        """The client of the running event loop, which is closed with the loop."""
        loop = asyncio.get_running_loop()
        opened = self._opened.get(loop)
        if opened is None:
            from redis.asyncio import BlockingConnectionPool, Redis
            from redis.asyncio.retry import Retry
            from redis.backoff import ExponentialBackoff

            # A server that was started anew has dropped what the pool still holds: each connection
            # needs a second try. Every command here may be sent twice; see _SWAP.
            retry = Retry(ExponentialBackoff(_LONGEST_PAUSE_S, _FIRST_PAUSE_S), _RETRIES)
            pool = BlockingConnectionPool.from_url(  # pyright: ignore[reportUnknownMemberType]
                self._url, max_connections=_MOST_CONNECTIONS, timeout=_WAIT_S, retry=retry
            )
            opened = self._opened[loop] = _Open(Redis.from_pool(pool), self._keep(loop))
            await anext(opened.keeper)
        return opened.client

    async def _keep(self, loop: asyncio.AbstractEventLoop) -> AsyncGenerator[None]:
        """Ends when it is closed: by ``aclose``, or by the event loop at its own end."""
        try:
            yield
        finally:
            opened = self._opened.pop(loop)
            await opened.client.aclose()


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise MemoryProviderError(
            "Redis keeps UTF-8, which has no half of a surrogate pair:"
            f" {text!r:.80} has one at character {error.start};"
            " use text.encode('utf-8', 'replace').decode()"
        ) from error


def _text(value: bytes | str | None) -> str | None:
    """What the server gave; a client of the caller's may decode already."""
    return value.decode() if isinstance(value, bytes) else value


def _texts(values: Any) -> list[str]:
    return [_text(value) or "" for value in cast("list[bytes | str | None]", values)]
