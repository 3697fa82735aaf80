"""Three candidates an iteration; the verifier picks the best."""

import asyncio

from untildone import Agent, LoopConfig, Verifier, VerifierConfig, run_agent, tool


@tool
def search_web(query: str) -> str:
    """Search the web for information."""
    return f"A page about {query}."


agent = Agent(
    name="researcher",
    model="openai/gpt-4o-mini",
    tools=[search_web],
    loop_config=LoopConfig(
        max_iterations=3,
        verifier=Verifier(VerifierConfig(threshold=0.85)),
        branches=3,  # 3x the model calls per iteration, in exchange for picking the best
    ),
)
messages = [{"role": "user", "content": "Explain CRISPR"}]


async def main() -> None:
    result = await run_agent(agent, messages)
    print(result.text)
    print(f"{result.exit_reason} after {result.loop_iterations} iterations")


if __name__ == "__main__":
    asyncio.run(main())
