"""The stuck detector on 2,055 recorded runs, replayed message by message.

The counts are exact: the detector is deterministic. A change of the rules that moves them has to
say why. The data lie beside the repository, so a checkout alone skips this.
"""

import gzip
import json
from collections import Counter
from pathlib import Path

import pytest

from untildone.policy.stuck import StuckDetector, is_stuck

TRAJECTORIES = Path(__file__).parents[3] / "shared" / "data" / "trajectories" / "dev.jsonl.gz"

pytestmark = pytest.mark.skipif(
    not TRAJECTORIES.exists(), reason=f"the recorded runs are not there: {TRAJECTORIES}"
)


@pytest.fixture(scope="module")
def runs():
    with gzip.open(TRAJECTORIES, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def verdicts(runs):
    """Of each run: source, outcome and all signals that its replay gave."""
    return [(run["source"], run["outcome"], replay(run["messages"])) for run in runs]


def replay(messages):
    detector = StuckDetector()
    signals = [detector.observe(message) for message in messages]
    return {(signal.level, signal.rule) for signal in signals if signal is not None}


def flagged(verdicts, *levels, without=()):
    """How many runs of each outcome gave a signal of one of the levels."""
    return Counter(
        outcome
        for source, outcome, signals in verdicts
        if source not in without and any(level in levels for level, _ in signals)
    )


def test_the_data_are_the_ones_the_counts_were_taken_from(runs):
    assert Counter(run["outcome"] for run in runs) == {"success": 935, "fail": 755, "limit": 365}
    assert Counter(run["outcome"] for run in runs if run["source"] != "intercode") == {
        "success": 771,
        "fail": 673,
        "limit": 76,
    }


def test_at_stop_level_no_successful_run_is_stopped_and_54_percent_of_limit_runs_are(verdicts):
    counts = flagged(verdicts, "stop")
    assert counts == {"limit": 196}  # of 365; no success, no fail
    assert counts["limit"] / 365 >= 0.47


def test_at_nudge_level_no_successful_run_is_nudged_and_64_percent_of_limit_runs_are(verdicts):
    counts = flagged(verdicts, "nudge", "stop")
    assert counts == {"limit": 232, "fail": 3}
    assert counts["limit"] / 365 >= 0.59


def test_the_same_without_intercode(verdicts):
    assert flagged(verdicts, "stop", without=["intercode"]) == {"limit": 26}  # of 76
    assert flagged(verdicts, "nudge", "stop", without=["intercode"]) == {"limit": 33, "fail": 3}


def test_the_rules_that_find_them(verdicts):
    found = Counter(
        rule for _, _, signals in verdicts for level, rule in signals if level == "stop"
    )
    assert found == {
        "no_novelty": 181,
        "same_error": 46,
        "error_streak": 10,
        "near_duplicates": 6,
        "transient_errors": 3,
    }


def test_s2s_function_stops_5_successful_runs_and_59_percent_of_limit_runs(runs):
    """The comparison, and a check that ``is_stuck`` is the function whose figures are published."""
    stopped = Counter(
        run["outcome"]
        for run in runs
        if any(is_stuck(run["messages"][:end]) for end in range(1, len(run["messages"]) + 1))
    )
    assert stopped == {"limit": 217, "fail": 14, "success": 5}
