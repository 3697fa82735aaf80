"""Stop when the verifier's score stops improving, and keep the best draft."""

import asyncio

from untildone import Agent, LoopConfig, Verifier, run_agent, tool


@tool
def search_web(query: str) -> str:
    """Search the web for information."""
    return f"A page about {query}."


agent = Agent(
    name="researcher",
    model="openai/gpt-4o-mini",
    tools=[search_web],
    loop_config=LoopConfig(
        max_iterations=8,
        verifier=Verifier(),
        adaptive=True,
        min_improvement=0.02,  # smaller gains than this count as "not improving"
        plateau_patience=2,  # stop after 2 consecutive non-improving iterations
    ),
)
messages = [{"role": "user", "content": "Explain CRISPR"}]


async def main() -> None:
    result = await run_agent(agent, messages)
    print(f"Stopped after {result.loop_iterations} iterations")
    print(f"Iteration {result.best_iteration} is the best of {result.scores}")


if __name__ == "__main__":
    asyncio.run(main())
