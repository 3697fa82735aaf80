"""Which candidates of an iteration still have to run, and which one wins."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from untildone.domain.exits import ExitReason
from untildone.policy.rules import LoopRules
from untildone.policy.state import AgentRun, RunState


def live_candidates(state: RunState) -> list[int]:
    """The candidates that are not out."""
    return [index for index, run in enumerate(state.runs) if run.dropped is None]


def candidates_to_run(state: RunState, loop: LoopRules) -> list[int]:
    """The candidates that have to be taken on now; empty when there are enough."""
    if loop.votes:
        return _next_wave(state.runs)
    if loop.branch_early_stop and _one_has_passed(state):
        return []
    return [index for index, run in enumerate(state.runs) if _is_unfinished(run)]


def candidates_to_grade(state: RunState, loop: LoopRules) -> list[int]:
    """The candidates that have an answer and no grade."""
    if loop.branch_early_stop and _one_has_passed(state):
        return []
    return [
        index
        for index, run in enumerate(state.runs)
        if run.dropped is None
        and run.grade is None
        and run.stopped is None
        and run.exit is not None
    ]


def best_graded(state: RunState) -> int:
    """The live candidate with the best score; of equals, the first.

    One that its grader ended the run with comes before all of them.
    """
    for index in live_candidates(state):
        if state.runs[index].stopped is not None:
            return index
    scores = {
        index: grade.score
        for index in live_candidates(state)
        if (grade := state.runs[index].grade) is not None
    }
    return max(scores, key=lambda index: (scores[index], -index))


def winner_by_vote(votes: Sequence[str | None]) -> int:
    """The first candidate of the most frequent answer; of equals, the one that came first.

    Args:
        votes: Each candidate's answer as a key, None where it has none. At least one is a key.
    """
    leader = _leader(votes)
    return next(index for index, vote in enumerate(votes) if vote == leader)


def votes_needed(votes: Sequence[str | None], count: int) -> int:
    """How many more of ``count`` candidates it takes at least until the winner is certain.

    0 means that no further answer can change who wins: stopping gives the same winner as asking
    all. A candidate without an answer has used up its vote.
    """
    left = count - len(votes)
    for more in range(left + 1):
        supported = [*votes, *([_leader(votes) or "?"] * more)]
        if _is_decided(supported, left - more):
            return more
    return left


def _next_wave(runs: Sequence[AgentRun]) -> list[int]:
    """The candidates that are asked at once next.

    Waves are cut by what the ones before them answered, never by which answers happen to be in, so
    that a resumed run asks the very same candidates.
    """
    begun = 0
    while needed := votes_needed([run.vote for run in runs[:begun]], len(runs)):
        wave = range(begun, begun + needed)
        waiting = [index for index in wave if _is_unresolved(runs[index])]
        if waiting:
            return [index for index in waiting if not _waits_for_approval(runs[index])]
        begun += needed
    return []


def has_passed(run: AgentRun) -> bool:
    """Whether a candidate's grader needs no other candidate."""
    return run.stopped is not None or (run.grade is not None and run.grade.converged)


def _one_has_passed(state: RunState) -> bool:
    return any(has_passed(run) for run in state.runs)


def _is_unfinished(run: AgentRun) -> bool:
    return run.exit is None and run.dropped is None


def _is_unresolved(run: AgentRun) -> bool:
    return run.vote is None and run.dropped is None


def _waits_for_approval(run: AgentRun) -> bool:
    return run.exit is ExitReason.AWAITING_APPROVAL


def _leader(votes: Sequence[str | None]) -> str | None:
    counts = Counter(vote for vote in votes if vote is not None)
    # Counter keeps the order of first appearance, and max takes the first of equals.
    return max(counts, key=lambda vote: counts[vote]) if counts else None


def _is_decided(votes: Sequence[str | None], left: int) -> bool:
    """Whether the leader stays the leader, whatever the ``left`` further votes are."""
    leader = _leader(votes)
    if leader is None:
        return left == 0
    counts = Counter(vote for vote in votes if vote is not None)
    lead = counts.pop(leader)
    first = votes.index(leader)
    if left > lead:
        return False  # an answer not yet seen could still win
    return all(
        rival + left < lead or (rival + left == lead and votes.index(vote) > first)
        for vote, rival in counts.items()
    )
