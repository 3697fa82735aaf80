"""The types of results and events under the module name that S1's users know."""

from __future__ import annotations

from untildone.domain.exits import ExitReason
from untildone.domain.grading import (
    CriterionContext,
    CriterionVerdict,
    LoopOutcome,
    VerifierFeedback,
)
from untildone.domain.results import AgentResult
from untildone.domain.stream import EventType, StreamEvent
from untildone.domain.usage import Usage

__all__ = [
    "AgentResult",
    "CriterionContext",
    "CriterionVerdict",
    "EventType",
    "ExitReason",
    "LoopOutcome",
    "StreamEvent",
    "Usage",
    "VerifierFeedback",
]
