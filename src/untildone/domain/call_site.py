"""Where in a run a tool is called, for the few tools whose state is the conversation itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final

from untildone.domain.attempts import Attempt
from untildone.domain.messages import Message, ToolCall

Closer = Callable[[str], Awaitable[None]]
"""Ends what still runs for the run with this id, and returns when it is gone."""


@dataclass(slots=True)
class CallSite:
    """One call, as its tool may see it; treat it as immutable.

    Attributes:
        run_id: The run's id.
        conversation: The conversation up to and with the reply that asks for the call. The list
            grows after the call: read it during the call.
        given: How many of its first messages are not the run's own: instructions, and what the
            caller gave.
        batch: The calls of that reply.
        index: Which of them this one is.
        closers: What the run awaits with its id before it ends, however it ends; a tool that goes
            on after its answer puts there what ends that. Equal ones count once.
        start: Where the messages of this iteration begin.
        attempts: The tool calls of each earlier iteration that made some, oldest first.
    """

    run_id: str
    conversation: Sequence[Message]
    given: int
    batch: Sequence[ToolCall]
    index: int
    closers: set[Closer] = field(default_factory=set[Closer])
    start: int = 0
    attempts: Sequence[Attempt] = ()

    @property
    def own(self) -> Sequence[Message]:
        """The run's own messages."""
        return self.conversation[self.given :]

    @property
    def of_this_iteration(self) -> Sequence[Message]:
        """Those of them that the agent's current run has made."""
        return self.conversation[max(self.start, self.given) :]


CALL_SITE: Final[ContextVar[CallSite | None]] = ContextVar("untildone_call_site", default=None)
"""Set around each call by what runs the tools; None outside a run."""
