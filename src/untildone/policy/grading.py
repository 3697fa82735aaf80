"""What counts as a grade and as a verdict. An outage or nonsense never becomes a score."""

from __future__ import annotations

from typing import Any

from untildone.domain.errors import ConfigError, GradingError
from untildone.domain.grading import CriterionVerdict, VerifierFeedback
from untildone.domain.log import At, CriterionJudged, Graded
from untildone.domain.messages import messages_from_dicts


def checked_score(value: object) -> float:
    """``value`` as a score.

    Raises:
        GradingError: It is no real number in [0, 1]; bool and NaN are none.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        msg = f"the score is {value!r:.80}; it must be a number from 0 to 1"
        raise GradingError(msg)
    return float(value)


def graded(at: At, feedback: object, threshold: float, confidence: float | None) -> Graded:
    """A grader's feedback as an event. ``converged=None`` means a score of ``threshold`` or more.

    Raises:
        GradingError: It is no ``VerifierFeedback``, or its score is none.
    """
    if not isinstance(feedback, VerifierFeedback):
        msg = f"the grader gave {feedback!r:.80}; it must give a VerifierFeedback(score, ...)"
        raise GradingError(msg)
    score = checked_score(feedback.score)
    converged: Any = feedback.converged
    if not (converged is None or isinstance(converged, bool)):
        raise GradingError(f"converged is {converged!r:.80}; it must be True, False or None")
    issues: object = feedback.issues
    issues = [issues] if isinstance(issues, str) else feedback.issues or ()
    return Graded(
        at,
        score,
        tuple(str(issue) for issue in issues),
        str(feedback.suggestion or ""),
        converged=score >= threshold if converged is None else converged,
        confidence=confidence,
    )


def checked_confidence(value: object) -> float | None:
    """A confidence that somebody set on a result, where it is a real number in [0, 1]."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
        return float(value)
    return None


def judged(at: At, index: int, name: str, value: object) -> CriterionJudged:
    """A criterion's answer as an event: a verdict, a bool, or ``(bool, feedback)``.

    Raises:
        GradingError: It is none of them.
    """
    verdict = _verdict(value)
    if verdict is None:
        msg = (
            f"criteria[{index}] ({name}) gave {value!r:.80};"
            " give a CriterionVerdict, a bool or (bool, feedback)"
        )
        raise GradingError(msg)
    messages = None
    if verdict.messages is not None:
        try:
            messages = tuple(message.to_dict() for message in messages_from_dicts(verdict.messages))
        except ConfigError as error:
            msg = f"criteria[{index}] ({name}) gave unusable messages: {error}"
            raise GradingError(msg) from error
    return CriterionJudged(at, index, name, verdict.satisfied, verdict.feedback, messages)


def _verdict(value: object) -> CriterionVerdict | None:
    match value:
        case bool():
            return CriterionVerdict(value)
        case CriterionVerdict(satisfied=bool(), feedback=None | str()):
            return value
        case (bool() as satisfied, None | str() as feedback) if isinstance(value, tuple):
            return CriterionVerdict(satisfied, feedback)
        case _:
            return None
