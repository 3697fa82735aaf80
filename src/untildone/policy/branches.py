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
    """The candidates that have to be taken on now; empty when there are enough.

    In a race that includes one that has ended and was cut off before its grade; it comes first.
    """
    if loop.votes:
        return _next_wave(state.runs)
    if not loop.branch_early_stop:
        return [index for index in live_candidates(state) if _is_unfinished(state, index)]
    if state.first_passed is not None:
        return []
    waiting = candidates_to_grade(state, loop)
    unfinished = [index for index in live_candidates(state) if _is_unfinished(state, index)]
    return [*waiting, *(index for index in unfinished if index not in waiting)]


def overtaken_candidates(state: RunState, loop: LoopRules) -> list[int]:
    """The candidates of a race that another one has won while they had no grade."""
    if not loop.branch_early_stop or state.first_passed is None:
        return []
    return [index for index in live_candidates(state) if not _is_graded(state.runs[index])]


def candidates_to_grade(state: RunState, loop: LoopRules) -> list[int]:
    """The candidates that have an answer and no grade."""
    if loop.branch_early_stop and state.first_passed is not None:
        return []
    return [
        index
        for index in live_candidates(state)
        if not _is_graded(state.runs[index])
        and state.runs[index].exit not in (None, ExitReason.AWAITING_APPROVAL)
    ]


def best_graded(state: RunState) -> int:
    """The live candidate with the best score; of equals, the first.

    One that its grader ended the run with comes before all of them; in a race, the one that won.
    """
    loop = state.rules.loop
    if loop is not None and loop.branch_early_stop and state.first_passed is not None:
        return state.first_passed
    for index in live_candidates(state):
        if state.runs[index].stopped is not None:
            return index
    scores = {
        index: grade.score
        for index in live_candidates(state)
        if (grade := state.runs[index].grade) is not None
    }
    return max(scores, key=lambda index: (scores[index], -index))


def winner_by_vote(state: RunState) -> int:
    """The first candidate of the most frequent answer; of equals, the one that came first.

    Where all abstained it is the first live one with an answer.
    """
    votes = [run.vote for run in state.runs]
    leader = _leader(votes)
    return stand_in(state) if leader is None else votes.index(leader)


def stand_in(state: RunState) -> int:
    """The live candidate that goes forward where none is chosen and nothing could be merged.

    That is the first whose answer fits ``response_model``, else the first that has an answer.
    """
    live = live_candidates(state)
    fitting = (index for index in live if state.runs[index].output_fits)
    answering = (index for index in live if state.runs[index].text.strip())
    return next(fitting, next(answering, live[0]))


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


def _is_graded(run: AgentRun) -> bool:
    return run.grade is not None or run.stopped is not None


def _is_unfinished(state: RunState, index: int) -> bool:
    """Whether a live candidate has no inner exit, or one that it is still to be dropped for."""
    reason = state.runs[index].exit
    return reason is None or (reason is ExitReason.MAX_TURNS and state.rules.raise_on_max_turns)


def _is_unresolved(run: AgentRun) -> bool:
    return not run.has_voted and run.dropped is None


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
