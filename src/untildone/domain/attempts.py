"""What an agent did in an iteration that is over."""

from __future__ import annotations

from dataclasses import dataclass

from untildone.domain.messages import Message


@dataclass(frozen=True, slots=True)
class Attempt:
    """The tool calls of one finished iteration, kept where its messages do not go forward.

    Attributes:
        messages: The replies that ask for calls, and the answers; of a merge, those of every
            candidate, one after the other.
        is_merge: Whether several candidates made them.
    """

    messages: tuple[Message, ...]
    is_merge: bool = False
