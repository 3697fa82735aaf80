"""What voting saves: candidates asked until the winner is certain, beside asking all of them.

The bench runs ``python -m bench.votes SHARES CANDIDATES TRIALS`` in a process of its own and reads
the last line. ``SHARES`` are the probabilities of the different answers, such as ``60/20/20``.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

from untildone import Agent, AgentResult, LoopConfig, run_agent
from untildone.testing import ScriptedModel, SeenRequest

SEED = 20260728


def winner_of_all(answers: Sequence[str]) -> str:
    """The answer given most often; of equals the one given first. By asking everybody."""
    often = Counter(answers)
    return max(often, key=lambda each: (often[each], -answers.index(each)))


async def trial(answers: Sequence[str]) -> tuple[AgentResult, int]:
    """One loop whose n-th candidate would give the n-th answer, and how many were asked."""

    def speak(seen: SeenRequest) -> str:
        assert seen.request.at is not None
        return answers[seen.request.at.branch]

    model = ScriptedModel(speak)
    loop = LoopConfig(max_iterations=1, branches=len(answers), branch_vote=lambda r: r.text)
    result = await run_agent(
        Agent("voter", model, loop_config=loop), [{"role": "user", "content": "Which?"}]
    )
    return result, len(model.requests)


async def measured(shares: Sequence[float], candidates: int, trials: int) -> dict[str, Any]:
    """Mean candidates asked, per cent saved, and in how many trials somebody else won."""
    chance = random.Random(SEED)
    letters = [f"answer {number}" for number in range(len(shares))]
    asked = others = 0
    for _ in range(trials):
        answers = chance.choices(letters, weights=shares, k=candidates)
        result, count = await trial(answers)
        asked += count
        others += result.text != winner_of_all(answers)
    mean = asked / trials
    return {"asked": mean, "saved": 100 * (1 - mean / candidates), "others_won": others}


def main() -> None:
    """Prints one line of JSON."""
    shares = [float(share) for share in sys.argv[1].split("/")]
    print(json.dumps(asyncio.run(measured(shares, int(sys.argv[2]), int(sys.argv[3])))))


if __name__ == "__main__":
    main()
