"""A connection to one MCP server for the length of one run.

The SDK's scopes have to be entered and left in one task, and what breaks in a transport cancels
that task. So each connection lives in a task of its own: whatever becomes of the server, the run
goes on.
"""

from __future__ import annotations

import asyncio
import logging
import os
import traceback
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from untildone.domain.errors import ConfigError, MCPError, ToolError, describe
from untildone.tools.mcp_logs import sdk_log

if TYPE_CHECKING:
    from anyio import CancelScope
    from mcp import Client
    from mcp_types import CallToolResult, Tool

_log = logging.getLogger("untildone")

_MOST_PAGES: Final = 100
_PROBE_S: Final = 5.0
"""How long a server that gave no result in time may take to show that it still answers."""
_REST_S: Final = 5.0
"""How long after one that did not answer no other try to connect is made, in seconds."""
_CAUSE_S: Final = 1.0
"""How long a call that failed waits to learn why, in seconds."""
_CLOSED: Final = "the connection was closed"
_WORDS_KEPT: Final = 2_000
_WORDS_SHOWN: Final = 500
_CHUNK: Final = 65_536
GRACE_S = 5.0
"""How long a server may take to let go; programs have the SDK's own limits beside it."""


class Server(Protocol):
    """What a connection needs to know of a server."""

    @property
    def label(self) -> str:
        """How errors name it, without secrets."""
        ...

    @property
    def advice(self) -> str:
        """What to look at when it cannot be reached."""
        ...

    @property
    def timeout_s(self) -> float:
        """Most seconds a call may take."""
        ...

    @property
    def connect_timeout_s(self) -> float:
        """Most seconds until its tools are known."""
        ...

    def clean(self, text: str) -> str:
        """A text that others will read, without secrets."""
        ...

    def transport(self, words: LastWords) -> AbstractAsyncContextManager[Any]:
        """Gives what the SDK's client connects to, and notes what may explain a failure."""
        ...


class LastWords:
    """What a server said last beside the protocol: its stderr, or the HTTP status of a refusal.

    Args:
        lost: To be called, with the reason, where a transport finds that nothing can be sent.
    """

    def __init__(self, lost: Callable[[str], None] = lambda _: None) -> None:
        self.lost = lost
        self._kept = b""

    def add(self, data: bytes) -> None:
        """Notes more; only the end is kept."""
        self._kept = (self._kept + data)[-_WORDS_KEPT:]

    def __str__(self) -> str:
        return self._kept.decode("utf-8", "replace").strip()[-_WORDS_SHOWN:]


class Connection:
    """Reaches one server; where it broke down, the next call finds it started anew.

    Args:
        server: The server.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._links: list[_Link] = []
        self._reconnecting = asyncio.Lock()
        self._closed = False
        self._failures = 0
        self._failure = ""
        self._rests_until = 0.0

    async def open(self) -> Sequence[Tool]:
        """Connects and gives the server's tools.

        Raises:
            MCPError: It cannot be reached.
            ConfigError: The package ``mcp`` is missing.
        """
        await load_sdk()
        return (await self._connect()).tools

    async def call(self, name: str, arguments: dict[str, Any]) -> CallToolResult:
        """One call of a tool.

        Raises:
            ToolError: The server broke down, gave no answer in time or refused; the connection to
                it is made anew by the next call where that is needed.
        """
        link = await self._usable_link()
        scope = asyncio.timeout(self._server.timeout_s)
        try:
            with sdk_log(self._server.clean):
                async with scope:
                    result = await link.client.call_tool(name, arguments)
            link.is_doubtful = False
            return result
        except Exception as error:
            if scope.expired():
                link.is_doubtful = True
                raise ToolError(
                    f"timed out: the MCP server gave no result within {self._server.timeout_s:g} s;"
                    " whether the call had an effect is not known"
                ) from error
            if not link.is_lost_with(error):
                raise ToolError(self._server.clean(_first_of(error))) from error
            _log.warning("the MCP server %s broke down in a call of %r", self._server.label, name)
            cause = self._server.clean(await link.cause())
            raise ToolError(
                f"the MCP server broke down during this call{cause and f' ({cause})'}; whether the"
                " call had an effect is not known. The next call connects to it anew."
            ) from error

    def end(self) -> None:
        """Lets the connection end."""
        self._closed = True
        for link in self._links:
            link.end()

    def tasks(self) -> list[asyncio.Task[None]]:
        """What is still at work for it."""
        return [link.task for link in self._links if not link.task.done()]

    async def _usable_link(self) -> _Link:
        link = self._links[-1]
        if link.is_usable and not link.is_doubtful:
            return link
        failures = self._failures
        async with self._reconnecting:
            link = self._links[-1]
            if self._closed:
                raise ToolError("the connection to the MCP server is closed: the run has ended")
            if link.is_usable and await link.still_answers():
                return link
            now = asyncio.get_running_loop().time()
            if self._failures > failures or now < self._rests_until:
                raise ToolError(self._failure)
            await link.gone()
            try:
                return await self._connect()
            except MCPError as error:
                self._failures += 1
                self._failure = str(error)
                raise ToolError(self._failure) from error

    async def _connect(self) -> _Link:
        """A new link, once the server's tools are known."""
        server = self._server
        self._links = [link for link in self._links if not link.task.done()]
        link = _Link(server)
        self._links.append(link)
        try:
            await asyncio.wait([link.ready], timeout=server.connect_timeout_s)
        except BaseException:
            link.end()
            raise
        if not link.ready.done():
            await link.gone()
            now = asyncio.get_running_loop().time()
            self._rests_until = now + min(_REST_S, server.connect_timeout_s)
            reason = f"it did not answer within {server.connect_timeout_s:g} s"
            raise _unreachable(server, link, reason, ", or raise connect_timeout_s")
        if not link.ready.result():
            raise _unreachable(server, link, link.reason)
        return link


async def close_all(connections: Sequence[Connection]) -> None:
    """Ends connections and waits until nothing of them is left, also while being cancelled.

    Waiting is bounded: what does not end by itself is given up, and a program is killed. All is
    done in the caller's task, since a task of its own could be cancelled before its first line.
    """
    for connection in connections:
        connection.end()
    cancelled: asyncio.CancelledError | None = None
    while tasks := [task for connection in connections for task in connection.tasks()]:
        try:
            await asyncio.wait(tasks)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


class _Link:
    """One life of a connection, from its first byte to its last, in one task."""

    client: Client

    def __init__(self, server: Server) -> None:
        import anyio

        self.words = LastWords(self.lost)
        self.tools: list[Tool] = []
        self.reason = _CLOSED
        self.is_doubtful = False
        self.ready: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._server = server
        self._scope: CancelScope = anyio.CancelScope()
        self._ending = asyncio.Event()
        self._is_open = False
        self.task = asyncio.create_task(self._live(), name="untildone-mcp")

    @property
    def is_usable(self) -> bool:
        """Whether a call may reach the server this way."""
        return self._is_open

    async def still_answers(self) -> bool:
        """Whether it does; asked where a call had no result in time, or the next would wait too."""
        if self.is_doubtful:
            try:
                async with asyncio.timeout(min(_PROBE_S, self._server.timeout_s)):
                    await self.client.list_tools()
            except Exception as error:
                from mcp import MCPError as ProtocolError

                if not isinstance(error, ProtocolError) or self.is_lost_with(error):
                    return False
            self.is_doubtful = False
        return self._is_open

    def is_lost_with(self, error: Exception) -> bool:
        """Whether an error of a call means that no other one will reach the server."""
        from mcp import MCPError as ProtocolError
        from mcp_types import CONNECTION_CLOSED

        if isinstance(error, ProtocolError) and (
            # The second is how the SDK names a session that its server no longer knows.
            error.code == CONNECTION_CLOSED or error.message == "Session terminated"
        ):
            self.end()
        return not self._is_open

    def lost(self, reason: str) -> None:
        """Ends it where nothing can be sent any more; calls under way fail at once."""
        if not self._ending.is_set():
            self.reason = reason
            self.end()

    async def cause(self) -> str:
        """Why a connection that is lost was; "" where nothing but that is known."""
        await asyncio.wait([self.task], timeout=_CAUSE_S)
        return "" if self.reason == _CLOSED else self.reason

    def end(self) -> None:
        """Lets the connection end, within a time limit; one still being made is given up."""
        import anyio

        self._is_open = False
        if not self._ending.is_set():
            self._ending.set()
            self._scope.deadline = anyio.current_time() + GRACE_S
        if not self.ready.done():
            self._scope.cancel()

    async def gone(self) -> None:
        """Ends it and waits until it has."""
        self.end()
        await asyncio.wait([self.task])

    async def _live(self) -> None:
        from mcp import Client
        from mcp_types import Implementation

        us = Implementation(name="untildone", version=_version())
        try:
            with sdk_log(self._server.clean), self._scope:
                async with (
                    self._server.transport(self.words) as target,
                    Client(target, client_info=us, cache=None) as self.client,
                ):
                    self.tools = await _listed(self.client)
                    self._is_open = True
                    self.ready.set_result(True)
                    await self._ending.wait()
        except Exception as error:
            if self.reason == _CLOSED:
                self.reason = _first_of(error)
            if _log.isEnabledFor(logging.DEBUG):
                whole = self._server.clean("".join(traceback.format_exception(error)))
                _log.debug("the MCP server %s is lost: %s", self._server.label, whole)
        finally:
            self._is_open = False
            if not self.ready.done():
                self.ready.set_result(False)


async def _listed(client: Client) -> list[Tool]:
    """All tools of a server, page by page.

    Raises:
        MCPError: They have no end.
    """
    tools: list[Tool] = []
    cursor: str | None = None
    seen: set[str] = set()
    for _ in range(_MOST_PAGES):
        page = await client.list_tools(cursor=cursor)
        tools += page.tools
        cursor = page.next_cursor
        if cursor is None:
            return tools
        if cursor in seen:
            raise MCPError(f"its list of tools has no end: the page {cursor!r:.80} comes again")
        seen.add(cursor)
    raise MCPError(f"its list of tools has no end: more than {_MOST_PAGES} pages")


class StderrReader:
    """Takes what a process writes to stderr, so that it is never blocked, and keeps the end of it.

    Where the event loop cannot watch a pipe (Windows), it is discarded.

    Args:
        words: Gets it.
    """

    def __init__(self, words: LastWords) -> None:
        self._words = words
        self._loop = asyncio.get_running_loop()
        self._source = -1

    def __enter__(self) -> Any:
        source, sink = os.pipe()
        os.set_blocking(source, False)
        try:
            self._loop.add_reader(source, self._take)
        except NotImplementedError:
            os.close(source)
            os.close(sink)
            self._file = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123
        else:
            self._source = source
            self._file = os.fdopen(sink, "w", encoding="utf-8")
        return self._file

    def __exit__(self, *_: object) -> None:
        self._file.close()
        if self._source >= 0:
            self._loop.remove_reader(self._source)
            self._take()
            os.close(self._source)

    def _take(self) -> None:
        with suppress(BlockingIOError):
            self._words.add(os.read(self._source, _CHUNK))


async def load_sdk() -> None:
    """Imports the SDK, in a thread: it takes half a second, in which other runs go on.

    Raises:
        ConfigError: It is not installed.
    """
    try:
        await asyncio.to_thread(import_module, "mcp")
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"Agent.mcps needs the package {error.name!r}; install it: pip install 'untildone[mcp]'"
        ) from error


def _version() -> str:
    try:
        return metadata.version("untildone")
    except metadata.PackageNotFoundError:
        return "unknown"


def _unreachable(server: Server, link: _Link, reason: str, advice: str = "") -> MCPError:
    words = server.clean(str(link.words))
    reason = server.clean(reason)
    said = f" Its last words: {words!r}." if words and words.rstrip(".") != reason else ""
    return MCPError(
        f"the MCP server {server.label} cannot be used: {reason}.{said} {server.advice}{advice}."
    )


def _first_of(error: BaseException) -> str:
    """What went wrong, in one line: the first error of a group, as the SDK says it."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    from httpx2 import HTTPStatusError
    from mcp import MCPError as ProtocolError

    if isinstance(error, MCPError):
        return str(error)
    if isinstance(error, HTTPStatusError):  # its text is the whole address, and a link to a lesson
        return f"HTTP {error.response.status_code} {error.response.reason_phrase}"
    return error.message if isinstance(error, ProtocolError) else describe(error)
