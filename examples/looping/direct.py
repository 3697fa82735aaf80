"""The outer loop called by its own name, with a queue and a name for the events."""

import asyncio
from typing import Any

from untildone import Agent, AgentResult, LoopConfig, run_agent_loop

my_agent = Agent(
    name="writer",
    model="openai/gpt-4o-mini",
    loop_config=LoopConfig(max_iterations=2, convergence_fn=lambda r: "Summary" in r.text),
)
messages = [{"role": "user", "content": "Draft an executive summary"}]


async def draft(my_queue: "asyncio.Queue[Any]") -> AgentResult:
    # result.loop_iterations is set on every exit path: converged, adaptive early stop,
    # or plain max_iterations exhaustion.
    return await run_agent_loop(
        agent=my_agent,
        messages=messages,
        tool_defs=None,
        queue=my_queue,
        agent_id="drafter",
    )


async def main() -> None:
    result = await draft(asyncio.Queue())
    print(result.text)
    print(f"{result.exit_reason} after {result.loop_iterations} iterations")


if __name__ == "__main__":
    asyncio.run(main())
