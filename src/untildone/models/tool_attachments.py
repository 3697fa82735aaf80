"""Images and files of tool results, where a tool message takes text alone, as OpenAI's does.

The tool message keeps the text, in which each attachment has its note; the attachments follow the
last answer of the batch, all of them in one user message. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from untildone.domain.messages import Message

_FOLLOWS: Final = "(the result follows in the user's message)"


def has_attachments(message: Message) -> bool:
    """Whether it is a tool's answer with more than text in it."""
    return (
        message.role == "tool"
        and isinstance(message.content, list)
        and any(part.get("type") != "text" for part in message.content)
    )


def text_alone(message: Message) -> Message:
    """The answer without its attachments."""
    content = message.content if isinstance(message.content, list) else []
    texts = [str(part.get("text") or "") for part in content if part.get("type") == "text"]
    text = "\n".join(texts) or _FOLLOWS
    return Message("tool", text, (), message.tool_call_id, extra=message.extra)


def attachments_of(message: Message) -> list[dict[str, Any]]:
    """The attachments of an answer as content parts, after a text that says whose they are."""
    content = message.content if isinstance(message.content, list) else []
    said = f"Attachments of the result of call {message.tool_call_id}:"
    return [{"type": "text", "text": said}, *(p for p in content if p.get("type") != "text")]


def attachments_apart(messages: Sequence[Message]) -> list[Message]:
    """The conversation with the attachments of tool results as user messages."""
    apart: list[Message] = []
    held: list[dict[str, Any]] = []
    for message in messages:
        if message.role != "tool" and held:
            apart.append(Message("user", held))
            held = []
        if has_attachments(message):
            apart.append(text_alone(message))
            held += attachments_of(message)
        else:
            apart.append(message)
    return [*apart, Message("user", held)] if held else apart
