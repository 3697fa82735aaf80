"""Criteria: the forms of an answer, and what becomes of a loop whose judge raises instead."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, cast

import pytest

from tests.behaviour.manifest import requirement
from tests.behaviour.refine_kit import (
    ASK,
    in_turn,
    judging,
    looping,
    model_of,
    result_of,
    run_and_watch,
    said,
    scoring,
    sent,
)
from untildone import (
    Agent,
    AgentResult,
    ConfigError,
    CriterionContext,
    CriterionVerdict,
    EventType,
    ExitReason,
    LoopConfig,
    LoopConvergedError,
    LoopOutcome,
    ServerError,
    Verifier,
    VerifierConfig,
    VerifierFeedback,
    run_agent,
    tool,
)
from untildone.testing import ScriptedModel, call, reply

FAIL = LoopOutcome.FAIL_RUN


# --- Forms ----------------------------------------------------------------------------------------

Answer = CriterionVerdict | bool | tuple[bool, str | None]


class Evaluating:
    def __init__(self, *answers: Answer) -> None:
        self._judge = judging(*answers)

    def evaluate(self, ctx: CriterionContext) -> Answer:
        return self._judge(ctx)


class EvaluatingLater(Evaluating):
    def evaluate(self, ctx: CriterionContext) -> Any:
        return asyncio.sleep(0, self._judge(ctx))


class Called(Evaluating):
    def __call__(self, ctx: CriterionContext) -> Answer:
        raise AssertionError("evaluate is what an object is asked by")


FORMS: dict[str, tuple[Answer, Answer]] = {
    "bool": (False, True),
    "pair": ((False, "why not"), (True, "ignored")),
    "pair without words": ((False, None), (True, None)),
    "verdict": (CriterionVerdict(satisfied=False, feedback="why not"), CriterionVerdict(True)),
}


@requirement("criteria.forms")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", [judging, Evaluating, EvaluatingLater, Called])
async def test_a_criterion_answers_with_a_verdict_a_bool_or_a_pair(
    kind: Callable[..., Any], form: str
):
    refusal, acceptance = FORMS[form]
    agent = looping(LoopConfig(criteria=[kind(refusal, acceptance)], refine_prompt="Again."))
    result = await run_agent(agent, ASK)
    assert (result.exit_reason, result.loop_iterations) == (ExitReason.CONVERGED, 2)
    words = "why not" if form in ("pair", "verdict") else "Again."
    assert sent(agent, 1)[-1] == said("user", words)


@requirement("criteria.forms")
async def test_an_object_with_a_threshold_of_its_own_is_asked_like_any_other_criterion():
    class LongEnough:
        threshold = 8

        def evaluate(self, ctx: CriterionContext) -> bool:
            return len(ctx.result.text) > self.threshold + ctx.iteration - 2

    result = await run_agent(looping(LoopConfig(criteria=[LongEnough()])), ASK)
    assert (result.exit_reason, result.error) == (ExitReason.CONVERGED, None)


async def _soon() -> bool:
    return True


@requirement("criteria.nonsense")
@pytest.mark.parametrize(
    "nonsense",
    [
        None,
        1,
        "yes",
        {"satisfied": True},
        (True,),
        (1, "why"),
        (True, 3),
        [True, "why"],
        VerifierFeedback(0.9),
        CriterionVerdict(satisfied=cast("bool", 0.4)),
        CriterionVerdict(satisfied=cast("bool", None)),
        CriterionVerdict(satisfied=False, feedback=cast("str", ["a", "list"])),
        CriterionVerdict(satisfied=False, messages=[{"role": "nobody", "content": "x"}]),
        CriterionVerdict(satisfied=False, messages=cast("Any", "text")),
    ],
    ids=lambda value: repr(value)[:60],
)
async def test_what_is_no_verdict_is_an_error_and_never_taken_for_one(nonsense: Any):
    result = await run_agent(looping(LoopConfig(criteria=[lambda ctx: nonsense])), ASK)
    assert (result.exit_reason, result.loop_iterations) == (ExitReason.CRITERION_ERROR, 1)
    assert result.error is not None
    assert result.error.startswith("GradingError: criteria[0]")


@requirement("criteria.nonsense", "refine.awaitable-awaited")
async def test_a_coroutine_inside_a_verdict_never_counts_as_satisfied():
    forgotten = _soon()
    verdict = CriterionVerdict(satisfied=cast("bool", forgotten))
    result = await run_agent(looping(LoopConfig(criteria=[lambda ctx: verdict])), ASK)
    forgotten.close()
    assert result.exit_reason is ExitReason.CRITERION_ERROR


@requirement("criteria.nonsense")
@pytest.mark.parametrize(
    ("bad", "named"),
    [
        ([3], r"criteria\[0\].*3"),
        (["contains:done"], r"criteria\[0\].*contains:done"),
        ([judging(True), Evaluating], r"criteria\[1\].*class Evaluating"),
        (judging(True), r"criteria must be a list.*\[\.\.\.\]"),
    ],
)
def test_what_cannot_judge_is_refused_when_the_config_is_built(bad: Any, named: str):
    with pytest.raises(ConfigError, match=named):
        LoopConfig(criteria=bad)


# --- A judge that raises --------------------------------------------------------------------------

PLACES = ["stop_condition", "verifier", "convergence_fn", "criterion"]


def loop_with(place: str, judge: Callable[[AgentResult], Any], **settings: Any) -> LoopConfig:
    """A loop in which ``judge`` is asked in one place, and one asked later must not be."""
    unasked = pytest.fail

    def never(_: object) -> bool:
        unasked("a judge was asked after another had raised")

    if place == "criterion":
        asked_last = [lambda ctx: True, lambda ctx: judge(ctx.result), never]
        return LoopConfig(criteria=asked_last, **settings)
    if place == "verifier":

        async def grade(_query: str, result: AgentResult) -> VerifierFeedback:
            passed = judge(result)
            if asyncio.iscoroutine(passed):
                passed = await passed
            return VerifierFeedback(1.0 if passed else 0.0)

        verifier = Verifier(VerifierConfig(evaluate_fn=grade))
        return LoopConfig(verifier=verifier, convergence_fn=_refusing_until_2(never), **settings)
    if place == "convergence_fn":
        return LoopConfig(convergence_fn=judge, criteria=[never], **settings)
    return LoopConfig(
        stop_condition=judge,
        verifier=scoring(0.1),
        convergence_fn=_refusing_until_2(never),
        **settings,
    )


def _refusing_until_2(never: Callable[[object], bool]) -> Callable[[AgentResult], bool]:
    return lambda result: False if result.loop_iterations == 1 else never(result)


@requirement("error.returned", "error.nothing-more-is-asked", "error.named")
@pytest.mark.parametrize("place", PLACES)
async def test_by_default_a_raising_judge_stops_the_loop_and_the_last_response_is_returned(
    place: str, caplog: pytest.LogCaptureFixture
):
    agent = looping(loop_with(place, in_turn(False, OSError("judge down")), max_iterations=5))
    outcome, shown = await run_and_watch(agent)
    assert isinstance(outcome, AgentResult)
    assert outcome.exit_reason is ExitReason.CRITERION_ERROR
    assert outcome.error == "OSError: judge down"
    assert (outcome.text, outcome.loop_iterations, outcome.best_iteration) == ("answer 2", 2, 2)
    assert len(model_of(agent).requests) == 2
    told = [event.data for event in shown if event.event is EventType.LOOP_ITERATION]
    assert len(told) == 2
    assert told[1]["failed_criterion"] == ("<lambda>" if place == "criterion" else place)
    assert told[1]["criterion_index"] == (1 if place == "criterion" else None)
    assert (told[1]["converged"], told[1]["continued"]) == (False, False)
    assert (told[1]["fails_run"], told[1]["ceiling_reached"]) == (False, False)
    assert shown[-1].event is EventType.DONE
    warned = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warned) == 1
    assert "judge down" in warned[0].getMessage()


@requirement("error.fail-run", "error.nothing-more-is-asked")
@pytest.mark.parametrize("place", PLACES)
async def test_with_fail_run_that_very_exception_leaves_the_run(place: str):
    error = OSError("judge down")
    loop = loop_with(place, in_turn(False, error), on_criterion_error=FAIL, max_iterations=5)
    outcome, shown = await run_and_watch(looping(loop))
    assert outcome is error
    assert (error.__cause__, error.args) == (None, ("judge down",))
    result = result_of(error)
    assert result.exit_reason is ExitReason.CRITERION_ERROR
    assert (result.text, result.loop_iterations) == ("answer 2", 2)
    told = [event.data for event in shown if event.event is EventType.LOOP_ITERATION]
    assert (told[1]["fails_run"], shown[-1].event) == (True, EventType.ERROR)


@requirement("error.last-response")
async def test_the_last_response_is_returned_after_an_error_even_if_an_earlier_one_scored_higher():
    loop = LoopConfig(
        verifier=scoring(0.7, 0.2), convergence_fn=in_turn(False, OSError("judge down"))
    )
    result = await run_agent(looping(loop), ASK)
    assert result.exit_reason is ExitReason.CRITERION_ERROR
    assert (result.text, result.best_iteration, result.scores) == ("answer 2", 2, [0.7, 0.2])


@requirement("error.independent")
@pytest.mark.parametrize("on_exhausted", LoopOutcome)
@pytest.mark.parametrize("on_criterion_error", LoopOutcome)
async def test_what_becomes_of_an_error_and_of_an_exhausted_loop_is_set_apart(
    on_exhausted: LoopOutcome, on_criterion_error: LoopOutcome
):
    settings: dict[str, Any] = {
        "max_iterations": 2,
        "on_exhausted": on_exhausted,
        "on_criterion_error": on_criterion_error,
    }
    raising = LoopConfig(criteria=[judging(OSError("judge down"))], **settings)
    refusing = LoopConfig(criteria=[judging(False, False)], **settings)
    raised, _ = await run_and_watch(looping(raising))
    refused, _ = await run_and_watch(looping(refusing))
    assert isinstance(raised, OSError) is (on_criterion_error is FAIL)
    assert isinstance(refused, AgentResult) is (on_exhausted is not FAIL)


@requirement("error.not-false")
async def test_a_predicate_that_raises_is_never_taken_as_false_and_burns_no_iterations():
    agent = looping(LoopConfig(convergence_fn=lambda r: r.no_such_field, max_iterations=50))
    result = await run_agent(agent, ASK)
    assert result.exit_reason is ExitReason.CRITERION_ERROR
    assert (result.loop_iterations, len(model_of(agent).requests)) == (1, 1)
    assert "no_such_field" in (result.error or "")


@requirement("error.time-out")
@pytest.mark.parametrize("place", ["convergence_fn", "criterion", "verifier"])
async def test_a_time_out_inside_a_judge_is_a_criterion_error(place: str):
    async def slow(_: AgentResult) -> bool:
        async with asyncio.timeout(0):
            await asyncio.Event().wait()
        return True

    result = await run_agent(looping(loop_with(place, slow)), ASK)
    assert result.exit_reason is ExitReason.CRITERION_ERROR
    assert result.error == "TimeoutError"


@requirement("error.foreign-cancel")
@pytest.mark.parametrize("place", PLACES)
async def test_a_cancelled_error_that_is_not_the_runs_own_is_a_criterion_error(place: str):
    async def waits_for_what_is_cancelled(_: AgentResult) -> bool:
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        future.cancel()
        return await future

    result = await run_agent(looping(loop_with(place, waits_for_what_is_cancelled)), ASK)
    assert result.exit_reason is ExitReason.CRITERION_ERROR
    assert (result.text, result.error) == ("answer 1", "CancelledError")


@requirement("error.foreign-cancel", "error.fail-run")
async def test_with_fail_run_a_foreign_cancelled_error_leaves_as_itself():
    error = asyncio.CancelledError("somebody else's")
    agent = looping(LoopConfig(convergence_fn=in_turn(error), on_criterion_error=FAIL))
    queue: asyncio.Queue[Any] = asyncio.Queue()
    with pytest.raises(asyncio.CancelledError) as raised:
        await run_agent(agent, ASK, queue=queue)
    assert raised.value is error
    result = result_of(error)
    assert result.exit_reason is ExitReason.CRITERION_ERROR
    *_, last, end = [queue.get_nowait() for _ in range(queue.qsize())]
    assert (last.event, end) == (EventType.ERROR, None)


@requirement("error.own-cancel")
@pytest.mark.parametrize("outcome", LoopOutcome)
@pytest.mark.parametrize("place", PLACES)
async def test_the_runs_own_cancellation_inside_a_judge_is_never_a_criterion_error(
    place: str, outcome: LoopOutcome
):
    entered = asyncio.Event()

    async def waits(_: AgentResult) -> bool:
        entered.set()
        await asyncio.Event().wait()
        return True

    loop = loop_with(place, waits, on_criterion_error=outcome)
    task = asyncio.create_task(run_agent(looping(loop), ASK))
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as raised:
        await task
    result = result_of(raised.value)
    assert (result.exit_reason, result.text) == (ExitReason.CANCELLED, "answer 1")
    assert result.loop_iterations == 0


@requirement("error.own-cancel")
async def test_a_judge_that_turns_the_runs_cancellation_into_another_error_does_not_hide_it():
    entered = asyncio.Event()

    async def wraps(_: AgentResult) -> bool:
        entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            raise OSError("connection closed") from error
        return True

    task = asyncio.create_task(run_agent(looping(LoopConfig(convergence_fn=wraps)), ASK))
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as raised:
        await task
    result = result_of(raised.value)
    assert result.exit_reason is ExitReason.CANCELLED


@requirement("error.own-cancel")
@pytest.mark.parametrize("error", [OSError("down"), asyncio.CancelledError()])
async def test_a_cancellation_from_before_the_run_is_not_the_runs_own(error: BaseException):
    """A task that catches its cancellation may clean up with the help of an agent."""

    async def cleans_up() -> AgentResult:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return await run_agent(looping(LoopConfig(convergence_fn=in_turn(error))), ASK)
        raise AssertionError("never cancelled")

    task = asyncio.create_task(cleans_up())
    await asyncio.sleep(0)
    task.cancel()
    result = await task
    assert result.exit_reason is ExitReason.CRITERION_ERROR


@requirement("error.unreachable-verifier")
async def test_an_unreachable_verifier_is_an_error_and_spends_no_further_iteration():
    judge = ScriptedModel(lambda seen: ServerError("503 from the judge", status=503), name="judge")
    agent = looping(LoopConfig(verifier=Verifier(VerifierConfig(judge)), max_iterations=50))
    result = await run_agent(agent, ASK)
    assert result.exit_reason is ExitReason.CRITERION_ERROR
    assert result.error == "ServerError: 503 from the judge"
    assert (result.scores, result.loop_iterations) == ([], 1)
    assert (len(model_of(agent).requests), len(judge.requests)) == (1, 1)


@requirement("error.unreachable-verifier", "error.fail-run")
async def test_an_unreachable_judge_stays_a_provider_error_with_fail_run():
    judge = ScriptedModel(lambda seen: ServerError("503 from the judge", status=503))
    loop = LoopConfig(criteria=[Verifier(VerifierConfig(judge))], on_criterion_error=FAIL)
    with pytest.raises(ServerError, match="503 from the judge") as raised:
        await run_agent(looping(loop), ASK)
    assert raised.value.status == 503


@requirement("error.on-the-last-iteration")
async def test_an_error_in_the_last_iteration_is_an_error_and_not_the_ceiling():
    loop = LoopConfig(max_iterations=2, convergence_fn=in_turn(False, OSError("judge down")))
    outcome, shown = await run_and_watch(looping(loop))
    assert isinstance(outcome, AgentResult)
    assert outcome.exit_reason is ExitReason.CRITERION_ERROR
    told = [event.data for event in shown if event.event is EventType.LOOP_ITERATION]
    assert told[1]["ceiling_reached"] is False


# --- LoopConvergedError from a judge --------------------------------------------------------------


async def stopped(agent: Agent) -> AgentResult:
    """The result that an early exit carries; its run ended with DONE."""
    error, shown = await run_and_watch(agent)
    assert isinstance(error, LoopConvergedError)
    done = shown[-1]
    assert done.event is EventType.DONE
    assert done.data["exit_reason"] == "stop_condition"
    iteration = [event.data for event in shown if event.event is EventType.LOOP_ITERATION][-1]
    assert iteration["early_stop"] == "stop_condition"
    return result_of(error)


@requirement("early.same-as-stop-condition")
@pytest.mark.parametrize("place", PLACES)
async def test_loop_converged_error_without_a_result_ends_like_a_met_stop_condition(place: str):
    agent = looping(loop_with(place, in_turn(False, LoopConvergedError()), max_iterations=5))
    result = await stopped(agent)
    assert result.exit_reason is ExitReason.STOP_CONDITION
    assert (result.text, result.loop_iterations, result.best_iteration) == ("answer 2", 2, 2)
    assert (result.turns, result.input_tokens, result.output_tokens) == (2, 20, 10)
    assert len(model_of(agent).requests) == 2


@requirement("early.same-as-stop-condition", "early.own-result")
@pytest.mark.parametrize("place", ["convergence_fn", "criterion"])
async def test_loop_converged_error_with_the_current_result_ends_with_it_completed(place: str):
    """S1: ``raise LoopConvergedError(result)`` in ``convergence_fn``."""
    shown: list[AgentResult] = []

    def done(result: AgentResult) -> bool:
        shown.append(result)
        if result.loop_iterations == 2:
            raise LoopConvergedError(result)
        return False

    if place == "criterion":
        loop = LoopConfig(verifier=scoring(0.9, 0.9), criteria=[lambda ctx: done(ctx.result)])
    else:
        loop = LoopConfig(verifier=scoring(0.3, 0.2), convergence_fn=done)
    result = await stopped(looping(loop))
    assert result.exit_reason is ExitReason.STOP_CONDITION
    assert (result.text, result.loop_iterations, result.turns) == ("answer 2", 2, 2)
    assert result.scores == ([0.9, 0.9] if place == "criterion" else [0.3, 0.2])


@requirement("early.own-result")
async def test_loop_converged_error_with_another_result_ends_with_that_one():
    def done(result: AgentResult) -> bool:
        raise LoopConvergedError(AgentResult(agent_id="mine", text="my own"))

    result = await stopped(looping(LoopConfig(convergence_fn=done)))
    assert (result.agent_id, result.text) == ("mine", "my own")
    assert result.exit_reason is ExitReason.STOP_CONDITION


@requirement("early.own-result")
async def test_a_subclass_of_loop_converged_error_leaves_as_itself():
    class FoundError(LoopConvergedError):
        place = "under the sofa"

    agent = looping(LoopConfig(convergence_fn=in_turn(FoundError())))
    with pytest.raises(FoundError) as raised:
        await run_agent(agent, ASK)
    assert result_of(raised.value).text == "answer 1"
    assert raised.value.place == "under the sofa"


@requirement("early.same-as-stop-condition")
async def test_loop_converged_error_is_no_criterion_error_under_fail_run():
    loop = LoopConfig(
        convergence_fn=in_turn(LoopConvergedError()), on_criterion_error=FAIL, on_exhausted=FAIL
    )
    result = await stopped(looping(loop))
    assert result.error is None


@requirement("early.belongs-to-its-run")
@pytest.mark.parametrize("place", ["convergence_fn", "criterion", "stop_condition"])
async def test_the_early_exit_of_a_nested_run_says_nothing_of_the_run_that_asked(place: str):
    nested = looping(LoopConfig(stop_condition=lambda r: True), ["nested"])

    async def asks_another_agent(_: AgentResult) -> bool:
        return bool((await run_agent(nested, ASK)).text)

    agent = looping(loop_with(place, asks_another_agent))
    result = await run_agent(agent, ASK)
    assert (result.exit_reason, result.text) == (ExitReason.CRITERION_ERROR, "answer 1")
    assert "LoopConvergedError" in (result.error or "")


@requirement("early.belongs-to-its-run")
async def test_a_judge_that_handles_the_early_exit_of_a_nested_run_can_go_on():
    nested = looping(LoopConfig(stop_condition=lambda r: True), ["nested says yes"])

    async def asks_another_agent(ctx: CriterionContext) -> bool:
        with pytest.raises(LoopConvergedError) as early:
            await run_agent(nested, ASK)
        return "yes" in result_of(early.value).text

    result = await run_agent(looping(LoopConfig(criteria=[asks_another_agent])), ASK)
    assert (result.exit_reason, result.text) == (ExitReason.CONVERGED, "answer 1")


@requirement("early.belongs-to-its-run")
async def test_the_early_exit_of_a_run_inside_a_tool_is_that_calls_successful_result():
    nested = looping(LoopConfig(stop_condition=lambda r: True), ["found it"])

    @tool
    async def research(topic: str) -> str:
        """Looks into a topic."""
        return (await run_agent(nested, [said("user", topic)])).text

    agent = looping(
        LoopConfig(convergence_fn=lambda r: True),
        [reply(None, call("research", topic="x")), "done"],
        tools=[research],
    )
    result = await run_agent(agent, ASK)
    assert (result.exit_reason, result.text) == (ExitReason.CONVERGED, "done")
    (answered,) = result.tool_calls
    assert (answered["result"], answered["is_error"]) == ("found it", False)
