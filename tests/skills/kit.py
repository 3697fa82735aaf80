"""What the tests of skills are built of: agents that converge, and skills made of them."""

from __future__ import annotations

from typing import Any

from tests.behaviour.refine_kit import scoring
from untildone import Agent, LoopConfig, run_agent
from untildone.skills import DistilledSkill, SkillRegistry
from untildone.testing import ScriptedModel

TOP_TEN = "Find top 10 customers by revenue"


def converging(
    script: Any, *, score: float = 0.9, loop: dict[str, Any] | None = None, **agent: Any
):
    """An agent whose first answer converges with a score and is distilled."""
    settings: dict[str, Any] = {"verifier": scoring(score), "auto_extract_skill": True}
    return Agent(
        agent.pop("name", "sql_analyst"),
        script if hasattr(script, "generate") else ScriptedModel(script),
        loop_config=LoopConfig(**{**settings, **(loop or {})}),
        **agent,
    )


async def distilled(script: Any, query: str = TOP_TEN, **settings: Any) -> DistilledSkill:
    """The skill that a converging run becomes; the script's first line is that run's answer."""
    await run_agent(converging(script, **settings), [{"role": "user", "content": query}])
    skill = SkillRegistry.list_all()[-1]
    assert isinstance(skill, DistilledSkill)
    return skill


async def inline(function: Any) -> Any:
    """An offload that runs the function here."""
    return function()
