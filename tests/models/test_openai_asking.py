"""What the OpenAI wire sends."""

from __future__ import annotations

import copy
import json
import time
from typing import Any

import pytest
from pydantic import BaseModel

from tests.models.raw_server import RawServer, answer, chunked, delta, raw_server, sse
from untildone import Agent, run_agent
from untildone.domain.errors import BadReplyError, BadRequestError, ConfigError
from untildone.domain.log import ModelCallFailed, ModelCallStarted
from untildone.domain.messages import Message, ToolCall, messages_from_dicts, user_message
from untildone.domain.requests import ModelRequest
from untildone.domain.tools import ToolSpec, ToolSpecs
from untildone.models.openai_chat import OpenAIChatModel
from untildone.models.schemas import SchemaForms
from untildone.testing import EventLog

OK = chunked(sse(delta(content="x"), delta("stop"), "[DONE]"))
TOOLS = ToolSpecs([ToolSpec(name="f", description="does f", parameters={"type": "object"})])
HI = [user_message("hi")]
SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
    "additionalProperties": False,
}


async def sent(request: ModelRequest, **settings: Any) -> dict[str, Any]:
    async with raw_server(OK) as server:
        await OpenAIChatModel("m", base_url=server.url, **settings).generate(request)
        return server.body()


async def test_a_plain_request_holds_model_messages_and_streaming_only():
    assert await sent(ModelRequest(messages=HI)) == {
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": [{"role": "user", "content": "hi"}],
    }


async def test_a_full_request_holds_everything_in_openai_form():
    history: list[dict[str, Any]] = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "ü😀"}], "name": "ann"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
            ],
        },
        {"role": "tool", "content": "42", "tool_call_id": "1"},
    ]
    request = ModelRequest(
        messages=messages_from_dicts(history),
        tools=TOOLS,
        temperature=0,
        max_tokens=7,
        extra_params={"seed": 3},
    )
    assert await sent(request) == {
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0,
        "max_tokens": 7,
        "seed": 3,
        "messages": history,
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "f",
                    "description": "does f",
                    "parameters": {"type": "object"},
                },
            }
        ],
    }


async def test_the_head_names_key_and_type_and_asks_for_no_compression():
    async with raw_server(OK) as server:
        model = OpenAIChatModel(
            "m", base_url=server.url + "/", api_key=" sk-1\n", headers={"X-Team": "blue"}
        )
        await model.generate(ModelRequest(messages=HI))
        head = server.requests[0].partition(b"\r\n\r\n")[0].decode()
    assert head.startswith("POST /v1/chat/completions HTTP/1.1\r\n")
    lines = {line.lower() for line in head.split("\r\n")}
    assert {
        "authorization: bearer sk-1",
        "content-type: application/json",
        "accept-encoding: identity",
        "x-team: blue",
    } <= lines


async def test_without_a_key_there_is_no_authorization():
    async with raw_server(OK) as server:
        await OpenAIChatModel("m", base_url=server.url).generate(ModelRequest(messages=HI))
        assert b"authorization" not in server.requests[0].lower()


async def test_extra_params_win_except_over_streaming():
    request = ModelRequest(
        messages=HI,
        tools=TOOLS,
        temperature=1.0,
        max_tokens=7,
        extra_params={
            "model": "other",
            "temperature": 0.5,
            "tools": [],
            "stream": False,
            "stream_options": None,
            "max_tokens": None,
        },
    )
    assert await sent(request) == {
        "model": "other",
        "stream": True,
        "temperature": 0.5,
        "tools": [],
        "messages": [{"role": "user", "content": "hi"}],
    }


async def test_every_field_left_out_still_leaves_a_request():
    request = ModelRequest(messages=HI, extra_params={"model": None, "stream_options": None})
    assert await sent(request) == {
        "stream": True,
        "messages": [{"role": "user", "content": "hi"}],
    }


async def test_messages_in_extra_params_are_refused():
    with pytest.raises(ConfigError, match="extra_params holds 'messages'"):
        await sent(ModelRequest(messages=HI, extra_params={"messages": []}))


@pytest.mark.parametrize("value", [{1, 2}, object(), float("nan"), b"x"])
async def test_values_without_a_json_form_are_a_config_error(value: object):
    with pytest.raises(ConfigError, match="no JSON form") as caught:
        await sent(ModelRequest(messages=HI, extra_params={"x": value}))
    assert "extra_params" in str(caught.value)
    with pytest.raises(ConfigError, match="no JSON form"):
        await sent(ModelRequest(messages=[Message("user", [{"type": "text", "text": {1}}])]))


async def test_openai_itself_is_asked_for_completion_tokens():
    def model(url: str) -> OpenAIChatModel:
        return OpenAIChatModel("m", base_url=url)

    request = ModelRequest(messages=HI, max_tokens=5)
    openai = json.loads(model("https://api.openai.com/v1")._body(request, 0))
    assert (openai.get("max_completion_tokens"), openai.get("max_tokens")) == (5, None)
    other = json.loads(model("http://localhost/v1")._body(request, 0))
    assert (other.get("max_completion_tokens"), other.get("max_tokens")) == (None, 5)


async def test_lone_surrogates_in_any_place_do_not_stop_a_request():
    bad = "a\ud800b"
    request = ModelRequest(
        messages=[
            Message("system", bad),
            Message("user", [{"type": "text", "text": bad}]),
            Message("assistant", None, (ToolCall(bad, bad, bad),)),
            Message("tool", bad, (), bad),
        ],
        tools=ToolSpecs([ToolSpec(name="f", description=bad, parameters={"title": bad})]),
        json_schema={"title": bad},
        schema_name=bad,
        extra_params={"user": bad},
    )
    body = await sent(request)
    assert body["messages"][0]["content"] == "a?b"
    assert body["user"] == "a?b"


async def test_reasoning_of_one_provider_is_not_sent_to_another():
    reasoning = {
        "reasoning_content": "r",
        "reasoning_details": [{"text": "d"}],
        "anthropic_content": [{"type": "thinking"}],
        "refusal": "no",
    }
    call = ToolCall("1", "f", "{}", {"extra_content": {"google": {"thought_signature": "s"}}})
    message = Message("assistant", "t", (call,), extra={**reasoning, "name": "bob"})
    plain_call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    plain = {"role": "assistant", "content": "t", "name": "bob", "tool_calls": [plain_call]}
    request = ModelRequest(messages=[message])
    before = copy.deepcopy(message.to_dict())

    assert (await sent(request))["messages"] == [plain]
    deepseek = await sent(request, sends_back=("reasoning_content",))
    assert deepseek["messages"] == [{**plain, "reasoning_content": "r"}]
    gemini = await sent(request, keeps_call_extras=True)
    assert gemini["messages"][0]["tool_calls"] == [{**plain_call, **(call.extra or {})}]
    assert message.to_dict() == before


async def test_only_openai_is_told_of_developers():
    request = ModelRequest(messages=[Message("developer", "x")])
    assert (await sent(request))["messages"] == [{"role": "system", "content": "x"}]
    openai = OpenAIChatModel("m", base_url="https://api.openai.com/v1")
    assert json.loads(openai._body(request, 0))["messages"] == [
        {"role": "developer", "content": "x"}
    ]


async def test_whether_a_tool_failed_is_not_sent():
    body = await sent(ModelRequest(messages=[Message("tool", "x", (), "1", is_error=True)]))
    assert body["messages"] == [{"role": "tool", "content": "x", "tool_call_id": "1"}]


def test_the_history_is_encoded_once():
    model = OpenAIChatModel("m", base_url="http://localhost/v1")
    call = ToolCall("1", "f", '{"a": 1}')
    messages = [
        message
        for _ in range(500)
        for message in (Message("assistant", None, (call,)), Message("tool", "r" * 200, (), "1"))
    ]
    request = ModelRequest(messages=messages, tools=TOOLS)
    first = model._body(request, 0)
    started = time.process_time()
    for _ in range(20):
        assert model._body(request, 0) == first
    each_ms = (time.process_time() - started) / 20 * 1000
    assert each_ms < 1.5  # encoding 1,000 messages anew costs about 6


# ── Structured output ────────────────────────────────────────────────────────────────────────────

ASK = ModelRequest(messages=HI, json_schema=SCHEMA, schema_name="my schema!")
REFUSED = answer("400 Bad Request", b'{"error":{"message":"response_format is not supported"}}')
HINTED = (
    "hi\n\nReply with one JSON object and nothing else, no code fence. It must fit this JSON"
    f" Schema:\n{json.dumps(SCHEMA, separators=(',', ':'))}"
)


async def test_a_schema_is_asked_for_as_response_format():
    body = await sent(ASK)
    assert body["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "my_schema_", "schema": SCHEMA, "strict": True},
    }
    assert body["messages"] == [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        (SCHEMA, True),
        ({**SCHEMA, "required": []}, False),
        ({**SCHEMA, "additionalProperties": True}, False),
        ({"type": "object"}, False),
        ({"type": "array", "items": SCHEMA}, True),
        ({"type": "array", "items": {"type": "object", "properties": {}}}, False),
        ({"$defs": {"x": SCHEMA}, "anyOf": [{"$ref": "#/$defs/x"}, {"type": "null"}]}, True),
        ({"$defs": {"x": {"type": "object", "properties": {"a": {}}}}}, False),
        ({**SCHEMA, "properties": {"n": {"type": "object", "properties": {"a": {}}}}}, False),
    ],
)
async def test_strict_is_asked_for_only_where_the_schema_allows_it(
    schema: dict[str, Any], strict: bool
):
    body = await sent(ModelRequest(messages=HI, json_schema=schema))
    assert body["response_format"]["json_schema"]["strict"] is strict


async def form_of(server: RawServer, index: int) -> tuple[str | None, list[Any]]:
    body = server.body(index)
    return body.get("response_format", {}).get("type"), body["messages"]


async def test_a_server_that_refuses_schemas_is_asked_in_weaker_forms_which_are_remembered():
    plain, hinted = [{"role": "user", "content": "hi"}], [{"role": "user", "content": HINTED}]
    async with raw_server(REFUSED, OK) as server:
        model = OpenAIChatModel("m", base_url=server.url)
        await model.generate(ASK)
        await model.generate(ASK)
        forms = [await form_of(server, i) for i in range(len(server.requests))]
    assert forms == [("json_schema", plain), ("json_object", hinted), ("json_object", hinted)]

    async with raw_server(REFUSED, REFUSED, OK) as server:
        model = OpenAIChatModel("m", base_url=server.url)
        await model.generate(ASK)
        await model.generate(ASK)
        await model.generate(ModelRequest(messages=HI))
        forms = [await form_of(server, i) for i in range(len(server.requests))]
    assert forms == [
        ("json_schema", plain),
        ("json_object", hinted),
        (None, hinted),
        (None, hinted),
        (None, plain),
    ]


async def test_a_request_refused_in_every_form_gives_the_first_refusal_and_changes_nothing():
    other = answer("400 Bad Request", b'{"error":{"message":"no json_object, no schema"}}')
    async with raw_server(REFUSED, other, other, OK) as server:
        model = OpenAIChatModel("m", base_url=server.url)
        with pytest.raises(BadRequestError, match="response_format is not supported"):
            await model.generate(ASK)
        await model.generate(ASK)
        assert (await form_of(server, 3))[0] == "json_schema"


async def test_other_refusals_and_requests_without_a_schema_are_not_asked_again():
    async with raw_server(answer("404 Not Found", b"{}")) as server:
        with pytest.raises(BadRequestError):
            await OpenAIChatModel("m", base_url=server.url).generate(ASK)
        assert len(server.requests) == 1
    async with raw_server(REFUSED) as server:
        with pytest.raises(BadRequestError):
            await OpenAIChatModel("m", base_url=server.url).generate(ModelRequest(messages=HI))
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("error", "requests"),
    [
        ({"message": "too long", "code": "context_length_exceeded"}, 1),
        ({"message": "maximum context length is 8192 tokens, response_format included"}, 1),
        ({"message": "temperature must be at most 2"}, 1),
        ({"message": "Invalid schema for function 'f': True is not of type 'object'"}, 1),
        ({"message": "Invalid schema for response_format 'reply'"}, 3),
        ({"message": "json mode cannot be combined with tool/function calling"}, 3),
        ({"message": "The provided JSON schema contains features not supported by xgrammar."}, 3),
    ],
)
async def test_only_a_refusal_of_the_schema_is_asked_again(error: dict[str, str], requests: int):
    refusal = answer("400 Bad Request", json.dumps({"error": error}).encode())
    async with raw_server(refusal) as server:
        with pytest.raises(BadRequestError):
            await OpenAIChatModel("m", base_url=server.url).generate(ASK)
        assert len(server.requests) == requests


async def test_one_refused_schema_says_nothing_about_another():
    other = ModelRequest(messages=HI, json_schema={**SCHEMA, "title": "other"})
    async with raw_server(REFUSED, OK) as server:
        model = OpenAIChatModel("m", base_url=server.url)
        for ask in (ASK, other, ASK):
            await model.generate(ask)
        forms = [(await form_of(server, i))[0] for i in range(len(server.requests))]
    assert forms == ["json_schema", "json_object", "json_schema", "json_object"]


def refusing(form: str) -> list[bytes]:
    return answer("400 Bad Request", json.dumps({"error": {"message": f"no {form}"}}).encode())


async def forms_after(*scripts: Any, schemas: list[dict[str, Any]]) -> list[str | None]:
    """The forms of all requests of one model, one call after the other."""
    async with raw_server(*scripts) as server:
        model = OpenAIChatModel("m", base_url=server.url)
        for schema in schemas:
            await model.generate(ModelRequest(messages=HI, json_schema=schema))
        bodies = [server.body(index) for index in range(len(server.requests))]
    return [body.get("response_format", {}).get("type") for body in bodies]


async def test_a_server_that_knows_no_schemas_is_not_asked_for_each_new_one():
    fresh = [{**SCHEMA, "title": str(number)} for number in range(4)]
    no_schema, no_json = refusing("response_format"), refusing("json_object")
    forms = await forms_after(*[no_schema, no_json, OK] * 2, OK, schemas=fresh)
    assert forms == ["json_schema", "json_object", None] * 2 + [None, None]


async def test_a_server_that_took_one_schema_is_asked_for_each_new_one():
    fresh = [{**SCHEMA, "title": str(number)} for number in range(4)]
    refused = refusing("such json_schema")
    forms = await forms_after(
        *[OK, refused, OK, refused, OK, OK],
        schemas=fresh,
    )
    assert forms == ["json_schema", *["json_schema", "json_object"] * 2, "json_schema"]


async def test_one_schema_is_known_in_any_order_of_its_keys():
    turned = dict(reversed(SCHEMA.items()))
    assert list(turned) != list(SCHEMA)
    forms = await forms_after(refusing("json_schema"), OK, schemas=[SCHEMA, turned])
    assert forms == ["json_schema", "json_object", "json_object"]


async def test_one_reply_that_missed_the_schema_is_no_refusal_of_schemas():
    missed = refusing("luck: Generated JSON does not match the expected schema. Adjust it")
    forms = await forms_after(missed, OK, schemas=[SCHEMA, SCHEMA])
    assert forms == ["json_schema", "json_object", "json_schema"]


async def test_a_reply_that_missed_each_form_can_be_tried_again():
    body = b'{"error":{"message":"Failed to generate JSON","code":"json_validate_failed"}}'
    async with raw_server(answer("400 Bad Request", body)) as server:
        with pytest.raises(BadReplyError, match=r"Failed to generate JSON .*try again"):
            await OpenAIChatModel("m", base_url=server.url).generate(ASK)


async def test_a_prompt_that_is_too_long_is_not_sent_again():
    body = b'{"error":{"message":"prompt is too long: 9 > 8 maximum; structured output"}}'
    async with raw_server(answer("400 Bad Request", body)) as server:
        with pytest.raises(BadRequestError):
            await OpenAIChatModel("m", base_url=server.url).generate(ASK)
        assert len(server.requests) == 1


@pytest.mark.parametrize("base", ["/v1?api-version=2024-12-01", "/v1/?api-version=2024-12-01"])
async def test_a_query_of_the_base_url_stays_at_the_end(base: str):
    async with raw_server(OK) as server:
        address = server.url.removesuffix("/v1") + base
        await OpenAIChatModel("m", base_url=address).generate(ModelRequest(messages=HI))
        first_line = server.requests[0].partition(b"\r\n")[0]
    assert first_line == b"POST /v1/chat/completions?api-version=2024-12-01 HTTP/1.1"


def test_few_schemas_are_remembered():
    forms = SchemaForms()
    forms.note_strongest()
    for number in range(300):
        forms.keep({"title": str(number)}, 1)
    known = [forms.of({"title": str(number)}) for number in range(300)]
    assert known == [0] * 44 + [1] * 256
    assert forms.of({"title": object()}) == 0


class Reply(BaseModel):
    """What the run below is to give."""

    a: int


async def test_a_refusal_after_text_was_shown_is_an_error_and_counted():
    usage = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}
    refusal = {"error": {"message": "response_format unsupported", "code": 400}}
    async with raw_server(chunked(sse(delta(content='{"a":'), usage, refusal)), OK) as server:
        agent = Agent("a", OpenAIChatModel("m", base_url=server.url), response_model=Reply)
        log = EventLog()
        with pytest.raises(BadRequestError, match="response_format unsupported"):
            await run_agent(agent, [{"role": "user", "content": "q"}], log=log)
        assert len(server.requests) == 1
    kinds = [type(event) for event in log.events]
    assert (kinds.count(ModelCallStarted), kinds.count(ModelCallFailed)) == (1, 1)


@pytest.mark.parametrize("arguments", ["", "  "])
async def test_a_call_without_arguments_goes_back_as_an_empty_object(arguments: str):
    """Servers whose chat templates read the history refuse anything else."""
    calls = (ToolCall("1", "f", arguments), ToolCall("2", "f", '{"x":1}'))
    body = await sent(ModelRequest(messages=[*HI, Message("assistant", None, calls)]))
    sent_back = [call["function"]["arguments"] for call in body["messages"][1]["tool_calls"]]
    assert sent_back == ["{}", '{"x":1}']


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        (Message("tool", "r", (), "1"), "own message"),
        (Message("user", [{"type": "text", "text": "hi"}]), "own part"),
        (Message("user", ""), "whole"),
    ],
)
async def test_the_schema_as_text_follows_what_was_said(last: Message, expected: str):
    async with raw_server(REFUSED, OK) as server:
        model = OpenAIChatModel("m", base_url=server.url)
        await model.generate(ModelRequest(messages=[last], json_schema=SCHEMA))
        messages = server.body()["messages"]
    hint = HINTED.removeprefix("hi\n\n")
    if expected == "own message":
        assert messages[-1] == {"role": "user", "content": hint}
        assert len(messages) == 2
    elif expected == "own part":
        assert messages[-1]["content"] == [
            {"type": "text", "text": "hi"},
            {"type": "text", "text": hint},
        ]
    else:
        assert messages == [{"role": "user", "content": hint}]


@pytest.mark.parametrize(
    "url", ["", "api.example.com/v1", "ftp://x/v1", "http://", "http://x:y/v1", "http://a b/v1"]
)
def test_an_address_that_is_none_is_refused(url: str):
    with pytest.raises(ConfigError, match="it must be an address such as"):
        OpenAIChatModel("m", base_url=url)


def test_a_key_that_no_header_can_carry_is_refused_without_being_shown():
    for key in ("sk-a\nb", "sk-“secret”", "sk-\x00"):
        with pytest.raises(ConfigError, match="MY_KEY holds characters") as caught:
            OpenAIChatModel("m", base_url="http://x/v1", api_key=key, key_variable="MY_KEY")
        assert "sk-" not in str(caught.value)


def test_an_empty_model_name_is_refused():
    with pytest.raises(ConfigError, match="give the model's name"):
        OpenAIChatModel(" ", base_url="http://x/v1")


def test_two_ways_to_log_in_are_refused():
    with pytest.raises(ConfigError, match="use one of the two"):
        OpenAIChatModel("m", base_url="http://ann:pw@x/v1", api_key="k")
