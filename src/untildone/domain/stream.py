"""What a live reader of a run sees: one small event after another."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class EventType(StrEnum):
    """The kinds of ``StreamEvent``; the names and payload keys are S1's (`s1-surface.md`)."""

    AGENT_START = "agent_start"
    TEXT_DELTA = "text_delta"
    THINKING_DELTA = "thinking_delta"
    TOOL_CALL = "tool_call"
    TOOL_RESULT = "tool_result"
    TOOL_DENIED = "tool_denied"
    AGENT_DONE = "agent_done"
    ERROR = "error"
    DONE = "done"
    RETRY_ATTEMPT = "retry_attempt"
    FALLBACK_TRIGGERED = "fallback_triggered"
    MEMORY_STORE = "memory_store"
    MEMORY_RETRIEVE = "memory_retrieve"
    LOOP_ITERATION = "loop_iteration"
    APEX_START = "apex_start"
    APEX_DONE = "apex_done"
    VERIFIER_SCORED = "verifier_scored"
    PLAYBOOK_UPDATED = "playbook_updated"
    BRANCH_SELECTED = "branch_selected"
    SKILL_EXTRACTED = "skill_extracted"
    EPISODE_RECALLED = "episode_recalled"
    EPISODE_RECORDED = "episode_recorded"
    NUDGED = "nudged"
    """Ours: the stuck detector spoke to the agent. Payload: ``rule, evidence, text``."""
    APPROVAL_REQUESTED = "approval_requested"
    """Ours: a tool call waits for a person. Payload: ``tool, args, call_id``."""


@dataclass(slots=True)
class StreamEvent:
    """One event of a run as a live reader sees it.

    Attributes:
        event: The kind.
        data: The payload; keys depend on the kind and are listed in ``docs/concepts/events.md``.
        agent_id: Which agent it came from.
    """

    event: EventType
    data: dict[str, Any] = field(default_factory=dict[str, Any])
    agent_id: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The event as one flat JSON-ready object: ``event``, ``agent_id`` and the payload."""
        return {"event": self.event.value, "agent_id": self.agent_id, **self.data}

    def to_sse(self) -> str:
        """The event as one Server-Sent Events frame, ready to be written to a response."""
        payload = json.dumps({"agent_id": self.agent_id, **self.data}, default=str)
        return f"event: {self.event.value}\ndata: {payload}\n\n"
