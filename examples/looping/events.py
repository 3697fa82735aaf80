"""Watch a loop through a queue: iterations, scores, branches, skills. The reader ends by itself."""

import asyncio
from typing import Any

from untildone import Agent, LoopConfig, Verifier, run_agent
from untildone.types import EventType

agent = Agent(
    name="researcher",
    model="openai/gpt-4o-mini",
    loop_config=LoopConfig(
        max_iterations=4, verifier=Verifier(), branches=2, auto_extract_skill=True
    ),
)
messages = [{"role": "user", "content": "Explain CRISPR"}]


async def consume(queue: "asyncio.Queue[Any]") -> None:
    while True:
        event = await queue.get()
        if event is None:
            break
        if event.event == EventType.LOOP_ITERATION:
            i = event.data["iteration"]
            converged = event.data["converged"]
            print(f"Loop iteration {i} - {'converged' if converged else 'refining...'}")
        elif event.event == EventType.VERIFIER_SCORED:
            print(f"Verifier score: {event.data['score']} - issues: {event.data['issues']}")
        elif event.event == EventType.BRANCH_SELECTED:
            print(
                f"Branch {event.data['winning_index']} won with score {event.data['winning_score']}"
            )
        elif event.event == EventType.SKILL_EXTRACTED:
            print(f"Distilled new skill: {event.data['skill_name']} (score {event.data['score']})")


async def main() -> None:
    queue: asyncio.Queue[Any] = asyncio.Queue()
    await asyncio.gather(run_agent(agent, messages, queue=queue), consume(queue))


if __name__ == "__main__":
    asyncio.run(main())
