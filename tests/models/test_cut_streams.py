"""A recorded reply cut at every byte: never a hang, never a wrong text, else a typed error."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.models.raw_server import RawServer, answer, delta, hang_up, head, raw_server, sse
from untildone.domain.errors import BadReplyError, ConnectionFailedError, ModelError
from untildone.domain.messages import ToolCall, user_message
from untildone.domain.requests import Delta, ModelReply, ModelRequest, TextDelta
from untildone.models.anthropic_messages import AnthropicModel
from untildone.models.openai_chat import OpenAIChatModel
from untildone.ports import Model

HELLO = ModelRequest(messages=[user_message("hi")])
CALL = {"index": 0, "id": "c1", "function": {"name": "add", "arguments": ""}}
OPENAI = sse(
    delta(role="assistant", content=""),
    delta(content="Zwei "),
    delta(content="plus drei, 5 €?"),
    delta(tool_calls=[CALL]),
    delta(tool_calls=[{"index": 0, "function": {"arguments": '{"a":2,'}}]),
    delta(tool_calls=[{"index": 0, "function": {"arguments": '"b":3}'}}]),
    delta("tool_calls"),
    {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2}},
    "[DONE]",
)
ANTHROPIC = sse(
    {"type": "message_start", "message": {"model": "c", "usage": {"input_tokens": 9}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Zwei "}},
    {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "text_delta", "text": "plus drei, 5 €?"},
    },
    {"type": "content_block_stop", "index": 0},
    {
        "type": "content_block_start",
        "index": 1,
        "content_block": {"type": "tool_use", "id": "c1", "name": "add", "input": {}},
    },
    {
        "type": "content_block_delta",
        "index": 1,
        "delta": {"type": "input_json_delta", "partial_json": '{"a":2,'},
    },
    {
        "type": "content_block_delta",
        "index": 1,
        "delta": {"type": "input_json_delta", "partial_json": '"b":3}'},
    },
    {"type": "content_block_stop", "index": 1},
    {
        "type": "message_delta",
        "delta": {"stop_reason": "tool_use"},
        "usage": {"output_tokens": 2},
    },
    {"type": "message_stop"},
)
TEXT = "Zwei plus drei, 5 €?"
CALLS = (ToolCall("c1", "add", '{"a":2,"b":3}'),)

Make = Callable[[RawServer], Model]


def openai(server: RawServer) -> Model:
    return OpenAIChatModel("m", base_url=server.url)


def anthropic(server: RawServer) -> Model:
    return AnthropicModel("c", base_url=server.url, api_key="k")


WIRES = [
    pytest.param(openai, OPENAI, id="openai"),
    pytest.param(anthropic, ANTHROPIC, id="anthropic"),
]


async def outcomes(make: Make, scripts: list[list[Any]]) -> list[ModelReply | ModelError]:
    """What each script, sent to one request of its own, led to."""
    found: list[ModelReply | ModelError] = []
    async with raw_server(*scripts) as server:
        model = make(server)
        for _ in scripts:
            seen: list[str] = []

            async def sink(piece: Delta, seen: list[str] = seen) -> None:
                assert isinstance(piece, TextDelta)
                seen.append(piece.text)

            try:
                async with asyncio.timeout(5):
                    found.append(await model.generate(HELLO, sink))
            except ModelError as error:
                found.append(error)
            assert TEXT.startswith("".join(seen))
    return found


def check(found: list[ModelReply | ModelError]) -> int:
    """That each is the whole reply or a typed error; how many are whole."""
    whole = 0
    for outcome in found:
        if isinstance(outcome, ModelReply):
            whole += 1
            assert outcome.message.content == TEXT
            assert outcome.message.tool_calls == CALLS
            assert outcome.finish_reason == "tool_calls"
        else:
            assert type(outcome) in (BadReplyError, ConnectionFailedError)
    return whole


@pytest.mark.parametrize(("make", "stream"), WIRES)
async def test_a_body_cut_at_any_byte_in_http_chunks_is_an_error(make: Make, stream: bytes):
    start = head("200 OK", "Transfer-Encoding: chunked")
    cuts = range(len(stream))
    scripts = [[start + b"%x\r\n%b\r\n" % (n, stream[:n]) if n else start, hang_up] for n in cuts]
    found = await outcomes(make, scripts)
    assert check(found) == 0


@pytest.mark.parametrize(("make", "stream"), WIRES)
async def test_a_body_of_known_length_cut_at_any_byte_is_an_error(make: Make, stream: bytes):
    start = head("200 OK", f"Content-Length: {len(stream)}")
    found = await outcomes(make, [[start + stream[:n], hang_up] for n in range(len(stream))])
    assert check(found) == 0


@pytest.mark.parametrize(("make", "stream"), WIRES)
async def test_a_body_that_only_the_connection_ends_is_whole_or_an_error(make: Make, stream: bytes):
    start = head()
    found = await outcomes(make, [[start + stream[:n], hang_up] for n in range(len(stream) + 1)])
    whole = check(found)
    assert isinstance(found[-1], ModelReply)
    if make is openai:
        # From the chunk with the finish reason on nothing of the reply is missing.
        after_finish = len(stream) - stream.index(b'"usage"') + len(b'data: {"choices": [], ')
        assert 1 < whole <= after_finish + 3
        assert all(isinstance(outcome, ModelError) for outcome in found[: -after_finish - 3])


@pytest.mark.parametrize(("make", "stream"), WIRES)
async def test_the_head_of_the_answer_cut_at_any_byte_is_an_error(make: Make, stream: bytes):
    start = head("200 OK", f"Content-Length: {len(stream)}", "X-Request-Id: r-1")
    found = await outcomes(make, [[start[:n], hang_up] for n in range(len(start))])
    assert check(found) == 0
    assert len(found) == len(start)


@pytest.mark.parametrize("make", [openai, anthropic])
async def test_an_error_answer_cut_at_any_byte_keeps_its_type(make: Make):
    body = b'{"error":{"message":"slow down"}}'
    whole = answer("429 Too Many Requests", body)[0]
    start = len(whole) - len(body)
    found = await outcomes(make, [[whole[:n], hang_up] for n in range(start, len(whole))])
    assert {getattr(outcome, "status", None) for outcome in found} == {429}
