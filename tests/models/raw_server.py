"""A server that answers with given bytes, for what no mock of a provider can script."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

Act = bytes | Callable[[asyncio.StreamWriter], Coroutine[Any, Any, None]]
"""Bytes to send, or anything else to do with the connection."""


@dataclass
class RawServer:
    """Answers request k with script k; the last script repeats."""

    scripts: list[Sequence[Act]]
    requests: list[bytes] = field(default_factory=list)
    connections: int = 0
    open: int = 0
    port: int = 0
    asked: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def body(self, index: int = -1) -> Any:
        """What request ``index`` asked, as JSON."""
        return json.loads(self.requests[index].partition(b"\r\n\r\n")[2])

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        try:
            while request := await _request(reader):
                self.requests.append(request)
                self.asked.set()
                for act in self.scripts[min(len(self.requests), len(self.scripts)) - 1]:
                    if isinstance(act, bytes):
                        writer.write(act)
                        await writer.drain()
                    else:
                        await act(writer)
                if writer.is_closing():
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.open -= 1
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


async def _request(reader: asyncio.StreamReader) -> bytes:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return b""
    length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
    return head + await reader.readexactly(length)


@contextlib.asynccontextmanager
async def raw_server(*scripts: Sequence[Act]) -> AsyncGenerator[RawServer]:
    """A server on loopback; inside, ``server.url`` is its base URL."""
    server = RawServer(list(scripts))
    handlers: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        handlers.add(task)
        try:
            await server.serve(reader, writer)
        except asyncio.CancelledError:
            writer.close()
        finally:
            handlers.discard(task)

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
        for task in list(handlers):
            task.cancel()
        await asyncio.gather(*handlers, return_exceptions=True)
        await listening.wait_closed()


async def hang_up(writer: asyncio.StreamWriter) -> None:
    """Ends the connection."""
    writer.close()


async def stall(_writer: asyncio.StreamWriter) -> None:
    """Never goes on."""
    await asyncio.Event().wait()


def head(status: str = "200 OK", *headers: str, kind: str = "text/event-stream") -> bytes:
    """The beginning of an answer that ends when the connection does."""
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def chunked(*pieces: bytes, whole: bool = True) -> list[bytes]:
    """An event stream in HTTP chunks; not ``whole``: without the last one."""
    acts = [head("200 OK", "Transfer-Encoding: chunked")]
    acts += [b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces]
    return [*acts, b"0\r\n\r\n"] if whole else acts


def answer(status: str, body: bytes, *headers: str, kind: str = "application/json") -> list[bytes]:
    """An answer of known length."""
    return [head(status, f"Content-Length: {len(body)}", *headers, kind=kind) + body]


def sse(*payloads: Any) -> bytes:
    """Payloads as an event stream; dicts become JSON."""
    texts = (p if isinstance(p, str) else json.dumps(p) for p in payloads)
    return "".join(f"data: {text}\n\n" for text in texts).encode()


def delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    """One chunk of a chat completion."""
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "model": "m-1",
        "choices": [{"index": 0, "delta": fields, "finish_reason": finish}],
    }
