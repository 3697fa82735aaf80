"""agent-framework-core: `Agent.run`, and `AgentLoopMiddleware` around it.

The scripted model is a `BaseChatClient` with the layers that package's own clients have. The wire
is agent-framework-openai.
"""

# pyright: reportMissingImports=false

import asyncio
import sys
from collections.abc import Awaitable
from typing import Any

from agent_framework import (
    Agent,
    AgentLoopMiddleware,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    Content,
    FunctionInvocationLayer,
    Message,
    tool,
)
from agent_framework.observability import ChatTelemetryLayer

import measure
from script import (
    CLOSING_TEXT,
    QUESTION,
    SYSTEM_PROMPT,
    TOOL_DESCRIPTION,
    TOOL_NAME,
    arguments,
    draft,
)

CALLS = measure.Calls()
MISSING = {"observed": "no retry of model calls in it, the caller writes a middleware"}


@tool(name=TOOL_NAME, description=TOOL_DESCRIPTION)
async def look_up(n: int) -> str:
    CALLS.tool += 1
    return f"{n * 7}"


# ---- a scripted model


class Scripted(FunctionInvocationLayer, ChatMiddlewareLayer, ChatTelemetryLayer, BaseChatClient):
    """Replies in order; one client per run, as its responses are the run's own."""

    def __init__(self, replies: list[ChatResponse], latency_s: float | None = None) -> None:
        super().__init__(function_invocation_configuration={"max_iterations": len(replies) + 1})
        self.replies = iter(replies)
        self.latency_s = latency_s

    def _inner_get_response(self, **_: Any) -> Awaitable[ChatResponse]:
        return self._reply()

    async def _reply(self) -> ChatResponse:
        CALLS.model += 1
        if self.latency_s is not None:
            await asyncio.sleep(self.latency_s)
        return next(self.replies)


def _response(content: Content, finish_reason: str) -> ChatResponse:
    usage = {"input_token_count": 100, "output_token_count": 10, "total_token_count": 110}
    messages = [Message(role="assistant", contents=[content])]
    return ChatResponse(messages=messages, finish_reason=finish_reason, usage_details=usage)


def _asks(turn: int) -> ChatResponse:
    call = Content.from_function_call(f"call_{turn}", TOOL_NAME, arguments=arguments(turn))
    return _response(call, "tool_calls")


def _says(text: str) -> ChatResponse:
    return _response(Content.from_text(text), "stop")


def _replies(tool_turns: int) -> list[ChatResponse]:
    return [*(_asks(i + 1) for i in range(tool_turns)), _says(CLOSING_TEXT)]


# ---- the work


def turns(n: int) -> measure.Job:
    agent = Agent(Scripted(_replies(n)), SYSTEM_PROMPT, name="bench", tools=[look_up])

    async def job() -> None:
        await agent.run(QUESTION)

    return job


def iterations(n: int, *, fresh: bool = False) -> measure.Job:
    again = AgentLoopMiddleware(lambda **_: True, max_iterations=n, fresh_context=fresh)
    client = Scripted([_says(draft(i + 1)) for i in range(n)])
    agent = Agent(client, SYSTEM_PROMPT, name="bench", middleware=[again])

    async def job() -> None:
        # Only a session keeps the conversation from one iteration to the next.
        await agent.run(QUESTION, session=None if fresh else agent.create_session())

    return job


def fresh(n: int) -> measure.Job:
    return iterations(n, fresh=True)


def concurrent(n: int, latency_s: float, loops: int) -> list[measure.Job]:
    # "Each call must use its own Agent", says the package of its clients.
    return [_concurrent(n, latency_s) for _ in range(loops)]


def _concurrent(n: int, latency_s: float) -> measure.Job:
    client = Scripted(_replies(n - 1), latency_s)
    agent = Agent(client, SYSTEM_PROMPT, name="bench", tools=[look_up])

    async def job() -> None:
        await agent.run(QUESTION)

    return job


def wire(n: int, base_url: str) -> measure.Job:
    from agent_framework.openai import OpenAIChatCompletionClient

    settings = {"max_iterations": n + 1}
    client = OpenAIChatCompletionClient(
        "bench", api_key="bench", base_url=base_url, function_invocation_configuration=settings
    )
    agent = Agent(client, SYSTEM_PROMPT, name="bench", tools=[look_up])

    async def job() -> None:
        await agent.run(QUESTION)

    return job


if __name__ == "__main__":
    measure.main(sys.modules[__name__])
