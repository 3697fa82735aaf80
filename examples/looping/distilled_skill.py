"""A run that converged well becomes a skill, which can be called again with another task."""

import asyncio

from untildone import Agent, LoopConfig, SkillRegistry, Verifier, run_agent, tool


@tool
def run_sql(statement: str) -> list[str]:
    """Run a statement against the shop's database."""
    return [f"one row for {statement}"]


agent = Agent(
    name="sql_analyst",
    model="openai/gpt-4o-mini",
    tools=[run_sql],
    loop_config=LoopConfig(
        max_iterations=4,
        verifier=Verifier(),
        auto_extract_skill=True,
        skill_confidence_threshold=0.85,  # quality bar to distill
    ),
)
messages = [{"role": "user", "content": "Find top 10 customers by revenue"}]


async def main() -> None:
    await run_agent(agent, messages)

    # If it converged with a score of 0.85 or more, a new skill is in the registry, named after
    # the task tag and the query.
    print([s.name for s in SkillRegistry.list_all()])


if __name__ == "__main__":
    asyncio.run(main())
