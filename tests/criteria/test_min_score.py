"""``minScore``: a verifier under the name of a kind."""

from __future__ import annotations

from typing import Any

import pytest

from tests.criteria.kit import context
from untildone import (
    Agent,
    ConfigError,
    ExitReason,
    GradingError,
    LoopConfig,
    Verifier,
    VerifierConfig,
    VerifierFeedback,
    run_agent,
)
from untildone.criteria.min_score import MinScore
from untildone.testing import ScriptedModel

ASK = [{"role": "user", "content": "go"}]


def scoring(*scores: float, threshold: float = 0.8, confirmations: int = 0) -> MinScore:
    left = list(scores)

    def grade(_query: str, _result: object) -> VerifierFeedback:
        return VerifierFeedback(left.pop(0), ["too vague"], "name the source")

    return MinScore(
        Verifier(
            VerifierConfig(evaluate_fn=grade, threshold=threshold, confirmations=confirmations)
        )
    )


@pytest.mark.parametrize(("score", "passes"), [(0.79, False), (0.8, True), (1.0, True), (0, False)])
async def test_the_threshold_is_the_score(score: float, passes: bool):
    assert (await scoring(score).evaluate(context("x"))).satisfied is passes


async def test_the_issues_are_the_feedback():
    verdict = await scoring(0.1).evaluate(context("x"))
    assert verdict.feedback == (
        "A reviewer did not accept your answer yet.\nIssues:\n- too vague\n"
        "Suggestion: name the source\nGive your complete, improved answer."
    )


async def test_a_pass_is_confirmed_and_one_refusal_is_enough():
    assert (await scoring(0.9, 0.9, confirmations=1).evaluate(context("x"))).satisfied
    assert not (await scoring(0.9, 0.5, confirmations=1).evaluate(context("x"))).satisfied


@pytest.mark.parametrize("score", [1.5, -0.1, float("nan"), True, "0.9", None])
async def test_what_is_no_score_is_an_error_never_a_refusal(score: Any):
    with pytest.raises(GradingError, match="the score is"):
        await scoring(score).evaluate(context("x"))


async def test_in_a_loop_the_models_score_decides_after_cheaper_criteria():
    model = ScriptedModel(
        [
            "draft",
            '{"issues": ["no title"], "suggestion": "", "score": 0.3}',
            "draft with title",
            '{"issues": [], "suggestion": "", "score": 0.85}',
        ]
    )
    loop = LoopConfig(criteria=[MinScore(Verifier(VerifierConfig(threshold=0.8)))])
    result = await run_agent(Agent("a", model, loop_config=loop), ASK)
    assert (result.exit_reason, result.text) == (ExitReason.CONVERGED, "draft with title")
    assert result.input_tokens == 40  # the judge's calls count for the run
    assert result.scores == []
    assert "no title" in model.requests[2].messages[-1]["content"]


@pytest.mark.parametrize("bad", [None, 0.8, "rubric", VerifierConfig(), Verifier])
def test_what_is_no_verifier_is_refused(bad: Any):
    with pytest.raises(ConfigError, match="MinScore takes a Verifier"):
        MinScore(bad)


def test_its_kind_is_the_name_that_events_use():
    assert MinScore(Verifier()).kind == "minScore"
    assert repr(MinScore(Verifier())) == "MinScore(0.8)"
