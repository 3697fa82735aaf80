"""An OpenAI-compatible server on 127.0.0.1: asks for a tool call a turn, counts what it is sent."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from script import CLOSING_TEXT, tool_call


class Loopback:
    """Serves from a thread of its own; the reply depends on nothing but the request."""

    def __init__(self, *, closing_turn: int) -> None:
        self.requests = 0
        self.body_bytes = 0
        self.closing_turn = closing_turn
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def base_url(self) -> str:
        """What goes into OPENAI_BASE_URL."""
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def forget(self) -> None:
        """Count from nought."""
        self.requests = self.body_bytes = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def _handler(loopback: Loopback) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers["Content-Length"]))
            loopback.requests += 1
            loopback.body_bytes += len(raw)
            request = json.loads(raw)
            turn = 1 + sum(message["role"] == "tool" for message in request["messages"])
            message = _message(turn, closing=turn >= loopback.closing_turn)
            if request.get("stream"):
                kind, body = "text/event-stream", _stream(message)
            else:
                kind, body = "application/json", json.dumps(_completion(message)).encode()
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the standard library
            """Say nothing."""

    return Handler


def _message(turn: int, *, closing: bool) -> dict[str, Any]:
    if closing:
        return {"role": "assistant", "content": CLOSING_TEXT}
    return {"role": "assistant", "content": None, "tool_calls": [tool_call(turn)]}


_USAGE = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}


def _finish_reason(message: dict[str, Any]) -> str:
    return "tool_calls" if "tool_calls" in message else "stop"


def _completion(message: dict[str, Any]) -> dict[str, Any]:
    choice = {"index": 0, "message": message, "finish_reason": _finish_reason(message)}
    return {
        "id": "c",
        "object": "chat.completion",
        "created": 0,
        "model": "bench",
        "choices": [choice],
        "usage": _USAGE,
    }


def _stream(message: dict[str, Any]) -> bytes:
    delta = dict(message)
    if "tool_calls" in delta:
        delta["tool_calls"] = [{"index": 0, **call} for call in delta["tool_calls"]]
    frame = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "bench"}
    chunks = [
        {**frame, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {**frame, "choices": [{"index": 0, "delta": {}, "finish_reason": _finish_reason(message)}]},
        {**frame, "choices": [], "usage": _USAGE},
    ]
    lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
    return "".join([*lines, "data: [DONE]\n\n"]).encode()
