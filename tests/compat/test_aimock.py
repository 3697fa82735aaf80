"""OpenAI, Anthropic and Ollama's ``/v1`` as npm's ``@copilotkit/aimock`` plays them.

A second mock by other people, beside llmock: what both take for the protocol is the protocol. Needs
node and npm, and installs the mock beside this file once; skipped without them, on CI it fails.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import urllib.request
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from untildone import Agent, AgentResult, EventType, RetryPolicy, StreamEvent, aclose, run_agent
from untildone.domain.errors import AuthenticationError, BadReplyError, ModelError, RateLimitError
from untildone.testing import FakeClock

HERE = Path(__file__).parent
PACKAGE = HERE / "node_modules" / "@copilotkit" / "aimock"
INSTALL_S, START_S = 90, 15  # within the time-out of the test that comes first

MODELS = {
    "openai": "openai/gpt-4o",
    "anthropic": "anthropic/claude-sonnet-4-5",
    "ollama": "ollama/llama3.2",
}
PATHS = {
    "openai": "/v1/chat/completions",
    "anthropic": "/v1/messages",
    "ollama": "/v1/chat/completions",
}


def missing(reason: str) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def program(name: str) -> str:
    return shutil.which(name) or missing(f"{name} is not on the PATH")


def installed_version() -> str:
    try:
        return json.loads((PACKAGE / "package.json").read_text("utf-8"))["version"]
    except FileNotFoundError:
        return ""


def install() -> None:
    """``npm ci`` where what is pinned is not there."""
    pinned = json.loads((HERE / "package.json").read_text("utf-8"))["dependencies"]
    if installed_version() == pinned["@copilotkit/aimock"]:
        return
    command = [program("npm"), "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    try:
        done = subprocess.run(
            command, cwd=HERE, capture_output=True, text=True, timeout=INSTALL_S, check=False
        )
    except subprocess.TimeoutExpired:
        missing(f"npm ci for @copilotkit/aimock took more than {INSTALL_S} s")
    if done.returncode:
        missing(f"npm ci cannot install @copilotkit/aimock: {done.stderr[-500:]}")


class Mock:
    """The mock's own address, for scripting it and for reading what it was asked."""

    def __init__(self, url: str) -> None:
        self.url = url

    def call(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}/__aimock{path}", data, method=method)
        request.add_header("Content-Type", "application/json")
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=10) as answer:
            return json.load(answer)

    def script(self, *fixtures: dict[str, Any]) -> None:
        self.call("POST", "/fixtures", {"fixtures": fixtures})

    def fail_next(self, status: int, message: str) -> None:
        self.call("POST", "/error", {"status": status, "body": {"message": message}})

    def asked(self) -> list[dict[str, Any]]:
        return self.call("GET", "/journal")

    def statuses(self) -> list[int]:
        return [entry["response"]["status"] for entry in self.asked()]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[Mock]:
    node = program("node")
    install()
    folder = tmp_path_factory.mktemp("aimock")
    script, log = folder / "fixtures.json", folder / "log"
    first = {"match": {"userMessage": "are you there"}, "response": {"content": "yes"}}
    script.write_text(json.dumps({"fixtures": [first]}), "utf-8")
    options = [
        "--host",
        "127.0.0.1",
        "--port",
        "0",
        "--chunk-size",
        "3",
        "--latency",
        "2",
        "--strict",
    ]
    with (
        log.open("w") as out,
        subprocess.Popen(
            [node, PACKAGE / "dist" / "cli.js", "--fixtures", script, *options],
            stdout=out,
            stderr=subprocess.STDOUT,
        ) as process,
    ):
        try:
            yield Mock(address_in(log, process))
        finally:
            process.kill()


def address_in(log: Path, process: subprocess.Popen[bytes]) -> str:
    """Where the mock says it listens."""
    for _ in range(START_S * 20):
        _, said, rest = log.read_text("utf-8").partition("listening on ")
        if said and "\n" in rest:
            return rest.split()[0]
        try:
            process.wait(0.05)
        except subprocess.TimeoutExpired:
            continue
        break
    return pytest.fail(f"aimock does not start: {log.read_text('utf-8')}")


@pytest.fixture
async def mock(server: Mock, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Mock]:
    server.call("POST", "/reset")
    for name, value in {
        "OPENAI_BASE_URL": f"{server.url}/v1",
        "OPENAI_API_KEY": "sk-made-up",
        "ANTHROPIC_BASE_URL": server.url,
        "ANTHROPIC_API_KEY": "sk-ant-made-up",
        "OLLAMA_HOST": server.url,
    }.items():
        monkeypatch.setenv(name, value)
    before = asyncio.all_tasks()
    yield server
    await aclose()
    assert not asyncio.all_tasks() - before - {asyncio.current_task()}


@pytest.fixture(params=list(MODELS))
def provider(request: pytest.FixtureRequest) -> str:
    return request.param


async def run(agent: Agent, said: str) -> tuple[AgentResult, list[StreamEvent]]:
    """One run, listened to, with a clock that waits for nobody."""
    queue: asyncio.Queue[StreamEvent | None] = asyncio.Queue()
    question = [{"role": "user", "content": said}]
    result = await run_agent(agent, question, queue=queue, clock=FakeClock())
    events: list[StreamEvent] = []
    while (event := queue.get_nowait()) is not None:
        events.append(event)
    return result, events


def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


SUM = (
    {
        "match": {"userMessage": "2 + 3 + 4", "turnIndex": 0, "toolName": "add"},
        "response": {
            "content": "First the first two.",
            "toolCalls": [{"name": "add", "arguments": {"a": 2, "b": 3}}],
        },
    },
    {
        "match": {"turnIndex": 1, "toolResultContains": "5"},
        "response": {"toolCalls": [{"name": "add", "arguments": {"a": 5, "b": 4}}]},
    },
    {
        "match": {"turnIndex": 2, "toolResultContains": "9"},
        "response": {"content": "The sum is 9 — «neun»."},
    },
)


async def test_a_script_of_three_turns_with_tools_is_streamed(mock: Mock, provider: str):
    mock.script(*SUM)
    agent = Agent("adder", MODELS[provider], tools=[add])
    result, events = await run(agent, "What is 2 + 3 + 4?")
    assert result.text == "The sum is 9 — «neun»."
    assert result.turns == 3
    assert [call["result"] for call in result.tool_calls] == ["5", "9"]
    pieces = [e.data["chunk"] for e in events if e.event is EventType.TEXT_DELTA]
    assert "".join(pieces) == "First the first two.The sum is 9 — «neun»."
    assert len(pieces) > 10
    assert [entry["path"] for entry in mock.asked()] == [PATHS[provider]] * 3
    assert mock.statuses() == [200] * 3


async def test_a_rate_limit_is_waited_out(mock: Mock, provider: str):
    mock.script({"match": {"userMessage": "hello"}, "response": {"content": "Here I am."}})
    mock.fail_next(429, "slow down")
    result, _ = await run(Agent("a", MODELS[provider], retry_policy=RetryPolicy()), "hello")
    assert result.text == "Here I am."
    assert mock.statuses() == [429, 200]


@pytest.mark.parametrize(("status", "kind"), [(429, RateLimitError), (401, AuthenticationError)])
async def test_an_error_has_its_type_and_says_what_the_provider_said(
    mock: Mock, provider: str, status: int, kind: type[ModelError]
):
    mock.fail_next(status, "that was too much")
    with pytest.raises(kind, match="that was too much") as caught:
        await run(Agent("a", MODELS[provider]), "hello")
    assert caught.value.status == status
    assert mock.statuses() == [status]


async def test_a_cut_stream_is_asked_for_anew_and_what_was_shown_is_taken_back(
    mock: Mock, provider: str
):
    said = {"content": "one two three four five six seven"}
    mock.script(
        {
            "match": {"userMessage": "count", "sequenceIndex": 0},
            "response": said,
            "truncateAfterChunks": 5,
        },
        {"match": {"userMessage": "count", "sequenceIndex": 1}, "response": said},
    )
    policy = RetryPolicy(max_retries=1)
    result, events = await run(Agent("a", MODELS[provider], retry_policy=policy), "count")
    assert result.text == said["content"]
    shown = ""
    for event in events:
        if event.event is EventType.TEXT_DELTA:
            shown += event.data["chunk"]
        elif event.event is EventType.RETRY_ATTEMPT:
            assert event.data["discard_chars"] == len(shown) > 0
            shown = ""
    assert shown == said["content"]
    assert len(mock.asked()) == 2


async def test_a_stream_that_stays_cut_is_an_error(mock: Mock, provider: str):
    fixture = {"match": {"userMessage": "count"}, "response": {"content": "one two three"}}
    mock.script(fixture | {"truncateAfterChunks": 3})
    with pytest.raises(ModelError) as caught:
        await run(Agent("a", MODELS[provider]), "count")
    assert not isinstance(caught.value, RateLimitError | AuthenticationError)


async def test_a_reply_that_is_no_json_is_an_error(mock: Mock, provider: str):
    fixture = {"match": {"userMessage": "count"}, "response": {"content": "one two three"}}
    mock.script(fixture | {"chaos": {"malformedRate": 1}})
    with pytest.raises(BadReplyError):
        await run(Agent("a", MODELS[provider]), "count")
