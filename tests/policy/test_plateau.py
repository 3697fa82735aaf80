"""The plateau as arithmetic."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from untildone.policy.plateau import Plateau

HUNDREDTHS = st.lists(st.integers(0, 100), max_size=12)


def after(scores: list[float], min_improvement: float = 0.02) -> Plateau:
    plateau = Plateau()
    for score in scores:
        plateau = plateau.add(score, min_improvement)
    return plateau


def test_the_first_score_is_the_reference_and_no_miss():
    assert after([0.4]) == Plateau(reference=0.4, misses=0, scored=1)


def test_a_miss_keeps_the_reference_and_an_improvement_moves_it():
    assert after([0.4, 0.41]) == Plateau(reference=0.4, misses=1, scored=2)
    assert after([0.4, 0.41, 0.42]) == Plateau(reference=0.42, misses=0, scored=3)


def test_adding_leaves_the_former_plateau_as_it_was():
    before = after([0.4])
    before.add(0.1, 0.02)
    assert before == Plateau(reference=0.4, misses=0, scored=1)


@pytest.mark.parametrize(("scored", "reached"), [(0, False), (1, False), (2, False), (3, True)])
def test_a_plateau_needs_three_scores_however_small_the_patience(scored: int, reached: bool):
    assert after([0.5] * scored).reached(1) is reached


@given(HUNDREDTHS, st.integers(0, 10))
def test_it_counts_as_whole_hundredths_do(hundredths: list[int], least_gain: int):
    reference, misses = None, 0
    for score in hundredths:
        if reference is None or score - reference >= max(least_gain, 1):
            reference, misses = score, 0
        else:
            misses += 1
    plateau = after([score / 100 for score in hundredths], least_gain / 100)
    assert plateau.misses == misses
    assert plateau.reference == (None if reference is None else reference / 100)
    for patience in (1, 2, 3):
        assert plateau.reached(patience) is (len(hundredths) >= 3 and misses >= patience)
