"""What a tool can learn of the call that it answers.

A tool whose state is the conversation reads it off the messages, so that it holds nothing between
calls: one object serves any number of runs and candidates, and a resumed run has what it had.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from untildone.domain.call_site import CALL_SITE, CallSite
from untildone.domain.messages import Message, ToolCall


def call_site() -> CallSite | None:
    """The call that is being run; None outside a run."""
    return CALL_SITE.get()


def answered_calls(messages: Sequence[Message]) -> Iterator[tuple[ToolCall, Message]]:
    """The calls in a conversation with their answers, in call order."""
    waiting: list[ToolCall] = []
    for message in messages:
        if message.tool_calls:
            waiting = list(message.tool_calls)
        elif message.role == "tool" and waiting:
            yield waiting.pop(0), message
