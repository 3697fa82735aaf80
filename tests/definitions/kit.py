"""What tests of definitions share: a provider that answers as told, and both doors watched."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.models.raw_server import Act, RawServer, answer, chunked, delta, raw_server, sse
from untildone import Agent, AgentResult, EventType, StreamEvent, aclose, run_agent, stream_agent

ASK = [{"role": "user", "content": "Write the report."}]
DOORS = ("run_agent", "stream_agent")

Reply = str | Sequence[Act]


def said(text: str) -> Sequence[Act]:
    """A streamed reply with a text, in two pieces where it is long enough for that."""
    pieces = [text[: len(text) // 2], text[len(text) // 2 :]]
    return _streamed(*(delta(content=piece) for piece in pieces if piece), finish="stop")


def called(name: str, **arguments: Any) -> Sequence[Act]:
    """A streamed reply that asks for one tool."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"index": 0, "id": "call_1", "type": "function", "function": function}
    return _streamed(delta(tool_calls=[call]), finish="tool_calls")


def verdict(answered: bool, reasoning: str = "") -> Sequence[Act]:
    """A judge's structured reply."""
    return said(json.dumps({"reasoning": reasoning, "answered": answered}))


def down() -> Sequence[Act]:
    """What a provider says that cannot do its work."""
    return answer("503 Service Unavailable", b'{"error": {"message": "overloaded"}}')


def _streamed(*chunks: dict[str, Any], finish: str) -> Sequence[Act]:
    usage = {"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5}}
    return chunked(sse(*chunks, delta(finish), usage, "[DONE]"))


@contextlib.asynccontextmanager
async def serving(*replies: Reply) -> AsyncGenerator[RawServer]:
    """The provider ``openai`` on loopback, answering request k with reply k."""
    scripts = [said(reply) if isinstance(reply, str) else reply for reply in replies]
    with pytest.MonkeyPatch.context() as patch:
        async with raw_server(*scripts) as server:
            patch.setenv("OPENAI_BASE_URL", server.url)
            patch.setenv("OPENAI_API_KEY", "sk-test")
            try:
                yield server
            finally:
                await aclose()


@dataclass
class Watched:
    """What a door gave: the result or the error, and the events."""

    result: AgentResult | None = None
    error: BaseException | None = None
    events: list[StreamEvent] = field(default_factory=list)

    @property
    def iterations(self) -> list[dict[str, Any]]:
        """The payloads of the LOOP_ITERATION events."""
        return self.of(EventType.LOOP_ITERATION)

    @property
    def text(self) -> str:
        """All text as it was streamed."""
        return "".join(data["chunk"] for data in self.of(EventType.TEXT_DELTA))

    @property
    def got(self) -> AgentResult:
        """The result of a run that gave one."""
        assert self.error is None, self.error
        assert self.result is not None
        return self.result

    def of(self, kind: EventType) -> list[dict[str, Any]]:
        """The payloads of one kind."""
        return [event.data for event in self.events if event.event is kind]


async def through(door: str, agent: Agent, messages: list[dict[str, Any]] | None = None) -> Watched:
    """Runs an agent through a door."""
    watched = Watched()
    try:
        if door == "stream_agent":
            async with stream_agent(agent, messages or ASK) as stream:
                try:
                    async for event in stream:
                        watched.events.append(event)
                finally:
                    watched.result = stream.result
        else:
            watched.result = await run_agent(agent, messages or ASK, queue=_Kept(watched.events))
    except BaseException as error:
        watched.error = error
    return watched


class _Kept(asyncio.Queue[Any]):
    """A queue without bound that also keeps what it was given."""

    def __init__(self, kept: list[StreamEvent]) -> None:
        super().__init__()
        self._kept = kept

    async def put(self, item: Any) -> None:
        await super().put(item)
        if item is not None:
            self._kept.append(item)


def asked(server: RawServer) -> list[str]:
    """Who was asked, request by request: ``worker`` or ``judge``."""
    bodies = [server.body(index) for index in range(len(server.requests))]
    return ["judge" if "response_format" in body else "worker" for body in bodies]
