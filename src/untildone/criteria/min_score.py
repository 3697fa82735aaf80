"""``minScore``: done when a verifier's score is high enough."""

from __future__ import annotations

from typing import Final

from untildone.criteria.asking import ask_grader, is_grader
from untildone.domain.errors import ConfigError
from untildone.domain.grading import CriterionContext, CriterionVerdict
from untildone.ports import Grader


class MinScore:
    """Done when a verifier passes the latest answer; its issues are the feedback.

    It is the verifier, among the criteria, under the name of this kind: asked after cheaper ones,
    and its score never chooses the result.

    Args:
        verifier: A ``Verifier``, whose threshold is the score.

    Raises:
        ConfigError: It is no verifier.
    """

    kind: Final = "minScore"

    __slots__ = ("verifier",)

    def __init__(self, verifier: Grader) -> None:
        if isinstance(verifier, type) or not is_grader(verifier):
            raise ConfigError(
                f"MinScore takes a Verifier, not {verifier!r:.80};"
                " give MinScore(Verifier(VerifierConfig(threshold=0.8)))"
            )
        self.verifier = verifier

    def __repr__(self) -> str:
        return f"MinScore({self.verifier.threshold!r})"

    async def evaluate(self, ctx: CriterionContext) -> CriterionVerdict:
        """Grades the answer, and a pass again as often as the verifier is configured to.

        Raises:
            GradingError: The grade cannot be read.
            ModelError: The judge could not be reached.
        """
        return await ask_grader(self.verifier, ctx)
