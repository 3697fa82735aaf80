"""What a run gives back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from untildone.domain.exits import ExitReason

_LAZY_FIELDS: Final = ("messages", "tool_calls", "scores")
_MAKE: Final = "_make_field"


@dataclass
class AgentResult:
    """The result of a run: S1's fields, and what the contract adds.

    ``text``, ``parsed``, ``confidence``, ``tool_calls``, ``messages``, ``finish_reason`` and
    ``model`` belong to the iteration that is returned; usage, turns, scores and
    ``loop_iterations`` to the whole run.

    Attributes:
        agent_id: The id given to the run, else the agent's name.
        text: The reply, verbatim.
        tool_calls: ``{"id", "tool", "args", "result", "is_error"}`` each, in call order.
        input_tokens: Prompt tokens of every model call made for the run.
        output_tokens: Generated tokens of every model call made for the run.
        model: The model's name as the provider reported it, else as configured.
        confidence: In [0, 1] where a grader or synthesizer set it.
        loop_iterations: Finished iterations; 0 without a refine loop.
        episodes_recalled: Past episodes put into the context.
        parsed: The reply as ``response_model``.
        messages: The conversation in OpenAI form, up to and with the returned iteration.
        cached_tokens: The part of ``input_tokens`` read from a prompt cache.
        exit_reason: Why the run ended; None only while it still runs.
        turns: Model replies of the agent runs, over all iterations.
        best_iteration: The iteration that ``text`` comes from, from 1; 0 without a refine loop.
        scores: The verifier's score of each scored iteration, in order.
        error: ``"Type: text"`` of what failed, where something did.
        finish_reason: The provider's finish reason of the last reply, such as ``"length"``.
        unknown_usage_calls: Model calls whose tokens nobody reported; they were not free.
        run_id: The run's id, as in its log.
    """

    agent_id: str
    text: str
    tool_calls: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    input_tokens: int = 0
    output_tokens: int = 0
    model: str = ""
    confidence: float | None = None
    loop_iterations: int = 0
    episodes_recalled: int = 0
    parsed: Any | None = None
    messages: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    cached_tokens: int = 0
    exit_reason: ExitReason | None = None
    turns: int = 0
    best_iteration: int = 0
    scores: list[float] = field(default_factory=list[float])
    error: str | None = None
    finish_reason: str | None = None
    unknown_usage_calls: int = 0
    run_id: str = ""

    @property
    def total_tokens(self) -> int:
        """Input plus output tokens."""
        return self.input_tokens + self.output_tokens

    @classmethod
    def with_long_fields_made_by(cls, make: Callable[[str], Any], **fields: Any) -> AgentResult:
        """A result whose ``messages``, ``tool_calls`` and ``scores`` are made when first read.

        A run of a thousand iterations shows its result a thousand times; a copy of the whole
        conversation each time would make its cost quadratic.

        Args:
            make: Gives one of them by name.
            **fields: The other fields that do not have their default.
        """
        result = cls.__new__(cls)
        fields[_MAKE] = make
        result.__dict__ = fields
        return result

    def __getattr__(self, name: str) -> Any:
        # Only called for attributes that are not there: the lazy ones, before their first read.
        make = self.__dict__.get(_MAKE)
        if make is None or name not in _LAZY_FIELDS:
            msg = f"{type(self).__name__!r} object has no attribute {name!r}"
            raise AttributeError(msg)
        value = self.__dict__[name] = make(name)
        return value

    def __getstate__(self) -> dict[str, Any]:
        for name in _LAZY_FIELDS:
            getattr(self, name)
        return {key: value for key, value in self.__dict__.items() if key != _MAKE}
