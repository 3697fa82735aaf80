"""``allOf``, ``anyOf`` and ``not``: criteria made of criteria, with their words and names kept.

They are asked in order, and none is asked once the answer is certain. What one of them raises ends
the loop as if it stood alone: it never counts as a refusal. A verdict that is undecided stays so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from untildone.agent import criterion_name
from untildone.criteria.asking import ask, checked_criterion
from untildone.domain.errors import ConfigError
from untildone.domain.grading import CriterionContext, CriterionVerdict


class AllOf:
    """Done when every one of its criteria is satisfied; the first that is not speaks for it."""

    __slots__ = ("criteria", "kind")

    def __init__(self, criteria: Sequence[Any]) -> None:
        self.criteria = _checked("all_of", criteria)
        self.kind = _named("allOf", self.criteria)

    def __repr__(self) -> str:
        return self.kind

    async def evaluate(self, ctx: CriterionContext) -> CriterionVerdict:
        """Asks them in order, until one asks for another iteration."""
        for index, criterion in enumerate(self.criteria):
            verdict = await ask(criterion, ctx, index=index)
            if not verdict.satisfied:
                return verdict
        return CriterionVerdict(satisfied=True)


class AnyOf:
    """Done when one of its criteria is satisfied; else all of them speak."""

    __slots__ = ("criteria", "kind")

    def __init__(self, criteria: Sequence[Any]) -> None:
        self.criteria = _checked("any_of", criteria)
        self.kind = _named("anyOf", self.criteria)

    def __repr__(self) -> str:
        return self.kind

    async def evaluate(self, ctx: CriterionContext) -> CriterionVerdict:
        """Asks them in order, until one is satisfied."""
        refusals: list[CriterionVerdict] = []
        for index, criterion in enumerate(self.criteria):
            verdict = await ask(criterion, ctx, index=index)
            if verdict.satisfied:
                return verdict
            refusals.append(verdict)
        return _together(refusals)


class Not:
    """Done when its criterion is clearly not satisfied; where that is undecided, so is this."""

    __slots__ = ("criterion", "feedback", "kind")

    def __init__(self, criterion: Any, *, feedback: str | None = None) -> None:
        self.criterion = checked_criterion(criterion, where="not_(criterion)")
        self.kind = _named("not", (self.criterion,))
        self.feedback = feedback or (
            f"What {criterion_name(self.criterion)} looks for must not hold, and it does."
        )

    def __repr__(self) -> str:
        return self.kind

    async def evaluate(self, ctx: CriterionContext) -> CriterionVerdict:
        """Asks it and turns the answer round."""
        verdict = await ask(self.criterion, ctx)
        if verdict.satisfied:
            return CriterionVerdict(satisfied=False, feedback=self.feedback)
        return verdict if verdict.undecided else CriterionVerdict(satisfied=True)


def all_of(*criteria: Any) -> AllOf:
    """One criterion out of several, all of which must be satisfied.

    Among ``LoopConfig.criteria`` all must be satisfied anyway; this is for use inside ``any_of``.

    Raises:
        ConfigError: There are none, or one of them cannot judge.
    """
    return AllOf(criteria)


def any_of(*criteria: Any) -> AnyOf:
    """One criterion out of several, one of which must be satisfied.

    Raises:
        ConfigError: There are none, or one of them cannot judge.
    """
    return AnyOf(criteria)


def not_(criterion: Any, *, feedback: str | None = None) -> Not:
    """A criterion that is satisfied as long as another one is not.

    Where the other one is undecided (an unclear judge, a command that timed out) another iteration
    follows.

    Args:
        criterion: The other one.
        feedback: What the agent is told where the other one is satisfied.

    Raises:
        ConfigError: It cannot judge.
    """
    return Not(criterion, feedback=feedback)


def _together(refusals: Sequence[CriterionVerdict]) -> CriterionVerdict:
    """What several refusals have to say: one of them alone as it is, several one below another."""
    undecided = any(each.undecided for each in refusals)
    speaking = [each for each in refusals if each.feedback or each.messages is not None]
    if len(speaking) <= 1:
        only = speaking[0] if speaking else CriterionVerdict(satisfied=False)
        return replace(only, undecided=undecided)
    head = "Any one of the following would do."
    if all(each.messages is None for each in speaking):
        texts = [head, *(each.feedback or "" for each in speaking)]
        return CriterionVerdict(False, "\n\n".join(texts), undecided=undecided)
    messages = [_said(head)]
    for each in speaking:
        messages += [_said(each.feedback or "")] if each.messages is None else each.messages
    return CriterionVerdict(False, messages=messages, undecided=undecided)


def _said(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def _named(kind: str, criteria: Sequence[Any]) -> str:
    return f"{kind}({', '.join(criterion_name(criterion) for criterion in criteria)})"


def _checked(name: str, criteria: Sequence[Any]) -> tuple[Any, ...]:
    if not criteria:
        raise ConfigError(f"{name}() has no criteria; give at least one")
    return tuple(
        checked_criterion(criterion, where=f"{name}(...)[{index}]")
        for index, criterion in enumerate(criteria)
    )
