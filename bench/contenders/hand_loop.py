"""The loop anyone writes by hand: no events, one limit, no error handled, nothing recorded."""

import asyncio
import http.client
import json
import sys
import urllib.parse
from collections.abc import Awaitable, Callable
from typing import Any

import measure
from script import (
    CLOSING_TEXT,
    QUESTION,
    SYSTEM_PROMPT,
    TOOL_DESCRIPTION,
    TOOL_NAME,
    draft,
    tool_call,
)

Message = dict[str, Any]
Model = Callable[[list[Message]], Awaitable[Message]]
Tool = Callable[..., Awaitable[str]]

CALLS = measure.Calls()
MISSING = {"observed": "feature-free: no queue, time-out or retry"}


async def turn_loop(
    model: Model, messages: list[Message], tools: dict[str, Tool], max_turns: int
) -> list[Message]:
    """Call the model, run what it asks for, append, until it asks for nothing."""
    history = list(messages)
    for _ in range(max_turns):
        reply = await model(history)
        history.append(reply)
        if not reply.get("tool_calls"):
            return history
        for call in reply["tool_calls"]:
            function = call["function"]
            result = await tools[function["name"]](**json.loads(function["arguments"]))
            history.append({"role": "tool", "tool_call_id": call["id"], "content": result})
    msg = f"no answer after {max_turns} turns"
    raise RuntimeError(msg)


async def refine_loop(
    model: Model,
    messages: list[Message],
    accept: Callable[[str], bool],
    max_iterations: int,
    *,
    fresh: bool = False,
) -> list[Message]:
    """Run the turn loop until its answer is accepted, asking for a better one each time."""
    history = list(messages)
    for _ in range(max_iterations):
        history = await turn_loop(model, history, {}, 10)
        if accept(history[-1]["content"]):
            break
        if fresh:
            history = list(messages)
        history.append({"role": "user", "content": "That is not complete yet. Please improve it."})
    return history


# ---- the work


async def look_up(n: int) -> str:
    CALLS.tool += 1
    return f"{n * 7}"


def _start() -> list[Message]:
    return [{"role": "system", "content": SYSTEM_PROMPT}, {"role": "user", "content": QUESTION}]


def _asks(turn: int) -> Message:
    return {"role": "assistant", "content": None, "tool_calls": [tool_call(turn)]}


def _says(text: str) -> Message:
    return {"role": "assistant", "content": text}


def _replies(tool_turns: int) -> list[Message]:
    return [*(_asks(i + 1) for i in range(tool_turns)), _says(CLOSING_TEXT)]


def _scripted(replies: list[Message]) -> Model:
    left = iter(replies)

    async def model(history: list[Message]) -> Message:
        CALLS.model += 1
        return next(left)

    return model


def turns(n: int) -> measure.Job:
    model = _scripted(_replies(n))

    async def job() -> None:
        await turn_loop(model, _start(), {TOOL_NAME: look_up}, n + 1)

    return job


def iterations(n: int, *, fresh: bool = False) -> measure.Job:
    model = _scripted([_says(draft(i + 1)) for i in range(n)])

    async def job() -> None:
        await refine_loop(model, _start(), lambda _: False, n, fresh=fresh)

    return job


def fresh(n: int) -> measure.Job:
    return iterations(n, fresh=True)


def concurrent(n: int, latency_s: float, loops: int) -> list[measure.Job]:
    replies = _replies(n - 1)

    async def model(history: list[Message]) -> Message:
        CALLS.model += 1
        await asyncio.sleep(latency_s)
        return replies[(len(history) - 2) // 2]

    async def job() -> None:
        await turn_loop(model, _start(), {TOOL_NAME: look_up}, n)

    return [job] * loops


def wire(n: int, base_url: str) -> measure.Job:
    address = urllib.parse.urlsplit(base_url)
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    function = {"name": TOOL_NAME, "description": TOOL_DESCRIPTION, "parameters": schema}
    look_up_tool = {"type": "function", "function": function}
    path = f"{address.path}/chat/completions"
    connection = http.client.HTTPConnection(address.netloc)

    async def model(history: list[Message]) -> Message:
        request = {"model": "bench", "messages": history, "tools": [look_up_tool]}
        body = json.dumps(request, separators=(",", ":")).encode()
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        return json.loads(connection.getresponse().read())["choices"][0]["message"]

    async def job() -> None:
        await turn_loop(model, _start(), {TOOL_NAME: look_up}, n)

    return job


if __name__ == "__main__":
    measure.main(sys.modules[__name__])
