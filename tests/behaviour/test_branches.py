"""Several candidates an iteration: who runs, who wins, and what the others leave."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from tests.behaviour.kit import check_conversation, settle, watch
from tests.behaviour.manifest import requirement
from tests.behaviour.refine_kit import ASK, said
from untildone import (
    Agent,
    AgentHooks,
    AgentResult,
    ApexConfig,
    APEXSynthesizer,
    CriterionContext,
    EventType,
    ExitReason,
    LoopConfig,
    LoopConvergedError,
    MaxTurnsError,
    RetryPolicy,
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
from untildone.criteria.todo import TodoCompletion
from untildone.domain.log import CandidateDropped, LogEvent, RunEnded
from untildone.memory import EpisodicMemory, InMemoryProvider
from untildone.testing import EventLog, FakeClock, ScriptedModel, SeenRequest, call, reply
from untildone.tools.todo import TodoList

Speak = Callable[[SeenRequest], Any]


def answering(*texts: Any) -> Speak:
    """Candidate n answers with, or raises, the n-th; a merge is asked for after the last one."""

    def speak(seen: SeenRequest) -> Any:
        at = seen.request.at
        if at is None or seen.request.purpose != "worker":
            return "merged"
        return texts[at.branch]

    return speak


class Sea(BaseModel):
    name: str


def numbered(seen: SeenRequest) -> str:
    """Gives ``iteration.branch``."""
    at = seen.request.at
    assert at is not None
    return f"{at.iteration}.{at.branch}"


def grading(**scores: Any) -> Verifier:
    """Knows the score of each answer, or what to raise for it."""

    def grade(_: str, result: AgentResult) -> VerifierFeedback:
        given = scores[result.text]
        if isinstance(given, BaseException):
            raise given
        return VerifierFeedback(given, [f"{result.text} is thin"], f"mend {result.text}")

    return Verifier(VerifierConfig(evaluate_fn=grade))


def agent_with(script: Any, loop: LoopConfig, **others: Any) -> Agent:
    return Agent("tester", ScriptedModel(script), loop_config=loop, **others)


def requests_of(agent: Agent) -> list[SeenRequest]:
    assert isinstance(agent.model, ScriptedModel)
    return agent.model.requests


def through_json(events: Sequence[LogEvent]) -> list[LogEvent]:
    return [event_from_dict(json.loads(json.dumps(event_to_dict(event)))) for event in events]


def purposes(agent: Agent) -> Counter[str]:
    return Counter(seen.request.purpose for seen in requests_of(agent))


# ── Running ──────────────────────────────────────────────────────────────────────────────────────


@requirement("branches.at-once")
async def test_no_candidate_waits_for_another():
    begun: list[int] = []
    all_begun = asyncio.Event()

    async def speak(seen: SeenRequest) -> str:
        begun.append(seen.request.at.branch if seen.request.at else -1)
        if len(begun) == 3:
            all_begun.set()
        await all_begun.wait()
        return "a"

    loop = LoopConfig(branches=3, verifier=grading(a=1.0))
    async with asyncio.timeout(10):
        await run_agent(agent_with(speak, loop), ASK)
    assert sorted(begun) == [0, 1, 2]


@requirement("branches.apart")
async def test_a_candidate_begins_with_the_winners_conversation_and_sees_no_other():
    loop = LoopConfig(
        max_iterations=2,
        branches=2,
        verifier=grading(**{"1.0": 0.1, "1.1": 0.3, "2.0": 0.2, "2.1": 0.2}),
    )
    agent = agent_with(numbered, loop)
    await run_agent(agent, ASK)
    first, second, third, fourth = (seen.messages for seen in requests_of(agent))
    assert first == second == ASK
    assert third == fourth
    assert third[:2] == [*ASK, said("assistant", "1.1")]
    assert len(third) == 3
    assert third[2]["role"] == "user"


@requirement("branches.temperature")
async def test_each_candidate_has_its_temperature():
    loop = LoopConfig(branches=3, branch_temperatures=[0.0, 0.5, 1.25], verifier=grading(a=1.0))
    agent = agent_with(answering("a", "a", "a"), loop, temperature=0.9)
    await run_agent(agent, ASK)
    seen = {s.request.at.branch: s.request.temperature for s in requests_of(agent) if s.request.at}
    assert seen == {0: 0.0, 1: 0.5, 2: 1.25}


@requirement("branches.temperature")
async def test_without_temperatures_of_their_own_candidates_have_the_agents():
    agent = agent_with(
        answering("a", "a"), LoopConfig(branches=2, verifier=grading(a=1.0)), temperature=0.9
    )
    await run_agent(agent, ASK)
    assert [seen.request.temperature for seen in requests_of(agent)] == [0.9, 0.9]


@requirement("branches.seed")
async def test_no_seed_is_used_twice():
    loop = LoopConfig(max_iterations=2, branches=3, convergence_fn=lambda _: False)
    agent = agent_with(answering("a", "b", "c"), loop, extra_params={"seed": 7})
    await run_agent(agent, ASK)
    seeds = [
        seen.request.extra_params["seed"]
        for seen in requests_of(agent)
        if seen.request.purpose == "worker"
    ]
    assert sorted(seeds) == [7, 8, 9, 10, 11, 12]


@requirement("branches.cancelled")
async def test_cancelling_the_run_cancels_every_candidate():
    begun, ended = asyncio.Semaphore(0), [0]

    async def speak(_: SeenRequest) -> str:
        begun.release()
        try:
            await asyncio.Event().wait()
        finally:
            ended[0] += 1
        return "never"

    task = asyncio.create_task(run_agent(agent_with(speak, LoopConfig(branches=3)), ASK))
    for _ in range(3):
        await begun.acquire()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == [3]


# ── Grades ───────────────────────────────────────────────────────────────────────────────────────


@requirement("branches.best-wins")
@pytest.mark.parametrize(
    ("scores", "winner"),
    [((0.2, 0.9, 0.5), "b"), ((0.9, 0.2, 0.5), "a"), ((0.2, 0.5, 0.51), "c"), ((0, 0, 0.1), "c")],
)
async def test_the_best_score_wins(scores: tuple[float, ...], winner: str):
    verifier = grading(**dict(zip("abc", scores, strict=True)))
    loop = LoopConfig(max_iterations=1, branches=3, verifier=verifier)
    result = await run_agent(agent_with(answering("a", "b", "c"), loop), ASK)
    assert result.text == winner
    assert result.scores == [max(scores)]


@requirement("branches.ties")
@pytest.mark.parametrize(
    ("scores", "winner"), [((0.9, 0.9, 0.9), 0), ((0.2, 0.9, 0.9), 1), ((0.0, 0.0, 0.0), 0)]
)
async def test_of_equals_the_lowest_index_wins_whoever_ended_first(
    scores: tuple[float, ...], winner: int
):
    async def speak(seen: SeenRequest) -> str:
        assert seen.request.at is not None
        for _ in range(5 * (2 - seen.request.at.branch)):  # the last one is the first to end
            await asyncio.sleep(0)
        return "abc"[seen.request.at.branch]

    verifier = grading(**dict(zip("abc", scores, strict=True)))
    loop = LoopConfig(max_iterations=1, branches=3, verifier=verifier)
    watched = await watch(agent_with(speak, loop))
    assert watched.data(EventType.BRANCH_SELECTED) == [
        {
            "iteration": 1,
            "branch_count": 3,
            "winning_index": winner,
            "winning_score": max(scores),
        }
    ]


@requirement("branches.graded-once")
async def test_each_candidate_is_graded_once_and_the_winner_not_again():
    graded: list[str] = []

    def grade(_: str, result: AgentResult) -> VerifierFeedback:
        graded.append(result.text)
        return VerifierFeedback({"1.0": 0.1, "1.1": 0.7, "2.0": 0.2, "2.1": 0.9}[result.text])

    verifier = Verifier(VerifierConfig(evaluate_fn=grade))
    loop = LoopConfig(branches=2, verifier=verifier)
    result = await run_agent(agent_with(numbered, loop), ASK)
    assert sorted(graded) == ["1.0", "1.1", "2.0", "2.1"]
    assert (result.text, result.scores) == ("2.1", [0.7, 0.9])


@requirement("branches.confirmed")
async def test_only_the_winner_is_confirmed_and_a_refusal_brings_the_lower_score():
    graded: list[str] = []

    def grade(_: str, result: AgentResult) -> VerifierFeedback:
        graded.append(result.text)
        if graded.count(result.text) == 1:
            return VerifierFeedback({"a": 0.85, "b": 0.95}[result.text])
        return VerifierFeedback(0.4, ["on second thought"])

    verifier = Verifier(VerifierConfig(evaluate_fn=grade, confirmations=1))
    loop = LoopConfig(max_iterations=1, branches=2, verifier=verifier)
    result = await run_agent(agent_with(answering("a", "b"), loop), ASK)
    assert Counter(graded) == {"a": 1, "b": 2}
    assert (result.text, result.scores) == ("b", [0.4])
    assert result.exit_reason is ExitReason.MAX_ITERATIONS


@requirement("branches.winner-feedback")
async def test_the_next_iteration_is_told_the_winners_feedback_alone():
    scores = {"1.0": 0.1, "1.1": 0.3, "2.0": 0.9, "2.1": 0.1}
    agent = agent_with(numbered, LoopConfig(branches=2, verifier=grading(**scores)))
    await run_agent(agent, ASK)
    told = requests_of(agent)[2].messages[-1]["content"]
    assert "1.1 is thin" in told
    assert "mend 1.1" in told
    assert "1.0" not in told


@requirement("branches.winner-only")
async def test_predicates_and_criteria_see_the_winner_alone():
    seen: list[tuple[str, str]] = []

    def stops(result: AgentResult) -> bool:
        seen.append(("stop", result.text))
        return False

    def criterion(ctx: CriterionContext) -> bool:
        assert all(message["content"] != "1.0" for message in ctx.messages)
        seen.append(("criterion", ctx.result.text))
        return True

    loop = LoopConfig(
        branches=2,
        verifier=grading(**{"1.0": 0.1, "1.1": 0.9}),
        stop_condition=stops,
        criteria=[criterion],
    )
    result = await run_agent(agent_with(numbered, loop), ASK)
    assert result.exit_reason is ExitReason.CONVERGED
    assert seen == [("stop", "1.1"), ("criterion", "1.1")]


@requirement("branches.winner-only")
async def test_a_convergence_fn_sees_the_winner_alone():
    seen: list[str] = []

    def converged(result: AgentResult) -> bool:
        seen.append(result.text)
        return True

    loop = LoopConfig(branches=2, verifier=grading(a=0.1, b=0.3), convergence_fn=converged)
    await run_agent(agent_with(answering("a", "b"), loop), ASK)
    assert seen == ["b"]


@requirement("branches.early-stop")
async def test_the_first_that_passes_ends_the_others():
    ended: list[int] = []

    async def speak(seen: SeenRequest) -> str:
        assert seen.request.at is not None
        branch = seen.request.at.branch
        if branch == 1:
            await settle()
            return "b"
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(branch)
        return "never"

    loop = LoopConfig(branches=3, branch_early_stop=True, verifier=grading(b=0.8))
    agent = agent_with(speak, loop)
    async with asyncio.timeout(10):
        watched = await watch(agent)
    assert watched.result is not None
    assert (watched.result.text, watched.result.exit_reason) == ("b", ExitReason.CONVERGED)
    assert sorted(ended) == [0, 2]
    assert watched.data(EventType.BRANCH_SELECTED)[0]["winning_index"] == 1


@requirement("branches.early-stop")
async def test_where_none_passes_all_are_waited_for_and_the_best_wins():
    loop = LoopConfig(
        max_iterations=1, branches=3, branch_early_stop=True, verifier=grading(a=0.1, b=0.7, c=0.3)
    )
    result = await run_agent(agent_with(answering("a", "b", "c"), loop), ASK)
    assert (result.text, result.exit_reason) == ("b", ExitReason.MAX_ITERATIONS)


@requirement("branches.early-stop")
async def test_the_one_that_passed_goes_forward_whatever_the_scores():
    def grade(_: str, result: AgentResult) -> VerifierFeedback:
        if result.text == "a":
            return VerifierFeedback(0.7)
        return VerifierFeedback(0.2, converged=True)

    async def speak(seen: SeenRequest) -> str:
        assert seen.request.at is not None
        for _ in range(30 * seen.request.at.branch):
            await asyncio.sleep(0)
        return "ab"[seen.request.at.branch]

    verifier = Verifier(VerifierConfig(evaluate_fn=grade))
    loop = LoopConfig(branches=2, branch_early_stop=True, verifier=verifier)
    result = await run_agent(agent_with(speak, loop), ASK)
    assert (result.text, result.scores, result.exit_reason) == ("b", [0.2], ExitReason.CONVERGED)


# ── LoopConvergedError from a candidate's grader ─────────────────────────────────────────────────


@requirement("branches.converged-error")
@pytest.mark.parametrize("branches", [1, 3])
@pytest.mark.parametrize("early_stop", [False, True])
@pytest.mark.parametrize("is_async", [False, True])
async def test_a_grader_may_end_the_run_with_one_or_with_many_candidates(
    branches: int, early_stop: bool, is_async: bool
):
    mine = LoopConvergedError()

    def grade(_: str, result: AgentResult) -> VerifierFeedback:
        if result.text == "done":
            raise mine
        return VerifierFeedback(0.7)

    async def grade_async(query: str, result: AgentResult) -> VerifierFeedback:
        await asyncio.sleep(0)
        return grade(query, result)

    def stops(_: AgentResult) -> bool:
        raise AssertionError("asked although the grader has ended the run")

    verifier = Verifier(VerifierConfig(evaluate_fn=grade_async if is_async else grade))
    settings: dict[str, Any] = {"branch_early_stop": early_stop} if branches > 1 else {}
    loop = LoopConfig(branches=branches, verifier=verifier, **settings)
    texts = ["done"] if branches == 1 else ["better", "done", "other"]
    watched = await watch(agent_with(answering(*texts), loop))
    assert watched.error is mine
    result = mine.result
    assert isinstance(result, AgentResult)
    assert (result.text, result.exit_reason) == ("done", ExitReason.STOP_CONDITION)
    assert result.loop_iterations == 1
    (iteration,) = watched.data(EventType.LOOP_ITERATION)
    assert (iteration["early_stop"], iteration["score"]) == ("stop_condition", None)
    assert watched.kinds[-1] is EventType.DONE
    assert [data["winning_index"] for data in watched.data(EventType.BRANCH_SELECTED)] == (
        [] if branches == 1 else [1]
    )


@requirement("branches.converged-error")
async def test_of_several_that_end_the_run_the_first_one_does_and_brings_its_result():
    theirs = [AgentResult("x", f"own {n}", [], 0, 0, "") for n in range(2)]
    verifier = grading(a=0.9, b=LoopConvergedError(theirs[0]), c=LoopConvergedError(theirs[1]))
    loop = LoopConfig(branches=3, verifier=verifier)
    with pytest.raises(LoopConvergedError) as caught:
        await run_agent(agent_with(answering("a", "b", "c"), loop), ASK)
    assert caught.value.result is theirs[0]


@requirement("branches.converged-error")
async def test_what_another_run_ended_with_only_drops_the_candidate():
    inner = Agent(
        "inner", ScriptedModel(["x"]), loop_config=LoopConfig(stop_condition=lambda _: True)
    )

    async def grade(_: str, result: AgentResult) -> VerifierFeedback:
        if result.text == "a":
            await run_agent(inner, ASK)
        return VerifierFeedback(0.9)

    loop = LoopConfig(branches=2, verifier=Verifier(VerifierConfig(evaluate_fn=grade)))
    result = await run_agent(agent_with(answering("a", "b"), loop), ASK)
    assert (result.text, result.exit_reason) == ("b", ExitReason.CONVERGED)


@requirement("branches.resume", "branches.converged-error")
@pytest.mark.parametrize("enders", ["b", "bc", "abc"])
async def test_every_prefix_of_a_run_that_a_grader_ended_ends_the_same(enders: str):
    def agent() -> Agent:
        scores: dict[str, Any] = {"a": 0.2, "b": 0.9, "c": 0.5}
        for name in enders:
            scores[name] = LoopConvergedError()
        loop = LoopConfig(branches=3, verifier=grading(**scores))
        return agent_with(answering("a", "b", "c"), loop)

    log = EventLog()
    with pytest.raises(LoopConvergedError) as caught:
        await run_agent(agent(), ASK, log=log)
    whole = caught.value.result
    assert isinstance(whole, AgentResult)
    assert whole.text == enders[0]
    for length in range(1, len(log) + 1):
        with pytest.raises(LoopConvergedError) as again:
            await resume_agent(agent(), log[:length])
        assert again.value.result == whole, f"after {length} of {len(log)}: {log[length - 1]}"


# ── Failures ─────────────────────────────────────────────────────────────────────────────────────


@requirement("branches.failed-candidate")
async def test_a_candidate_that_fails_is_dropped_and_reported(caplog: pytest.LogCaptureFixture):
    loop = LoopConfig(branches=3, verifier=grading(b=0.2, c=0.9))
    result = await run_agent(agent_with(answering(ServerError("down"), "b", "c"), loop), ASK)
    assert (result.text, result.exit_reason) == ("c", ExitReason.CONVERGED)
    assert [each.message for each in caplog.records] == [
        "candidate 0 of agent 'tester' is out in iteration 1, its run failed: ServerError: down"
    ]


@tool(idempotent=True)
async def look(where: str) -> str:
    """Looks."""
    return f"a heron in {where}"


def looking(*branches: int) -> Speak:
    """These candidates use up their turns; the others answer ``abc``."""

    def speak(seen: SeenRequest) -> Any:
        at = seen.request.at
        if at is None or seen.request.purpose != "worker":
            return "merged"
        if at.branch in branches:
            return reply("a long draft, not done", call("look", "c1", where=f"{at.turn}"))
        return "abc"[at.branch]

    return speak


@requirement("branches.cap-raised")
async def test_where_the_cap_is_an_error_the_candidate_is_out():
    def grade(_: str, result: AgentResult) -> VerifierFeedback:
        return VerifierFeedback(min(1.0, len(result.text) / 20))

    verifier = Verifier(VerifierConfig(evaluate_fn=grade))
    loop = LoopConfig(max_iterations=1, branches=2, verifier=verifier)
    agent = agent_with(looking(0), loop, tools=[look], max_turns=2, on_max_turns="raise")
    result = await run_agent(agent, ASK)
    assert (result.text, result.turns, result.scores) == ("b", 3, [0.05])


@requirement("branches.cap-raised")
async def test_where_all_candidates_reach_the_cap_the_run_fails_as_with_one():
    errors: list[str] = []
    for branches in (1, 2):
        loop = LoopConfig(branches=branches, convergence_fn=lambda _: True)
        agent = agent_with(looking(0, 1), loop, tools=[look], max_turns=2, on_max_turns="raise")
        log = EventLog()
        with pytest.raises(MaxTurnsError) as caught:
            await run_agent(agent, ASK, log=log)
        with pytest.raises(MaxTurnsError) as again:
            await resume_agent(agent, through_json(log.events))
        result = partial_result(caught.value)
        assert result is not None
        errors += [str(caught.value), str(again.value), f"{result.error}"[len("MaxTurnsError: ") :]]
    assert len(set(errors)) == 1


@requirement("branches.cap-raised")
async def test_a_cap_that_is_no_error_does_not_pass_for_one_on_resume():
    def no_key(_: AgentResult) -> str:
        raise ValueError("no key")

    loop = LoopConfig(branches=2, branch_vote=no_key)
    agent = agent_with(looking(0, 1), loop, tools=[look], max_turns=1)
    log = EventLog()
    with pytest.raises(ValueError, match="no key"):
        await run_agent(agent, ASK, log=log)
    with pytest.raises(RunError, match="ValueError: no key"):
        await resume_agent(agent, through_json(log.events))


@requirement("branches.foreign-cancellation")
@pytest.mark.parametrize("where", ["branch_vote", "verifier", "synthesizer"])
async def test_a_cancellation_of_something_else_is_no_cancellation_of_the_run(where: str):
    def cancelled(*_: Any) -> Any:
        raise asyncio.CancelledError

    class Cancelled:
        async def synthesize(self, *_: Any) -> AgentResult:
            raise asyncio.CancelledError

    part: Any = {
        "branch_vote": cancelled,
        "verifier": Verifier(VerifierConfig(evaluate_fn=cancelled)),
        "synthesizer": Cancelled(),
    }[where]
    settings: dict[str, Any] = {where: part}
    loop = LoopConfig(max_iterations=1, branches=2, **settings)
    watched = await watch(agent_with(answering("a", "b"), loop))
    match where:
        case "branch_vote":
            assert isinstance(watched.error, RunError)
            result = partial_result(watched.error)
            assert result is not None
            assert (result.exit_reason, result.error) == (ExitReason.ERROR, "CancelledError")
        case "verifier":
            assert watched.result is not None
            assert watched.result.exit_reason is ExitReason.CRITERION_ERROR
            assert watched.result.error == "CancelledError"
        case _:
            assert watched.result is not None
            assert watched.result.text == "a"


@requirement("branches.go-on")
async def test_what_the_error_of_a_failed_run_says_to_leave_out_lets_it_go_on():
    loop = LoopConfig(max_iterations=1, branches=2, verifier=grading(a=0.1, b=0.3))
    log = EventLog()
    down = ServerError("down")
    with pytest.raises(ServerError):
        await run_agent(agent_with(answering(down, down), loop), ASK, log=log)
    healthy = agent_with(answering("a", "b"), loop)
    with pytest.raises(RunError, match="leave RunEnded and every CandidateDropped of iteration 1"):
        await resume_agent(healthy, log.events)
    kept = [event for event in log.events if not isinstance(event, RunEnded | CandidateDropped)]
    assert (await resume_agent(healthy, kept)).text == "b"


@requirement("branches.failed-grading")
async def test_a_candidate_whose_grading_fails_is_dropped():
    loop = LoopConfig(max_iterations=1, branches=2, verifier=grading(a=OSError("no judge"), b=0.3))
    result = await run_agent(agent_with(answering("a", "b"), loop), ASK)
    assert (result.text, result.scores) == ("b", [0.3])
    assert result.error is None


@requirement("branches.one-left")
async def test_where_one_is_left_nothing_is_merged():
    loop = LoopConfig(branches=3, convergence_fn=lambda _: True)
    down = ServerError("down")
    agent = agent_with(answering(down, "b", down), loop)
    watched = await watch(agent)
    assert watched.result is not None
    assert watched.result.text == "b"
    assert purposes(agent) == {"worker": 3}
    assert watched.data(EventType.BRANCH_SELECTED)[0]["winning_index"] == 1
    assert EventType.APEX_START not in watched.kinds


@requirement("branches.all-failed")
async def test_where_all_fail_the_error_of_the_first_candidate_leaves_the_run():
    async def speak(seen: SeenRequest) -> str:
        assert seen.request.at is not None
        for _ in range(5 * (2 - seen.request.at.branch)):  # the last one fails first
            await asyncio.sleep(0)
        raise ServerError(f"candidate {seen.request.at.branch} is down")

    watched = await watch(agent_with(speak, LoopConfig(branches=3)))
    assert isinstance(watched.error, ServerError)
    assert "candidate 0 is down" in str(watched.error)
    result = partial_result(watched.error)
    assert result is not None
    assert (result.exit_reason, result.loop_iterations) == (ExitReason.ERROR, 0)
    assert watched.kinds[-1] is EventType.ERROR


@requirement("branches.all-gradings-failed")
async def test_where_all_gradings_fail_that_is_a_criterion_error_of_candidate_0():
    verifier = grading(a=OSError("no judge for a"), b=OSError("no judge for b"))
    loop = LoopConfig(branches=2, verifier=verifier)
    watched = await watch(agent_with(answering("a", "b"), loop))
    result = watched.result
    assert result is not None
    assert (result.exit_reason, result.text) == (ExitReason.CRITERION_ERROR, "a")
    assert result.error == "OSError: no judge for a"
    (iteration,) = watched.data(EventType.LOOP_ITERATION)
    assert iteration["failed_criterion"] == "verifier"


@requirement("branches.approval")
async def test_a_pending_approval_in_one_candidate_ends_the_run_and_nothing_is_evaluated():
    asked: list[str] = []

    async def waits(*_: Any) -> bool | None:
        return None

    @tool
    async def delete(path: str) -> str:
        """Deletes."""
        return f"deleted {path}"

    def speak(seen: SeenRequest) -> Any:
        assert seen.request.at is not None
        if seen.request.at.branch == 1 and seen.request.at.turn == 1:
            return reply(None, call("delete", "c1", path="x"))
        return "abc"[seen.request.at.branch]

    def grade(_: str, result: AgentResult) -> VerifierFeedback:
        asked.append(result.text)
        return VerifierFeedback({"a": 0.1, "b": 0.9, "c": 0.2}[result.text])

    def agent() -> Agent:
        verifier = Verifier(VerifierConfig(evaluate_fn=grade))
        loop = LoopConfig(branches=3, verifier=verifier)
        return agent_with(speak, loop, tools=[delete], hooks=AgentHooks(approve_tool=waits))

    log = EventLog()
    result = await run_agent(agent(), ASK, log=log)
    assert (result.exit_reason, result.loop_iterations) == (ExitReason.AWAITING_APPROVAL, 0)
    assert asked == []
    result = await resume_agent(agent(), log.events, approvals={"c1": True})
    assert (result.text, result.exit_reason) == ("b", ExitReason.CONVERGED)
    assert sorted(asked) == ["a", "b", "c"]


@requirement("branches.approval", "branches.cancelled")
async def test_a_run_cancelled_while_a_person_is_asked_leaves_no_call_without_an_answer():
    async def waits(*_: Any) -> bool | None:
        return None

    @tool
    async def delete(path: str) -> str:
        """Deletes."""
        return f"deleted {path}"

    script = [reply(None, call("delete", "c1", path="x"))]
    loop = LoopConfig(branches=1, convergence_fn=lambda _: True)
    agent = agent_with(script, loop, tools=[delete], hooks=AgentHooks(approve_tool=waits))
    queue: asyncio.Queue[Any] = asyncio.Queue(3)  # full at AGENT_DONE, which nobody reads
    task = asyncio.create_task(run_agent(agent, ASK, queue=queue))
    await settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    result = partial_result(caught.value)
    assert result is not None
    assert result.exit_reason is ExitReason.CANCELLED
    check_conversation(result.messages)
    assert [message["role"] for message in result.messages] == ["user", "assistant", "tool"]


# ── Votes ────────────────────────────────────────────────────────────────────────────────────────


async def voted(answers: Sequence[str], **settings: Any) -> tuple[AgentResult, int]:
    """The result, and how many candidates were asked."""
    loop = LoopConfig(
        max_iterations=1,
        branches=len(answers),
        branch_vote=lambda r: r.text.split()[-1],
        **settings,
    )
    agent = agent_with(answering(*answers), loop)
    return await run_agent(agent, ASK), len(requests_of(agent))


@requirement("branches.vote")
async def test_the_first_candidate_of_the_most_frequent_key_goes_forward():
    answers = ["it is 7", "I say 4", "so 4", "maybe 7", "surely 4"]
    result, asked = await voted(answers)
    assert (result.text, asked) == ("I say 4", 5)
    assert result.confidence is None


@requirement("branches.vote")
async def test_of_equally_frequent_keys_the_one_seen_first_wins():
    assert (await voted(["2", "1", "1", "2"]))[0].text == "2"


@requirement("branches.vote")
async def test_a_candidate_without_a_key_has_no_vote():
    def key(result: AgentResult) -> str:
        if result.text == "b":
            raise ValueError("no number in it")
        return result.text

    loop = LoopConfig(max_iterations=1, branches=3, branch_vote=key)
    assert (await run_agent(agent_with(answering("b", "b", "a"), loop), ASK)).text == "a"


async def counted(*keys: Any) -> tuple[int, int]:
    """Which candidate wins a vote for these keys, and how many were asked."""
    loop = LoopConfig(
        max_iterations=1, branches=len(keys), branch_vote=lambda r: keys[int(r.text.split()[1])]
    )
    agent = agent_with(answering(*(f"candidate {n}" for n in range(len(keys)))), loop)
    result = await run_agent(agent, ASK)
    return int(result.text.split()[1]), len(requests_of(agent))


class Name:
    """Equal to another one whatever the case; not hashable, and without a text of its own."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Name) and self.text.casefold() == other.text.casefold()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return "a name"


@requirement("branches.vote-abstains")
@pytest.mark.parametrize(
    ("keys", "winner"),
    [
        ((None, None, 42, None, 42), 2),
        ((None, None, None, None, 7), 4),
        ((None, "", ""), 1),  # an empty key is a key
        ((None, None, None), 0),
    ],
)
async def test_none_is_no_vote(keys: tuple[Any, ...], winner: int):
    assert (await counted(*keys))[0] == winner


@requirement("branches.vote-abstains")
async def test_where_all_abstain_the_first_with_an_answer_goes_forward():
    loop = LoopConfig(max_iterations=1, branches=3, branch_vote=lambda _: None)
    agent = agent_with(answering(ServerError("down"), "", "c"), loop)
    assert (await run_agent(agent, ASK)).text == "c"


@requirement("branches.vote-equality")
@pytest.mark.parametrize(
    ("keys", "winner"),
    [
        (({"n": 1, "sea": "Aegean"}, "x", {"sea": "Aegean", "n": 1}), 0),
        ((["a", {"b": [1]}], ["x"], ["a", {"b": [1.0]}]), 0),
        (("1", 1, 1.0), 1),
        ((1, "1", "1"), 1),
        (("0", 0, False), 1),
        (({"a", "b"}, "x", frozenset("ba")), 0),
        (([1, 2], (1, 2), (1, 2)), 1),
        ((Name("x"), Name("Ada"), Name("ADA")), 1),
        ((Name("x"), Name("y"), Name("y")), 1),
        ((Sea(name="a"), Sea(name="b"), Sea(name="b")), 1),
    ],
    ids=range(10),
)
async def test_equal_keys_are_one_answer(keys: tuple[Any, ...], winner: int):
    assert (await counted(*keys))[0] == winner


@requirement("branches.vote-stops")
@pytest.mark.parametrize(
    ("answers", "asked"),
    [
        ("1" * 9, 5),  # the fifth equal answer decides
        ("1" * 4 + "2" + "1" * 4, 6),
        ("2" + "1" * 8, 6),
        # 5 asked: 3 to 2, and 2 more could decide; after 7: 4 to 3, one more; after 8: 5 to 3.
        ("12121211" + "2", 8),
        ("121212121", 9),
    ],
)
async def test_a_vote_asks_no_more_than_it_takes(answers: str, asked: int):
    assert (await voted(list(answers)))[1] == asked


@requirement("branches.vote-same-winner")
@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from("abcd"), min_size=2, max_size=9))
def test_a_vote_has_the_winner_that_asking_all_has(answers: list[str]):
    most = max(answers.count(each) for each in answers)
    winner = next(each for each in answers if answers.count(each) == most)
    result, asked = asyncio.run(voted(answers))
    assert result.text == winner
    assert len(answers) // 2 + len(answers) % 2 <= asked <= len(answers)


# ── Merging ──────────────────────────────────────────────────────────────────────────────────────


def merging(*merges: str) -> Speak:
    """Candidates answer ``iteration.branch``; the n-th merge is the n-th of these."""
    left = list(merges)

    def speak(seen: SeenRequest) -> str:
        return left.pop(0) if seen.request.purpose == "synthesizer" else numbered(seen)

    return speak


@requirement("branches.merge")
async def test_a_merge_goes_forward_as_one_assistant_message():
    loop = LoopConfig(max_iterations=2, branches=2, refine_prompt="More.")
    agent = agent_with(merging("both\nCONFIDENCE: 0.4", "all\nCONFIDENCE: 0.6"), loop)
    result = await run_agent(agent, ASK)
    said_then = [*ASK, said("assistant", "both"), said("user", "More.")]
    assert requests_of(agent)[3].messages == said_then
    assert result.messages == [*said_then, said("assistant", "all")]
    assert (result.text, result.confidence) == ("all", 0.6)
    assert purposes(agent) == {"worker": 4, "synthesizer": 2}


@requirement("branches.merge-confidence")
@pytest.mark.parametrize(
    ("merge", "text", "confidence"),
    [
        ("Both.\nCONFIDENCE: 0.7", "Both.", 0.7),
        ("Both.\nCONFIDENCE: 1", "Both.", 1.0),
        ("Both.\n\nCONFIDENCE: .5\n", "Both.", 0.5),
        ("Both.", "Both.", None),
        ("Both.\nCONFIDENCE: high", "Both.\nCONFIDENCE: high", None),
        ("Both.\nCONFIDENCE: 85%", "Both.\nCONFIDENCE: 85%", None),
        ("Both.\nCONFIDENCE: 1.5", "Both.\nCONFIDENCE: 1.5", None),
        ("Both.\nCONFIDENCE: nan", "Both.\nCONFIDENCE: nan", None),
        ("CONFIDENCE: 0.9\nBoth.", "CONFIDENCE: 0.9\nBoth.", None),
        ("Both. CONFIDENCE: 0.9", "Both. CONFIDENCE: 0.9", None),
    ],
)
async def test_a_confidence_is_read_or_none(merge: str, text: str, confidence: float | None):
    agent = agent_with(merging(merge), LoopConfig(max_iterations=1, branches=2))
    result = await run_agent(agent, ASK)
    assert (result.text, result.confidence) == (text, confidence)
    assert purposes(agent) == {"worker": 2, "synthesizer": 1}


@requirement("branches.merge-keeps")
async def test_a_merge_keeps_tool_calls_and_is_read_as_the_output():
    @tool
    async def look(where: str) -> str:
        """Looks."""
        return f"a heron in {where}"

    def speak(seen: SeenRequest) -> Any:
        at = seen.request.at
        if seen.request.purpose == "synthesizer" or at is None:
            return '{"name": "Aegean"}\nCONFIDENCE: 0.5'
        if at.turn == 1:
            return reply(None, call("look", "c1", where=f"{at.branch}"))
        return f'{{"name": "sea {at.branch}"}}'

    loop = LoopConfig(max_iterations=1, branches=2)
    agent = agent_with(speak, loop, tools=[look], response_model=Sea)
    result = await run_agent(agent, ASK)
    assert result.parsed == Sea(name="Aegean")
    assert [call["result"] for call in result.tool_calls] == ["a heron in 0", "a heron in 1"]


def seas(*merges: str) -> Speak:
    """Candidates answer with a sea; merges and their repairs are these."""
    left = list(merges)

    def speak(seen: SeenRequest) -> str:
        if seen.request.purpose != "worker":
            return left.pop(0)
        return f'{{"name": "sea {numbered(seen)}"}}'

    return speak


@requirement("branches.merge-fits")
async def test_a_merge_is_asked_for_by_the_schema_and_repaired_once():
    loop = LoopConfig(max_iterations=1, branches=2)
    speak = seas("Aegean, I think.\nCONFIDENCE: 0.9", '{"name": "Aegean"}\nCONFIDENCE: 0.6')
    agent = agent_with(speak, loop, response_model=Sea)
    result = await run_agent(agent, ASK)
    assert (result.text, result.parsed) == ('{"name": "Aegean"}', Sea(name="Aegean"))
    assert result.confidence == 0.6
    assert result.input_tokens == 10 * 4
    assert purposes(agent) == {"worker": 2, "synthesizer": 1, "repair": 1}
    merge, repair = requests_of(agent)[2:]
    assert "JSON of that very form" in merge.messages[0]["content"]
    assert merge.request.json_schema == repair.request.json_schema == Sea.model_json_schema()
    assert merge.request.schema_name == "Sea"
    assert repair.messages[:2] == merge.messages
    assert repair.messages[2] == said("assistant", "Aegean, I think.")
    assert "does not fit" in repair.messages[3]["content"]


@requirement("branches.merge-fits")
async def test_where_a_merge_does_not_fit_the_first_candidate_that_does_goes_forward(
    caplog: pytest.LogCaptureFixture,
):
    def speak(seen: SeenRequest) -> Any:
        if seen.request.purpose != "worker":
            return "Aegean, I think."
        assert seen.request.at is not None
        if seen.request.at.branch == 0:  # and reaches the cap, which fits nothing
            return reply("a long draft", call("look", "c1", where="x"))
        return f'{{"name": "sea {numbered(seen)}"}}'

    loop = LoopConfig(
        max_iterations=1,
        branches=3,
        evaluate_final=True,
        criteria=[lambda c: bool(c.result.parsed)],
    )
    agent = agent_with(speak, loop, response_model=Sea, tools=[look], max_turns=1)
    result = await run_agent(agent, ASK)
    assert (result.text, result.parsed) == ('{"name": "sea 1.1"}', Sea(name="sea 1.1"))
    assert result.exit_reason is ExitReason.CONVERGED
    assert "merging the candidates of agent 'tester' failed, candidate 1 goes" in caplog.text
    assert purposes(agent) == {"worker": 3, "synthesizer": 1, "repair": 1}


@requirement("branches.merge-fits")
async def test_an_own_synthesizer_is_given_the_reader_and_held_to_it():
    given: list[Any] = []

    class Prose:
        async def synthesize(
            self,
            query: str,
            results: Sequence[AgentResult],
            queue: Any = None,
            *,
            output: Any = None,
        ) -> AgentResult:
            given.append((output and output.name, [result.parsed for result in results]))
            return AgentResult("x", "prose", [], 0, 0, "")

    loop = LoopConfig(max_iterations=1, branches=2, synthesizer=Prose())
    result = await run_agent(agent_with(seas(), loop, response_model=Sea), ASK)
    assert given == [("Sea", [Sea(name="sea 1.0"), Sea(name="sea 1.1")])]
    assert result.parsed == Sea(name="sea 1.0")
    result = await run_agent(agent_with(seas(), loop), ASK)
    assert given[1] == (None, [None, None])
    assert result.text == "prose"


@requirement("branches.merge-empty")
@pytest.mark.parametrize("merge", ["", " \n", "CONFIDENCE: 0.95", "\nCONFIDENCE: 0.95\n"])
async def test_a_merge_without_an_answer_replaces_no_candidate(
    merge: str, caplog: pytest.LogCaptureFixture
):
    def speak(seen: SeenRequest) -> str:
        if seen.request.purpose == "synthesizer":
            return merge
        return "" if numbered(seen) == "1.0" else numbered(seen)

    loop = LoopConfig(
        max_iterations=1, branches=3, convergence_fn=lambda r: (r.confidence or 0) >= 0.8
    )
    watched = await watch(agent_with(speak, loop))
    assert watched.result is not None
    assert (watched.result.text, watched.result.confidence) == ("1.1", None)
    assert watched.result.exit_reason is ExitReason.MAX_ITERATIONS
    assert watched.data(EventType.BRANCH_SELECTED)[0]["winning_index"] == 1
    assert "empty text" in caplog.text


@requirement("branches.merge-keeps")
async def test_the_finish_reason_of_a_merge_is_its_own():
    def speak(seen: SeenRequest) -> Any:
        if seen.request.purpose == "synthesizer":
            return reply("half of it", finish_reason="length")
        return numbered(seen)

    loop = LoopConfig(max_iterations=1, branches=2)
    log = EventLog()
    result = await run_agent(agent_with(speak, loop), ASK, log=log)
    assert (result.text, result.finish_reason, result.model) == ("half of it", "length", "scripted")
    again = await resume_agent(agent_with(speak, loop), through_json(log.events))
    assert again == result


class Joining:
    """A synthesizer that asks a model of the run's choosing."""

    def __init__(self, model: Any = None) -> None:
        self.own = model

    async def synthesize(
        self, query: str, results: Sequence[AgentResult], queue: Any = None, *, model: Any = None
    ) -> AgentResult:
        from untildone import ModelRequest
        from untildone.domain.messages import user_message

        path = model if self.own is None else model.using(self.own)
        asked = f"{query}: {', '.join(result.text for result in results)}"
        given = await path.generate(ModelRequest(messages=[user_message(asked)]))
        return AgentResult("joining", given.message.text, [], 0, 0, path.name, confidence=0.5)


@requirement("branches.own-synthesizer")
async def test_what_an_own_synthesizer_asks_is_retried_metered_and_logged():
    def speak(seen: SeenRequest) -> Any:
        if seen.request.at is not None:
            return numbered(seen)
        if seen.index == 2:
            raise ServerError("busy", usage=Usage(input_tokens=1000))
        return reply(f"joined {seen.messages[-1]['content']}", usage=Usage(input_tokens=500))

    loop = LoopConfig(max_iterations=1, branches=2, synthesizer=Joining())
    agent = agent_with(speak, loop, retry_policy=RetryPolicy(max_retries=1))
    result = await run_agent(agent, ASK, clock=FakeClock())
    assert (result.text, result.confidence) == ("joined question: 1.0, 1.1", 0.5)
    assert result.input_tokens == 10 + 10 + 1000 + 500
    assert result.turns == 2


@requirement("branches.own-synthesizer")
async def test_an_own_synthesizer_may_use_another_model_by_the_same_way():
    dear = ScriptedModel(["joined"], usage=Usage(input_tokens=700))
    loop = LoopConfig(max_iterations=1, branches=2, synthesizer=Joining(dear))
    result = await run_agent(agent_with(numbered, loop), ASK)
    assert (result.text, result.input_tokens) == ("joined", 720)


@requirement("branches.own-synthesizer")
async def test_a_synthesizer_without_the_keyword_is_given_three_arguments():
    class Longest:
        async def synthesize(
            self, query: str, results: Sequence[AgentResult], queue: Any = None
        ) -> AgentResult:
            return max(results, key=lambda result: len(result.text))

    loop = LoopConfig(max_iterations=1, branches=2, synthesizer=Longest())
    result = await run_agent(agent_with(answering("a", "longer"), loop), ASK)
    assert result.text == "longer"


@requirement("branches.own-synthesizer")
async def test_a_subclass_of_apex_keeps_what_it_changed():
    class Loud(APEXSynthesizer):
        async def synthesize(self, *given: Any, **named: Any) -> AgentResult:
            merged = await super().synthesize(*given, **named)
            merged.text = merged.text.upper()
            return merged

    dear = ScriptedModel(["joined\nCONFIDENCE: 0.5"], usage=Usage(input_tokens=700))
    own = Loud(dear, ApexConfig(cite_sources=False))
    loop = LoopConfig(max_iterations=1, branches=2, synthesizer=own)
    result = await run_agent(agent_with(numbered, loop), ASK)
    assert (result.text, result.input_tokens) == ("JOINED", 720)
    assert own.model is dear


@requirement("branches.bad-merge")
@pytest.mark.parametrize("given_back", [None, "text", AgentResult("x", None, [], 0, 0, "")])  # type: ignore[arg-type]
async def test_a_synthesizer_that_gives_no_result_costs_no_answer(
    given_back: Any, caplog: pytest.LogCaptureFixture
):
    class Bad:
        async def synthesize(self, *_: Any) -> Any:
            return given_back

    loop = LoopConfig(max_iterations=1, branches=2, synthesizer=Bad())
    result = await run_agent(agent_with(answering("a", "b"), loop), ASK)
    assert result.text == "a"
    assert "it must give an AgentResult" in caplog.text


@requirement("branches.bad-merge")
async def test_what_is_no_confidence_is_none():
    class Sure:
        async def synthesize(self, *_: Any) -> AgentResult:
            return AgentResult("x", "both", [], 0, 0, "", confidence="very")  # type: ignore[arg-type]

    loop = LoopConfig(max_iterations=1, branches=2, synthesizer=Sure())
    result = await run_agent(agent_with(answering("a", "b"), loop), ASK)
    assert (result.text, result.confidence) == ("both", None)


@requirement("branches.merged-todos")
async def test_a_merge_has_the_todo_lists_of_all_its_candidates():
    todos = TodoList()

    def speak(seen: SeenRequest) -> Any:
        at = seen.request.at
        if seen.request.purpose == "synthesizer" or at is None:
            return "merged"
        script: dict[tuple[int, int, int], Any] = {
            (1, 0, 1): call("todo_add", items=["dishes", "floor"]),
            (1, 0, 2): call("todo_complete", numbers=[1]),
            (1, 1, 1): call("todo_add", items=["roof", "dishes"]),
            (1, 1, 2): call("todo_complete", numbers=[1]),
            (2, 0, 1): call("todo_complete", numbers=[2]),
        }
        wanted = script.get((at.iteration, at.branch, at.turn))
        return numbered(seen) if wanted is None else reply(calls=wanted)

    loop = LoopConfig(branches=2, criteria=[TodoCompletion(todos)])
    agent = agent_with(speak, loop, tools=[*todos.tools])
    result = await run_agent(agent, ASK)
    assert (result.exit_reason, result.loop_iterations) == (ExitReason.CONVERGED, 2)
    told = next(s for s in requests_of(agent) if s.request.at and s.request.at.iteration == 2)
    assert told.messages[-1]["content"].splitlines()[:2] == [
        "Your todo list still has open items:",
        "[ ] 2. floor",
    ]


# ── What is seen ─────────────────────────────────────────────────────────────────────────────────


@requirement("branches.usage")
async def test_what_losing_and_dropped_candidates_cost_counts():
    costs = [
        reply("a", usage=Usage(input_tokens=1, output_tokens=10)),
        reply("b", usage=Usage(input_tokens=2, output_tokens=20)),
        ServerError("cut", usage=Usage(input_tokens=4, output_tokens=40)),
    ]
    loop = LoopConfig(branches=3, verifier=grading(a=0.1, b=0.9))
    result = await run_agent(agent_with(answering(*costs), loop), ASK)
    assert (result.text, result.input_tokens, result.output_tokens) == ("b", 7, 70)
    assert result.turns == 2


@requirement("branches.events")
async def test_the_events_of_an_iteration_come_in_order():
    loop = LoopConfig(
        branches=2,
        verifier=grading(a=0.1, b=0.9),
        episodic_memory=EpisodicMemory(InMemoryProvider()),
    )
    watched = await watch(agent_with(answering("a", "b"), loop))
    chosen = watched.kinds.index(EventType.BRANCH_SELECTED)
    assert watched.kinds[0] is EventType.AGENT_START
    assert sorted(watched.kinds[1:chosen]) == ["agent_done"] * 2 + ["text_delta"] * 2
    assert watched.kinds[chosen:] == [
        "branch_selected",
        "verifier_scored",
        "episode_recorded",
        "loop_iteration",
        "done",
    ]
    assert sorted(event.data["branch"] for event in watched.events[1:chosen]) == [0, 0, 1, 1]
    assert all("branch" not in event.data for event in watched.events[chosen:])


@requirement("branches.resume")
async def test_every_prefix_of_a_run_with_an_early_stop_leads_to_the_same_end():
    async def speak(seen: SeenRequest) -> str:
        assert seen.request.at is not None
        for _ in range(9 * seen.request.at.branch):
            await asyncio.sleep(0)
        return "ab"[seen.request.at.branch]

    def agent() -> Agent:
        loop = LoopConfig(branches=2, branch_early_stop=True, verifier=grading(a=0.9, b=0.2))
        return agent_with(speak, loop)

    log = EventLog()
    whole = await run_agent(agent(), ASK, log=log)
    assert whole.text == "a"
    for length in range(1, len(log) + 1):
        result = await resume_agent(agent(), log[:length])
        assert (result.text, result.scores, result.exit_reason, result.messages) == (
            whole.text,
            whole.scores,
            whole.exit_reason,
            whole.messages,
        ), f"after {length} of {len(log)}: {log[length - 1]}"
