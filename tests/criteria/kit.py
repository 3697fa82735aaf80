"""What the tests of the criteria share."""

from typing import Any

from untildone import AgentResult, CriterionContext


def context(text: str, *, query: str = "the task", **more: Any) -> CriterionContext:
    """One iteration with this answer."""
    return CriterionContext(
        iteration=1, result=AgentResult("ada", text), query=query, agent_name="ada", **more
    )
