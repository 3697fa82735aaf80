"""The litellm adapter, against a stand-in for the library (256 MB, tried by hand: see docs)."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.models.raw_server import delta
from untildone.domain.errors import (
    AuthenticationError,
    BadReplyError,
    ConfigError,
    ConnectionFailedError,
    ModelError,
    ModelTimeoutError,
    RateLimitError,
    ServerError,
)
from untildone.domain.messages import Message, ToolCall, user_message
from untildone.domain.requests import Delta, ModelRequest, TextDelta
from untildone.domain.tools import ToolSpec, ToolSpecs
from untildone.domain.usage import Usage
from untildone.models.endpoint import ModelTimeouts
from untildone.models.litellm import LiteLLMModel

HELLO = ModelRequest(messages=[user_message("hi")])


class Chunks:
    """What litellm gives back: an async iterator of objects with ``model_dump``."""

    def __init__(self, items: list[Any]) -> None:
        self.items = iter(items)
        self.closed = False

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        item = next(self.items, None)
        if item is None:
            raise StopAsyncIteration
        if isinstance(item, BaseException):
            raise item
        if isinstance(item, float):
            await asyncio.sleep(item)
        return SimpleNamespace(model_dump=lambda exclude_none: item)

    async def aclose(self) -> None:
        self.closed = True


class Library(ModuleType):
    """Stands in for litellm."""

    suppress_debug_info = False

    def __init__(self) -> None:
        super().__init__("litellm")
        self.asked: list[dict[str, Any]] = []
        self.called = asyncio.Event()
        self.answer: Chunks | BaseException = Chunks([])

    async def acompletion(self, **arguments: Any) -> Chunks:
        self.asked.append(arguments)
        self.called.set()
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


@pytest.fixture
def litellm(monkeypatch: pytest.MonkeyPatch) -> Library:
    monkeypatch.delenv("LITELLM_LOCAL_MODEL_COST_MAP", raising=False)
    library = Library()
    monkeypatch.setitem(sys.modules, "litellm", library)
    return library


async def test_a_reply_is_streamed_through_litellm(litellm: Library):
    call = {"index": 0, "id": "c1", "function": {"name": "f", "arguments": '{"a":1}'}}
    litellm.answer = Chunks(
        [
            delta(content="Hel"),
            delta(content="lo", tool_calls=[call]),
            delta("tool_calls"),
            {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 7}},
        ]
    )
    seen: list[Delta] = []

    async def sink(piece: Delta) -> None:
        seen.append(piece)

    reply = await LiteLLMModel("bedrock/x").generate(HELLO, sink)
    assert seen == [TextDelta("Hel"), TextDelta("lo")]
    assert reply.message.content == "Hello"
    assert reply.message.tool_calls == (ToolCall("c1", "f", '{"a":1}'),)
    assert reply.finish_reason == "tool_calls"
    assert reply.usage == Usage(input_tokens=5, output_tokens=7)
    assert litellm.answer.closed
    assert litellm.suppress_debug_info
    assert os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] == "True"


async def test_the_request_has_openais_form_and_no_retries(litellm: Library):
    litellm.answer = Chunks([delta("stop")])
    schema = {"type": "object"}
    await LiteLLMModel("bedrock/x").generate(
        ModelRequest(
            messages=[
                *HELLO.messages,
                Message("tool", "r", (), "1", is_error=True, extra={"reasoning_content": "h"}),
            ],
            tools=ToolSpecs([ToolSpec(name="f", description="d", parameters=schema)]),
            temperature=0.5,
            json_schema=schema,
            extra_params={"api_base": "http://x", "stream": False},
        )
    )
    assert litellm.asked == [
        {
            "model": "bedrock/x",
            "messages": [
                {"role": "user", "content": "hi"},
                {"role": "tool", "content": "r", "tool_call_id": "1"},
            ],
            "stream": True,
            "stream_options": {"include_usage": True},
            "num_retries": 0,
            "max_retries": 0,
            "temperature": 0.5,
            "tools": [
                {
                    "type": "function",
                    "function": {"name": "f", "description": "d", "parameters": schema},
                }
            ],
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "reply", "schema": schema, "strict": False},
            },
            "api_base": "http://x",
        }
    ]


def failing(kind: str, status: int | None, **headers: str) -> Exception:
    error = type(kind, (Exception,), {})("litellm said: sk-abcdefghijk is bad")
    error.status_code = status  # type: ignore[attr-defined]
    error.response = SimpleNamespace(headers=headers)  # type: ignore[attr-defined]
    return error


@pytest.mark.parametrize(
    ("error", "kind", "usage"),
    [
        (failing("AuthenticationError", 401), AuthenticationError, Usage()),
        (failing("RateLimitError", 429, **{"retry-after": "3"}), RateLimitError, Usage()),
        (failing("InternalServerError", 500), ServerError, Usage()),
        (failing("APIConnectionError", 500), ConnectionFailedError, Usage()),
        (failing("Timeout", 408), ModelTimeoutError, None),
        (failing("Odd", None), ServerError, Usage()),
    ],
)
async def test_its_failures_become_ours(
    litellm: Library, error: Exception, kind: type[ModelError], usage: Usage | None
):
    litellm.answer = error
    with pytest.raises(ModelError) as caught:
        await LiteLLMModel("bedrock/x").generate(HELLO)
    assert type(caught.value) is kind
    assert str(caught.value).startswith("litellm/bedrock/x: litellm said: [key] is bad")
    assert caught.value.usage == usage
    if kind is RateLimitError:
        assert caught.value.retry_after_s == 3


async def test_a_failure_in_the_middle_costs_nobody_knows_what(litellm: Library):
    litellm.answer = Chunks([delta(content="x"), failing("MidStreamFallbackError", 500)])
    with pytest.raises(ServerError) as caught:
        await LiteLLMModel("bedrock/x").generate(HELLO)
    assert caught.value.usage is None
    assert litellm.answer.closed


async def test_a_stream_without_a_finish_reason_is_an_error(litellm: Library):
    litellm.answer = Chunks([delta(content="x")])
    with pytest.raises(BadReplyError):
        await LiteLLMModel("bedrock/x").generate(HELLO)


@pytest.mark.parametrize(
    ("items", "which"), [([60.0], "first"), ([delta(content="x"), 60.0], "next")]
)
async def test_a_stall_is_a_time_out(litellm: Library, items: list[Any], which: str):
    litellm.answer = Chunks(items)
    timeouts = ModelTimeouts(first_token_s=0.02, between_tokens_s=0.02)
    with pytest.raises(ModelTimeoutError, match=f"no {which} token within 0.02 s"):
        await LiteLLMModel("bedrock/x", timeouts=timeouts).generate(HELLO)
    assert litellm.answer.closed


@pytest.mark.parametrize("chunk", [delta(content="x"), delta(), {"choices": []}])
async def test_a_reply_that_takes_too_long_in_all_is_a_time_out(litellm: Library, chunk: Any):
    class Slow(Chunks):
        async def __anext__(self) -> Any:
            await asyncio.sleep(0.01)
            return SimpleNamespace(model_dump=lambda exclude_none: chunk)

    litellm.answer = Slow([])
    timeouts = ModelTimeouts(total_s=0.1)
    with pytest.raises(ModelTimeoutError, match=r"no whole reply within 0\.1 s"):
        async with asyncio.timeout(10):
            await LiteLLMModel("bedrock/x", timeouts=timeouts).generate(HELLO)
    assert litellm.answer.closed
    if chunk != delta(content="x"):  # what holds nothing of the reply is no token
        timeouts = ModelTimeouts(first_token_s=0.1)
        with pytest.raises(ModelTimeoutError, match=r"no first token within 0\.1 s"):
            async with asyncio.timeout(10):
                await LiteLLMModel("bedrock/x", timeouts=timeouts).generate(HELLO)


async def test_keys_that_litellm_found_itself_are_not_shown(
    litellm: Library, monkeypatch: pytest.MonkeyPatch
):
    of_environment, of_request, of_header = "0123456789abcdef", "fedcba9876543210", "abcabcabcabc"
    monkeypatch.setenv("AZURE_API_KEY", of_environment)
    params = {"api_key": of_request, "extra_headers": {"X-Login": of_header}}
    request = ModelRequest(messages=HELLO.messages, extra_params=params)

    class AuthenticationError_(Exception):  # noqa: N801, N818
        status_code = 401

    text = f"Incorrect API key: {of_environment} {of_request} {of_header}"
    litellm.answer = AuthenticationError_(text)
    with pytest.raises(AuthenticationError, match=r"Incorrect API key: \[key\] \[key\] \[key\] "):
        await LiteLLMModel("azure/x").generate(request)


async def test_no_error_leads_to_litellms_own(litellm: Library):
    litellm.answer = failing("AuthenticationError", 401)
    with pytest.raises(ModelError) as caught:
        await LiteLLMModel("bedrock/x").generate(HELLO)
    assert (caught.value.__cause__, caught.value.__context__) == (None, None)


async def test_a_cancelled_call_closes_the_stream(litellm: Library):
    litellm.answer = Chunks([delta(content="x"), 60.0])
    call = asyncio.create_task(LiteLLMModel("bedrock/x").generate(HELLO))
    await litellm.called.wait()
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert litellm.answer.closed


async def test_a_missing_library_is_told_with_the_extra(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "litellm", None)
    with pytest.raises(ConfigError, match=r"pip install 'untildone\[litellm\]'"):
        await LiteLLMModel("bedrock/x").generate(HELLO)
