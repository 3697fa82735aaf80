"""Three ways out of the turn loop, and which of them your runs took.

Goal satisfaction is the happy path, the cap on turns the seat belt, and the stuck detector notices
repeating: it nudges the model once, then ends the run. Group your runs by exit reason and you see
which of them you have to work on.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from untildone import Agent, AgentResult, ExitReason, is_stuck, run_agent

MODEL = "ollama/llama3"


def search(query: str) -> str:
    """Search the code."""
    return f"no file mentions {query!r}"


def agent_for(tools: Sequence[Callable[..., Any]], max_turns: int = 15) -> Agent:
    return Agent("worker", MODEL, tools=tools, max_turns=max_turns)


def goal_of(goal: str) -> list[dict[str, Any]]:
    return [{"role": "system", "content": f"Goal: {goal}"}]


async def pursue(
    goal: str, tools: Sequence[Callable[..., Any]], max_turns: int = 15
) -> AgentResult:
    return await run_agent(agent_for(tools, max_turns), goal_of(goal))


def summary(result: AgentResult) -> dict[str, Any]:
    """The three facts to log of every run."""
    return {
        "answer": result.text if result.exit_reason is ExitReason.SATISFIED else None,
        "steps": result.turns,
        "exit": result.exit_reason,
        "repeats": is_stuck(result.messages),
    }


def statistics(results: Iterable[AgentResult]) -> Counter[ExitReason | None]:
    return Counter(result.exit_reason for result in results)


async def main() -> None:
    goals = ["Find the login code.", "List every caller of login.", "Why is login slow?"]
    results = await asyncio.gather(*(pursue(goal, [search]) for goal in goals))
    for result in results:
        print(summary(result))
    for reason, count in statistics(results).most_common():
        print(f"{count:3} {reason}")


if __name__ == "__main__":
    asyncio.run(main())
