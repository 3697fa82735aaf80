"""Leave the loop by an exception, once the model says that it has its final answer."""

import asyncio

from untildone import Agent, AgentResult, LoopConfig, LoopConvergedError, run_agent

agent = Agent(
    "reasoner",
    model="openai/gpt-4o",
    system_prompt="When you have a final answer, prefix it with 'FINAL ANSWER:'.",
    loop_config=LoopConfig(
        max_iterations=6,
        stop_condition=lambda r: "FINAL ANSWER:" in r.text,  # plain bool, no raise
    ),
)
messages = [{"role": "user", "content": "How many prime numbers are below 20?"}]


async def reason() -> AgentResult | None:
    try:
        result = await run_agent(agent, messages)
    except LoopConvergedError as exc:
        result = exc.result  # the AgentResult that triggered the stop
    return result


async def main() -> None:
    result = await reason()
    print(result.text if result else "no answer")


if __name__ == "__main__":
    asyncio.run(main())
