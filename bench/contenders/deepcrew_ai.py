"""deepcrew-ai: `run_agent` and its `loop_config`.

It calls `litellm.acompletion` and nothing else. For the CPU figures that function is replaced in
the process by one that streams prepared chunks, so litellm's own work is not in them; the wire
figures have all of it.
"""

# pyright: reportMissingImports=false

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import litellm
from deepcrew import Agent, LoopConfig, RetryPolicy, run_agent
from deepcrew import tool as as_tool

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

Chunks = list[SimpleNamespace]

CALLS = measure.Calls()
MISSING = {"fresh": "no such mode, the conversation is always kept"}


@as_tool(name=TOOL_NAME, description=TOOL_DESCRIPTION)
async def look_up(n: int) -> str:
    CALLS.tool += 1
    return f"{n * 7}"


def _agent(max_turns: int, **settings: Any) -> Agent:
    return Agent("bench", "openai/bench", SYSTEM_PROMPT, max_turns=max_turns, **settings)


def _question() -> list[dict[str, Any]]:
    return [{"role": "user", "content": QUESTION}]


# ---- a scripted model: what litellm's stream looks like to deepcrew


def _chunk(*, content: str | None = None, tool_calls: Chunks | None = None) -> SimpleNamespace:
    delta = SimpleNamespace(content=content, tool_calls=tool_calls, reasoning_content=None)
    return SimpleNamespace(choices=[SimpleNamespace(delta=delta)], usage=None)


def _usage() -> SimpleNamespace:
    tokens = SimpleNamespace(prompt_tokens=100, completion_tokens=10)
    return SimpleNamespace(choices=[], usage=tokens)


def _asks(turn: int) -> Chunks:
    function = SimpleNamespace(name=TOOL_NAME, arguments=arguments(turn))
    call = SimpleNamespace(index=0, id=f"call_{turn}", function=function)
    return [_chunk(tool_calls=[call]), _usage()]


def _says(text: str) -> Chunks:
    return [_chunk(content=text), _usage()]


def _replies(tool_turns: int) -> list[Chunks]:
    return [*(_asks(i + 1) for i in range(tool_turns)), _says(CLOSING_TEXT)]


async def _stream(chunks: Chunks) -> AsyncIterator[SimpleNamespace]:
    for chunk in chunks:
        yield chunk


def _scripted(replies: list[Chunks]) -> Any:
    left = iter(replies)

    async def acompletion(**_: Any) -> AsyncIterator[SimpleNamespace]:
        CALLS.model += 1
        return _stream(next(left))

    return acompletion


# ---- the work


def turns(n: int) -> measure.Job:
    agent, model = _agent(n + 1, tools=[look_up]), _scripted(_replies(n))

    async def job() -> None:
        litellm.acompletion = model
        await run_agent(agent, _question())

    return job


def observed(n: int) -> measure.Job:
    agent = _agent(n + 1, tools=[look_up], retry_policy=RetryPolicy())
    model = _scripted(_replies(n))

    async def job() -> None:
        litellm.acompletion = model
        queue: asyncio.Queue[Any] = asyncio.Queue()

        async def read() -> None:
            while await queue.get() is not None:
                pass

        reader = asyncio.create_task(read())
        async with asyncio.timeout(60):
            await run_agent(agent, _question(), queue=queue)
        await queue.put(None)  # deepcrew sends no end mark of its own
        await reader

    return job


def iterations(n: int) -> measure.Job:
    loop = LoopConfig(max_iterations=n, convergence_fn=lambda _: False)
    agent, model = _agent(10, loop_config=loop), _scripted([_says(draft(i + 1)) for i in range(n)])

    async def job() -> None:
        litellm.acompletion = model
        await run_agent(agent, _question())

    return job


def concurrent(n: int, latency_s: float, loops: int) -> list[measure.Job]:
    agent, replies = _agent(n, tools=[look_up]), _replies(n - 1)

    async def acompletion(*, messages: list[Any], **_: Any) -> AsyncIterator[SimpleNamespace]:
        CALLS.model += 1
        await asyncio.sleep(latency_s)
        return _stream(replies[(len(messages) - 2) // 2])

    litellm.acompletion = acompletion

    async def job() -> None:
        await run_agent(agent, _question())

    return [job] * loops


def wire(n: int, base_url: str) -> measure.Job:
    os.environ["OPENAI_BASE_URL"] = os.environ["OPENAI_API_BASE"] = base_url
    agent = _agent(n, tools=[look_up])

    async def job() -> None:
        await run_agent(agent, _question())

    return job


if __name__ == "__main__":
    measure.main(sys.modules[__name__])
