"""MCP servers whose tools an agent may use: ``Agent.mcps``.

What stands here is configuration: immutable, shared by any number of runs. Each run connects anew
when it starts, asks for the tools once, and closes the connection when it ends, on every path. The
SDK (extra ``[mcp]``) is imported by the first run that needs it.
"""

from __future__ import annotations

import asyncio
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import KW_ONLY, dataclass, field, fields
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlsplit

from untildone.domain.bounds import check_count, check_number
from untildone.domain.errors import ConfigError, ToolError
from untildone.domain.tools import ToolOutput, ToolSpec, ToolTraits, output_text
from untildone.policy.cutting import DEFAULT_MAX_RESULT_CHARS
from untildone.ports import Offload
from untildone.tools.json_arguments import JsonArguments
from untildone.tools.mcp_connection import Connection, LastWords, StderrReader, close_all
from untildone.tools.mcp_reading import mended
from untildone.tools.mcp_results import content_output
from untildone.tools.mcp_secrets import (
    redacted,
    secrets_of_address,
    secrets_of_command,
    shown_address,
    shown_words,
    without,
)
from untildone.tools.options import LEAST_MAX_RESULT_CHARS

if TYPE_CHECKING:
    from mcp_types import Tool as ListedTool

_PREFIX: Final = re.compile(r"[A-Za-z0-9_-]*")
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST_NAME: Final = 64
_LONGEST_LABEL: Final = 160
_READ_S: Final = 300.0
"""How long a stream may be silent, in seconds: the SDK's own choice."""


@dataclass(frozen=True, eq=False)
class MCPServer(ABC):
    """What all MCP servers have in common; use ``StdioMCP``, ``HTTPMCP`` or ``SSEMCP``.

    Attributes:
        name: What a person calls it: errors name it, and a loaded skill finds it by its name.
        prefix: Put before the names of its tools, so that two servers may have tools of one name.
        only: The tools to use, by the server's own names; None: all of them.
        timeout_s: Most seconds a call may take; then it has failed, and the run goes on.
        connect_timeout_s: Most seconds until the server has started and named its tools.
        max_result_chars: Most characters of a result that are sent, 200 or more.

    Raises:
        ConfigError: A value cannot work.
    """

    _: KW_ONLY
    name: str = ""
    prefix: str = ""
    only: Sequence[str] | None = None
    timeout_s: float = 60.0
    connect_timeout_s: float = 30.0
    max_result_chars: int = DEFAULT_MAX_RESULT_CHARS

    def __post_init__(self) -> None:
        kind = type(self).__name__
        if not self.name:
            object.__setattr__(self, "name", self._own_name())
        if not _PREFIX.fullmatch(self.prefix):
            raise ConfigError(
                f"{kind}.prefix is {self.prefix!r}; use letters a to z, digits, _ and -"
            )
        if self.only is not None:
            object.__setattr__(self, "only", _texts(f"{kind}.only", self.only))
        check_number(f"{kind}.timeout_s", self.timeout_s, above=True)
        check_number(f"{kind}.connect_timeout_s", self.connect_timeout_s, above=True)
        check_count(f"{kind}.max_result_chars", self.max_result_chars, least=LEAST_MAX_RESULT_CHARS)

    def __repr__(self) -> str:
        shown = (f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr)
        return f"{type(self).__name__}({', '.join((self.label, *shown))})"

    @property
    @abstractmethod
    def label(self) -> str:
        """How errors name it, without what looks like a secret."""

    def clean(self, text: str) -> str:
        """An error's text, or what the server said, without the secrets of this configuration."""
        return without(text, self._secrets())

    @property
    @abstractmethod
    def advice(self) -> str:
        """What to look at when it cannot be used."""

    @abstractmethod
    def transport(self, words: LastWords) -> AbstractAsyncContextManager[Any]:
        """Gives what the SDK's client connects to; what may explain a failure goes to ``words``."""

    @abstractmethod
    def _own_name(self) -> str: ...

    def _secrets(self) -> set[str]:
        return set()


@dataclass(frozen=True, eq=False, repr=False)
class StdioMCP(MCPServer):
    """An MCP server that is started as a program and spoken to through its stdin and stdout.

    Attributes:
        command: The program.
        args: Its arguments.
        env: Environment variables for it, beside the few that are safe to hand on, such as PATH.
        cwd: Where it runs; default: here.
        name: How errors name it, and how a loaded skill finds it; default: the program's.
        prefix: Put before the names of its tools.
        only: The tools to use, by the server's own names; None: all of them.
        timeout_s: Most seconds a call may take.
        connect_timeout_s: Most seconds until the server has started and named its tools.
        max_result_chars: Most characters of a result that are sent, 200 or more.

    Raises:
        ConfigError: A value cannot work.
    """

    command: str = field(repr=False)
    args: Sequence[str] = field(default=(), repr=False)
    env: Mapping[str, str] | None = field(default=None, repr=False)
    cwd: str | Path | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "command", _text("StdioMCP.command", self.command))
        object.__setattr__(self, "args", _texts("StdioMCP.args", self.args))
        object.__setattr__(self, "env", _mapping("StdioMCP.env", self.env))
        super().__post_init__()

    @property
    def label(self) -> str:
        """The command and its arguments."""
        return _label(" ".join((self.command, *shown_words(self.args))))

    @property
    def advice(self) -> str:
        """Look at it by hand."""
        return "Run the command in a terminal to see what it says"

    def _own_name(self) -> str:
        return PurePath(self.command).name

    def _secrets(self) -> set[str]:
        return secrets_of_command(self.args, self.env or {})

    @asynccontextmanager
    async def transport(self, words: LastWords) -> AsyncGenerator[Any]:
        """Starts the program; it is ended, and killed if need be, when the block is left."""
        from mcp.client.stdio import StdioServerParameters, stdio_client

        parameters = StdioServerParameters(
            command=self.command,
            args=list(self.args),
            env=None if self.env is None else dict(self.env),
            cwd=self.cwd,
            encoding_error_handler="replace",  # one line in another encoding would end all reading
        )
        with StderrReader(words) as stderr:
            yield mended(stdio_client(parameters, errlog=stderr), self.label)


@dataclass(frozen=True, eq=False, repr=False)
class HTTPMCP(MCPServer):
    """An MCP server at an address (streamable HTTP).

    Attributes:
        url: The server's endpoint, such as ``"https://example.com/mcp"``.
        headers: Sent with each request, such as ``{"Authorization": "Bearer …"}``.
        auth: An ``httpx2.Auth``, such as the OAuth providers of the SDK.
        name: How errors name it, and how a loaded skill finds it; default: its host.
        prefix: Put before the names of its tools.
        only: The tools to use, by the server's own names; None: all of them.
        timeout_s: Most seconds a call may take.
        connect_timeout_s: Most seconds until the server has answered and named its tools.
        max_result_chars: Most characters of a result that are sent, 200 or more.

    Raises:
        ConfigError: A value cannot work.
    """

    url: str = field(repr=False)
    headers: Mapping[str, str] | None = field(default=None, repr=False)
    auth: Any = field(default=None, repr=False, kw_only=True)

    def __post_init__(self) -> None:
        kind = type(self).__name__
        url = _text(f"{kind}.url", self.url)
        if not _is_address(url):
            shown = shown_address(url)
            raise ConfigError(
                f"{kind}.url is {shown!r:.80}; give an address with http:// or https://"
            )
        object.__setattr__(self, "headers", _mapping(f"{kind}.headers", self.headers))
        super().__post_init__()

    @property
    def label(self) -> str:
        """The address, without user and query."""
        return _label(shown_address(self.url))

    @property
    def advice(self) -> str:
        """Look whether it is there and lets us in."""
        return "Check that a server runs at this address and accepts headers= or auth="

    def _own_name(self) -> str:
        return urlsplit(self.url).netloc.rpartition("@")[2]

    def _secrets(self) -> set[str]:
        return secrets_of_address(self.url, self.headers or {})

    @asynccontextmanager
    async def transport(self, words: LastWords) -> AsyncGenerator[Any]:
        """Streams over connections that are closed when the block is left."""
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        async with httpx2.AsyncClient(**self._http_settings(words)) as http:
            yield mended(streamable_http_client(self.url, http_client=http), self.label)

    def _http_settings(self, words: LastWords) -> dict[str, Any]:
        import httpx2

        async def note_refusal(response: httpx2.Response) -> None:
            if response.is_error:
                words.add(f"HTTP {response.status_code} {response.reason_phrase}. ".encode())

        return {
            "headers": dict(self.headers or {}),
            "auth": self.auth,
            "timeout": httpx2.Timeout(
                self.connect_timeout_s, read=max(_READ_S, self.timeout_s, self.connect_timeout_s)
            ),
            "event_hooks": {"response": [note_refusal]},
        }


@dataclass(frozen=True, eq=False, repr=False)
class SSEMCP(HTTPMCP):
    """An MCP server at an address, by the older transport over server-sent events.

    Attributes:
        url: The address of the event stream, such as ``"http://localhost:8000/sse"``.
        headers: Sent with each request.
        auth: An ``httpx2.Auth``.
        name: How errors name it, and how a loaded skill finds it; default: its host.
        prefix: Put before the names of its tools.
        only: The tools to use, by the server's own names; None: all of them.
        timeout_s: Most seconds a call may take.
        connect_timeout_s: Most seconds until the server has answered and named its tools.
        max_result_chars: Most characters of a result that are sent, 200 or more.

    Raises:
        ConfigError: A value cannot work.
    """

    @asynccontextmanager
    async def transport(self, words: LastWords) -> AsyncGenerator[Any]:
        """One stream of events for all answers, closed when the block is left."""
        from mcp.client.sse import sse_client

        from untildone.tools.mcp_posts import WatchedPosts

        def factory(*_: object, **__: object) -> Any:
            return WatchedPosts(words.lost, self.timeout_s, **self._http_settings(words))

        yield mended(sse_client(self.url, httpx_client_factory=factory), self.label)


class MCPTool:
    """A tool of an MCP server as a ``Tool``."""

    __slots__ = ("_arguments", "_connection", "_wire_name", "max_result_chars", "server", "spec")

    def __init__(
        self, server: MCPServer, connection: Connection, listed: ListedTool, name: str
    ) -> None:
        self.server = server
        self.max_result_chars = server.max_result_chars
        self.spec = ToolSpec(
            name=name,
            description=listed.description or listed.title or "",
            parameters={"properties": {}, **listed.input_schema},
            traits=_traits(listed),
        )
        self._wire_name = listed.name
        self._connection = connection
        self._arguments = JsonArguments(self.spec.parameters)

    def parse(self, arguments: str) -> dict[str, Any]:
        """The arguments, held against the server's schema.

        Raises:
            ToolError: They are no JSON object or do not fit.
        """
        return self._arguments.parse(arguments)

    async def run(self, arguments: dict[str, Any], offload: Offload) -> str | ToolOutput:
        """One call; its result as text, cut, and the images and PDFs in it.

        Raises:
            ToolError: The tool reports an error, or its server gave no answer.
        """
        del offload
        result = await self._connection.call(self._wire_name, arguments)
        output = content_output(result.content, result.structured_content, self.max_result_chars)
        if result.is_error:
            raise ToolError(
                output_text(output) or "the tool reports an error and does not say which"
            )
        return output


@asynccontextmanager
async def open_servers(
    servers: Sequence[MCPServer], *, taken: Collection[str] = ()
) -> AsyncGenerator[list[MCPTool]]:
    """Connects to all servers at once and gives their tools; closes all when the block is left.

    Args:
        servers: The servers.
        taken: Names that no tool may have: those of the agent's own.

    Raises:
        MCPError: A server cannot be used.
        ConfigError: The SDK is missing, or two tools have one name.
    """
    connections = [Connection(server) for server in servers]
    try:
        opened = await asyncio.gather(
            *(connection.open() for connection in connections), return_exceptions=True
        )
        tools: list[MCPTool] = []
        for server, connection, listed in zip(servers, connections, opened, strict=True):
            if isinstance(listed, BaseException):
                raise listed
            chosen = _chosen(server, listed)
            names = _names(server.prefix, chosen)
            tools += [MCPTool(server, connection, tool, names[tool.name]) for tool in chosen]
        _refuse_clashes(tools, taken)
        yield tools
    finally:
        await close_all(connections)


def _refuse_clashes(tools: Sequence[MCPTool], taken: Collection[str]) -> None:
    seen: dict[str, MCPTool] = {}
    for tool in tools:
        if tool.spec.name in taken:
            raise ConfigError(_clash(tool, "a tool or skill of the agent"))
        other = seen.setdefault(tool.spec.name, tool)
        if other is not tool:
            raise ConfigError(_clash(tool, f"a tool of the MCP server {other.server.name!r}"))


def _clash(tool: MCPTool, other: str) -> str:
    server, name = tool.server, tool.spec.name
    prefix = _NOT_IN_NAMES.sub("_", server.name)
    return (
        f"the MCP server {server.name!r} has a tool {name!r}, and so is called {other}; give the"
        f' server a prefix, such as prefix="{prefix}_", or leave the tool out with only=[...]'
    )


def _names(prefix: str, tools: Sequence[ListedTool]) -> dict[str, str]:
    """What models call the tools of one server, by the server's own names.

    A name that can be kept is kept; of others that would be the same, the later get a number.
    """
    written = {tool.name: _written(prefix + tool.name) for tool in tools}
    kept = {name for name in written if written[name] == prefix + name}
    taken = {written[name] for name in kept}
    for name, wanted in written.items():
        if name in kept:
            continue
        free, number = wanted, 1
        while free in taken:
            number += 1
            free = f"{wanted[: _LONGEST_NAME - len(str(number)) - 1]}_{number}"
        taken.add(free)
        written[name] = free
    return written


def _written(name: str) -> str:
    """A name as models take it."""
    return _NOT_IN_NAMES.sub("_", name)[:_LONGEST_NAME] or "_"


def _chosen(server: MCPServer, listed: Sequence[ListedTool]) -> list[ListedTool]:
    """The tools to use; of two of one name the server itself cannot tell which is meant."""
    by_name: dict[str, ListedTool] = {}
    for tool in listed:
        by_name.setdefault(tool.name, tool)
    if server.only is None:
        return list(by_name.values())
    unknown = [name for name in server.only if name not in by_name]
    if unknown:
        known = ", ".join(sorted(by_name)) or "none"
        raise ConfigError(
            f"the MCP server {server.name!r} has no tool {unknown[0]!r}; its tools: {known}"
        )
    return [by_name[name] for name in dict.fromkeys(server.only)]


def _traits(listed: ListedTool) -> ToolTraits:
    hints = listed.annotations
    idempotent = hints is not None and bool(hints.read_only_hint or hints.idempotent_hint)
    return ToolTraits(idempotent=idempotent)


def _is_address(url: str) -> bool:
    """Whether a request can be sent there."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises where it is no number
    except ValueError:
        return False
    return url.startswith(("http://", "https://")) and bool(parts.hostname)


def _label(text: str) -> str:
    return repr(text if len(text) <= _LONGEST_LABEL else f"{text[: _LONGEST_LABEL - 1]}…")


def _text(name: str, value: object) -> str:
    if isinstance(value, str) and value.strip():
        return value
    raise ConfigError(f"{name} is {value!r:.80}; give a text")


def _texts(name: str, value: object) -> tuple[str, ...]:
    shown = redacted(value) if isinstance(value, str) else value
    if isinstance(value, list | tuple):
        texts = tuple(cast("Sequence[object]", value))
        # Beside one that is none there may be a key, so only those that are none are shown.
        shown = [text for text in texts if not isinstance(text, str)]
        if not shown:
            return cast("tuple[str, ...]", texts)
    raise ConfigError(f"{name} is {shown!r:.80}; give a list of texts")


def _mapping(name: str, value: object) -> dict[str, str] | None:
    if value is None:
        return None
    kind = type(value).__name__
    if isinstance(value, Mapping):
        pairs = dict(cast("Any", value))
        if all(isinstance(key, str) and isinstance(text, str) for key, text in pairs.items()):
            return pairs
    # The value may hold a key, so only its kind is shown.
    raise ConfigError(f"{name} is a {kind}; give a dict of texts")
