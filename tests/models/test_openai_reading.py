"""The OpenAI wire reads what providers send, in every shape they send it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.models.raw_server import answer, chunked, delta, hang_up, head, raw_server, sse
from untildone import Agent, run_agent
from untildone.domain.errors import (
    AuthenticationError,
    BadReplyError,
    BadRequestError,
    ModelError,
    RateLimitError,
    ServerError,
)
from untildone.domain.messages import ToolCall, user_message
from untildone.domain.requests import Delta, ModelReply, ModelRequest, TextDelta, ThinkingDelta
from untildone.domain.usage import Usage
from untildone.models.endpoint import Endpoint
from untildone.models.openai_chat import OpenAIChatModel
from untildone.models.openai_reply import ReplyAssembler

HELLO = ModelRequest(messages=[user_message("hi")])
STOP = delta("stop")


async def read(*acts: Any, **settings: Any) -> tuple[ModelReply, list[Delta]]:
    """The reply to one request that is answered with these acts, and what was seen of it."""
    seen: list[Delta] = []

    async def sink(piece: Delta) -> None:
        seen.append(piece)

    async with raw_server(acts) as server:
        model = OpenAIChatModel("m", base_url=server.url, **settings)
        return await model.generate(HELLO, sink), seen


async def read_chunks(*payloads: Any, **settings: Any) -> tuple[ModelReply, list[Delta]]:
    return await read(*chunked(sse(*payloads)), **settings)


async def test_text_comes_in_pieces_and_as_a_whole():
    reply, seen = await read_chunks(
        delta(role="assistant", content=""),
        delta(content="Hel"),
        delta(content="lo \n"),
        STOP,
        {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2}},
        "[DONE]",
    )
    assert seen == [TextDelta("Hel"), TextDelta("lo \n")]
    assert reply.message.role == "assistant"
    assert reply.message.content == "Hello \n"
    assert reply.message.tool_calls == ()
    assert reply.message.extra is None
    assert reply.finish_reason == "stop"
    assert reply.usage == Usage(input_tokens=9, output_tokens=2)
    assert reply.model == "m-1"
    assert reply.request_id is None


async def test_a_reply_without_text_and_calls_is_an_empty_text():
    reply, seen = await read_chunks(STOP, "[DONE]")
    assert reply.message.content == ""
    assert seen == []


@pytest.mark.parametrize(
    "reason", ["stop", "length", "content_filter", "tool_calls", "eos", "COMPLETE"]
)
async def test_finish_reasons_stay_as_the_provider_wrote_them(reason: str):
    reply, _ = await read_chunks(delta(content="x"), delta(reason))
    assert reply.finish_reason == reason


@pytest.mark.parametrize(
    "reason",
    [
        "model_length",
        "max_tokens",
        "MAX_TOKENS",
        "max_output_tokens",
        "insufficient_system_resource",
        "model_context_window_exceeded",
    ],
)
async def test_every_word_for_a_cut_reply_is_told_as_length(reason: str):
    reply, _ = await read_chunks(delta(content="x"), delta(reason))
    assert reply.finish_reason == "length"


CUT = "cut off by the token limit"


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("length", CUT),
        ("model_length", CUT),
        ("max_tokens", CUT),
        ("insufficient_system_resource", CUT),
        ("content_filter", "content filter stopped the reply"),
        ("tool_calls", "There are no arguments"),
        ("stop", "There are no arguments"),
    ],
)
async def test_a_call_cut_before_its_arguments_never_runs_with_defaults(reason: str, said: str):
    ran: list[str] = []

    def wipe(path: str = "/") -> None:
        """Wipes."""
        ran.append(path)

    call = {"index": 0, "id": "a", "function": {"name": "wipe", "arguments": ""}}
    replies = [chunked(sse(delta(tool_calls=[call]), delta(reason))), chunked(sse(STOP))]
    async with raw_server(*replies) as server:
        agent = Agent("a", OpenAIChatModel("m", base_url=server.url), tools=[wipe])
        result = await run_agent(agent, [{"role": "user", "content": "q"}])
    assert ran == []
    assert said in result.tool_calls[0]["result"]


@pytest.mark.parametrize(
    ("reason", "runs"), [("tool_calls", 1), ("stop", 1), ("max_tokens", 0), ("content_filter", 0)]
)
async def test_a_call_of_a_tool_without_parameters_may_come_without_arguments(
    reason: str, runs: int
):
    ran: list[int] = []

    def ring() -> None:
        """Rings."""
        ran.append(1)

    call = {"index": 0, "id": "a", "function": {"name": "ring", "arguments": ""}}
    replies = [chunked(sse(delta(tool_calls=[call]), delta(reason))), chunked(sse(STOP))]
    async with raw_server(*replies) as server:
        agent = Agent("a", OpenAIChatModel("m", base_url=server.url), tools=[ring])
        await run_agent(agent, [{"role": "user", "content": "q"}])
    assert len(ran) == runs


async def test_calls_of_a_streamed_reply_have_no_text():
    reply, seen = await read_chunks(
        delta(role="assistant", content=None),
        delta(tool_calls=[{"index": 0, "id": "c1", "function": {"name": "f", "arguments": ""}}]),
        delta(tool_calls=[{"index": 0, "function": {"arguments": '{"a":'}}]),
        delta(tool_calls=[{"index": 0, "function": {"arguments": "1}"}}]),
        delta("tool_calls"),
        "[DONE]",
    )
    assert reply.message.content is None
    assert reply.message.tool_calls == (ToolCall("c1", "f", '{"a":1}'),)
    assert seen == []


async def test_ollama_sends_a_whole_call_in_one_piece_and_ends_it_with_stop():
    call = {"id": "call_7", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
    reply, _ = await read_chunks(delta(content="", tool_calls=[call]), STOP, "[DONE]")
    assert reply.message.tool_calls == (ToolCall("call_7", "f", '{"a":1}'),)
    assert reply.message.content is None


async def test_the_old_function_call_is_read():
    reply, _ = await read_chunks(
        delta(function_call={"name": "f", "arguments": ""}),
        delta(function_call={"arguments": '{"a":1}'}),
        delta("function_call"),
    )
    assert [(c.name, c.arguments) for c in reply.message.tool_calls] == [("f", '{"a":1}')]


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning"])
async def test_reasoning_is_shown_apart_from_the_text(key: str):
    reply, seen = await read_chunks(
        delta(**{key: "hm "}), delta(**{key: "so", "content": None}), delta(content="4"), STOP
    )
    assert seen == [ThinkingDelta("hm "), ThinkingDelta("so"), TextDelta("4")]
    assert reply.message.content == "4"
    assert reply.message.extra is None


async def test_reasoning_sent_under_two_names_is_shown_once():
    _, seen = await read_chunks(delta(reasoning="hm", reasoning_content="hm"), STOP)
    assert seen == [ThinkingDelta("hm")]


async def test_mistral_sends_text_and_thinking_as_content_parts():
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    reply, seen = await read_chunks(
        delta(content=[thinking]), delta(content=[{"type": "text", "text": "4"}]), STOP
    )
    assert seen == [ThinkingDelta("hm"), TextDelta("4")]
    assert reply.message.content == "4"


async def test_deepseek_gets_its_reasoning_back_with_the_calls_even_an_empty_one():
    call = {"index": 0, "id": "1", "function": {"name": "f", "arguments": "{}"}}
    ask = {"sends_back": ["reasoning_content"]}
    reply, _ = await read_chunks(
        delta(reasoning_content="h"), delta(tool_calls=[call]), delta("tool_calls"), **ask
    )
    assert reply.message.extra == {"reasoning_content": "h"}
    reply, _ = await read_chunks(delta(tool_calls=[call]), delta("tool_calls"), **ask)
    assert reply.message.extra == {"reasoning_content": ""}


async def test_openrouter_reasoning_details_are_joined_and_kept():
    reply, _ = await read_chunks(
        delta(reasoning_details=[{"type": "reasoning.text", "text": "h", "index": 0}]),
        delta(reasoning_details=[{"type": "reasoning.text", "text": "m", "index": 0}]),
        delta(reasoning_details=[{"type": "reasoning.text", "signature": "s", "index": 0}]),
        delta(reasoning_details=[{"type": "reasoning.encrypted", "data": "x", "index": 1}]),
        delta(content="4"),
        STOP,
        sends_back=["reasoning_details"],
    )
    assert reply.message.extra == {
        "reasoning_details": [
            {"type": "reasoning.text", "text": "hm", "index": 0, "signature": "s"},
            {"type": "reasoning.encrypted", "data": "x", "index": 1},
        ]
    }


def thinks(text: str) -> dict[str, Any]:
    return delta(reasoning_details=[{"type": "reasoning.text", "index": 0, "text": text}])


@pytest.mark.parametrize("keeps", [("reasoning_details",), ()])
def test_the_pieces_of_reasoning_details_are_joined_once(keeps: tuple[str, ...]):
    """A join for each piece takes minutes for a long chain of thought."""
    endpoint = Endpoint(model="m", url="u", base_url="u", headers={})
    assembler = ReplyAssembler(endpoint, keeps=keeps)
    for _ in range(1000):
        assembler.take(thinks("abcd"))
    assembler.take(STOP)
    if keeps:
        assert assembler._details is not None
        assert [len(detail["text"]) for detail in assembler._details.list] == [4]
        detail = {"type": "reasoning.text", "index": 0, "text": "abcd" * 1000}
        assert assembler.reply().message.extra == {"reasoning_details": [detail]}
    else:
        assert assembler._details is None
        assert assembler.reply().message.extra is None


def whole(finish: str, **message: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "message": message, "finish_reason": finish}]}


CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}


@pytest.mark.parametrize("beside", [{}, {"delta": {}}, {"delta": None}])
async def test_a_whole_message_after_its_pieces_is_not_taken_twice(beside: dict[str, Any]):
    """MiniMax ends so."""
    last = whole("tool_calls", content="Hello", reasoning_content="hm", tool_calls=[CALL])
    last["choices"][0].update(beside)
    reply, seen = await read_chunks(
        delta(reasoning_content="hm"),
        delta(content="Hel"),
        delta(content="lo"),
        delta(tool_calls=[{**CALL, "index": 0}]),
        last,
    )
    assert reply.message.content == "Hello"
    assert reply.message.tool_calls == (ToolCall("1", "f", '{"a":1}'),)
    assert seen == [ThinkingDelta("hm"), TextDelta("Hel"), TextDelta("lo")]


async def test_what_only_the_whole_message_holds_is_taken_from_it():
    reply, seen = await read_chunks(
        delta(content="Hel"), whole("tool_calls", content="Hello", tool_calls=[CALL])
    )
    assert reply.message.content == "Hello"
    assert reply.message.tool_calls == (ToolCall("1", "f", '{"a":1}'),)
    assert seen == [TextDelta("Hel"), TextDelta("lo")]


async def test_pieces_that_are_called_messages_are_pieces():
    first = {"choices": [{"index": 0, "message": {"content": "Hel"}}]}
    reply, _ = await read_chunks(first, whole("stop", content="lo"))
    assert reply.message.content == "Hello"


async def test_the_index_of_a_choice_may_be_text():
    one, other = delta(content="a"), delta(content="b")
    one["choices"][0]["index"], other["choices"][0]["index"] = "0", "1"
    reply, _ = await read_chunks(one, other, STOP)
    assert reply.message.content == "a"


async def test_a_refusal_is_visible_text_and_kept_as_a_refusal():
    reply, seen = await read_chunks(
        delta(content=None, refusal="I "), delta(refusal="won't."), delta("stop")
    )
    assert seen == [TextDelta("I "), TextDelta("won't.")]
    assert reply.message.text == "I won't."
    assert reply.message.extra == {"refusal": "I won't."}


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (
            {"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14},
            Usage(input_tokens=10, output_tokens=4),
        ),
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 4,
                "prompt_tokens_details": {"cached_tokens": 8},
            },
            Usage(input_tokens=10, output_tokens=4, cached_tokens=8),
        ),
        (
            {"prompt_tokens": 10, "completion_tokens": 4, "prompt_tokens_details": None},
            Usage(input_tokens=10, output_tokens=4),
        ),
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 4,
                "prompt_cache_hit_tokens": 6,
                "prompt_cache_miss_tokens": 4,
            },
            Usage(input_tokens=10, output_tokens=4, cached_tokens=6),
        ),
        (
            {"prompt_tokens": 10, "completion_tokens": 4, "cached_tokens": 3},
            Usage(input_tokens=10, output_tokens=4, cached_tokens=3),
        ),
        (  # Anthropic's form counts cached tokens apart
            {"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 80},
            Usage(input_tokens=90, output_tokens=5, cached_tokens=80),
        ),
        (
            {"input_tokens": 10, "output_tokens": 5, "cache_creation_input_tokens": 30},
            Usage(input_tokens=40, output_tokens=5),
        ),
        (
            {"prompt_tokens": 90, "completion_tokens": 5, "cache_read_input_tokens": 80},
            Usage(input_tokens=90, output_tokens=5, cached_tokens=80),
        ),
        (
            {"input_tokens": 10, "output_tokens": 4, "input_tokens_details": {"cached_tokens": 2}},
            Usage(input_tokens=10, output_tokens=4, cached_tokens=2),
        ),
        # xAI and Gemini leave reasoning out of the completion, not out of the total.
        (
            {"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 44},
            Usage(input_tokens=10, output_tokens=34),
        ),
        ({"prompt_tokens": 10, "total_tokens": 10}, Usage(input_tokens=10)),
        (
            {"prompt_tokens": 10.0, "completion_tokens": 4.0},
            Usage(input_tokens=10, output_tokens=4),
        ),
        ({"prompt_tokens": True, "completion_tokens": 4}, Usage(output_tokens=4)),
        ({"prompt_tokens": None, "completion_tokens": None}, None),
        ({"prompt_tokens": -1, "completion_tokens": "7"}, None),
        ({}, None),
        ("many", None),
        (None, None),
    ],
)
async def test_usage_is_read_in_every_shape(usage: Any, expected: Usage | None):
    reply, _ = await read_chunks(delta(content="x"), STOP, {"choices": [], "usage": usage})
    assert reply.usage == expected


TOKENS = {"prompt_tokens": 10, "completion_tokens": 4}


@pytest.mark.parametrize(
    "chunks",
    [
        [delta(content="x"), {**STOP, "usage": TOKENS}],
        [delta(content="x"), STOP, {"choices": [], "usage": TOKENS}],
        [delta(content="x"), STOP, {"choices": None, "usage": TOKENS}],
        [delta(content="x"), {**STOP, "x_groq": {"id": "r", "usage": TOKENS}}],
        [{**delta(content="x"), "usage": None}, {**STOP, "usage": TOKENS}],
        [
            {**delta(content="x"), "usage": {"prompt_tokens": 10, "completion_tokens": 1}},
            {**STOP, "usage": TOKENS},
        ],
        [
            {**STOP, "usage": TOKENS},
            {"choices": [], "usage": {"prompt_tokens": 0, "completion_tokens": 0}},
        ],
        [{"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "usage": TOKENS}]}],
    ],
)
async def test_usage_is_found_wherever_it_stands(chunks: list[Any]):
    reply, _ = await read_chunks(*chunks, "[DONE]")
    assert reply.usage == Usage(input_tokens=10, output_tokens=4)


async def test_the_request_id_and_the_models_own_name_are_reported():
    start = head("200 OK", "X-Request-ID: req_42")
    reply, _ = await read(start + sse(delta(content="x"), STOP, "[DONE]"), hang_up)
    assert reply.request_id == "req_42"
    assert reply.model == "m-1"


WHOLE = {
    "id": "1",
    "object": "chat.completion",
    "model": "m-2",
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "message": {
                "role": "assistant",
                "content": "let me see",
                "tool_calls": [
                    {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}},
                    {"id": "b", "type": "function", "function": {"name": "f", "arguments": "{}"}},
                ],
            },
        }
    ],
    "usage": TOKENS,
}


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream", "text/plain"])
@pytest.mark.parametrize("before", [b"", b"\n \n", b"\xef\xbb\xbf"])
async def test_a_reply_that_is_not_streamed_is_read_too(kind: str, before: bytes):
    body = before + json.dumps(WHOLE).encode()
    reply, seen = await read(*answer("200 OK", body, kind=kind))
    assert seen == [TextDelta("let me see")]
    assert reply.message.content == "let me see"
    assert reply.message.tool_calls == (ToolCall("a", "f", "{}"), ToolCall("b", "f", "{}"))
    assert reply.finish_reason == "tool_calls"
    assert reply.usage == Usage(input_tokens=10, output_tokens=4)
    assert reply.model == "m-2"


async def test_an_event_stream_that_calls_itself_json_is_read():
    body = sse(delta(content="x"), STOP, "[DONE]")
    reply, _ = await read(*answer("200 OK", body, kind="application/json"))
    assert reply.message.text == "x"


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
async def test_line_ends_bom_comments_and_data_over_several_lines_are_read(line_end: bytes):
    stream = (
        b"\xef\xbb\xbf: comment\n\nevent: chunk\nid: 1\n"
        b'data: {"choices":[{"index":0,\ndata: "delta":{"content":"a b"}}]}\n\n'
        b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    )
    stream = stream.replace(b"\n", line_end)
    for pieces in ([stream], [stream[i : i + 1] for i in range(len(stream))]):
        reply, _ = await read(*chunked(*pieces))
        assert reply.message.text == "a b"


async def test_text_is_whole_where_packets_cut_its_letters():
    text = "Zürich 10 € 😀 \u2028 ok"
    stream = sse(json.dumps(delta(content=text), ensure_ascii=False), STOP)
    reply, _ = await read(*chunked(*(stream[i : i + 1] for i in range(len(stream)))))
    assert reply.message.text == text


async def test_invalid_utf8_becomes_the_replacement_mark():
    stream = sse(delta(content="a?b"), STOP).replace(b"a?b", b"a\xff\xfeb")
    reply, _ = await read(*chunked(stream))
    assert reply.message.text == "a\ufffd\ufffdb"


async def test_a_surrogate_pair_cut_between_two_pieces_is_joined():
    reply, seen = await read_chunks(delta(content="a\ud83d"), delta(content="\ude00b"), STOP)
    assert seen == [TextDelta("a"), TextDelta("😀b")]
    assert reply.message.text == "a😀b"


async def test_a_lone_surrogate_is_replaced():
    reply, seen = await read_chunks(delta(content="a\udc00b"), STOP)
    assert seen == [TextDelta("a\ufffdb")]
    assert reply.message.text == "a\ufffdb"
    reply.message.wire_json().decode()


async def test_five_megabytes_in_one_piece_are_read():
    text = "0123456789" * 500_000
    reply, seen = await read_chunks(delta(content=text), STOP)
    assert reply.message.text == text
    assert len(seen) == 1


async def test_only_the_first_choice_is_read():
    other = {"choices": [{"index": 1, "delta": {"content": "other"}}]}
    reply, _ = await read_chunks(delta(content="x"), other, STOP)
    assert reply.message.text == "x"


async def test_nothing_after_the_end_is_read():
    reply, _ = await read_chunks(delta(content="x"), STOP, "[DONE]", delta(content="y"), "junk")
    assert reply.message.text == "x"


@pytest.mark.parametrize(
    "odd",
    [
        {"choices": [None, 7, {"delta": None}, {"delta": "x"}, {"delta": {"content": 7}}]},
        {"choices": [{"delta": {"tool_calls": None, "reasoning": 5, "refusal": 3}}]},
        {"choices": "none", "usage": "x", "model": 7, "x_groq": 9},
        {},
        {"object": "ping"},
    ],
)
async def test_values_of_wrong_types_are_passed_over(odd: Any):
    reply, _ = await read_chunks(odd, delta(content="x"), STOP)
    assert reply.message.text == "x"


async def error_of(*payloads: Any) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await read_chunks(*payloads)
    return caught.value


async def test_a_stream_without_a_finish_reason_is_an_error():
    error = await error_of(delta(content="half a"), "[DONE]")
    assert type(error) is BadReplyError
    assert "without a finish reason" in str(error)
    assert error.usage is None


async def test_a_stream_without_a_choice_is_an_error_that_knows_its_tokens():
    error = await error_of({"choices": [], "usage": TOKENS}, {"choices": []}, "[DONE]")
    assert type(error) is BadReplyError
    assert "no choice" in str(error)
    assert error.usage == Usage(input_tokens=10, output_tokens=4)


@pytest.mark.parametrize("junk", ["{oops", "null", "7", '"text"', "[]", "[1]"])
async def test_a_malformed_piece_is_an_error(junk: str):
    error = await error_of(delta(content="x"), junk, STOP)
    assert type(error) is BadReplyError
    assert "no JSON" in str(error)


async def test_json_nested_without_end_is_an_error():
    error = await error_of("[" * 100_000)
    assert type(error) is BadReplyError


async def test_a_call_without_a_name_is_an_error():
    error = await error_of(delta(tool_calls=[{"index": 0, "function": {"arguments": "{}"}}]), STOP)
    assert type(error) is BadReplyError
    assert "without a name" in str(error)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"<html><title>Log in</title></html>", "<html>"),
        (b"", "is empty"),
        (b": only comments\n\n", "no event stream"),
        (b'{"half": ', "cut or is no JSON"),
        (b"[]", "no JSON object"),
    ],
)
async def test_a_body_that_is_no_reply_is_an_error(body: bytes, said: str):
    with pytest.raises(BadReplyError) as caught:
        await read(*answer("200 OK", body, kind="text/html"))
    assert said in str(caught.value)
    assert "check that the address serves this protocol" in str(caught.value)


@pytest.mark.parametrize(
    ("error", "kind", "status"),
    [
        ({"message": "slow down", "type": "rate_limit_error"}, RateLimitError, 429),
        ({"message": "slow down", "code": 429}, RateLimitError, 429),
        ({"message": "slow down", "code": "429"}, RateLimitError, 429),
        ({"message": "slow down", "code": "rate_limit_exceeded"}, RateLimitError, 429),
        ({"message": "no", "code": 502, "metadata": {}}, ServerError, 502),
        ({"message": "no", "type": "server_error"}, ServerError, 500),
        ({"message": "no", "type": "overloaded_error"}, ServerError, 529),
        ({"message": "no", "type": "invalid_request_error"}, BadRequestError, 400),
        ({"message": "no", "code": "context_length_exceeded"}, BadRequestError, 400),
        ({"message": "no", "code": "invalid_api_key"}, AuthenticationError, 401),
        ("it broke", ServerError, 500),
        ({}, None, 0),
    ],
)
async def test_an_error_inside_the_stream_is_typed(
    error: Any, kind: type[ModelError] | None, status: int
):
    if kind is None:
        reply, _ = await read_chunks({"error": error}, delta(content="x"), STOP)
        assert reply.message.text == "x"
        return
    caught = await error_of(delta(content="half"), {"error": error})
    assert type(caught) is kind
    assert caught.status == status
    assert caught.usage is None
    expected = error if isinstance(error, str) else error["message"]
    assert expected in str(caught)


async def test_an_error_object_on_a_choice_or_as_finish_reason_is_typed():
    on_choice = {"choices": [{"delta": {}, "error": {"code": 502, "message": "upstream died"}}]}
    assert "upstream died" in str(await error_of(on_choice))
    assert type(await error_of(delta(content="x"), delta("error"))) is ServerError


@pytest.mark.parametrize(
    "error",
    [
        {"object": "error", "message": "it is full", "code": 400},
        {"message": "it is full", "type": "invalid_request_error"},
        {"detail": [{"msg": "it is full"}], "code": 400},
    ],
)
async def test_an_error_without_the_usual_frame_is_typed(error: Any):
    caught = await error_of(delta(content="x"), error)
    assert type(caught) is BadRequestError
    assert "it is full" in str(caught)


async def test_gemini_sends_errors_in_a_list():
    body = json.dumps([{"error": {"code": 429, "message": "quota", "status": "X"}}]).encode()
    with pytest.raises(RateLimitError, match="quota"):
        await read(*answer("200 OK", body))
    with pytest.raises(RateLimitError, match="quota"):
        await read(*answer("429 Too Many Requests", body))
