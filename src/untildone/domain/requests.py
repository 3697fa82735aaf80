"""One model call as data: what is asked, what comes back, and what is seen on the way."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from untildone.domain.log import At, Purpose
from untildone.domain.messages import Message
from untildone.domain.tools import NO_TOOLS, ToolSpecs
from untildone.domain.usage import Usage


@dataclass(slots=True, kw_only=True)
class ModelRequest:
    """What a model is asked.

    Attributes:
        messages: The conversation. It may be a list that grows after the call: read it during the
            call, copy it to keep it.
        tools: The tools the model may ask for.
        json_schema: A JSON Schema the reply must fit, where the caller wants structured output.
        schema_name: A name for it, where the provider wants one.
        temperature: None leaves it to the provider.
        max_tokens: Most tokens to generate; None leaves it to the provider.
        extra_params: Further parameters, sent as they are.
        purpose: What the call is for.
        at: Where in a run it is made; None outside a run.
    """

    messages: Sequence[Message]
    tools: ToolSpecs = NO_TOOLS
    json_schema: dict[str, Any] | None = None
    schema_name: str = "reply"
    temperature: float | None = None
    max_tokens: int | None = None
    extra_params: Mapping[str, Any] = field(default_factory=dict[str, Any])
    purpose: Purpose = "worker"
    at: At | None = None


@dataclass(slots=True, kw_only=True)
class ModelReply:
    """A whole reply.

    Attributes:
        message: The assistant message.
        finish_reason: The provider's, such as ``stop``, ``tool_calls``, ``length``.
        usage: Its tokens, or None where the provider reported none.
        model: The model's name as the provider reported it.
        request_id: The provider's id of the request.
    """

    message: Message
    finish_reason: str | None = None
    usage: Usage | None = None
    model: str = ""
    request_id: str | None = None


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the reply's text."""

    text: str


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    """A piece of the model's visible reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class RetryAttempt:
    """A call is tried again; what was streamed of it is void.

    Attributes:
        attempt: Which retry, from 1.
        model: The model's name.
        delay_s: How long is waited before it, in seconds.
        discard_chars: How many characters of text a live reader must drop.
        error: What failed.
    """

    attempt: int
    model: str
    delay_s: float
    discard_chars: int
    error: str


@dataclass(frozen=True, slots=True)
class FallbackTriggered:
    """The next model of the chain takes over; what was streamed of the call is void."""

    from_model: str
    to_model: str
    discard_chars: int
    error: str


Delta = TextDelta | ThinkingDelta | RetryAttempt | FallbackTriggered
DeltaSink = Callable[[Delta], Awaitable[None]]
"""Takes what a live reader may see of a call; waits where the reader is slow."""
