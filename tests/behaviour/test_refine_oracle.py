"""The refine loop against a second reading of the contract: a simulation of forty lines.

The simulation counts in whole hundredths and knows nothing of the package; random plans of what
every judge will say must end in the same way, after the same questions, with the same result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.behaviour.manifest import requirement
from tests.behaviour.refine_kit import ASK, looping, model_of
from untildone import (
    AgentResult,
    CriterionContext,
    LoopConfig,
    LoopConvergedError,
    LoopOutcome,
    LoopUnsatisfiedError,
    Verifier,
    VerifierConfig,
    VerifierFeedback,
    partial_result,
    run_agent,
)

LONGEST = 6
THRESHOLD = 80

Says = Literal["no", "yes", "raises", "early"]


class JudgeDownError(Exception):
    """What a judge raises here."""


@dataclass(frozen=True)
class Plan:
    """A loop's settings, and what each judge says in each iteration; None: there is no such judge.

    A grade is a score in hundredths with ``converged``, or None where the grader raises. Of an
    iteration there are as many as the verifier may be asked for.
    """

    ceiling: int
    stop: tuple[Says, ...] | None
    grades: tuple[tuple[tuple[int, bool | None] | None, ...], ...] | None
    function: tuple[Says, ...] | None
    criteria: tuple[tuple[Says, ...], ...]
    confirmations: int
    adaptive: bool
    least_gain: int
    patience: int
    evaluate_final: bool
    fails_exhausted: bool
    fails_on_error: bool


@dataclass
class Ending:
    """How a loop ended."""

    exit: str
    raised: str | None
    asked: list[str]
    iterations: int
    returned: int
    scores: list[int]


class _StoppedError(Exception):
    pass


def simulate(plan: Plan) -> Ending:  # noqa: C901, PLR0915  one screen, as the contract has it
    """The contract's refine loop, steps 1 to 8, without an agent."""
    asked: list[str] = []
    scores: list[int] = []
    reference, misses, iteration, graded = -1, 0, 0, None

    def ask(name: str, says: Says) -> bool:
        asked.append(f"{name} {iteration}")
        if says in ("raises", "early"):
            raise _StoppedError("criterion_error" if says == "raises" else "stop_condition")
        return says == "yes"

    def grade(attempt: int) -> tuple[int, bool]:
        asked.append(f"verifier {iteration}")
        assert plan.grades is not None
        given = plan.grades[iteration - 1][attempt]
        if given is None:
            raise _StoppedError("criterion_error")
        return given[0], given[0] >= THRESHOLD if given[1] is None else given[1]

    def accepts() -> bool:
        nonlocal graded
        passed = plan.grades is None and plan.function is None
        if plan.grades is not None:
            graded, passed = grade(0)
            for attempt in range(1, 1 + plan.confirmations):
                if passed:
                    again, passed = grade(attempt)
                    graded = graded if passed else min(graded, again)
        if plan.function is not None and not passed:
            passed = ask("function", plan.function[iteration - 1])
        if not passed:
            return False
        if not plan.criteria:
            return plan.grades is not None or plan.function is not None
        if iteration == plan.ceiling and not (plan.fails_exhausted or plan.evaluate_final):
            return False
        return all(ask(f"c{n}", says[iteration - 1]) for n, says in enumerate(plan.criteria))

    def ended(exit_reason: str) -> Ending:
        best = iteration
        if exit_reason in ("plateau", "max_iterations") and scores:
            best = max(range(len(scores)), key=lambda n: (scores[n], n)) + 1
        raised = {"stop_condition": "LoopConvergedError"}.get(exit_reason)
        if exit_reason in ("plateau", "max_iterations") and plan.fails_exhausted:
            exit_reason, raised = "unsatisfied", "LoopUnsatisfiedError"
        if exit_reason == "criterion_error" and plan.fails_on_error:
            raised = "JudgeDownError"
        return Ending(exit_reason, raised, asked, iteration, best, scores)

    while True:
        iteration, graded = iteration + 1, None
        converged, stopped = False, None
        try:
            if plan.stop is not None and ask("stop", plan.stop[iteration - 1]):
                stopped = "stop_condition"
            else:
                converged = accepts()
        except _StoppedError as stop:
            stopped = str(stop)
        if graded is not None:
            scores.append(graded)
            if len(scores) == 1 or graded - reference >= max(plan.least_gain, 1):
                reference, misses = graded, 0
            else:
                misses += 1
        if stopped:
            return ended(stopped)
        if converged:
            return ended("converged")
        if plan.adaptive and len(scores) >= 3 and misses >= plan.patience:
            return ended("plateau")
        if iteration == plan.ceiling:
            return ended("max_iterations")


async def really(plan: Plan) -> Ending:  # noqa: C901  small judges
    """The same, by the package."""
    asked: list[str] = []
    attempts: Counter[int] = Counter()

    def says(name: str, iteration: int, word: Says) -> bool:
        asked.append(f"{name} {iteration}")
        if word == "raises":
            raise JudgeDownError(name)
        if word == "early":
            raise LoopConvergedError
        return word == "yes"

    def predicate(
        name: str, words: tuple[Says, ...] | None
    ) -> Callable[[AgentResult], bool] | None:
        if words is None:
            return None
        return lambda r: says(name, r.loop_iterations, words[r.loop_iterations - 1])

    def criterion(index: int, words: tuple[Says, ...]) -> Callable[[CriterionContext], bool]:
        return lambda ctx: says(f"c{index}", ctx.iteration, words[ctx.iteration - 1])

    def grade(_query: str, result: AgentResult) -> VerifierFeedback:
        iteration = result.loop_iterations
        asked.append(f"verifier {iteration}")
        assert plan.grades is not None
        given = plan.grades[iteration - 1][attempts[iteration]]
        attempts[iteration] += 1
        if given is None:
            raise JudgeDownError("verifier")
        return VerifierFeedback(given[0] / 100, converged=given[1])

    def outcome(fails: bool) -> LoopOutcome:
        return LoopOutcome.FAIL_RUN if fails else LoopOutcome.RETURN_LAST_RESPONSE

    verifier = Verifier(
        VerifierConfig(
            evaluate_fn=grade, threshold=THRESHOLD / 100, confirmations=plan.confirmations
        )
    )
    loop = LoopConfig(
        max_iterations=plan.ceiling,
        stop_condition=predicate("stop", plan.stop),
        verifier=None if plan.grades is None else verifier,
        convergence_fn=predicate("function", plan.function),
        criteria=[criterion(n, words) for n, words in enumerate(plan.criteria)],
        adaptive=plan.adaptive and plan.grades is not None,
        min_improvement=plan.least_gain / 100,
        plateau_patience=plan.patience,
        evaluate_final=plan.evaluate_final,
        on_exhausted=outcome(plan.fails_exhausted),
        on_criterion_error=outcome(plan.fails_on_error),
    )
    agent = looping(loop)
    raised = None
    try:
        result = await run_agent(agent, ASK)
    except (JudgeDownError, LoopConvergedError, LoopUnsatisfiedError) as error:
        raised = type(error).__name__
        result = partial_result(error)
    assert result is not None
    assert len(model_of(agent).requests) == result.loop_iterations == result.turns
    assert result.text == f"answer {result.best_iteration}"
    return Ending(
        str(result.exit_reason),
        raised,
        asked,
        result.loop_iterations,
        result.best_iteration,
        [round(score * 100) for score in result.scores],
    )


def _per_iteration(values: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.tuples(*[values] * LONGEST)


# Mostly refusals: a loop that ends at once shows little.
WORDS = _per_iteration(st.sampled_from(["no"] * 12 + ["yes"] * 4 + ["raises", "early"]))
# Few values, so that ties, exact gains and passes are common; one grader in thirty raises.
SCORES = st.tuples(st.sampled_from([48, 50, 50, 52, 54, 80]), st.none())
GRADE = st.one_of(*[SCORES] * 28, st.tuples(st.integers(0, 100), st.booleans()), st.none())
PLANS = st.builds(
    Plan,
    ceiling=st.sampled_from([1, 2, 3, 4, *[LONGEST] * 4]),
    stop=st.one_of(st.none(), st.none(), st.none(), WORDS),
    grades=st.none() | _per_iteration(st.tuples(GRADE, GRADE, GRADE)),
    function=st.one_of(st.none(), st.none(), WORDS),
    criteria=st.lists(WORDS, max_size=2).map(tuple),
    confirmations=st.integers(0, 2),
    adaptive=st.sampled_from([True, True, False]),
    least_gain=st.integers(0, 4),
    patience=st.integers(1, 3),
    evaluate_final=st.booleans(),
    fails_exhausted=st.booleans(),
    fails_on_error=st.booleans(),
).filter(
    lambda plan: bool(plan.grades or plan.function or plan.criteria or not plan.fails_exhausted)
)


@requirement(
    "refine.oracle",
    "refine.evaluation-order",
    "refine.ceiling-best",
    "refine.plateau-best",
    "last.criteria-not-asked",
    "fail.last-is-judged",
    "counts.iterations",
)
@settings(max_examples=300, deadline=None)
@given(PLANS)
async def test_the_loop_does_what_a_second_reading_of_the_contract_says(plan: Plan):
    assert await really(plan) == simulate(plan)
