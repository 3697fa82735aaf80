"""The Anthropic wire: what it sends, and what it reads."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.models.raw_server import answer, chunked, raw_server, sse
from untildone import Agent, run_agent
from untildone.domain.errors import (
    BadReplyError,
    BadRequestError,
    ConfigError,
    ModelError,
    RateLimitError,
    ServerError,
)
from untildone.domain.messages import Message, ToolCall, messages_from_dicts, user_message
from untildone.domain.requests import Delta, ModelReply, ModelRequest, TextDelta, ThinkingDelta
from untildone.domain.tools import ToolSpec, ToolSpecs
from untildone.domain.usage import Usage
from untildone.models.anthropic_messages import AnthropicModel

HI = [user_message("hi")]
HELLO = ModelRequest(messages=HI)
MARK = {"cache_control": {"type": "ephemeral"}}


def text_block(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": text, **more}


# ── Events ───────────────────────────────────────────────────────────────────────────────────────


def begin(**usage: Any) -> dict[str, Any]:
    message = {"id": "msg_1", "model": "claude-x-1", "usage": usage}
    return {"type": "message_start", "message": message}


def block(index: int, **form: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": form}


def piece(index: int, kind: str, **fields: Any) -> dict[str, Any]:
    delta = {"type": kind, **fields}
    return {"type": "content_block_delta", "index": index, "delta": delta}


def finish(reason: str | None, **usage: Any) -> dict[str, Any]:
    return {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage}


STOP = {"type": "message_stop"}
GOOD = chunked(
    sse(
        begin(input_tokens=3),
        block(0, type="text", text=""),
        piece(0, "text_delta", text="x"),
        finish("end_turn", output_tokens=1),
        STOP,
    )
)


async def read(*acts: Any) -> tuple[ModelReply, list[Delta]]:
    seen: list[Delta] = []

    async def sink(delta: Delta) -> None:
        seen.append(delta)

    async with raw_server(acts) as server:
        model = AnthropicModel("claude-x", base_url=server.url, api_key="k")
        return await model.generate(HELLO, sink), seen


async def read_events(*events: Any) -> tuple[ModelReply, list[Delta]]:
    return await read(*chunked(sse(*events)))


async def sent(request: ModelRequest, **settings: Any) -> dict[str, Any]:
    async with raw_server(GOOD) as server:
        model = AnthropicModel("claude-x", base_url=server.url, api_key="k", **settings)
        await model.generate(request)
        return server.body()


async def turns(*messages: Message) -> list[dict[str, Any]]:
    body = await sent(ModelRequest(messages=messages), cache=False)
    return body["messages"]


# ── Reading ──────────────────────────────────────────────────────────────────────────────────────


async def test_text_and_calls_are_read():
    reply, seen = await read_events(
        begin(input_tokens=10, output_tokens=1),
        {"type": "ping"},
        block(0, type="text", text=""),
        piece(0, "text_delta", text="Let me "),
        piece(0, "text_delta", text="see."),
        {"type": "content_block_stop", "index": 0},
        block(1, type="tool_use", id="t1", name="f", input={}),
        piece(1, "input_json_delta", partial_json=""),
        piece(1, "input_json_delta", partial_json='{"a": '),
        piece(1, "input_json_delta", partial_json="1}"),
        {"type": "content_block_stop", "index": 1},
        block(2, type="tool_use", id="t2", name="g", input={}),
        {"type": "content_block_stop", "index": 2},
        {"type": "something_new", "x": 1},
        finish("tool_use", output_tokens=20),
        STOP,
    )
    assert seen == [TextDelta("Let me "), TextDelta("see.")]
    assert reply.message.content == "Let me see."
    assert reply.message.tool_calls == (ToolCall("t1", "f", '{"a": 1}'), ToolCall("t2", "g", "{}"))
    assert reply.message.extra is None
    assert reply.finish_reason == "tool_calls"
    assert reply.usage == Usage(input_tokens=10, output_tokens=20)
    assert reply.model == "claude-x-1"
    assert reply.request_id == "msg_1"


@pytest.mark.parametrize(
    ("stop_reason", "finish_reason"),
    [
        ("end_turn", "stop"),
        ("tool_use", "tool_calls"),
        ("max_tokens", "length"),
        ("refusal", "content_filter"),
        ("stop_sequence", "stop_sequence"),
        ("pause_turn", "pause_turn"),
        ("model_context_window_exceeded", "length"),
    ],
)
async def test_stop_reasons_are_told_in_the_words_of_the_field(
    stop_reason: str, finish_reason: str
):
    reply, _ = await read_events(begin(input_tokens=1), finish(stop_reason, output_tokens=1), STOP)
    assert reply.finish_reason == finish_reason
    assert reply.message.content == ""


@pytest.mark.parametrize(
    ("at_start", "at_end", "expected"),
    [
        ({"input_tokens": 10, "output_tokens": 1}, {"output_tokens": 7}, (10, 7, 0)),
        (
            {"input_tokens": 10, "cache_creation_input_tokens": 100, "cache_read_input_tokens": 50},
            {"output_tokens": 7},
            (160, 7, 50),
        ),
        (
            {"input_tokens": 10, "cache_read_input_tokens": None},
            {"output_tokens": 7, "input_tokens": 12, "cache_read_input_tokens": 5},
            (17, 7, 5),
        ),
        (
            {"input_tokens": 10, "cache_read_input_tokens": 5, "output_tokens": 1},
            {"output_tokens": 7, "input_tokens": 0, "cache_read_input_tokens": 0},
            (15, 7, 5),
        ),
    ],
)
async def test_cached_tokens_count_as_input_tokens(
    at_start: dict[str, Any], at_end: dict[str, Any], expected: tuple[int, int, int]
):
    reply, _ = await read_events(begin(**at_start), finish("end_turn", **at_end), STOP)
    assert reply.usage is not None
    usage = reply.usage
    assert (usage.input_tokens, usage.output_tokens, usage.cached_tokens) == expected


async def test_without_numbers_usage_is_unknown():
    reply, _ = await read_events(begin(), finish("end_turn"), STOP)
    assert reply.usage is None


async def test_thinking_is_shown_and_goes_back_exactly_as_it_came():
    reply, seen = await read_events(
        begin(input_tokens=1),
        block(0, type="thinking", thinking="", signature=""),
        piece(0, "thinking_delta", thinking="h"),
        piece(0, "thinking_delta", thinking="m"),
        piece(0, "signature_delta", signature="sig/1=="),
        block(1, type="redacted_thinking", data="xyz"),
        block(2, type="text", text=""),
        piece(2, "text_delta", text="So "),
        block(3, type="thinking", thinking="", signature=""),
        piece(3, "signature_delta", signature="sig/2=="),
        block(4, type="tool_use", id="t1", name="f", input={}),
        piece(4, "input_json_delta", partial_json='{"a":1}'),
        finish("tool_use", output_tokens=9),
        STOP,
    )
    assert seen == [ThinkingDelta("h"), ThinkingDelta("m"), TextDelta("So ")]
    assert reply.message.text == "So "
    assert reply.message.tool_calls == (ToolCall("t1", "f", '{"a":1}'),)
    verbatim = [
        {"type": "thinking", "thinking": "hm", "signature": "sig/1=="},
        {"type": "redacted_thinking", "data": "xyz"},
        text_block("So "),
        {"type": "thinking", "thinking": "", "signature": "sig/2=="},
        {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}},
    ]
    again = messages_from_dicts([reply.message.to_dict()])[0]
    for message in (reply.message, again):
        assert await turns(*HI, message, Message("tool", "ok", (), "t1")) == [
            {"role": "user", "content": [text_block("hi")]},
            {"role": "assistant", "content": verbatim},
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "t1", "content": [text_block("ok")]}
                ],
            },
        ]


@pytest.mark.parametrize("index", [{}, {"index": 0}])
async def test_blocks_without_an_index_of_their_own_follow_each_other(index: dict[str, int]):
    reply, seen = await read_events(
        begin(input_tokens=1),
        *(
            {"type": kind, **index, **fields}
            for text in "AB"
            for kind, fields in (
                ("content_block_start", {"content_block": {"type": "text", "text": text}}),
                ("content_block_delta", {"delta": {"type": "text_delta", "text": "!"}}),
            )
        ),
        finish("end_turn", output_tokens=1),
        STOP,
    )
    assert reply.message.content == "A!B!"
    assert "".join(piece.text for piece in seen if isinstance(piece, TextDelta)) == "A!B!"


async def test_a_surrogate_pair_cut_between_two_pieces_is_joined():
    reply, seen = await read_events(
        begin(input_tokens=1),
        block(0, type="thinking", thinking="", signature=""),
        piece(0, "thinking_delta", thinking="\ud83d"),
        piece(0, "thinking_delta", thinking="\ude00"),
        block(1, type="text", text=""),
        piece(1, "text_delta", text="a\ud83d"),
        piece(1, "text_delta", text="\ude00b\ud83d"),
        piece(1, "text_delta", text="c"),
        finish("end_turn", output_tokens=1),
        STOP,
    )
    assert reply.message.content == "a😀b\ufffdc"
    assert "".join(piece.text for piece in seen if isinstance(piece, TextDelta)) == "a😀b\ufffdc"
    assert reply.message.extra is not None
    assert reply.message.extra["anthropic_content"][0]["thinking"] == "😀"


@pytest.mark.parametrize(
    ("stop_reason", "said"),
    [
        ("max_tokens", "cut off by the token limit"),
        ("model_context_window_exceeded", "cut off by the token limit"),
        ("refusal", "content filter stopped the reply"),
        ("pause_turn", "There are no arguments"),
    ],
)
@pytest.mark.parametrize("is_streamed", [True, False])
async def test_a_call_cut_before_its_arguments_never_runs_with_defaults(
    stop_reason: str, said: str, is_streamed: bool
):
    ran: list[str] = []

    def wipe(path: str = "/") -> None:
        """Wipes."""
        ran.append(path)

    call = {"type": "tool_use", "id": "t", "name": "wipe", "input": {}}
    cut = chunked(sse(begin(), block(0, **call), finish(stop_reason, output_tokens=1), STOP))
    if not is_streamed:
        cut = answer("200 OK", json.dumps({"content": [call], "stop_reason": stop_reason}).encode())
    async with raw_server(cut, GOOD) as server:
        agent = Agent("a", AnthropicModel("c", base_url=server.url, api_key="k"), tools=[wipe])
        result = await run_agent(agent, [{"role": "user", "content": "q"}])
    assert ran == []
    assert said in result.tool_calls[0]["result"]


async def test_a_whole_call_with_an_empty_input_runs_with_defaults():
    """Claude sends no piece of it where it wants no argument."""
    ran: list[str] = []

    def look(path: str = ".") -> None:
        """Looks."""
        ran.append(path)

    call = block(0, type="tool_use", id="t", name="look", input={})
    whole = chunked(
        sse(
            begin(),
            call,
            piece(0, "input_json_delta", partial_json=""),
            finish("tool_use", output_tokens=1),
            STOP,
        )
    )
    async with raw_server(whole, GOOD) as server:
        agent = Agent("a", AnthropicModel("c", base_url=server.url, api_key="k"), tools=[look])
        await run_agent(agent, [{"role": "user", "content": "q"}])
    assert ran == ["."]


async def test_citations_are_kept():
    cited = {"type": "char_location", "cited_text": "c"}
    reply, _ = await read_events(
        begin(input_tokens=1),
        block(0, type="text", text="", citations=[]),
        piece(0, "text_delta", text="t"),
        piece(0, "citations_delta", citation=cited),
        finish("end_turn"),
        STOP,
    )
    assert reply.message.extra == {"anthropic_content": [text_block("t", citations=[cited])]}


async def test_a_reply_that_is_not_streamed_is_read_too():
    body = json.dumps(
        {
            "id": "msg_2",
            "type": "message",
            "model": "claude-y",
            "content": [
                text_block("hello"),
                {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": [1]}},
            ],
            "stop_reason": "tool_use",
            "usage": {"input_tokens": 2, "output_tokens": 3},
        }
    ).encode()
    reply, seen = await read(*answer("200 OK", body))
    assert seen == [TextDelta("hello")]
    assert reply.message.content == "hello"
    assert reply.message.tool_calls == (ToolCall("t1", "f", '{"a": [1]}'),)
    assert reply.finish_reason == "tool_calls"
    assert reply.usage == Usage(input_tokens=2, output_tokens=3)


async def test_each_call_has_an_id_of_its_own():
    reply, _ = await read_events(
        begin(input_tokens=1),
        block(0, type="tool_use", id="same", name="f", input={}),
        block(1, type="tool_use", id="same", name="f", input={}),
        block(2, type="tool_use", id="", name="f", input={}),
        finish("tool_use"),
        STOP,
    )
    ids = [call.id for call in reply.message.tool_calls]
    assert ids[0] == "same"
    assert len(set(ids)) == 3
    assert all(ids)


async def error_of(*events: Any) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await read_events(*events)
    return caught.value


@pytest.mark.parametrize(
    ("kind", "error_type", "status"),
    [
        ("overloaded_error", ServerError, 529),
        ("rate_limit_error", RateLimitError, 429),
        ("api_error", ServerError, 500),
        ("invalid_request_error", BadRequestError, 400),
    ],
)
async def test_an_error_event_is_typed(kind: str, error_type: type[ModelError], status: int):
    error = await error_of(
        begin(input_tokens=1), {"type": "error", "error": {"type": kind, "message": "sorry"}}
    )
    assert type(error) is error_type
    assert error.status == status
    assert "sorry" in str(error)


async def test_a_stream_without_its_end_is_an_error():
    start = [begin(input_tokens=1), block(0, type="text"), piece(0, "text_delta", text="x")]
    assert "without a stop reason" in str(await error_of(*start))
    assert "without a stop reason" in str(await error_of(*start, STOP))
    error = await error_of(*start, finish("end_turn", output_tokens=1))
    assert "without message_stop" in str(error)
    assert type(error) is BadReplyError


@pytest.mark.parametrize("junk", ["{oops", piece(7, "text_delta", text="x")])
async def test_a_malformed_event_is_an_error(junk: Any):
    assert type(await error_of(begin(), junk, finish("end_turn"), STOP)) is BadReplyError


@pytest.mark.parametrize("odd", ["7", "null", "[]", {"type": None}, {"type": "message_delta"}])
async def test_events_of_unknown_form_are_passed_over(odd: Any):
    reply, _ = await read_events(begin(), odd, finish("end_turn"), STOP)
    assert reply.finish_reason == "stop"


# ── Asking ───────────────────────────────────────────────────────────────────────────────────────

TOOLS = ToolSpecs(
    [
        ToolSpec(name="f", description="does f", parameters={"type": "object"}),
        ToolSpec(name="g", description="does g", parameters={}),
    ]
)


async def test_a_full_request_has_the_protocols_form_and_cache_marks():
    request = ModelRequest(
        messages=[
            Message("system", "be brief"),
            Message("developer", "and kind"),
            *HI,
            Message("assistant", "ok", (ToolCall("1", "f", '{"a":1}'),)),
            Message("tool", "r1", (), "1"),
        ],
        tools=TOOLS,
        temperature=0.5,
        max_tokens=7,
        extra_params={"thinking": {"type": "adaptive"}, "top_k": 3, "tool_choice": "required"},
    )
    assert await sent(request) == {
        "model": "claude-x",
        "max_tokens": 7,
        "temperature": 0.5,
        "thinking": {"type": "adaptive"},
        "top_k": 3,
        "tool_choice": {"type": "any"},
        "stream": True,
        "tools": [
            {"name": "f", "description": "does f", "input_schema": {"type": "object"}},
            {"name": "g", "description": "does g", "input_schema": {"type": "object"}, **MARK},
        ],
        "system": [text_block("be brief"), text_block("and kind", **MARK)],
        "messages": [
            {"role": "user", "content": [text_block("hi")]},
            {
                "role": "assistant",
                "content": [
                    text_block("ok"),
                    {"type": "tool_use", "id": "1", "name": "f", "input": {"a": 1}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "1",
                        "content": [text_block("r1")],
                        **MARK,
                    }
                ],
            },
        ],
    }


async def test_the_head_names_key_and_version():
    async with raw_server(GOOD) as server:
        model = AnthropicModel(
            "c", base_url=server.url, api_key=" k-1 ", headers={"anthropic-beta": "b1"}
        )
        await model.generate(HELLO)
        lines = {line.lower() for line in server.requests[0].split(b"\r\n")}
    assert b"post /v1/messages http/1.1" in lines
    assert {b"x-api-key: k-1", b"anthropic-version: 2023-06-01", b"anthropic-beta: b1"} <= lines


async def test_without_a_limit_there_is_a_number_of_tokens():
    body = await sent(HELLO, cache=False)
    assert body == {
        "model": "claude-x",
        "max_tokens": 16384,
        "stream": True,
        "messages": [{"role": "user", "content": [text_block("hi")]}],
    }
    old = AnthropicModel("claude-3-haiku", api_key="k")
    assert json.loads(old._body(HELLO, schema_as_text=False))["max_tokens"] == 4096


async def test_neighbours_of_one_role_become_one_message():
    calls = (ToolCall("1", "f", "{}"), ToolCall("2", "g", "{}"))
    found = await turns(
        user_message("a"),
        user_message("b"),
        Message("assistant", None, calls),
        Message("tool", "r1", (), "1"),
        Message("tool", "boom", (), "2", is_error=True),
        user_message("you repeat yourself"),
        Message("assistant", "c"),
        Message("assistant", "d"),
    )
    assert found == [
        {"role": "user", "content": [text_block("a"), text_block("b")]},
        {
            "role": "assistant",
            "content": [
                {"type": "tool_use", "id": "1", "name": "f", "input": {}},
                {"type": "tool_use", "id": "2", "name": "g", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "1", "content": [text_block("r1")]},
                {
                    "type": "tool_result",
                    "tool_use_id": "2",
                    "content": [text_block("boom")],
                    "is_error": True,
                },
                text_block("you repeat yourself"),
            ],
        },
        {"role": "assistant", "content": [text_block("c"), text_block("d")]},
    ]


async def test_a_system_message_in_the_middle_stays_at_its_place_as_user_text():
    found = await turns(*HI, Message("assistant", "yes"), Message("system", "now hurry"))
    assert found[-1] == {"role": "user", "content": [text_block("now hurry")]}


async def test_images_and_documents_become_the_protocols_blocks():
    parts: list[dict[str, Any]] = [
        {"type": "text", "text": "what is it?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        {"type": "image_url", "image_url": {"url": "https://x.example/a.png", "detail": "low"}},
        {
            "type": "file",
            "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,BBBB"},
        },
        {"type": "file", "file": {"file_id": "f2"}},
        {"type": "image_url", "image_url": {"url": "DATA:image/png;name=a.png;BASE64,CCCC"}},
        {"type": "image", "source": {"type": "file", "file_id": "f1"}},
        {"type": "text", "text": "  "},
    ]
    expected = [
        text_block("what is it?"),
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
        {"type": "image", "source": {"type": "url", "url": "https://x.example/a.png"}},
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": "BBBB"},
            "title": "a.pdf",
        },
        {"type": "document", "source": {"type": "file", "file_id": "f2"}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "CCCC"}},
        {"type": "image", "source": {"type": "file", "file_id": "f1"}},
    ]
    assert (await turns(Message("user", parts)))[0]["content"] == expected
    found = await turns(
        *HI,
        Message("assistant", None, (ToolCall("1", "f", "{}"),)),
        Message("tool", parts, (), "1"),
    )
    assert found[-1]["content"][0]["content"] == expected


async def test_empty_text_is_never_sent():
    found = await turns(*HI, Message("assistant", ""), user_message(" \n"), user_message("go on"))
    assert found == [{"role": "user", "content": [text_block("hi"), text_block("go on")]}]


async def test_calls_of_other_providers_fit_the_protocol():
    calls = (ToolCall("a|b:1", "f", "[1]"), ToolCall("", "g", "{cut"), ToolCall("3", "h", ""))
    found = await turns(
        *HI,
        Message("assistant", None, calls, extra={"reasoning_content": "r", "refusal": "no"}),
        Message("tool", "x", (), "a|b:1"),
    )
    assert found[1]["content"] == [
        {
            "type": "tool_use",
            "id": "a_b_1_f3214fb6",
            "name": "f",
            "input": {"unreadable_arguments": "[1]"},
        },
        {
            "type": "tool_use",
            "id": "call",
            "name": "g",
            "input": {"unreadable_arguments": "{cut"},
        },
        {"type": "tool_use", "id": "3", "name": "h", "input": {}},
    ]
    assert found[2]["content"][0]["tool_use_id"] == "a_b_1_f3214fb6"


async def test_ids_that_this_protocol_cannot_tell_apart_stay_two():
    calls = tuple(ToolCall(name, "f", "{}") for name in ("a.b", "a:b", "a_b"))
    answers = [Message("tool", "x", (), call.id) for call in calls]
    found = await turns(*HI, Message("assistant", None, calls), *answers)
    ids = [each["id"] for each in found[1]["content"]]
    assert len(set(ids)) == 3
    assert ids[2] == "a_b"
    assert [each["tool_use_id"] for each in found[2]["content"]] == ids


async def test_who_marks_the_cache_gets_no_marks_beside_their_own():
    own = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
    tools = ToolSpecs([ToolSpec(name="f", description="", parameters={})])
    marked = Message("user", [text_block("x", **own)])
    body = await sent(
        ModelRequest(messages=[Message("system", "s"), marked, user_message("y")], tools=tools)
    )
    assert body["messages"][0]["content"] == [text_block("x", **own), text_block("y")]
    assert json.dumps(body).count("cache_control") == 1


async def test_lone_surrogates_in_any_place_do_not_stop_a_request():
    bad = "a\ud800b"
    body = await sent(
        ModelRequest(
            messages=[
                Message("system", bad),
                user_message(bad),
                Message("assistant", None, (ToolCall("1", "f", json.dumps({"x": bad})),)),
                Message("tool", bad, (), "1"),
            ],
            tools=ToolSpecs([ToolSpec(name="f", description=bad, parameters={})]),
        )
    )
    assert body["system"][0]["text"] == "a?b"


async def test_the_history_is_encoded_once_and_marks_do_not_stay_in_it():
    model = AnthropicModel("c", api_key="k")
    messages = list(HI)
    first = model._body(ModelRequest(messages=messages), schema_as_text=False)
    messages += [Message("assistant", "x"), user_message("more")]
    second = model._body(ModelRequest(messages=messages), schema_as_text=False)
    assert first.count(b"cache_control") == 1
    assert second.count(b"cache_control") == 1
    assert json.loads(second)["messages"][-1]["content"] == [text_block("more", **MARK)]


@pytest.mark.parametrize("key", ["messages", "system"])
async def test_messages_in_extra_params_are_refused(key: str):
    with pytest.raises(ConfigError, match=f"extra_params holds '{key}'"):
        await sent(ModelRequest(messages=HI, extra_params={key: []}))


async def test_extra_params_win_and_none_leaves_a_field_out():
    body = await sent(
        ModelRequest(
            messages=HI,
            tools=TOOLS,
            temperature=1,
            extra_params={"temperature": None, "stream": False, "tools": []},
        )
    )
    assert "temperature" not in body
    assert body["stream"] is True
    assert body["tools"] == []


SCHEMA = {
    "type": "object",
    "description": "d",
    "properties": {
        "score": {"type": "number", "minimum": 0, "maximum": 1},
        "tags": {"type": "array", "items": {"type": "object", "properties": {}}, "maxItems": 3},
    },
    "required": ["score"],
}


async def test_a_schema_is_asked_for_as_output_config_in_the_form_the_protocol_takes():
    request = ModelRequest(
        messages=HI, json_schema=SCHEMA, extra_params={"output_config": {"effort": "low"}}
    )
    assert (await sent(request))["output_config"] == {
        "effort": "low",
        "format": {
            "type": "json_schema",
            "schema": {
                "type": "object",
                "description": "d",
                "properties": {
                    "score": {"type": "number", "description": "(minimum: 0, maximum: 1)"},
                    "tags": {
                        "type": "array",
                        "description": "(maxItems: 3)",
                        "items": {
                            "type": "object",
                            "properties": {},
                            "additionalProperties": False,
                        },
                    },
                },
                "required": ["score"],
                "additionalProperties": False,
            },
        },
    }


async def test_a_model_that_refuses_schemas_gets_it_as_text_from_then_on():
    refused = answer("400 Bad Request", b'{"error":{"message":"output_config: no"}}')
    ask = ModelRequest(messages=HI, json_schema={"type": "object"})
    async with raw_server(refused, GOOD) as server:
        model = AnthropicModel("c", base_url=server.url, api_key="k")
        await model.generate(ask)
        await model.generate(ask)
        assert ["output_config" in server.body(i) for i in range(3)] == [True, False, False]
        assert server.body()["messages"][0]["content"][0]["text"] == (
            "hi\n\nReply with one JSON object and nothing else, no code fence. It must fit this"
            ' JSON Schema:\n{"type":"object"}'
        )
        other = {"type": "object", "title": "another"}
        await model.generate(ModelRequest(messages=HI, json_schema=other))
        assert "output_config" in server.body()
    async with raw_server(refused) as server:
        model = AnthropicModel("c", base_url=server.url, api_key="k")
        with pytest.raises(BadRequestError, match="output_config: no"):
            await model.generate(ask)
        assert len(server.requests) == 2
    for no_reply in (
        answer("400 Bad Request", b'{"error":{"message":"prompt is too long: 200001 tokens"}}'),
        chunked(
            sse(
                begin(),
                block(0, type="text", text="{"),
                {"type": "error", "error": {"type": "invalid_request_error", "message": "schema"}},
            )
        ),
    ):
        async with raw_server(no_reply) as server:
            model = AnthropicModel("c", base_url=server.url, api_key="k")
            with pytest.raises(BadRequestError):
                await model.generate(ask)
            assert len(server.requests) == 1


@pytest.mark.parametrize("path", ["/v1", ""])
async def test_a_query_of_the_base_url_stays_at_the_end(path: str):
    async with raw_server(GOOD) as server:
        address = f"{server.url.removesuffix('/v1')}{path}?api-version=1"
        await AnthropicModel("claude-x", base_url=address).generate(HELLO)
        first_line = server.requests[0].partition(b"\r\n")[0]
    assert first_line == b"POST /v1/messages?api-version=1 HTTP/1.1"
