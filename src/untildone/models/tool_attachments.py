"""Images and files of tool results, where a tool message takes text alone, as OpenAI's does.

The tool message keeps the text, in which each attachment has its note; the attachments follow the
last answer of the batch, as one user message for each result that has any. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from untildone.domain.messages import Message


def has_attachments(message: Message) -> bool:
    """Whether it is a tool's answer with more than text in it."""
    return (
        message.role == "tool"
        and isinstance(message.content, list)
        and any(part.get("type") != "text" for part in message.content)
    )


def text_alone(message: Message) -> Message:
    """The answer without its attachments."""
    return Message("tool", message.text, (), message.tool_call_id, extra=message.extra)


def attachments_alone(message: Message) -> Message:
    """The attachments of an answer, as the user's message."""
    content = message.content if isinstance(message.content, list) else []
    said = f"Attachments of the result of call {message.tool_call_id}:"
    parts = [part for part in content if part.get("type") != "text"]
    return Message("user", [{"type": "text", "text": said}, *parts])


def attachments_apart(messages: Sequence[Message]) -> list[Message]:
    """The conversation with the attachments of tool results as user messages."""
    apart: list[Message] = []
    held: list[Message] = []
    for message in messages:
        if message.role != "tool" and held:
            apart += held
            held = []
        if has_attachments(message):
            apart.append(text_alone(message))
            held.append(attachments_alone(message))
        else:
            apart.append(message)
    return apart + held
