"""MCP servers for tests: real ones in processes of their own, and one inside this process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mcp.server.mcpserver as sdk

from tests.behaviour.kit import answers, ask
from untildone import Agent, AgentResult, run_agent
from untildone.testing import ScriptedModel, reply
from untildone.tools.mcp import MCPServer, StdioMCP
from untildone.tools.mcp_connection import LastWords

SERVERS = Path(__file__).parent / "servers"


def raw(misbehave: str = "", **settings: Any) -> StdioMCP:
    """The server that misbehaves as asked, in a process of its own."""
    settings.setdefault("name", "raw")
    env = {"MISBEHAVE": misbehave, **settings.pop("env", {})}
    return StdioMCP(sys.executable, ["-I", str(SERVERS / "raw.py")], env=env, **settings)


def sdk_stdio(**settings: Any) -> StdioMCP:
    """A server made with the SDK, in a process of its own."""
    return StdioMCP(sys.executable, [str(SERVERS / "sdk.py")], name="sdk", **settings)


@contextmanager
def sdk_at_port(kind: str) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """A server made with the SDK on a port of this machine."""
    command = [sys.executable, str(SERVERS / "sdk.py"), kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline()), process
        finally:
            process.kill()


@dataclass(frozen=True, eq=False)
class InProcess(MCPServer):
    """An SDK server inside this process.

    Attributes:
        server: The server.
        log: Gets "opened" and "closed", and whatever the test adds.
    """

    server: Any
    log: list[str]

    @property
    def label(self) -> str:
        return "'in process'"

    @property
    def advice(self) -> str:
        return "Look into the test"

    def _own_name(self) -> str:
        return "in-process"

    @asynccontextmanager
    async def transport(self, words: LastWords) -> AsyncGenerator[Any]:
        self.log.append("opened")
        try:
            yield self.server
        finally:
            self.log.append("closed")


def in_process(log: list[str] | None = None, **settings: Any) -> InProcess:
    """A server with the tools ``double`` and ``fail``; the log shows when it is asked for them."""
    noted: list[str] = [] if log is None else log

    class Noting(sdk.MCPServer):
        async def list_tools(self, *args: Any, **kwargs: Any) -> Any:
            noted.append("listed")
            return await super().list_tools(*args, **kwargs)

    server = Noting("inside", log_level="CRITICAL")

    @server.tool()
    async def double(number: int) -> int:
        """Doubles a number."""
        return 2 * number

    @server.tool()
    async def fail() -> str:
        """Fails."""
        raise ValueError("it does not work")

    return InProcess(server, noted, **settings)


async def run_calls(server: MCPServer | list[MCPServer], *batches: Any, **settings: Any) -> Any:
    """A run that makes batches of calls, one a turn, and then says "Done."."""
    servers = server if isinstance(server, list) else [server]
    model = ScriptedModel([*(reply(None, batch) for batch in batches), "Done."])
    agent = Agent("ada", model, mcps=servers, **settings)
    return await run_agent(agent, ask())


def results(result: AgentResult) -> list[str]:
    """What the model read, in order."""
    return answers(result.messages)


def is_running(pid: int) -> bool:
    """Whether there is such a process."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
