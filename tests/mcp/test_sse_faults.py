"""A server of the older transport that refuses, hangs or says too much; in plain asyncio."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.behaviour.kit import other_tasks
from tests.mcp.kit import results, run_calls
from untildone import AgentHooks
from untildone.testing import call
from untildone.tools.mcp import SSEMCP

BROKE = "Error: the MCP server broke down during this call"


class Sour:
    """One stream of events for each client; what is posted is answered there.

    Attributes:
        refusal: The status of posts; "" where they are taken.
        hangs: Methods of MCP whose posts are read and not answered.
        is_deaf: Whether it takes connections and says nothing.
        opened: How many streams were asked for.
    """

    def __init__(self) -> None:
        self.refusal = ""
        self.hangs: set[str] = set()
        self.is_deaf = False
        self.opened = 0
        self._stream: asyncio.StreamWriter | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        if head.startswith("get"):
            self.opened += 1
            if not self.is_deaf:
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
                writer.write(b"event: endpoint\ndata: /post\n\n")
                self._stream = writer
        else:
            length = int(head.partition("content-length:")[2].split(maxsplit=1)[0])
            message = json.loads(await reader.readexactly(length))
            if message["method"] not in self.hangs:
                status = self.refusal or "202 Accepted"
                head = f"HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
                writer.write(head.encode())
                if not self.refusal:
                    self._answer(message)
                await writer.drain()
                writer.close()
                return
        await reader.read()  # until the client lets go
        writer.close()

    def _answer(self, message: dict[str, Any]) -> None:
        if "id" not in message:
            return
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
        match message["method"]:
            case "initialize":
                reply["result"] = {
                    "protocolVersion": "2025-06-18",
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "sour", "version": "1"},
                }
            case "tools/list":
                tool = {"name": "say", "inputSchema": {"type": "object"}}
                reply["result"] = {"tools": [tool]}
            case "tools/call":
                text = "x" * message["params"]["arguments"].get("chars", 1)
                reply["result"] = {"content": [{"type": "text", "text": text}]}
            case method:
                reply["error"] = {"code": -32601, "message": f"no method {method}"}
        assert self._stream is not None
        self._stream.write(f"event: message\ndata: {json.dumps(reply)}\n\n".encode())


@asynccontextmanager
async def sour() -> AsyncGenerator[tuple[Sour, str]]:
    server = Sour()
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    async with listening:
        yield server, f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/sse"


async def test_a_refused_call_is_told_with_its_status_and_the_next_one_connects_anew():
    async with sour() as (server, url):

        async def between(name: str, text: str) -> None:
            server.refusal = "" if text.startswith(BROKE) else "401 Unauthorized"

        result = await run_calls(
            SSEMCP(url, timeout_s=8),
            *[call("say")] * 3,
            hooks=AgentHooks(on_tool_end=between),
        )
    before, refused, after = results(result)
    assert (before, after) == ("x", "x")
    assert refused.startswith(f"{BROKE} (HTTP 401 Unauthorized); whether the call had an effect")
    assert server.opened == 2
    assert other_tasks() == set()


async def test_a_refused_handshake_is_told_with_its_status_and_not_as_a_silent_server():
    async with sour() as (server, url):

        async def refuse(name: str, text: str) -> None:
            server.refusal = "503 Service Unavailable"

        result = await run_calls(
            SSEMCP(url, timeout_s=8, connect_timeout_s=8),
            *[call("say")] * 3,
            hooks=AgentHooks(on_tool_end=refuse),
        )
    _, lost, down = results(result)
    assert lost.startswith(f"{BROKE} (HTTP 503 Service Unavailable);")
    assert "cannot be used: HTTP 503 Service Unavailable. Check that" in down


async def test_a_post_that_hangs_ends_the_connection_with_its_call():
    async with sour() as (server, url):
        server.hangs = {"tools/call"}

        async def relent(name: str, text: str) -> None:
            server.hangs = set()

        result = await run_calls(
            SSEMCP(url, timeout_s=1),
            *[call("say")] * 2,
            hooks=AgentHooks(on_tool_end=relent),
        )
    hung, after = results(result)
    assert "within 1 s" in hung
    assert after == "x"
    assert server.opened == 2
    assert other_tasks() == set()


async def test_a_result_that_is_too_long_for_an_event_says_so():
    async with sour() as (_, url):
        result = await run_calls(SSEMCP(url), call("say", chars=1_100_000), call("say"))
    long, after = results(result)
    assert long.startswith(f"{BROKE} (SSEError: Server-sent event exceeded the 1048576 byte limit")
    assert after == "x"


async def test_calls_that_wait_for_one_try_to_connect_share_its_failure():
    async with sour() as (server, url):

        async def go_deaf(name: str, text: str) -> None:
            server.is_deaf = True
            server.refusal = "500 Internal Server Error"

        result = await run_calls(
            SSEMCP(url, timeout_s=8, connect_timeout_s=1.5),
            call("say"),
            call("say"),
            [call("say") for _ in range(6)],
            call("say"),
            hooks=AgentHooks(on_tool_end=go_deaf),
        )
    _, lost, *failed = results(result)
    assert lost.startswith(BROKE)
    assert len(failed) == 7
    assert len(set(failed)) == 1
    assert "it did not answer within 1.5 s" in failed[0]
    assert server.opened == 2  # at the start of the run, and one try for all seven


async def test_what_the_sdk_logs_of_our_servers_goes_to_our_log_without_secrets(
    caplog: pytest.LogCaptureFixture,
):
    caplog.set_level(logging.DEBUG, "untildone")
    async with sour() as (server, url):
        server.hangs = {"tools/call"}
        address = f"{url}?api_key=swordfish"
        await run_calls(SSEMCP(address, timeout_s=0.5), call("say"))
        server.hangs = set()
        await run_calls(SSEMCP(address), call("say", chars=1_100_000))
    records = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert [each.name for each in records if each.name != "untildone"] == []
    assert "mcp.client.sse: Error in post_writer" in caplog.text
    assert "mcp.client.sse: Encountered SSE exception" in caplog.text
    assert "swordfish" not in "".join(
        each.getMessage() for each in caplog.records if each.name == "untildone"
    )


async def test_what_the_sdk_logs_for_others_stays_theirs(caplog: pytest.LogCaptureFixture):
    async with sour() as (_, url):
        await run_calls(SSEMCP(url), call("say"))
    logging.getLogger("mcp.client.sse").warning("theirs")
    assert ("mcp.client.sse", logging.WARNING, "theirs") in caplog.record_tuples
