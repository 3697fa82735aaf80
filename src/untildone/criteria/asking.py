"""Any stop criterion, asked in one way: for criteria that are made of others."""

from __future__ import annotations

import inspect
from typing import Any, Final

from untildone.agent import criterion_name
from untildone.domain.errors import ConfigError
from untildone.domain.grading import CriterionContext, CriterionVerdict
from untildone.domain.log import At
from untildone.policy.feedback import grade_in_words
from untildone.policy.grading import graded, judged
from untildone.ports import Grader

_NOWHERE: Final = At("")


async def ask(criterion: Any, ctx: CriterionContext, *, index: int = 0) -> CriterionVerdict:
    """What a criterion of any form says: an object with ``evaluate``, a callable, a verifier.

    Args:
        criterion: The criterion.
        ctx: What it may know.
        index: Its place among the others, for error texts.

    Raises:
        GradingError: It gave no verdict.
        Exception: Whatever it raises.
    """
    if is_grader(criterion):
        return await ask_grader(criterion, ctx)
    answer = getattr(criterion, "evaluate", criterion)(ctx)
    while not isinstance(answer, bool | CriterionVerdict) and inspect.isawaitable(answer):
        answer = await answer
    said = judged(_NOWHERE, index, criterion_name(criterion), answer)
    undecided = isinstance(answer, CriterionVerdict) and answer.undecided is True
    return CriterionVerdict(said.satisfied, said.feedback, said.messages, undecided)


async def ask_grader(grader: Grader, ctx: CriterionContext) -> CriterionVerdict:
    """A verifier as a criterion: a pass is graded again as often as it is configured to."""
    for _ in range(1 + grader.confirmations):
        feedback = await grader.evaluate(ctx.query, ctx.result, default_model=ctx.model)
        grade = graded(_NOWHERE, feedback, grader.threshold, None)
        if not grade.converged:
            return CriterionVerdict(satisfied=False, feedback=grade_in_words(grade) or None)
    return CriterionVerdict(satisfied=True)


def is_grader(criterion: object) -> bool:
    """Whether it grades with a score, as a ``Verifier`` does."""
    return all(hasattr(criterion, name) for name in ("evaluate", "threshold", "confirmations"))


def checked_criterion(value: object, *, where: str) -> Any:
    """A criterion, if it can judge.

    Raises:
        ConfigError: It cannot: it is neither callable nor has it ``evaluate``, or it is a class.
    """
    if isinstance(value, type):
        raise ConfigError(
            f"{where} is the class {value.__name__}; make an object of it: {value.__name__}(...)"
        )
    if callable(value) or callable(getattr(value, "evaluate", None)):
        return value
    raise ConfigError(f"{where} is {value!r:.80}; give a callable or an object with evaluate(ctx)")
