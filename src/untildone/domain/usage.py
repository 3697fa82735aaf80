"""Tokens spent by model calls."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one model call, or the sum over many.

    Attributes:
        input_tokens: Prompt tokens, cached ones included.
        output_tokens: Generated tokens, reasoning included.
        cached_tokens: The part of ``input_tokens`` that the provider read from its prompt cache.
        unknown_calls: Model calls whose tokens no one reported; they are not free, only unknown.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    unknown_calls: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            unknown_calls=self.unknown_calls + other.unknown_calls,
        )

    def __sub__(self, other: Usage) -> Usage:
        return Usage(
            input_tokens=self.input_tokens - other.input_tokens,
            output_tokens=self.output_tokens - other.output_tokens,
            cached_tokens=self.cached_tokens - other.cached_tokens,
            unknown_calls=self.unknown_calls - other.unknown_calls,
        )

    @property
    def total_tokens(self) -> int:
        """Input plus output tokens."""
        return self.input_tokens + self.output_tokens


NO_USAGE = Usage()
"""What costs nothing."""

UNKNOWN_USAGE = Usage(unknown_calls=1)
"""What a model call costs when nobody said: one unknown call, never zero calls."""
