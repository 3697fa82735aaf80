"""When a score has stopped improving: measured from the reference, never from the score before."""

from __future__ import annotations

import pytest

from tests.behaviour.manifest import requirement
from tests.behaviour.refine_kit import ASK, iterations_of, looping, scoring
from untildone import ExitReason, LoopConfig, LoopConfigWarning, VerifierFeedback, run_agent


async def ends(
    *scores: float, patience: int = 2, min_improvement: float = 0.02
) -> tuple[str | None, int, int]:
    """How an adaptive loop with these scores ends: exit, iterations run, iteration returned."""
    loop = LoopConfig(
        max_iterations=len(scores),
        verifier=scoring(*scores, threshold=1.0),
        adaptive=True,
        plateau_patience=patience,
        min_improvement=min_improvement,
    )
    result = await run_agent(looping(loop), ASK)
    assert result.scores == list(scores[: result.loop_iterations])
    assert result.text == f"answer {result.best_iteration}"
    return result.exit_reason, result.loop_iterations, result.best_iteration


@requirement("refine.plateau-reference")
async def test_oscillation_is_a_plateau_although_every_second_score_rises():
    # 0.9 is the reference; 0.5 and 0.9 are misses one and two.
    assert await ends(0.5, 0.9, 0.5, 0.9, 0.5, 0.9) == (ExitReason.PLATEAU, 4, 4)
    # 0.9 is the reference from the first score on.
    assert await ends(0.9, 0.5, 0.9, 0.5, 0.9, 0.5) == (ExitReason.PLATEAU, 3, 3)


@requirement("refine.plateau-reference")
async def test_a_steady_rise_below_min_improvement_goes_on_as_it_adds_up_against_the_reference():
    # 0.5 · 0.515 misses · 0.53 beats 0.5 by 0.03 · 0.545 misses · 0.56 beats 0.53 …
    steady = [round(0.5 + 0.015 * n, 3) for n in range(12)]
    assert await ends(*steady) == (ExitReason.MAX_ITERATIONS, 12, 12)


@requirement("refine.plateau-reference")
async def test_a_rise_too_slow_for_the_reference_is_a_plateau():
    # 0.5 · 0.505 and 0.51 are misses.
    assert await ends(0.5, 0.505, 0.51, 0.515, 0.52) == (ExitReason.PLATEAU, 3, 3)


@requirement("refine.plateau-reference")
async def test_a_recovery_from_a_bad_draft_is_no_improvement_on_the_reference():
    # The last score alone rises 0.2 → 0.4 → 0.6; the reference stays 0.7.
    assert await ends(0.7, 0.2, 0.4, 0.6, 0.8) == (ExitReason.PLATEAU, 3, 1)


@requirement("refine.plateau-tolerance")
@pytest.mark.parametrize(
    ("low", "high"), [(0.80, 0.82), (0.10, 0.12), (0.56, 0.58), (0.28, 0.30), (0.69, 0.71)]
)
async def test_a_gain_of_exactly_min_improvement_is_an_improvement_whatever_floats_say(
    low: float, high: float
):
    # With patience 1 a miss in the third place ends the loop there, an improvement does not.
    assert await ends(0.0, low, high, 0.0, patience=1) == (ExitReason.PLATEAU, 4, 3)


@requirement("refine.plateau-tolerance")
async def test_a_gain_clearly_below_min_improvement_is_a_miss():
    assert await ends(0.0, 0.80, 0.8199, 0.9, patience=1) == (ExitReason.PLATEAU, 3, 3)


@requirement("refine.plateau-from-third")
@pytest.mark.parametrize("scores", [(0.5, 0.5, 0.5), (0.5, 0.1, 0.1), (0.0, 0.0, 0.0)])
async def test_the_earliest_plateau_is_at_the_third_scored_iteration(scores: tuple[float, ...]):
    exit_reason, ran, _ = await ends(*scores, 0.5, patience=1)
    assert (exit_reason, ran) == (ExitReason.PLATEAU, 3)


@requirement("refine.plateau-from-third")
async def test_a_miss_in_the_second_iteration_is_forgiven_by_an_improvement_in_the_third():
    assert await ends(0.5, 0.4, 0.6, 0.6, patience=1) == (ExitReason.PLATEAU, 4, 4)


@requirement("refine.plateau-patience")
@pytest.mark.parametrize(("patience", "ran"), [(1, 3), (2, 3), (3, 4), (4, 5)])
async def test_patience_is_the_number_of_misses_in_a_row(patience: int, ran: int):
    assert await ends(*[0.5] * 8, patience=patience) == (ExitReason.PLATEAU, ran, ran)


@requirement("refine.plateau-patience")
async def test_an_improvement_starts_the_misses_anew():
    # misses: - · 1 · 2 · 0 · 1 · 2 · 3
    scores = (0.5, 0.5, 0.4, 0.6, 0.6, 0.1, 0.2, 0.3, 0.4)
    assert await ends(*scores, patience=3) == (ExitReason.PLATEAU, 7, 5)


@requirement("refine.plateau-best")
async def test_a_plateau_returns_the_best_scored_iteration_and_of_equal_ones_the_latest():
    assert await ends(0.5, 0.8, 0.3, 0.2) == (ExitReason.PLATEAU, 4, 2)
    assert await ends(0.8, 0.8, 0.3, 0.2) == (ExitReason.PLATEAU, 3, 2)
    # A score can be the best without having beaten the reference by min_improvement.
    assert await ends(0.5, 0.505, 0.51, 0.9) == (ExitReason.PLATEAU, 3, 3)


@requirement("refine.plateau-adaptive-only")
async def test_without_adaptive_the_same_scores_run_to_the_ceiling():
    loop = LoopConfig(max_iterations=6, verifier=scoring(*[0.5] * 6))
    result = await run_agent(looping(loop), ASK)
    assert (result.exit_reason, result.loop_iterations) == (ExitReason.MAX_ITERATIONS, 6)


@requirement("refine.plateau-adaptive-only", "refine.config-warning")
async def test_adaptive_without_a_verifier_is_harmless_and_warns_when_the_config_is_built():
    with pytest.warns(LoopConfigWarning, match=r"adaptive.*verifier"):
        loop = LoopConfig(max_iterations=6, adaptive=True, criteria=[scoring(*[0.5] * 6)])
    result = await run_agent(looping(loop), ASK)
    assert (result.exit_reason, result.loop_iterations) == (ExitReason.MAX_ITERATIONS, 6)


@requirement("refine.plateau-before-ceiling")
async def test_a_plateau_in_the_last_allowed_iteration_is_a_plateau_and_not_the_ceiling():
    loop = LoopConfig(max_iterations=3, verifier=scoring(0.5, 0.5, 0.5), adaptive=True)
    told = await iterations_of(looping(loop))
    assert (told[2]["early_stop"], told[2]["ceiling_reached"]) == ("plateau", False)
    assert (await run_agent(looping(loop), ASK)).exit_reason is ExitReason.PLATEAU


@requirement("refine.plateau-before-ceiling")
async def test_what_converges_in_the_iteration_that_would_be_a_plateau_converges():
    passes = VerifierFeedback(0.5, converged=True)
    loop = LoopConfig(verifier=scoring(0.5, 0.5, passes), adaptive=True)
    result = await run_agent(looping(loop), ASK)
    assert (result.exit_reason, result.loop_iterations) == (ExitReason.CONVERGED, 3)


@requirement("refine.plateau-before-ceiling")
async def test_iterations_that_passed_the_verifier_but_not_the_criteria_count_for_the_plateau():
    loop = LoopConfig(
        max_iterations=9,
        verifier=scoring(*[0.9] * 9),
        criteria=[lambda ctx: False],
        adaptive=True,
    )
    result = await run_agent(looping(loop), ASK)
    assert (result.exit_reason, result.loop_iterations) == (ExitReason.PLATEAU, 3)


@requirement("refine.plateau-min-improvement-zero")
async def test_with_a_min_improvement_of_zero_any_rise_counts_and_none_does_not():
    assert await ends(0.5, 0.5, 0.5, 0.5, min_improvement=0) == (ExitReason.PLATEAU, 3, 3)
    assert await ends(0.5, 0.501, 0.502, 0.503, min_improvement=0) == (
        ExitReason.MAX_ITERATIONS,
        4,
        4,
    )
