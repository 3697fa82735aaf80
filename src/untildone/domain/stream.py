"""What a live reader of a run sees: one small event after another."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final


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


_ALWAYS: Final = frozenset({EventType.DONE, EventType.ERROR})
_CHAT: Final = _ALWAYS | {
    EventType.TEXT_DELTA,
    # Without these two a reader would show the text of a failed try beside that of the next one.
    EventType.RETRY_ATTEMPT,
    EventType.FALLBACK_TRIGGERED,
}
_STANDARD: Final = _CHAT | {
    EventType.AGENT_START,
    EventType.AGENT_DONE,
    EventType.TOOL_CALL,
    EventType.TOOL_RESULT,
    EventType.TOOL_DENIED,
    EventType.APPROVAL_REQUESTED,
    EventType.LOOP_ITERATION,
}


@dataclass(frozen=True)
class StreamPolicy:
    """Which kinds of events a reader wants (S1): a view, never a change to the run.

    DONE and ERROR always pass, so that every reader learns of the end.

    Attributes:
        include: The kinds that pass; None for all.
        exclude: Kinds that do not, even if included.
    """

    include: frozenset[EventType] | set[EventType] | None = None
    exclude: frozenset[EventType] | set[EventType] = frozenset()

    def allows(self, kind: EventType) -> bool:
        """Whether events of this kind pass."""
        if kind in _ALWAYS:
            return True
        return (self.include is None or kind in self.include) and kind not in self.exclude

    @classmethod
    def chat(cls) -> StreamPolicy:
        """The answer's text, and what takes back text of a failed try."""
        return cls(include=_CHAT)

    @classmethod
    def standard(cls) -> StreamPolicy:
        """Also the agent's beginning and end, its tools, and finished iterations."""
        return cls(include=_STANDARD)

    @classmethod
    def verbose(cls) -> StreamPolicy:
        """Everything."""
        return cls()


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
