"""untildone, from a wheel of this tree: `run_agent` with everything that is on by default.

The scripted model is a `Model` of its own, not `ScriptedModel`: its replies are prepared outside
the clock, as those of the peers are.
"""

import asyncio
import os
import sys
from collections.abc import Sequence
from typing import Any

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
from untildone import Agent, LoopConfig, RetryPolicy, run_agent
from untildone import tool as as_tool
from untildone.domain.messages import Message, ToolCall
from untildone.domain.requests import ModelReply, ModelRequest, TextDelta
from untildone.domain.usage import Usage

CALLS = measure.Calls()
MISSING: dict[str, str] = {}


@as_tool(name=TOOL_NAME, description=TOOL_DESCRIPTION)
async def look_up(n: int) -> str:
    CALLS.tool += 1
    return f"{n * 7}"


def _agent(model: Any, max_turns: int, **settings: Any) -> Agent:
    return Agent("bench", model, SYSTEM_PROMPT, max_turns=max_turns, **settings)


def _question() -> list[dict[str, Any]]:
    return [{"role": "user", "content": QUESTION}]


# ---- a scripted model


def _reply(message: Message, finish_reason: str) -> ModelReply:
    usage = Usage(input_tokens=100, output_tokens=10)
    return ModelReply(message=message, finish_reason=finish_reason, usage=usage, model="bench")


def _asks(turn: int) -> ModelReply:
    call = ToolCall(f"call_{turn}", TOOL_NAME, arguments(turn))
    return _reply(Message("assistant", None, (call,)), "tool_calls")


def _says(text: str) -> ModelReply:
    return _reply(Message("assistant", text), "stop")


def _replies(tool_turns: int) -> list[ModelReply]:
    return [*(_asks(i + 1) for i in range(tool_turns)), _says(CLOSING_TEXT)]


class Scripted:
    """Replies in order, for one run."""

    name = "bench"

    def __init__(self, replies: Sequence[ModelReply]) -> None:
        self.replies = iter(replies)

    async def generate(self, request: ModelRequest, on_delta: Any = None) -> ModelReply:
        CALLS.model += 1
        reply = next(self.replies)
        if on_delta is not None and reply.message.content:
            await on_delta(TextDelta(reply.message.text))
        return reply


class Slow:
    """Replies by how long the conversation is, after a while; for any number of runs at once."""

    name = "bench"

    def __init__(self, replies: Sequence[ModelReply], latency_s: float) -> None:
        self.replies = replies
        self.latency_s = latency_s

    async def generate(self, request: ModelRequest, on_delta: Any = None) -> ModelReply:
        CALLS.model += 1
        turn = (len(request.messages) - 2) // 2
        await asyncio.sleep(self.latency_s)
        return self.replies[turn]


# ---- the work


def turns(n: int) -> measure.Job:
    agent = _agent(Scripted(_replies(n)), n + 1, tools=[look_up])

    async def job() -> None:
        await run_agent(agent, _question())

    return job


def observed(n: int) -> measure.Job:
    wrapped = {"retry_policy": RetryPolicy(), "timeout_s": 60.0}
    agent = _agent(Scripted(_replies(n)), n + 1, tools=[look_up], **wrapped)

    async def job() -> None:
        queue: asyncio.Queue[Any] = asyncio.Queue()

        async def read() -> None:
            while await queue.get() is not None:
                pass

        reader = asyncio.create_task(read())
        await run_agent(agent, _question(), queue=queue)
        await reader

    return job


def iterations(n: int, *, fresh: bool = False) -> measure.Job:
    loop = LoopConfig(max_iterations=n, convergence_fn=lambda _: False, fresh_context=fresh)
    agent = _agent(Scripted([_says(draft(i + 1)) for i in range(n)]), 10, loop_config=loop)

    async def job() -> None:
        await run_agent(agent, _question())

    return job


def fresh(n: int) -> measure.Job:
    return iterations(n, fresh=True)


def concurrent(n: int, latency_s: float, loops: int) -> list[measure.Job]:
    agent = _agent(Slow(_replies(n - 1), latency_s), n, tools=[look_up])

    async def job() -> None:
        await run_agent(agent, _question())

    return [job] * loops


def wire(n: int, base_url: str) -> measure.Job:
    os.environ["OPENAI_BASE_URL"] = base_url
    agent = _agent("openai/bench", n, tools=[look_up])

    async def job() -> None:
        await run_agent(agent, _question())

    return job


if __name__ == "__main__":
    measure.main(sys.modules[__name__])
