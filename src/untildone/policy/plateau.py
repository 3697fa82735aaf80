"""When a score has stopped improving."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

TOLERANCE: Final = 1e-9
"""0.82 - 0.80 is 0.0199999…: without it 0.02 would not be 0.02."""

FEWEST_SCORES: Final = 3
"""Two scores are one step, not a trend; S1 never fires before the third."""


@dataclass(frozen=True, slots=True)
class Plateau:
    """The scored iterations so far, as far as a plateau depends on them.

    The reference is the last score that beat the former reference by ``min_improvement``; every
    other score is a miss. Comparing with the reference and not with the last score is what makes
    0.5/0.9 oscillation stop and a steady small rise go on.
    """

    reference: float | None = None
    misses: int = 0
    scored: int = 0

    def add(self, score: float, min_improvement: float) -> Plateau:
        """The plateau after one more scored iteration."""
        if self.reference is None:
            return Plateau(score, 0, 1)
        gain = score - self.reference
        if gain > 0 and gain >= min_improvement - TOLERANCE:
            return Plateau(score, 0, self.scored + 1)
        return Plateau(self.reference, self.misses + 1, self.scored + 1)

    def reached(self, patience: int) -> bool:
        """Whether ``patience`` misses in a row have been seen, over at least three scores."""
        return self.scored >= FEWEST_SCORES and self.misses >= patience
