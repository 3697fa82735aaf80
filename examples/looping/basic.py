"""Run the whole agent again until its answer is long enough."""

import asyncio

from untildone import Agent, LoopConfig, run_agent, tool


@tool
def search_web(query: str) -> str:
    """Search the web for information."""
    return f"A page about {query}."


agent = Agent(
    name="researcher",
    model="openai/gpt-4o-mini",
    system_prompt="You are a thorough researcher. Use search to gather comprehensive information.",
    tools=[search_web],
    loop_config=LoopConfig(
        max_iterations=4,
        # Convergence: result is long enough to be a proper answer
        convergence_fn=lambda r: len(r.text) > 800 and r.text.count("\n") > 5,
        # What to say to the agent if not converged
        refine_prompt="Your answer is incomplete. Search for more details and expand your"
        " response significantly.",
    ),
)
messages = [{"role": "user", "content": "Explain the mechanism of CRISPR-Cas9 gene editing"}]


async def main() -> None:
    result = await run_agent(agent, messages)

    print(result.text)
    print(f"Iterations: {result.loop_iterations}")


if __name__ == "__main__":
    asyncio.run(main())
