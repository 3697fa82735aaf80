"""untildone over HTTP: a model's wire with a reader of its pieces, and `run_agent` on it."""

import functools
import sys
from typing import Any

import measure_client
from script import QUESTION, SYSTEM_PROMPT, TOOL_DESCRIPTION, TOOL_NAME
from untildone import Agent, ModelRequest, OpenAIChatModel, aclose, run_agent
from untildone import tool as as_tool
from untildone.domain.messages import user_message

__all__ = ["aclose", "loop", "stream"]


@as_tool(name=TOOL_NAME, description=TOOL_DESCRIPTION)
async def look_up(n: int) -> str:
    return f"{n * 7}"


async def _read(delta: Any) -> None:
    """Somebody reads along."""


def stream(base_url: str) -> measure_client.Job:
    model = OpenAIChatModel("bench", base_url=base_url, api_key="bench-made-up-key")
    request = ModelRequest(messages=[user_message(QUESTION)])

    async def job() -> str:
        return (await model.generate(request, _read)).message.text

    return job


@functools.cache
def _agent(base_url: str) -> Agent:
    """One for all loops, as the other clients have one session: it keeps no state of a run."""
    model = OpenAIChatModel("bench", base_url=base_url, api_key="bench-made-up-key")
    return Agent("bench", model, SYSTEM_PROMPT, tools=[look_up])


def loop(base_url: str) -> measure_client.Job:
    agent = _agent(base_url)

    async def job() -> str:
        return (await run_agent(agent, [{"role": "user", "content": QUESTION}])).text

    return job


if __name__ == "__main__":
    measure_client.main(sys.modules[__name__])
