"""The openai SDK, streamed, with one client for all."""

import sys
from typing import Any

import openai

import hand_client
import measure_client

_clients: list[openai.AsyncOpenAI] = []


async def ask(base_url: str, history: list[hand_client.Message], **more: Any) -> Any:
    """Send a request and read the reply, chunk by chunk."""
    if not _clients:
        _clients.append(openai.AsyncOpenAI(base_url=base_url, api_key="bench", max_retries=0))
    reply = hand_client.Reply()
    messages: Any = history
    found = await _clients[0].chat.completions.create(
        model="bench", messages=messages, stream=True, **more
    )
    async for chunk in found:
        for choice in chunk.choices:
            if choice.delta.content:
                reply.texts.append(choice.delta.content)
            for call in choice.delta.tool_calls or ():
                reply.calls.append(call.model_dump(include={"id", "type", "function"}))
    return reply.message()


def stream(base_url: str) -> measure_client.Job:
    async def job() -> str:
        return (await ask(base_url, hand_client.start()))["content"]

    return job


def loop(base_url: str) -> measure_client.Job:
    async def model(history: list[hand_client.Message]) -> hand_client.Message:
        return await ask(base_url, history, tools=hand_client.TOOLS)

    async def job() -> str:
        return await hand_client.turn_loop(model)

    return job


async def aclose() -> None:
    for client in _clients:
        await client.close()


if __name__ == "__main__":
    measure_client.main(sys.modules[__name__])
