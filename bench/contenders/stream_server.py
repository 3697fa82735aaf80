"""A scripted OpenAI-compatible server in a process of its own; it prints its port and serves.

The path says what is answered: `one_body` (200 chunks in one write), `packets` (the same, a packet
each), `tool_turns` (after a while, a tool call until enough were answered, then a closing text).
It costs the client nothing: other process, replies prepared, requests not parsed.
"""

import asyncio
import json
import sys
from typing import Any

from script import CLOSING_TEXT, tool_call

BETWEEN_PACKETS_S = 0.0005
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def _frame(choices: list[dict[str, Any]], **more: Any) -> bytes:
    head = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "bench"}
    return f"data: {json.dumps({**head, 'choices': choices, **more})}\n\n".encode()


def _delta(finish_reason: str | None = None, **delta: Any) -> bytes:
    return _frame([{"index": 0, "delta": delta, "finish_reason": finish_reason}])


def _ends(finish_reason: str) -> list[bytes]:
    usage = {"prompt_tokens": 100, "completion_tokens": 200, "total_tokens": 300}
    return [_delta(finish_reason), _frame([], usage=usage), b"data: [DONE]\n\n"]


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _whole(frames: list[bytes]) -> bytes:
    return HEAD + _chunk(b"".join(frames)) + b"0\r\n\r\n"


def _asks(turn: int) -> bytes:
    call = {"index": 0, **tool_call(turn)}
    return _whole([_delta(role="assistant", tool_calls=[call]), *_ends("tool_calls")])


async def main(chunks: int, requests: int, latency_s: float) -> None:
    """Serve until killed: replies of so many chunks, loops of so many requests."""
    frames = [*(_delta(content=f"tok{i} ") for i in range(chunks)), *_ends("stop")]
    one_body = _whole(frames)
    closing = _whole([_delta(role="assistant", content=CLOSING_TEXT), *_ends("stop")])
    turns = [*(_asks(i + 1) for i in range(requests - 1)), closing]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
                body = await reader.readexactly(int(length))
                path = head.partition(b" ")[2]
                if path.startswith(b"/packets"):
                    writer.write(HEAD)
                    for frame in frames:
                        writer.write(_chunk(frame))
                        await writer.drain()
                        await asyncio.sleep(BETWEEN_PACKETS_S)
                    writer.write(b"0\r\n\r\n")
                elif path.startswith(b"/one_body"):
                    writer.write(one_body)
                else:
                    await asyncio.sleep(latency_s)
                    writer.write(turns[body.count(b'"tool_call_id"')])
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def allow_connections() -> None:
    """A thousand loops have a thousand connections; many systems allow fewer by default."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = 4096 if hard == resource.RLIM_INFINITY else min(4096, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, enough), hard))


if __name__ == "__main__":
    allow_connections()
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
