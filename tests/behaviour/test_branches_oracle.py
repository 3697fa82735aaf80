"""Branches against a second reading of the contract, and resumed from every prefix of their logs.

A random plan says what each candidate of each iteration does and what is said of it. The reading
below knows nothing of the package: it walks through the plan by the contract's sentences and says
which answer is returned, why the run ends, and what that costs. Candidates take turns on a clock of
event loop ticks, so that also a race has one winner.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from itertools import product
from typing import Any, Literal

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.behaviour.manifest import requirement
from tests.behaviour.refine_kit import ASK, loop_of
from untildone import (
    Agent,
    AgentResult,
    RunError,
    ServerError,
    Usage,
    Verifier,
    VerifierConfig,
    VerifierFeedback,
    event_from_dict,
    event_to_dict,
    partial_result,
    resume_agent,
    run_agent,
    tool,
)
from untildone.domain.log import CandidateDropped, LogEvent, ModelCallReplied
from untildone.domain.messages import Message, ToolCall
from untildone.domain.requests import ModelReply
from untildone.testing import EventLog

THRESHOLD = 80
MAX_TURNS = 2
APART = 120
"""How many ticks lie between the beginnings of two candidates' work: more than any of it takes."""

Chooser = Literal["evaluate_fn", "judge", "vote", "merge"]


@dataclass(frozen=True)
class Line:
    """One candidate of one iteration.

    Attributes:
        does: Answers at once or after a tool call, uses up its turns, answers nothing, or fails.
        score: Its grade in hundredths, None where its grading fails.
        key: What it votes for, None where it abstains, ``"raises"`` where its vote fails.
    """

    does: Literal["answers", "looks", "caps", "silent", "fails"]
    score: int | None
    key: str | None

    @property
    def turns(self) -> int:
        return {"answers": 1, "looks": 2, "caps": 2, "silent": 1, "fails": 0}[self.does]


@dataclass(frozen=True)
class Plan:
    """A run: iterations of candidates, in which order they work, and what is made of them."""

    chooser: Chooser
    lines: tuple[tuple[Line, ...], ...]
    order: tuple[int, ...]
    early_stop: bool
    raises_at_the_cap: bool
    merge: Literal["merged", "empty", "fails"]
    converged: tuple[bool, ...] | None

    def text(self, iteration: int, branch: int) -> str:
        line = self.lines[iteration - 1][branch]
        return "" if line.does == "silent" else f"draft {iteration} of {branch}"


@dataclass
class Outcome:
    """What a run gives: ``text`` None where the contract does not say."""

    exit: str
    text: str | None = None
    scores: list[float] | None = None
    iterations: int = 0
    best_iteration: int = 0
    confidence: float | None = None
    error: str | None = None
    tokens: int = 0
    turns: int = 0
    unknown: int = 0


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    chooser: Chooser = draw(st.sampled_from(["evaluate_fn", "judge", "vote", "merge"]))
    branches = draw(st.integers(2, 4))
    graded = chooser in ("evaluate_fn", "judge")
    # Graders and vote keys know a candidate by its text, so there it has one.
    silent = ["silent"] if chooser == "merge" else []
    line = st.builds(
        Line,
        st.sampled_from(["answers", "answers", "looks", "caps", "fails", *silent]),
        st.sampled_from([10, 50, 50, 79, 80, 95, None]),
        st.sampled_from(["a", "a", "b", "c", None, "raises"]),
    )
    lines = st.lists(st.tuples(*[line] * branches), min_size=1, max_size=3).map(tuple)
    verdicts = st.lists(st.booleans(), min_size=3, max_size=3).map(tuple)
    return Plan(
        chooser,
        draw(lines),
        tuple(draw(st.permutations(range(branches)))),
        early_stop=graded and draw(st.booleans()),
        raises_at_the_cap=draw(st.booleans()),
        merge=draw(st.sampled_from(["merged", "merged", "empty", "fails"])),
        converged=None if graded else draw(st.none() | verdicts),
    )


# ── The second reading ───────────────────────────────────────────────────────────────────────────


def cost(iteration: int, branch: int, turn: int) -> int:
    return 1000 * iteration + 100 * branch + turn


JUDGED, REPAIRED, MERGED = 7, 9, 5


class Reading:
    """Walks through a plan by the contract's sentences."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.out = Outcome("", scores=[])
        self.done: list[tuple[int, str, int | None, float | None]] = []

    def outcome(self) -> Outcome:
        for iteration in range(1, len(self.plan.lines) + 1):
            ended = self._iterate(iteration)
            if ended is not None:
                return ended
        scored = [each for each in self.done if each[2] is not None]
        if not scored:
            return self._returning("max_iterations", self.done[-1])
        best = max(scored, key=lambda each: (each[2] or 0, each[0]))
        return self._returning("max_iterations", best)

    def _iterate(self, iteration: int) -> Outcome | None:
        plan, count = self.plan, len(self.plan.order)
        dropped: dict[int, str] = {}
        in_grading: dict[int, str] = {}
        if plan.chooser == "vote":
            known = self._votes(iteration, dropped)
        else:
            known = self._candidates(iteration, dropped, in_grading)
        live = [b for b in range(count) if b not in dropped and b not in in_grading]
        if not live and in_grading:
            self.out.error = in_grading[min(in_grading)]
            self.done.append((iteration, plan.text(iteration, min(in_grading)), None, None))
            return self._returning("criterion_error", self.done[-1])
        if not live:
            return self._failing(dropped[0])
        text, score, confidence = self._chosen(iteration, live, known)
        self.done.append((iteration, text, score, confidence))
        if score is not None and self.out.scores is not None:
            self.out.scores.append(score / 100)
        passed = score is not None and score >= THRESHOLD
        if passed or (plan.converged is not None and plan.converged[iteration - 1]):
            return self._returning("converged", self.done[-1])
        return None

    def _chosen(
        self, iteration: int, live: list[int], known: list[Any]
    ) -> tuple[str, int | None, float | None]:
        """What goes forward: text, score, confidence."""
        plan = self.plan
        speaking = next((b for b in live if plan.text(iteration, b)), live[0])
        if plan.chooser == "vote":
            leader = leading(known)
            winner = speaking if leader is None else known.index(leader)
            return plan.text(iteration, winner), None, None
        if plan.chooser != "merge":
            winner, score = known[0]
            if not plan.early_stop or score < THRESHOLD:
                winner, score = min(known, key=lambda each: (-each[1], each[0]))
            return plan.text(iteration, winner), score, None
        if len(live) == 1:
            return plan.text(iteration, live[0]), None, None
        self.out.tokens += 0 if plan.merge == "fails" else MERGED
        if plan.merge == "merged":
            return "merged", None, 0.5
        return plan.text(iteration, speaking), None, None

    def _run(self, iteration: int, branch: int, dropped: dict[int, str]) -> None:
        line = self.plan.lines[iteration - 1][branch]
        for turn in range(1, line.turns + 1):
            self.out.tokens += cost(iteration, branch, turn)
            self.out.turns += 1
        if line.does == "fails":
            dropped[branch] = f"ServerError: {iteration}.{branch} is down"
        elif line.does == "caps" and self.plan.raises_at_the_cap:
            dropped[branch] = "MaxTurnsError"

    def _candidates(
        self, iteration: int, dropped: dict[int, str], in_grading: dict[int, str]
    ) -> list[tuple[int, int]]:
        """The graded ones with their scores; in a race the one that passed comes first."""
        plan = self.plan
        graded: list[tuple[int, int]] = []
        if not plan.early_stop:
            for branch in range(len(plan.order)):
                self._run(iteration, branch, dropped)
        for place, branch in enumerate(plan.order):
            if plan.early_stop:
                self._run(iteration, branch, dropped)
            if branch in dropped or plan.chooser == "merge":
                continue
            score = plan.lines[iteration - 1][branch].score
            if plan.chooser == "judge":
                self.out.tokens += JUDGED + (REPAIRED if score is None else 0)
            if score is None:
                in_grading[branch] = "GradingError" if plan.chooser == "judge" else "OSError: dark"
                continue
            graded.append((branch, score))
            if plan.early_stop and score >= THRESHOLD:
                late = plan.order[place + 1 :]
                self.out.unknown += len(late)  # each was cut off in its first call
                dropped.update(dict.fromkeys(late, ""))
                return [(branch, score), *graded[:-1]]
        return graded

    def _votes(self, iteration: int, dropped: dict[int, str]) -> list[str | None]:
        lines = self.plan.lines[iteration - 1]
        votes: list[str | None] = []
        while wave := wave_of(tuple(votes), len(lines)):
            for branch in range(len(votes), len(votes) + wave):
                self._run(iteration, branch, dropped)
                key = lines[branch].key
                if key == "raises":
                    dropped.setdefault(branch, "ValueError: no key")
                votes.append(None if branch in dropped else key)
        dropped.update(dict.fromkeys(range(len(votes), len(lines)), "not asked"))
        return votes

    def _returning(
        self, reason: str, finished: tuple[int, str, int | None, float | None]
    ) -> Outcome:
        return replace(
            self.out,
            exit=reason,
            text=finished[1],
            best_iteration=finished[0],
            confidence=finished[3],
            iterations=len(self.done),
        )

    def _failing(self, error: str) -> Outcome:
        best = [each for each in self.done if each[2] is not None]
        chosen = max(best, key=lambda each: (each[2] or 0, each[0])) if best else None
        chosen = chosen or (self.done[-1] if self.done else None)
        if chosen is None:
            return replace(self.out, exit="error", error=error)
        return replace(self._returning("error", chosen), error=error)


def leading(votes: Sequence[str | None]) -> str | None:
    """The most frequent key; of equals, the one seen first."""
    keys = [vote for vote in votes if vote is not None]
    return max(keys, key=lambda key: (keys.count(key), -keys.index(key))) if keys else None


@lru_cache
def is_certain(votes: tuple[str | None, ...], count: int) -> bool:
    """Whether every way in which the others could vote has the same winner: all are tried."""
    left = count - len(votes)
    others = [*"abc", *"xyzw"[:left], None]
    ways = {leading((*votes, *way)) for way in product(others, repeat=left)}
    return left == 0 or len(ways) == 1


@lru_cache
def wave_of(votes: tuple[str | None, ...], count: int) -> int:
    """The fewest further answers by which the winner could be certain; 0 where it is."""
    for more in range(count - len(votes) + 1):
        if any(
            is_certain((*votes, *way), count) for way in product([*"abc", "x", None], repeat=more)
        ):
            return more
    raise AssertionError("all of them make it certain")


# ── The run ──────────────────────────────────────────────────────────────────────────────────────


@tool(idempotent=True)
async def look(key: str) -> str:
    """Looks something up."""
    return f"value of {key}"


class Actors:
    """A model that plays a plan; what it replies depends on the place of the call alone."""

    name = "actors"

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.replied: Counter[tuple[str, int, int, int]] = Counter()

    async def generate(self, request: Any, on_delta: Any = None) -> ModelReply:
        if request.purpose == "worker":
            return await self._work(request.at)
        if request.purpose == "repair":
            return spoken("still no JSON", REPAIRED)
        if request.purpose == "synthesizer":
            if self.plan.merge == "fails":
                raise ServerError("no merge", usage=Usage())
            merged = "merged\n" if self.plan.merge == "merged" else ""
            return spoken(f"{merged}CONFIDENCE: 0.5", MERGED)
        score = self._score(request.messages[-1].text)
        if score is None:
            return spoken("no JSON", JUDGED)
        verdict = {"issues": [], "suggestion": "", "score": score / 100}
        return spoken(json.dumps(verdict), JUDGED)

    def _score(self, prompt: str) -> int | None:
        iteration, branch = re.findall(r"draft (\d) of (\d)", prompt)[-1]
        return self.plan.lines[int(iteration) - 1][int(branch)].score

    async def _work(self, at: Any) -> ModelReply:
        line = self.plan.lines[at.iteration - 1][at.branch]
        if at.turn == 1:
            for _ in range(1 + APART * self.plan.order.index(at.branch)):
                await asyncio.sleep(0)
        if line.does == "fails":
            raise ServerError(f"{at.iteration}.{at.branch} is down", usage=Usage())
        self.replied["worker", at.iteration, at.branch, at.turn] += 1
        text, calls = self.plan.text(at.iteration, at.branch), ()
        if line.does == "caps" or (line.does == "looks" and at.turn == 1):
            arguments = json.dumps({"key": f"{at.iteration}.{at.branch}.{at.turn}"})
            calls = (ToolCall(f"c{at.turn}", "look", arguments),)
        return spoken(text, cost(at.iteration, at.branch, at.turn), calls)


def spoken(text: str, tokens: int, calls: tuple[ToolCall, ...] = ()) -> ModelReply:
    return ModelReply(
        message=Message("assistant", text, calls), usage=Usage(input_tokens=tokens), model="actors"
    )


def line_of(plan: Plan, result: AgentResult) -> Line:
    branch = re.findall(r"draft \d of (\d)", result.text)[0]
    return plan.lines[result.loop_iterations - 1][int(branch)]


def chooser_of(plan: Plan) -> dict[str, Any]:
    """The loop settings of what chooses among the candidates."""

    def grade(_: str, result: AgentResult) -> VerifierFeedback:
        score = line_of(plan, result).score
        if score is None:
            raise OSError("dark")
        return VerifierFeedback(score / 100)

    def key(result: AgentResult) -> Any:
        given = line_of(plan, result).key
        if given == "raises":
            raise ValueError("no key")
        return given and {"answer": [given]}  # unhashable

    match plan.chooser:
        case "evaluate_fn":
            return {"verifier": Verifier(VerifierConfig(evaluate_fn=grade))}
        case "judge":
            return {"verifier": Verifier()}
        case "vote":
            return {"branch_vote": key}
        case "merge":
            return {}


def agent_of(plan: Plan, model: Actors) -> Agent:
    parts = chooser_of(plan)
    verdicts = plan.converged
    if plan.early_stop:
        parts["branch_early_stop"] = True
    if verdicts is not None:
        parts["convergence_fn"] = lambda result: verdicts[result.loop_iterations - 1]
    loop = loop_of(max_iterations=len(plan.lines), branches=len(plan.order), **parts)
    cap = "raise" if plan.raises_at_the_cap else "return"
    return Agent(
        "tester", model, tools=[look], max_turns=MAX_TURNS, on_max_turns=cap, loop_config=loop
    )


async def ended(work: Any) -> tuple[AgentResult, Exception | None]:
    try:
        return await work, None
    except Exception as error:
        result = partial_result(error)
        assert result is not None
        return result, error


def as_data(result: AgentResult) -> dict[str, Any]:
    return {each.name: getattr(result, each.name) for each in fields(result)}


def through_json(events: Sequence[LogEvent]) -> list[LogEvent]:
    return [event_from_dict(json.loads(json.dumps(event_to_dict(event)))) for event in events]


def check(plan: Plan, result: AgentResult, error: Exception | None) -> None:
    expected = Reading(plan).outcome()
    seen = Outcome(
        str(result.exit_reason),
        result.text,
        result.scores,
        result.loop_iterations,
        result.best_iteration,
        result.confidence,
        result.error,
        result.input_tokens,
        result.turns,
        result.unknown_usage_calls,
    )
    if expected.text is None:
        expected.text, expected.best_iteration = seen.text, seen.best_iteration
    if expected.error in ("GradingError", "MaxTurnsError"):
        assert seen.error is not None
        assert seen.error.startswith(f"{expected.error}: ")
        expected.error = seen.error
    assert seen == expected
    if expected.exit == "error":
        assert error is not None
        assert (expected.error or "").startswith(type(error).__name__)
    else:
        assert error is None


async def check_every_prefix(
    plan: Plan, log: list[LogEvent], result: AgentResult, error: Exception | None
) -> None:
    whole = as_data(result)
    for length in range(1, len(log) + 1):
        prefix = through_json(log[:length])
        model = Actors(plan)
        again, after = await ended(resume_agent(agent_of(plan, model), prefix))
        where = f"after {length} of {len(log)} events, the last one {prefix[-1]}"
        assert as_data(again) == whole, where
        if type(after) is not type(error) or str(after) != str(error):
            # What a candidate raised does not outlive its process; its text does.
            assert type(after) is RunError, where
            assert any(isinstance(event, CandidateDropped) for event in prefix), where
            assert f"{type(error).__name__}: {error}" in str(after), where
        before = Counter(
            ("worker", event.at.iteration, event.at.branch, event.at.turn)
            for event in prefix
            if isinstance(event, ModelCallReplied) and event.purpose == "worker"
        )
        assert not before & model.replied, where


@requirement(
    "branches.best-wins",
    "branches.early-stop",
    "branches.failed-candidate",
    "branches.vote",
    "branches.vote-stops",
    "branches.merge",
    "branches.usage",
    "branches.resume",
)
@settings(max_examples=60, deadline=None)
@given(plans())
async def test_candidates_end_as_a_second_reading_says_and_so_from_every_prefix(plan: Plan):
    log = EventLog()
    result, error = await ended(run_agent(agent_of(plan, Actors(plan)), ASK, log=log))
    check(plan, result, error)
    await check_every_prefix(plan, log.events, result, error)
