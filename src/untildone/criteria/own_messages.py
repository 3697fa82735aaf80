"""The part of a conversation that a run itself made."""

from __future__ import annotations

from untildone.domain.grading import CriterionContext
from untildone.domain.messages import Message, messages_from_dicts


def own_messages(ctx: CriterionContext) -> list[Message]:
    """The run's messages without what the caller gave and without the instructions before it."""
    messages = messages_from_dicts(ctx.messages)
    given = ctx.original
    has_instructions = messages[: len(given)] != list(given)
    return messages[len(given) + has_instructions :]
