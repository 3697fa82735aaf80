"""The only file that knows the HTTP client: JSON goes out, a streamed answer comes in.

One client session for each running event loop, opened on first use and closed with the loop (or by
``aclose``). It knows nothing of models: statuses and bodies mean something to its callers only.
Redirects are not followed, so that a key never travels to an address nobody configured; cookies
and ``.netrc`` are not used; proxies of the environment are, except for loopback addresses.

The client is aiohttp; ``docs/notes-http.md`` has the figures. It is imported on first use.
"""

from __future__ import annotations

import asyncio
import atexit
import io
import os
import select
import socket
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from untildone.domain.errors import (
    BadReplyError,
    ConnectionFailedError,
    ModelError,
    ModelTimeoutError,
)
from untildone.domain.usage import Usage
from untildone.models.endpoint import Endpoint, ModelTimeouts, masked_login

if TYPE_CHECKING:
    import aiohttp

_MOST_CONNECTIONS: Final = 1000
_KEEP_ALIVE_S: Final = 60.0
_DNS_CACHE_S: Final = 300
_DRAIN_S: Final = 0.1
_MOST_ERROR_BYTES: Final = 65_536
# aiohttp warns of plain bytes above this size and sends a BytesIO in pieces.
_LARGE_BODY: Final = 2**20
_LONGEST_REASON: Final = 120
_SUCCESS: Final = range(200, 300)
_CLOSES_UNTOLD: Final = "llama.cpp"
"""By its header ``Server``, who closes each connection after a stream though it says it keeps it:
the next request would go out before that close has come in."""
_KNOWN: Final = "untildone_known"
_NOTHING_SPENT: Final = Usage()


@dataclass(slots=True)
class _Pool:
    """The connections of one event loop."""

    session: aiohttp.ClientSession
    slots: asyncio.Semaphore
    calls: set[_Watch] = field(default_factory=set["_Watch"], repr=False)
    keeper: AsyncGenerator[None] | None = None
    proxies: dict[str, str | None] = field(default_factory=dict[str, str | None], repr=False)


_pools: dict[asyncio.AbstractEventLoop, _Pool] = {}


async def aclose() -> None:
    """Closes the connections of the running event loop; the next request opens new ones.

    Calls in flight, and those that wait for a connection, end with a ``ConnectionFailedError``.
    """
    pool = _pools.get(asyncio.get_running_loop())
    if pool is not None and pool.keeper is not None:
        await pool.keeper.aclose()


class _Watch:
    """Ends a wait that takes too long or for nothing: ``asyncio.timeout`` for many short waits.

    One timer serves all waits of a request. It rings at the earliest moment that could be too late
    and is set again where that was put off meanwhile: a thousand packets set it once.

    Attributes:
        fired: Whether it has ended a wait.
        is_cut_off: Whether the connections were closed under the request.
    """

    __slots__ = (
        "_at",
        "_cancelling",
        "_loop",
        "_rings_within",
        "_task",
        "_timer",
        "fired",
        "is_cut_off",
    )

    def __init__(self, timeouts: ModelTimeouts, loop: asyncio.AbstractEventLoop) -> None:
        limits = (timeouts.first_token_s, timeouts.between_tokens_s, timeouts.total_s)
        self._rings_within = min((limit for limit in limits if limit is not None), default=None)
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[Any] | None = None
        self._at: float | None = None
        self._cancelling = 0
        self.fired = False
        self.is_cut_off = False

    def begin(self, at: float | None) -> None:
        """A wait of the current task begins that must end at the loop's time ``at``."""
        self._at = at
        task = self._task = asyncio.current_task()
        self._cancelling = task.cancelling() if task is not None else 0
        if self._timer is None and at is not None and self._rings_within is not None:
            self._set(at, self._rings_within)

    def end(self) -> None:
        """The wait is over."""
        self._task = None

    def cut_off(self) -> None:
        """The connections are closed: ends the wait, if there is one."""
        self.is_cut_off = True
        if self._task is not None and not self.fired:
            self.fired = True
            self._task.cancel()

    def has_ended_it(self) -> bool:
        """Whether the cancellation that is being handled is this watch's and nobody else's."""
        return self.fired and self._task is not None and self._task.uncancel() <= self._cancelling

    def close(self) -> None:
        """No more waits."""
        self._task = None
        if self._timer is not None:
            self._timer.cancel()

    def _ring(self) -> None:
        self._timer = None
        if self._task is None or self._at is None or self._rings_within is None or self.fired:
            return  # nobody waits; the next wait sets the timer
        if self._loop.time() < self._at:
            self._set(self._at, self._rings_within)
        else:
            self.fired = True
            self._task.cancel()

    def _set(self, at: float, rings_within: float) -> None:
        # Never later than the shortest limit from now: the next wait may have an earlier end.
        earliest = self._loop.time() + rings_within
        self._timer = self._loop.call_at(min(at, earliest), self._ring)


class Response:
    """An open answer. Only valid inside ``async with post(…)``.

    Attributes:
        status: The HTTP status.
        headers: Case does not matter.
    """

    __slots__ = (
        "_content",
        "_deadline",
        "_end",
        "_endpoint",
        "_given_at",
        "_heard",
        "_loop",
        "_watch",
        "headers",
        "status",
    )

    def __init__(
        self,
        answer: aiohttp.ClientResponse,
        endpoint: Endpoint,
        started: float,
        watch: _Watch,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.status = answer.status
        self.headers: Mapping[str, str] = answer.headers
        self._content = answer.content
        self._endpoint = endpoint
        self._watch = watch
        self._loop = loop
        self._end = _after(started, endpoint.timeouts.total_s)
        self._deadline = _after(started, endpoint.timeouts.first_token_s)
        self._heard: bool | None = None
        self._given_at = self._loop.time()

    @property
    def is_success(self) -> bool:
        """Whether the status is 2xx."""
        return self.status in _SUCCESS

    def heard(self) -> None:
        """Tells that the last piece held something of the reply, not only a sign of life."""
        self._heard = True

    async def chunk(self) -> bytes:
        """The next piece of the body, of any size; ``b""`` at its end.

        Raises:
            ModelTimeoutError: Nothing came in time.
            ConnectionFailedError: The connection broke before the body was whole.
        """
        import aiohttp

        if self._watch.is_cut_off:
            raise _cut_off(self._endpoint)
        now = self._loop.time()
        if self._end is not None:
            self._end += now - self._given_at  # a slow reader's time is not the model's
        if self._heard:
            self._heard = False
            self._deadline = _after(now, self._endpoint.timeouts.between_tokens_s)
        self._watch.begin(_earlier(self._deadline, self._end))
        failure: ModelError
        try:
            piece = await self._content.readany()
        except asyncio.CancelledError:
            if not self._watch.has_ended_it():
                raise
            failure = self._too_late()
        except (aiohttp.ClientError, OSError) as error:
            reason = self._endpoint.clean(_reason(error), longest=_LONGEST_REASON)
            failure = ConnectionFailedError(
                f"{self._endpoint.model}: the connection to {self._endpoint.base_url} broke in the"
                f" middle of the reply ({reason}); try again",
                status=self.status,
            )
        else:
            self._given_at = self._loop.time()
            return piece
        finally:
            self._watch.end()
        raise failure  # out here it has no cause: the client's errors hold the request's headers

    async def beginning(self) -> bytes:
        """The body of an error answer, or what of it comes in time, at most 64 kB."""
        pieces: list[bytes] = []
        size = 0
        with suppress(ModelError):
            while size < _MOST_ERROR_BYTES and (piece := await self.chunk()):
                pieces.append(piece)
                size += len(piece)
        return b"".join(pieces)[:_MOST_ERROR_BYTES]

    def _too_late(self) -> ModelError:
        if self._watch.is_cut_off:
            return _cut_off(self._endpoint)
        timeouts = self._endpoint.timeouts
        if self._end is not None and (self._deadline is None or self._end <= self._deadline):
            what, field_name, limit = "no whole reply", "total_s", timeouts.total_s
        elif self._heard is None:
            what, field_name, limit = "no first token", "first_token_s", timeouts.first_token_s
        else:
            what, field_name, limit = "no next token", "between_tokens_s", timeouts.between_tokens_s
        return _too_late(self._endpoint, what, field_name, limit)


class post:  # noqa: N801  reads like the function it replaces, at a third of its cost
    """Posts JSON; inside the block the answer can be read, after it its connection is free.

    A connection whose answer was read to its end is kept for the next request, any other closed.
    Waiting for one of the connections of a busy loop is no part of any time-out.

    Raises:
        ConnectionFailedError: No connection, or it broke or was closed before an answer began.
        ModelTimeoutError: No connection, or no answer, in time.
        BadReplyError: What answers there does not speak HTTP.
    """

    __slots__ = ("_answer", "_body", "_endpoint", "_pool", "_watch")

    _answer: aiohttp.ClientResponse
    _pool: _Pool
    _watch: _Watch

    def __init__(self, endpoint: Endpoint, body: bytes) -> None:
        self._endpoint = endpoint
        self._body = body

    async def __aenter__(self) -> Response:
        endpoint = self._endpoint
        loop = asyncio.get_running_loop()
        pool = self._pool = _pools.get(loop) or await _open_pool(loop)
        watch = self._watch = _Watch(endpoint.timeouts, loop)
        pool.calls.add(watch)
        try:
            if pool.slots.locked():
                await _slot(pool, endpoint, watch)
            else:
                await pool.slots.acquire()  # waits for nothing
        except BaseException:
            pool.calls.discard(watch)
            raise
        try:
            started = loop.time()
            answer = self._answer = await _answer(pool, endpoint, self._body, started, watch)
        except BaseException:
            self._let_go()
            raise
        if answer.headers.get("Server") == _CLOSES_UNTOLD:
            _do_not_keep(answer)
        return Response(answer, endpoint, started, watch, loop)

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                await _drain(self._answer)
        finally:
            # Closes the connection, except where the body was read to its end.
            self._answer.release()
            self._let_go()

    def _let_go(self) -> None:
        self._watch.close()
        self._pool.calls.discard(self._watch)
        self._pool.slots.release()


async def _slot(pool: _Pool, endpoint: Endpoint, watch: _Watch) -> None:
    """Waits for one of the connections."""
    watch.begin(None)
    try:
        await pool.slots.acquire()
    except asyncio.CancelledError:
        if not watch.has_ended_it():
            raise
    else:
        return
    finally:
        watch.end()
    failure = _cut_off(endpoint)
    failure.usage = _NOTHING_SPENT
    raise failure


async def _answer(
    pool: _Pool, endpoint: Endpoint, body: bytes, started: float, watch: _Watch
) -> aiohttp.ClientResponse:
    """Sends the request and waits for the head of its answer."""
    import aiohttp

    timeouts = endpoint.timeouts
    first, total = timeouts.first_token_s, timeouts.total_s
    deadline = _earlier(_after(started, first), _after(started, total))
    watch.begin(deadline)
    failure: ModelError
    try:
        return await pool.session.post(
            endpoint.url,
            data=body if len(body) <= _LARGE_BODY else io.BytesIO(body),
            headers=endpoint.headers,
            allow_redirects=False,
            proxy=_proxy(pool, endpoint),
            timeout=_connect_timeout(timeouts.connect_s),
        )
    except asyncio.CancelledError:
        if not watch.has_ended_it():
            raise
        what = ("no whole reply", "total_s", total)
        if total is None or (first is not None and first <= total):
            what = ("no first token", "first_token_s", first)
        failure = _cut_off(endpoint) if watch.is_cut_off else _too_late(endpoint, *what)
    except (aiohttp.ClientError, OSError) as error:
        failure = _failure(error, endpoint)
    finally:
        watch.end()
    raise failure  # out here it has no cause: the client's errors hold the request's headers


def _too_late(
    endpoint: Endpoint, what: str, setting: str, limit_s: float | None
) -> ModelTimeoutError:
    return ModelTimeoutError(
        f"{endpoint.model}: {what} within {limit_s or 0:g} s from {endpoint.base_url};"
        f" where the model needs longer, raise ModelTimeouts.{setting}"
    )


def _cut_off(endpoint: Endpoint) -> ConnectionFailedError:
    return ConnectionFailedError(
        f"{endpoint.model}: the connections were closed while a call to {endpoint.base_url} was in"
        " flight; close them (models.http.aclose) after the last call, or call again"
    )


def _failure(error: Exception, endpoint: Endpoint) -> ModelError:
    import aiohttp

    where, reason = f"{endpoint.model}: ", endpoint.clean(_reason(error), longest=_LONGEST_REASON)
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return ModelTimeoutError(
            f"{where}no connection to {endpoint.base_url} within"
            f" {endpoint.timeouts.connect_s or 0:g} s; {endpoint.advice}",
            usage=_NOTHING_SPENT,
        )
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ClientHttpProxyError):
        return ConnectionFailedError(
            f"{where}cannot connect to {endpoint.base_url} ({reason}); {endpoint.advice}",
            usage=_NOTHING_SPENT,
        )
    if isinstance(error, aiohttp.ClientResponseError | aiohttp.InvalidURL):
        return BadReplyError(
            f"{where}what answers at {endpoint.base_url} does not speak HTTP as expected"
            f" ({reason}); check the address",
        )
    return ConnectionFailedError(
        f"{where}{endpoint.base_url} closed the connection before it answered"
        f" ({reason}); {endpoint.advice}",
    )


def _reason(error: BaseException) -> str:
    """What went wrong, in a few words without addresses; may quote the server."""
    import aiohttp

    if isinstance(error, aiohttp.ClientPayloadError):
        return "it ended too early"
    inner = getattr(error, "os_error", None) or error
    number = getattr(inner, "errno", None)
    if isinstance(number, int) and not isinstance(inner, socket.gaierror):
        text = os.strerror(number)
    else:
        text = getattr(inner, "strerror", None) or getattr(inner, "message", None) or str(inner)
    return str(text).strip() or type(error).__name__


def _do_not_keep(answer: aiohttp.ClientResponse) -> None:
    protocol = answer.connection.protocol if answer.connection is not None else None
    if protocol is not None:
        protocol.force_close()


async def _drain(answer: aiohttp.ClientResponse) -> None:
    """Reads what little follows the end of a reply, so that the connection can be used again."""
    import aiohttp

    if answer.content.at_eof():
        return
    with suppress(TimeoutError, aiohttp.ClientError, OSError):
        async with asyncio.timeout(_DRAIN_S):
            while await answer.content.readany():
                pass


@cache
def _connector_class() -> type[aiohttp.TCPConnector]:
    """The client's connector, never with a kept connection that the server has closed meanwhile.

    Servers close idle connections. The event loop may not have seen that yet, above all where it
    was blocked, and a request sent there is lost: nobody can tell whether it was read.
    """
    import aiohttp

    class Connector(aiohttp.TCPConnector):
        async def connect(self, *args: Any, **settings: Any) -> Any:
            while True:
                connection = await super().connect(*args, **settings)
                protocol = connection.protocol
                if not getattr(protocol, _KNOWN, False):
                    setattr(protocol, _KNOWN, True)
                    return connection
                # An answer that nobody asked for, already read, would become the next call's.
                is_clean = protocol is not None and not protocol.should_close
                if is_clean and not _was_closed(connection.transport):
                    return connection
                connection.close()

    return Connector


def _was_closed(transport: asyncio.Transport | None) -> bool:
    """Whether an idle connection has something to read: its end, or what nobody asked for."""
    if transport is None:
        return True
    its_socket = transport.get_extra_info("socket")
    if its_socket is None:
        return False
    number = its_socket.fileno()
    if number < 0:
        return True
    if not hasattr(select, "poll"):  # Windows
        return bool(select.select([number], [], [], 0)[0])
    waiting = select.poll()
    waiting.register(number, select.POLLIN)
    return bool(waiting.poll(0))


async def _open_pool(loop: asyncio.AbstractEventLoop) -> _Pool:
    import aiohttp

    _forget_closed_loops()
    limit = _connection_limit()
    session = aiohttp.ClientSession(
        # The limit is ours: waiting for a slot must not count as waiting for the model.
        connector=_connector_class()(
            limit=0, keepalive_timeout=_KEEP_ALIVE_S, ttl_dns_cache=_DNS_CACHE_S
        ),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=True,
    )
    pool = _Pool(session, asyncio.Semaphore(limit))
    pool.keeper = _kept(loop, pool)
    await anext(pool.keeper)
    return pool


def _forget_closed_loops() -> None:
    """Lets go of connections whose loop was closed by hand, without its async generators."""
    for loop in list(_pools):
        if loop.is_closed() and (pool := _pools.pop(loop, None)) is not None:
            closing = pool.session.close()
            with suppress(StopIteration, RuntimeError):
                closing.send(None)  # where the loop is closed there is nothing to wait for
            closing.close()


atexit.register(_forget_closed_loops)


async def _kept(loop: asyncio.AbstractEventLoop, pool: _Pool) -> AsyncGenerator[None]:
    """Registers the pool; its end closes it.

    It is an async generator because ``asyncio.run`` ends those that are still open before it
    closes the loop: the connections close with the loop, without a word from the user.
    """
    _pools[loop] = pool
    try:
        yield
    finally:
        if _pools.get(loop) is pool:
            del _pools[loop]
        for call in list(pool.calls):
            call.cut_off()
        await pool.session.close()


def _connection_limit() -> int:
    """At most half of the files this process may open."""
    try:
        import resource
    except ImportError:  # Windows
        return _MOST_CONNECTIONS
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _MOST_CONNECTIONS
    return max(16, min(_MOST_CONNECTIONS, soft // 2))


@lru_cache
def _connect_timeout(connect_s: float | None) -> aiohttp.ClientTimeout:
    import aiohttp

    return aiohttp.ClientTimeout(total=None, connect=connect_s)


def _proxy(pool: _Pool, endpoint: Endpoint) -> str | None:
    if endpoint.url not in pool.proxies:
        proxy = _proxy_of_environment(endpoint.url)
        if proxy and not _is_http_address(proxy):
            proxy = masked_login(proxy)  # also for those who log local variables
            raise ConnectionFailedError(
                f"{endpoint.model}: the environment names the proxy {proxy!r:.120}"
                f" for {endpoint.base_url}; only http proxies are supported: set HTTPS_PROXY to"
                " one, such as 'http://proxy.example:3128', or NO_PROXY to reach the host directly",
                usage=_NOTHING_SPENT,
            )
        pool.proxies[endpoint.url] = proxy
    return pool.proxies[endpoint.url]


def _proxy_of_environment(url: str) -> str | None:
    from urllib.request import getproxies, proxy_bypass

    parts = urlsplit(url)
    host = parts.hostname or ""
    if _is_loopback(host) or proxy_bypass(host):
        return None
    proxies = getproxies()
    return proxies.get(parts.scheme) or proxies.get("all")


def _is_http_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        _ = parts.port  # raises where it is no number
    except ValueError:
        return False
    has_blanks = any(mark.isspace() for mark in text)
    return parts.scheme in ("http", "https") and bool(parts.hostname) and not has_blanks


def _is_loopback(host: str) -> bool:
    import ipaddress

    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def _after(start: float, seconds: float | None) -> float | None:
    return None if seconds is None else start + seconds


def _earlier(one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)
