"""A server of the 2025 protocol over HTTP that forgets its sessions or hangs; in plain asyncio."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.behaviour.kit import other_tasks
from tests.mcp.kit import results, run_calls
from untildone import AgentHooks
from untildone.testing import call
from untildone.tools.mcp import HTTPMCP


class Moody:
    """Answers each request on a connection of its own.

    Attributes:
        sessions: What it still knows.
        ignores: Methods, of HTTP or of MCP, that it reads and never answers.
        opened: How many sessions there were.
        seen: The methods that were asked for.
    """

    def __init__(self) -> None:
        self.sessions: set[str] = set()
        self.ignores: set[str] = set()
        self.opened = 0
        self.seen: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in head[1:] if line)
        }
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        method = head[0].split(maxsplit=1)[0]
        if self.ignores & {method, json.loads(body or b"{}").get("method")}:
            await reader.read()  # until the client gives up
            writer.close()
            return
        status, reply, more = self.answer(method, headers, body)
        data = json.dumps(reply).encode() if reply is not None else b""
        lines = [
            f"HTTP/1.1 {status}",
            "content-type: application/json",
            f"content-length: {len(data)}",
            "connection: close",
            *more,
        ]
        writer.write("\r\n".join([*lines, "", ""]).encode() + data)
        await writer.drain()
        writer.close()

    def answer(
        self, method: str, headers: dict[str, str], body: bytes
    ) -> tuple[str, Any, list[str]]:
        if method == "GET":
            return "405 Method Not Allowed", None, []
        session = headers.get("mcp-session-id", "")
        if method == "DELETE":
            self.sessions.discard(session)
            return "200 OK", None, []
        message = json.loads(body)
        self.seen.append(message["method"])
        if message["method"] == "initialize":
            self.opened += 1
            self.sessions.add(f"s{self.opened}")
            result: Any = {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "moody", "version": "1"},
            }
            return "200 OK", self.of(message, result), [f"mcp-session-id: s{self.opened}"]
        if message["method"] == "server/discover":
            return "400 Bad Request", None, []
        if session not in self.sessions:
            return "404 Not Found", None, []
        if "id" not in message:
            return "202 Accepted", None, []
        if message["method"] == "tools/list":
            tool = {"name": "session", "inputSchema": {"type": "object"}}
            return "200 OK", self.of(message, {"tools": [tool]}), []
        return "200 OK", self.of(message, {"content": [{"type": "text", "text": session}]}), []

    def of(self, message: dict[str, Any], result: Any) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": message["id"], "result": result}


@asynccontextmanager
async def moody() -> AsyncGenerator[tuple[Moody, str]]:
    server = Moody()
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    async with listening:
        yield server, f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/mcp"


async def test_a_forgotten_session_costs_one_error_and_the_next_call_has_a_new_one():
    async with moody() as (server, url):

        async def forget(name: str, text: str) -> None:
            if text == "s1":
                server.sessions.clear()

        result = await run_calls(
            HTTPMCP(url),
            *[call("session") for _ in range(4)],
            hooks=AgentHooks(on_tool_end=forget),
        )
    first, lost, *others = results(result)
    assert (first, others) == ("s1", ["s2", "s2"])
    assert lost.startswith("Error: the MCP server broke down during this call")
    assert server.seen.count("initialize") == 2
    assert server.sessions == set()  # the last one was given back at the end of the run
    assert other_tasks() == set()


async def test_a_server_that_hangs_costs_the_time_limit_and_one_error():
    async with moody() as (server, url):
        server.ignores = {"tools/call"}

        async def relent(name: str, text: str) -> None:
            server.ignores = set()

        result = await run_calls(
            HTTPMCP(url, timeout_s=1),
            *[call("session") for _ in range(3)],
            hooks=AgentHooks(on_tool_end=relent),
        )
    hung, *others = results(result)
    assert hung.startswith("Error: timed out: the MCP server gave no result within 1 s")
    assert others == ["s1", "s1"]


async def test_a_server_that_does_not_let_go_is_let_go(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("untildone.tools.mcp_connection.GRACE_S", 0.1)
    async with moody() as (server, url):
        server.ignores = {"DELETE"}
        result = await run_calls(HTTPMCP(url), call("session"))
    assert results(result) == ["s1"]
    assert server.sessions == {"s1"}
