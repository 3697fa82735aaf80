"""One remembered attempt."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Outcome = Literal["success", "partial", "failure", "unknown"]


@dataclass(slots=True)
class Episode:
    """An attempt and how it went (S1).

    Attributes:
        query: What was asked for.
        response: The answer.
        outcome: ``success`` if it was accepted, ``partial`` or ``failure`` by its grade,
            ``unknown`` without one.
        score: The grade, in [0, 1].
        tools_used: The names of the tools it called, each once.
        reflection: A lesson, where somebody drew one.
        tags: Free words.
        timestamp: When it was recorded, ISO 8601, UTC; set by the memory where empty.
        agent_id: Who made it.
        id: Tells episodes apart: recording one with a known id replaces it; set by the memory
            where empty.
    """

    query: str
    response: str
    outcome: Outcome = "unknown"
    score: float | None = None
    tools_used: list[str] = field(default_factory=list[str])
    reflection: str | None = None
    tags: list[str] = field(default_factory=list[str])
    timestamp: str = ""
    agent_id: str = ""
    id: str = ""
