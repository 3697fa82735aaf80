"""Search until the answer's confidence is high enough.

Nothing here sets a confidence, so all three iterations run and a LoopConfigWarning says so:
give the agent a Verifier with an evaluate_fn that sets ``result.confidence``.
"""

import asyncio

from untildone import Agent, AgentResult, search_loop, tool


@tool
def search_web(query: str) -> str:
    """Search the web."""
    return f"A page about {query}."


agent = Agent(
    "searcher",
    model="openai/gpt-4o-mini",
    system_prompt="You are a research agent.",
    tools=[search_web],
)


async def search() -> AgentResult:
    # Runs at most 3 iterations, stopping early if result.confidence >= 0.8
    return await search_loop(
        query="What is the current state of nuclear fusion research?",
        search_tool=search_web,
        agent=agent,
        max_iterations=3,
        confidence_threshold=0.8,
    )


async def main() -> None:
    result = await search()
    print(result.text)
    print(f"{result.exit_reason} after {result.loop_iterations} iterations")


if __name__ == "__main__":
    asyncio.run(main())
