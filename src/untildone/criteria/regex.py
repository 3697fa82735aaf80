"""``regex``: done when the agent's answer matches a pattern."""

from __future__ import annotations

import re
from typing import Final

from untildone.domain.errors import ConfigError
from untildone.domain.grading import CriterionContext, CriterionVerdict


class Regex:
    """Done when a regular expression is found in the latest answer.

    The search runs inline and cannot be interrupted: use patterns of your own, not of strangers.

    Args:
        pattern: Python's syntax, as text or compiled; found anywhere, so anchor it where needed.
        feedback: What the agent is told where it is not found; default: the pattern.

    Raises:
        ConfigError: It is no regular expression.
    """

    kind: Final = "regex"

    __slots__ = ("feedback", "pattern")

    def __init__(self, pattern: str | re.Pattern[str], *, feedback: str | None = None) -> None:
        try:
            self.pattern = re.compile(pattern)
        except (re.error, TypeError, RecursionError) as error:
            raise ConfigError(
                f"Regex.pattern is {pattern!r:.80}, which is no regular expression: {error}"
            ) from error
        if not isinstance(self.pattern.pattern, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(f"Regex.pattern is {pattern!r:.80}; give text, not bytes")
        self.feedback = feedback

    def __repr__(self) -> str:
        return f"Regex({self.pattern.pattern!r})"

    def evaluate(self, ctx: CriterionContext) -> CriterionVerdict:
        """Searches the answer."""
        if self.pattern.search(ctx.result.text):
            return CriterionVerdict(satisfied=True)
        feedback = self.feedback or (
            f"The answer must match the regular expression `{self.pattern.pattern}`, and does not."
        )
        return CriterionVerdict(satisfied=False, feedback=feedback)
