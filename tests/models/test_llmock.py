"""Both wires against llmock, a mock of the providers with faults on demand, over real sockets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from llmock.pytest_plugin import LLMock

from untildone.agent import RetryPolicy
from untildone.domain.errors import (
    AuthenticationError,
    BadReplyError,
    BadRequestError,
    ConnectionFailedError,
    ModelError,
    ModelTimeoutError,
    RateLimitError,
    ServerError,
)
from untildone.domain.messages import Message, tool_message, user_message
from untildone.domain.requests import Delta, ModelReply, ModelRequest, RetryAttempt, TextDelta
from untildone.domain.tools import ToolSpec, ToolSpecs
from untildone.models.anthropic_messages import AnthropicModel
from untildone.models.endpoint import ModelTimeouts
from untildone.models.openai_chat import OpenAIChatModel
from untildone.models.providers import resolve_model
from untildone.models.retrying import RetryingModel
from untildone.ports import Model
from untildone.testing import FakeClock

HELLO = ModelRequest(messages=[user_message("hi")])
ADD = ToolSpecs(
    [
        ToolSpec(
            name="add",
            description="adds",
            parameters={
                "type": "object",
                "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            },
        )
    ]
)

Make = Callable[..., Model]


@pytest.fixture(params=["openai", "anthropic"])
def provider(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def make(provider: str, llmock: LLMock) -> Make:
    def build(**timeouts: float) -> Model:
        wire: Any = {"openai": OpenAIChatModel, "anthropic": AnthropicModel}[provider]
        return wire(
            "gpt-4o",
            base_url=llmock.base_url(provider),
            api_key="llmock-test-key",
            timeouts=ModelTimeouts(**timeouts),
        )

    return build


def sink_into(seen: list[Delta]) -> Any:
    async def sink(piece: Delta) -> None:
        seen.append(piece)

    return sink


async def test_a_script_of_three_turns_with_tools_is_streamed(make: Make, llmock: LLMock):
    llmock.call_tool("add", {"a": 2, "b": 3}).call_tool("add", {"a": 5, "b": 4})
    llmock.reply("The sum is 9.")
    model = make()
    messages: list[Message] = [Message("system", "be brief"), user_message("2+3+4?")]
    seen: list[Delta] = []
    asked: list[tuple[str, str]] = []
    replies: list[ModelReply] = []
    for _ in range(3):
        request = ModelRequest(messages=messages, tools=ADD)
        reply = await model.generate(request, sink_into(seen))
        replies.append(reply)
        messages.append(reply.message)
        for call in reply.message.tool_calls:
            asked.append((call.name, call.arguments.replace(" ", "")))
            messages.append(tool_message(call.id, "5" if len(asked) == 1 else "9"))
    assert asked == [("add", '{"a":2,"b":3}'), ("add", '{"a":5,"b":4}')]
    last = replies[-1]
    assert last.message.text == "The sum is 9."
    assert "".join(piece.text for piece in seen if isinstance(piece, TextDelta)) == "The sum is 9."
    assert last.finish_reason == "stop"
    assert last.usage is not None
    assert last.usage.input_tokens > 0
    assert last.usage.output_tokens > 0
    assert [record.status for record in llmock.requests] == [200, 200, 200]
    llmock.assert_resilient()


async def test_a_rate_limit_is_waited_out_as_asked(make: Make, llmock: LLMock):
    llmock.rate_limit(times=1, retry_after=7).reply("done")
    clock = FakeClock()
    model = RetryingModel(make(), RetryPolicy(jitter=0), clock)
    assert (await model.generate(HELLO)).message.text == "done"
    assert clock.slept == [7]
    assert [record.status for record in llmock.requests] == [429, 200]


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, BadRequestError),
        (401, AuthenticationError),
        (403, AuthenticationError),
        (404, BadRequestError),
        (429, RateLimitError),
        (500, ServerError),
        (503, ServerError),
        (529, ServerError),
    ],
)
async def test_each_error_status_has_its_type(
    make: Make, llmock: LLMock, status: int, kind: type[ModelError]
):
    llmock.fail(status, message="too bad")
    with pytest.raises(kind, match="too bad") as caught:
        await make().generate(HELLO)
    assert type(caught.value) is kind
    assert caught.value.status == status


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("disconnect", ConnectionFailedError),
        ("truncate", BadReplyError),
        ("corrupt", BadReplyError),
    ],
)
@pytest.mark.parametrize("after_chunks", [0, 1, 3])
async def test_a_broken_stream_is_a_typed_error_and_is_retried_whole(
    make: Make, llmock: LLMock, fault: str, kind: type[ModelError], after_chunks: int
):
    text = "one two three four five six seven"
    getattr(llmock, fault)(after_chunks=after_chunks, times=2)
    llmock.reply(text, times=3)
    with pytest.raises(kind):
        await make().generate(HELLO)
    seen: list[Delta] = []
    model = RetryingModel(make(), RetryPolicy(), FakeClock())
    reply = await model.generate(HELLO, sink_into(seen))
    assert reply.message.text == text
    shown = ""
    for piece in seen:
        if isinstance(piece, RetryAttempt):
            shown = shown[: len(shown) - piece.discard_chars]
            assert shown == ""
        elif isinstance(piece, TextDelta):
            shown += piece.text
    assert shown == text
    assert sum(isinstance(piece, RetryAttempt) for piece in seen) == 1


async def test_a_stall_in_the_middle_is_a_time_out(make: Make, llmock: LLMock):
    # Not a slow first token: a request that llmock sees only after its client has gone would take
    # what the next test has scripted. `test_http.py` has those.
    llmock.reply("one two three four five six").stall(after_chunks=3, seconds=20.0)
    with pytest.raises(ModelTimeoutError, match=r"no next token within 0\.05 s"):
        await make(first_token_s=5, between_tokens_s=0.05).generate(HELLO)


async def test_a_prompt_that_is_too_long_is_a_bad_request(make: Make, llmock: LLMock):
    llmock.context_overflow()
    with pytest.raises(BadRequestError, match="maximum context length"):
        await make().generate(HELLO)


async def test_a_model_string_and_the_environment_are_enough(provider: str, llmock: LLMock):
    llmock.reply("found")
    reply = await resolve_model(f"{provider}/gpt-4o").generate(HELLO)
    assert reply.message.text == "found"
