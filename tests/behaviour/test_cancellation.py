"""Cancelling a run: what is stopped, what is kept, and that nothing of it is left."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.behaviour.kit import (
    answers,
    ask,
    check_conversation,
    drained,
    ended,
    other_tasks,
    settle,
    until,
)
from tests.behaviour.manifest import requirement
from untildone import (
    Agent,
    AgentHooks,
    AgentResult,
    EventType,
    ExitReason,
    LoopConfig,
    LoopOutcome,
    RetryPolicy,
    ServerError,
    Verifier,
    VerifierConfig,
    VerifierFeedback,
    event_to_dict,
    partial_result,
    run_agent,
)
from untildone.testing import EventLog, ScriptedModel, call, reply

pytestmark = pytest.mark.timeout(30)


class Place:
    """Somewhere a run can hang: it says when it is reached and when it was cleaned up."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.left = 0

    async def hang(self, *_: Any, **__: Any) -> Any:
        self.reached.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            self.left += 1

    async def tool(self) -> str:
        return await self.hang()


async def fine() -> str:
    return "fine"


async def cancelled(
    agent: Agent, place: Place, **options: Any
) -> tuple[asyncio.CancelledError, AgentResult]:
    """Cancels a run where it hangs; nothing of it may be left, and it must have cleaned up."""
    run = asyncio.create_task(run_agent(agent, ask(), **options))
    await place.reached.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await run
    assert other_tasks() == set()
    result = partial_result(caught.value)
    assert result is not None
    assert result.exit_reason is ExitReason.CANCELLED
    check_conversation(result.messages)
    return caught.value, result


def in_model(place: Place) -> Agent:
    return Agent("ada", ScriptedModel([place.hang]))


def in_second_model_call(place: Place) -> Agent:
    return Agent("ada", ScriptedModel([reply("Hm.", call("fine")), place.hang]), tools=[fine])


def in_tool(place: Place) -> Agent:
    return Agent("ada", ScriptedModel([reply("Hm.", call("tool"))]), tools=[place.tool])


def in_batch(place: Place) -> Agent:
    calls = [call("fine"), call("tool"), call("tool"), call("nowhere")]
    return Agent("ada", ScriptedModel([reply("Hm.", calls)]), tools=[fine, place.tool])


def in_hook(name: str) -> Callable[[Place], Agent]:
    def make(place: Place) -> Agent:
        hooks = AgentHooks(**{name: place.hang})
        model = ScriptedModel([reply("Hm.", [call("fine"), call("fine")])])
        return Agent("ada", model, tools=[fine], hooks=hooks)

    return make


def in_judge(name: str) -> Callable[[Place], Agent]:
    def make(place: Place) -> Agent:
        judge: dict[str, Any] = {
            "criteria": [place.hang],
            "verifier": Verifier(VerifierConfig(evaluate_fn=place.hang)),
        }
        settings: dict[str, Any] = {name: judge.get(name, place.hang)}
        loop = LoopConfig(**settings, on_criterion_error=LoopOutcome.FAIL_RUN)
        return Agent("ada", ScriptedModel(["Hm."]), loop_config=loop)

    return make


def in_judging_model(place: Place) -> Agent:
    verifier = Verifier(VerifierConfig(model=ScriptedModel([place.hang])))
    return Agent("ada", ScriptedModel(["Hm."]), loop_config=LoopConfig(verifier=verifier))


def in_inner_run(place: Place) -> Agent:
    async def delegate() -> str:
        return (await run_agent(in_tool(place), ask())).text

    return Agent("outer", ScriptedModel([reply("Hm.", call("delegate"))]), tools=[delegate])


def in_candidates(place: Place) -> Agent:
    calls = [call("fine"), call("tool")]
    model = ScriptedModel(lambda seen: "Hm." if seen.index == 1 else reply("Hm.", calls))
    loop = LoopConfig(branches=3)
    return Agent("ada", model, tools=[fine, place.tool], loop_config=loop)


PLACES: dict[str, Callable[[Place], Agent]] = {
    "the model": in_model,
    "a later model call": in_second_model_call,
    "a tool": in_tool,
    "tools of a batch": in_batch,
    "on_agent_start": in_hook("on_agent_start"),
    "on_tool_start": in_hook("on_tool_start"),
    "on_tool_end": in_hook("on_tool_end"),
    "approve_tool": in_hook("approve_tool"),
    "stop_condition": in_judge("stop_condition"),
    "convergence_fn": in_judge("convergence_fn"),
    "a criterion": in_judge("criteria"),
    "the verifier": in_judge("verifier"),
    "the judging model": in_judging_model,
    "a run inside a tool": in_inner_run,
    "candidates": in_candidates,
}
everywhere = pytest.mark.parametrize("make", list(PLACES.values()), ids=list(PLACES))


@requirement("cancel.everywhere", "cancel.leaves-nothing", "lost.partial-result")
@everywhere
async def test_a_run_is_cancelled_wherever_it_waits_and_leaves_nothing_behind(make):
    place = Place()
    await cancelled(make(place), place)
    assert place.left >= 1


@requirement("cancel.everywhere", "events.end-mark", "exits.raised")
@everywhere
async def test_a_cancelled_run_ends_its_queue_and_its_log_as_cancelled(make):
    place, log = Place(), EventLog()
    queue: asyncio.Queue[Any] = asyncio.Queue()
    await cancelled(make(place), place, queue=queue, log=log)
    last = ended(drained(queue))[-1]
    assert (last.event, last.data["exit_reason"]) == (EventType.ERROR, "cancelled")
    kinds = [event_to_dict(event)["type"] for event in log]
    assert (kinds[-1], kinds.count("RunEnded")) == ("RunEnded", 1)
    assert event_to_dict(log[len(log) - 1])["reason"] == "cancelled"


@requirement("cancel.everywhere")
async def test_a_run_that_is_cancelled_before_it_begins_ends_its_queue_too():
    queue: asyncio.Queue[Any] = asyncio.Queue(1)
    queue.put_nowait("a full queue")
    model = ScriptedModel(["never"])
    run = asyncio.create_task(run_agent(Agent("ada", model), ask(), queue=queue))
    await asyncio.sleep(0)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert model.requests == []
    assert drained(queue) == [None]


@requirement("cancel.answers-calls", "tools.answered-once")
async def test_every_call_of_a_cancelled_batch_is_answered_the_finished_ones_with_their_result():
    place = Place()
    _, result = await cancelled(in_batch(place), place)
    texts = answers(result.messages)
    assert len(texts) == 4
    assert texts[0] == "fine"
    assert "cancelled" in texts[1]
    assert "cancelled" in texts[2]
    assert "nowhere" in texts[3]
    assert place.left == 2


@requirement("cancel.answers-calls", "tools.answered-once", "events.cancel-full-queue")
@pytest.mark.parametrize("maxsize", range(1, 10))
async def test_calls_are_answered_also_where_the_run_waited_for_a_reader(maxsize: int):
    # The events are AGENT_START, TEXT_DELTA, TOOL_CALL twice, TOOL_RESULT twice and so on: each
    # size of the queue makes the run wait at another one of them.
    calls = [call("fine"), call("fine")]
    agent = Agent("ada", ScriptedModel([reply("Hm.", calls), "Ok."]), tools=[fine])
    queue: asyncio.Queue[Any] = asyncio.Queue(maxsize)
    run = asyncio.create_task(run_agent(agent, ask(), queue=queue))
    await until(queue.full)
    await settle()
    run.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await run
    assert other_tasks() == set()
    result = partial_result(caught.value)
    assert result is not None
    check_conversation(result.messages)


@requirement("cancel.keeps-best")
async def test_a_cancelled_loop_keeps_its_best_finished_iteration():
    place = Place()

    async def grade(query: str, result: AgentResult) -> VerifierFeedback:
        return VerifierFeedback([0.7, 0.3][result.loop_iterations - 1])

    loop = LoopConfig(max_iterations=9, verifier=Verifier(VerifierConfig(evaluate_fn=grade)))
    model = ScriptedModel(["good", "bad", place.hang])
    _, result = await cancelled(Agent("ada", model, loop_config=loop), place)
    assert (result.text, result.best_iteration, result.loop_iterations) == ("good", 1, 2)
    assert result.scores == [0.7, 0.3]
    assert (result.input_tokens, result.output_tokens, result.unknown_usage_calls) == (20, 10, 1)


@requirement("cancel.everywhere")
async def test_waiting_for_a_retry_can_be_cancelled():
    place = Place()

    class Clock:
        def monotonic(self) -> float:
            return 0.0

        async def sleep(self, seconds: float) -> None:
            await place.hang()

    agent = Agent("ada", ScriptedModel([ServerError("503")]), retry_policy=RetryPolicy())
    await cancelled(agent, place, clock=Clock())


@requirement("cancel.sync-tools")
async def test_a_cancelled_run_does_not_wait_for_a_sync_tool_and_hears_nothing_of_it_later():
    loop, begun = asyncio.get_running_loop(), asyncio.Event()
    release, finished = threading.Event(), threading.Event()

    def toil() -> str:
        loop.call_soon_threadsafe(begun.set)
        release.wait(timeout=10)
        finished.set()
        return "too late"

    log = EventLog()
    queue: asyncio.Queue[Any] = asyncio.Queue()
    agent = Agent("ada", ScriptedModel([reply(None, [call("toil")] * 2)]), tools=[toil])
    run = asyncio.create_task(run_agent(agent, ask(), queue=queue, log=log))
    await begun.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await run
    assert not finished.is_set()
    before = len(log), queue.qsize()
    release.set()
    await asyncio.to_thread(finished.wait, 10)
    await asyncio.sleep(0)
    assert (len(log), queue.qsize()) == before
    result = partial_result(caught.value)
    assert result is not None
    assert all("cancelled" in text for text in answers(result.messages))


@requirement("cancel.everywhere")
async def test_a_timeout_around_a_run_cancels_it():
    place = Place()

    async def in_time() -> None:
        async with asyncio.timeout(None) as limit:
            asyncio.get_running_loop().call_soon(limit.reschedule, 0)
            await run_agent(in_batch(place), ask())

    with pytest.raises(TimeoutError):
        await in_time()
    assert place.left == 2
    assert other_tasks() == set()


@requirement("cancel.everywhere")
async def test_a_task_group_around_runs_cancels_them_all():
    places = [Place() for _ in range(5)]

    async def fail() -> None:
        for place in places:
            await place.reached.wait()
        raise KeyError

    async def together() -> None:
        async with asyncio.TaskGroup() as group:
            for place in places:
                group.create_task(run_agent(in_batch(place), ask()))
            group.create_task(fail())

    with pytest.raises(ExceptionGroup) as caught:
        await together()
    assert [type(error) for error in caught.value.exceptions] == [KeyError]
    assert [place.left for place in places] == [2] * 5
    assert other_tasks() == set()


@requirement("cancel.siblings")
async def test_one_failing_tool_leaves_no_sibling_running_and_none_unanswered():
    still = asyncio.Event()

    async def fail() -> str:
        raise KeyError("broken")

    async def slow() -> str:
        for _ in range(20):
            await asyncio.sleep(0)
        still.set()
        return "slow"

    model = ScriptedModel([reply(None, [call("fail"), call("slow")]), "Ok."])
    result = await run_agent(Agent("ada", model, tools=[fail, slow]), ask())
    assert still.is_set()
    assert answers(result.messages)[1] == "slow"
    assert other_tasks() == set()


async def approve(query: str, result: AgentResult) -> VerifierFeedback:
    return VerifierFeedback(1.0)


GRADED = LoopConfig(branches=3, verifier=Verifier(VerifierConfig(evaluate_fn=approve)))


@requirement("cancel.siblings")
async def test_one_failing_candidate_stops_no_sibling_and_leaves_none_running():
    async def slow(seen: Any) -> str:
        await settle()
        return "good"

    model = ScriptedModel([slow, KeyError("broken"), slow])
    result = await run_agent(Agent("ada", model, loop_config=GRADED), ask())
    assert (result.text, result.exit_reason) == ("good", ExitReason.CONVERGED)
    assert (result.input_tokens, result.unknown_usage_calls) == (20, 1)
    assert other_tasks() == set()


@requirement("cancel.siblings", "lost.no-group")
async def test_when_all_candidates_fail_the_first_error_is_raised_alone():
    model = ScriptedModel([KeyError("a"), ValueError("b"), OSError("c")])
    with pytest.raises(KeyError, match="a"):
        await run_agent(Agent("ada", model, loop_config=GRADED), ask())
    assert other_tasks() == set()
