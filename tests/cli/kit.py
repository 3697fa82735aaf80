"""What the tests of the command line share: agents in files, a provider that answers as told."""

import json
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from untildone.cli.commands import cli

HEAD = """
from untildone import Agent, LoopConfig, LoopConvergedError, Verifier, VerifierConfig, tool
from untildone.testing import ScriptedModel, call, reply

@tool
def look(where: str) -> str:
    "Looks into a place."
    return f"nothing in the {where}"
"""


Environment = Mapping[str, str | None]


def untildone(*args: str, stdin: str | bytes = "", env: Environment | None = None) -> Result:
    """Runs the command in this process, from the command line to the exit status."""
    settings: dict[str, str | None] = {"UNTILDONE_MODEL": None, **(env or {})}
    result = CliRunner(env=settings).invoke(cli, list(args), input=stdin, prog_name="untildone")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def process(*args: str, timeout: float = 60, **settings: Any) -> "subprocess.CompletedProcess[str]":
    """Runs the command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "untildone", *args],
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        timeout=timeout,
        stdin=subprocess.DEVNULL,
        **settings,
    )


def agent_file(directory: Path, body: str, name: str = "agents.py") -> str:
    """A file with an agent called ``agent``; gives the argument of ``--agent``."""
    path = directory / name
    path.write_text(HEAD + textwrap.dedent(body), "utf-8")
    return f"{path}:agent"


def scripted(directory: Path, *lines: str, more: str = "") -> str:
    """An agent whose replies are the given Python expressions."""
    script = ", ".join(lines)
    return agent_file(
        directory,
        f"agent = Agent('ada', ScriptedModel([{script}], then='repeat'), tools=[look]{more})",
    )


def json_lines(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def without_provider_settings(**given: str) -> dict[str, str | None]:
    """An environment in which no provider is configured."""
    ends = ("_API_KEY", "_BASE_URL", "_API_TOKEN", "_HOST")
    return {**{name: None for name in os.environ if name.endswith(ends)}, **given}


# ── A provider ───────────────────────────────────────────────────────────────────────────────────


class Provider:
    """What a scripted provider was sent, and its address."""

    def __init__(self, answers: Sequence[tuple[int, bytes]]) -> None:
        self.answers = list(answers)
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.paths: list[str] = []
        self.seen_headers: list[Message] = []
        self.headers: dict[str, str] = {}
        self.url = ""


def said(text: str, model: str = "test-1") -> tuple[int, bytes]:
    """A streamed chat completion."""
    chunks = [
        {"choices": [{"index": 0, "delta": {"role": "assistant", "content": text}}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}},
    ]
    lines = [f"data: {json.dumps({'model': model, **chunk})}\n\n" for chunk in chunks]
    return 200, "".join([*lines, "data: [DONE]\n\n"]).encode()


def refusal(status: int, message: str) -> tuple[int, bytes]:
    return status, json.dumps({"error": {"message": message}}).encode()


@contextmanager
def provider(*answers: tuple[int, bytes]) -> Iterator[Provider]:
    """A server that gives these answers, the last one again and again."""
    known = Provider(answers)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            length = int(self.headers.get("content-length") or 0)
            known.requests.append(json.loads(self.rfile.read(length)))
            self._answer()

        def do_GET(self):
            self._answer()

        def _answer(self):
            known.keys.append(self.headers.get("authorization"))
            known.paths.append(self.path)
            known.seen_headers.append(self.headers)
            status, body = known.answers[min(len(known.keys), len(known.answers)) - 1]
            self.send_response(status)
            streams = body.startswith(b"data:")
            self.send_header("content-type", "text/event-stream" if streams else "application/json")
            self.send_header("content-length", str(len(body)))
            for name, value in known.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object):  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    known.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    try:
        yield known
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
