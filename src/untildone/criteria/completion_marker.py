"""``completionMarker``: done when the agent's answer contains a text."""

from __future__ import annotations

from typing import Final

from untildone.domain.errors import ConfigError
from untildone.domain.grading import CriterionContext, CriterionVerdict


class CompletionMarker:
    """Done when the latest answer contains ``marker`` (S3).

    Only the agent's own answer of this iteration is looked at, never the user's messages, the
    tools' results or earlier answers. Upper and lower case count.

    Args:
        marker: The text; not blank.

    Raises:
        ConfigError: It is blank or no text.
    """

    kind: Final = "completionMarker"

    __slots__ = ("marker",)

    def __init__(self, marker: str) -> None:
        if not isinstance(marker, str) or not marker.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(
                f"CompletionMarker.marker is {marker!r:.80}; give the text that ends the work,"
                " such as 'ALL DONE'"
            )
        self.marker = marker

    def __repr__(self) -> str:
        return f"CompletionMarker({self.marker!r})"

    def evaluate(self, ctx: CriterionContext) -> CriterionVerdict:
        """Looks for the marker."""
        if self.marker in ctx.result.text:
            return CriterionVerdict(satisfied=True)
        return CriterionVerdict(
            satisfied=False,
            feedback=f"The answer does not contain {self.marker!r} yet. Go on with the task, and"
            f" write {self.marker!r} once all of it is done.",
        )
