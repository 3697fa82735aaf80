"""A provider on loopback that speaks the OpenAI wire, streamed, and answers as it is told.

It runs in a thread of its own, so that what is tested may open and close event loops as it likes.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Body = dict[str, Any]
Answer = str | dict[str, Any] | list[tuple[str, dict[str, Any]]]
"""A text, an object to be sent as JSON text, or calls as ``(tool, arguments)``."""

_ids = itertools.count(1)


@dataclass
class OpenAIServer:
    """What it was asked, in order, and where it is."""

    url: str
    requests: list[Body] = field(default_factory=list[Body])

    def environment(self) -> dict[str, str]:
        """What sends ``openai/…`` and ``ollama/…`` here."""
        return {
            "OPENAI_BASE_URL": self.url,
            "OPENAI_API_KEY": "sk-made-up",
            "OLLAMA_HOST": self.url.removesuffix("/v1"),
        }


@contextlib.contextmanager
def openai_server(answer: Callable[[Body, int], Answer]) -> Generator[OpenAIServer]:
    """A server whose reply to request ``index`` (from 0) is ``answer(body, index)``."""
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  its base says so
            pass

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                index = len(server.requests)
                server.requests.append(body)
            payload = _streamed(body, answer(body, index))
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listening.daemon_threads = True
    server = OpenAIServer(f"http://127.0.0.1:{listening.server_port}/v1")
    thread = threading.Thread(target=listening.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        listening.shutdown()
        listening.server_close()
        thread.join()


def asks_for_json(body: Body) -> bool:
    """Whether the request wants structured output: a judge's does."""
    return "response_format" in body


def last_text(body: Body) -> str:
    """The text of the last message."""
    return str(body["messages"][-1].get("content") or "")


def _streamed(body: Body, answer: Answer) -> bytes:
    """The answer as an event stream: in pieces, then usage, then the end."""
    if isinstance(answer, list):
        calls = [
            {
                "index": index,
                "id": f"call_{next(_ids)}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
            for index, (name, arguments) in enumerate(answer)
        ]
        deltas: list[Mapping[str, Any]] = [{"role": "assistant", "tool_calls": calls}]
        finish = "tool_calls"
    else:
        text = answer if isinstance(answer, str) else json.dumps(answer)
        middle = len(text) // 2
        pieces = [piece for piece in (text[:middle], text[middle:]) if piece]
        deltas = [{"role": "assistant", "content": piece} for piece in pieces]
        finish = "stop"
    model = str(body["model"])
    chunks = [_chunk(model, delta) for delta in deltas]
    chunks.append(_chunk(model, {}, finish))
    usage = {"prompt_tokens": 20, "completion_tokens": 7, "total_tokens": 27}
    chunks.append({"model": model, "choices": [], "usage": usage})
    lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
    return "".join([*lines, "data: [DONE]\n\n"]).encode()


def _chunk(model: str, delta: Mapping[str, Any], finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"object": "chat.completion.chunk", "model": model, "choices": [choice]}
