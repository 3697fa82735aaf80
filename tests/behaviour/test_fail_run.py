"""``on_exhausted=FAIL_RUN``, and who is asked about the last iteration (S3)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.behaviour.manifest import requirement
from tests.behaviour.refine_kit import (
    ASK,
    in_turn,
    iterations_of,
    judging,
    looping,
    model_of,
    result_of,
    run_and_watch,
    scoring,
)
from untildone import (
    AgentResult,
    ConfigError,
    CriterionContext,
    EventType,
    ExitReason,
    LoopConfig,
    LoopConvergedError,
    LoopOutcome,
    LoopUnsatisfiedError,
    Verifier,
    VerifierConfig,
    run_agent,
)
from untildone.testing import ScriptedModel

FAIL = LoopOutcome.FAIL_RUN


class Noting:
    """A criterion that notes in which iterations it was asked."""

    def __init__(self, *verdicts: bool | OSError) -> None:
        self.asked: list[int] = []
        self._judge: Callable[[CriterionContext], bool] = judging(*verdicts)

    def evaluate(self, ctx: CriterionContext) -> bool:
        self.asked.append(ctx.iteration)
        return self._judge(ctx)


# --- The last iteration ---------------------------------------------------------------------------


@requirement("last.criteria-not-asked")
async def test_criteria_are_not_asked_about_the_last_iteration():
    noting = Noting(False, False, True)
    agent = looping(LoopConfig(max_iterations=3, criteria=[noting]))
    result = await run_agent(agent, ASK)
    assert (result.exit_reason, result.text) == (ExitReason.MAX_ITERATIONS, "answer 3")
    assert noting.asked == [1, 2]
    assert len(model_of(agent).requests) == 3


@requirement("last.criteria-not-asked")
async def test_the_only_iteration_of_a_loop_is_its_last_one():
    noting = Noting(True)
    result = await run_agent(looping(LoopConfig(max_iterations=1, criteria=[noting])), ASK)
    assert (result.exit_reason, noting.asked) == (ExitReason.MAX_ITERATIONS, [])


@requirement("last.pair-is-asked")
@pytest.mark.parametrize("judge", ["verifier", "convergence_fn"])
async def test_verifier_and_convergence_fn_are_asked_about_the_last_iteration(judge: str):
    if judge == "verifier":
        loop = LoopConfig(max_iterations=2, verifier=scoring(0.1, 0.9))
    else:
        loop = LoopConfig(max_iterations=2, convergence_fn=in_turn(False, True))
    result = await run_agent(looping(loop), ASK)
    assert (result.exit_reason, result.text) == (ExitReason.CONVERGED, "answer 2")


@requirement("last.criteria-not-asked", "refine.all-criteria")
async def test_a_pass_of_the_verifier_in_the_last_iteration_does_not_stand_for_unasked_criteria():
    noting = Noting(True, True)
    loop = LoopConfig(max_iterations=2, verifier=scoring(0.1, 0.9), criteria=[noting])
    told = await iterations_of(looping(loop))
    assert (told[1]["converged"], told[1]["ceiling_reached"]) == (False, True)
    assert noting.asked == []


@requirement("last.evaluate-final")
@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ((False, False, True), ExitReason.CONVERGED),
        ((False, False, False), ExitReason.MAX_ITERATIONS),
    ],
)
async def test_with_evaluate_final_they_are_and_the_exit_tells_a_success_from_a_failure(
    verdicts: tuple[bool, ...], expected: ExitReason
):
    noting = Noting(*verdicts)
    agent = looping(LoopConfig(max_iterations=3, criteria=[noting], evaluate_final=True))
    result = await run_agent(agent, ASK)
    assert (result.exit_reason, result.text) == (expected, "answer 3")
    assert (noting.asked, len(model_of(agent).requests)) == ([1, 2, 3], 3)


@requirement("last.evaluate-final")
async def test_with_evaluate_final_the_only_iteration_is_judged_too():
    loop = LoopConfig(max_iterations=1, criteria=[Noting(True)], evaluate_final=True)
    assert (await run_agent(looping(loop), ASK)).exit_reason is ExitReason.CONVERGED


@requirement("last.evaluate-final", "error.on-the-last-iteration")
async def test_a_criterion_that_raises_about_the_last_iteration_is_an_error():
    loop = LoopConfig(max_iterations=1, criteria=[Noting(OSError("down"))], evaluate_final=True)
    result = await run_agent(looping(loop), ASK)
    assert (result.exit_reason, result.error) == (ExitReason.CRITERION_ERROR, "OSError: down")


# --- FAIL_RUN -------------------------------------------------------------------------------------


@requirement("fail.ceiling", "fail.last-is-judged")
async def test_a_ceiling_that_nothing_accepted_fails_the_run_after_one_more_evaluation():
    noting = Noting(False, False, False)
    agent = looping(LoopConfig(max_iterations=3, criteria=[noting], on_exhausted=FAIL))
    error, shown = await run_and_watch(agent)
    assert isinstance(error, LoopUnsatisfiedError)
    assert error.error_type == "loop_unsatisfied"
    result = result_of(error)
    assert error.result is result
    assert result.exit_reason is ExitReason.UNSATISFIED
    assert (result.text, result.loop_iterations) == ("answer 3", 3)
    assert noting.asked == [1, 2, 3]
    assert len(model_of(agent).requests) == 3
    told = [event.data for event in shown if event.event is EventType.LOOP_ITERATION]
    assert [each["fails_run"] for each in told] == [False, False, True]
    assert [each["ceiling_reached"] for each in told] == [False, False, True]
    assert shown[-1].event is EventType.ERROR
    assert shown[-1].data["error_type"] == "loop_unsatisfied"
    assert shown[-1].data["exit_reason"] == "unsatisfied"


@requirement("fail.last-is-judged")
@pytest.mark.parametrize("ceiling", [1, 2])
async def test_a_last_iteration_that_meets_every_criterion_does_not_fail(ceiling: int):
    noting = Noting(*[False] * (ceiling - 1), True)
    loop = LoopConfig(max_iterations=ceiling, criteria=[noting], on_exhausted=FAIL)
    result = await run_agent(looping(loop), ASK)
    assert (result.exit_reason, result.loop_iterations) == (ExitReason.CONVERGED, ceiling)
    assert noting.asked == list(range(1, ceiling + 1))


@requirement("fail.last-is-judged")
async def test_a_judge_among_the_criteria_is_called_once_more():
    judge = ScriptedModel(['{"score": 0.1}'] * 2, name="judge")
    loop = LoopConfig(
        max_iterations=2, criteria=[Verifier(VerifierConfig(judge))], on_exhausted=FAIL
    )
    with pytest.raises(LoopUnsatisfiedError):
        await run_agent(looping(loop), ASK)
    assert len(judge.requests) == 2


@requirement("fail.ceiling")
@pytest.mark.parametrize("judge", ["verifier", "convergence_fn"])
async def test_a_ceiling_that_the_verifier_or_convergence_fn_refused_fails_too(judge: str):
    if judge == "verifier":
        loop = LoopConfig(max_iterations=2, verifier=scoring(0.5, 0.4), on_exhausted=FAIL)
    else:
        loop = LoopConfig(max_iterations=2, convergence_fn=lambda r: False, on_exhausted=FAIL)
    with pytest.raises(LoopUnsatisfiedError) as raised:
        await run_agent(looping(loop), ASK)
    assert result_of(raised.value).loop_iterations == 2


@requirement("fail.best-so-far", "holds.nothing-is-lost")
async def test_the_error_carries_the_best_scored_result():
    loop = LoopConfig(max_iterations=3, verifier=scoring(0.2, 0.7, 0.4), on_exhausted=FAIL)
    with pytest.raises(LoopUnsatisfiedError) as raised:
        await run_agent(looping(loop), ASK)
    result = result_of(raised.value)
    assert (result.text, result.best_iteration, result.scores) == ("answer 2", 2, [0.2, 0.7, 0.4])
    assert (result.loop_iterations, result.input_tokens) == (3, 30)


@requirement("fail.plateau")
async def test_a_plateau_that_nothing_accepted_fails_the_run():
    loop = LoopConfig(
        max_iterations=9, verifier=scoring(0.6, 0.5, 0.5), adaptive=True, on_exhausted=FAIL
    )
    error, shown = await run_and_watch(looping(loop))
    assert isinstance(error, LoopUnsatisfiedError)
    result = result_of(error)
    assert (result.exit_reason, result.text) == (ExitReason.UNSATISFIED, "answer 1")
    told = [event.data for event in shown if event.event is EventType.LOOP_ITERATION]
    assert (told[-1]["early_stop"], told[-1]["fails_run"]) == ("plateau", True)
    assert told[-1]["ceiling_reached"] is False


@requirement("fail.others-unchanged")
@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"convergence_fn": lambda r: True}, ExitReason.CONVERGED),
        ({"convergence_fn": in_turn(OSError("down"))}, ExitReason.CRITERION_ERROR),
    ],
    ids=["converged", "criterion_error"],
)
async def test_what_is_accepted_or_could_not_be_judged_is_not_failed_by_it(
    settings: dict[str, Any], expected: ExitReason
):
    loop = LoopConfig(on_exhausted=FAIL, **settings)
    assert (await run_agent(looping(loop), ASK)).exit_reason is expected


@requirement("fail.others-unchanged")
async def test_a_stop_condition_is_no_failure_under_fail_run():
    loop = LoopConfig(
        convergence_fn=lambda r: False, stop_condition=in_turn(False, True), on_exhausted=FAIL
    )
    with pytest.raises(LoopConvergedError) as raised:
        await run_agent(looping(loop), ASK)
    assert result_of(raised.value).exit_reason is ExitReason.STOP_CONDITION


@requirement("fail.nothing-to-satisfy")
@pytest.mark.parametrize("settings", [{}, {"stop_condition": lambda r: False}, {"criteria": []}])
def test_fail_run_with_nothing_to_satisfy_is_refused_when_the_config_is_built(
    settings: dict[str, Any],
):
    with pytest.raises(ConfigError, match="on_exhausted"):
        LoopConfig(on_exhausted=FAIL, **settings)


@requirement("fail.spelling")
@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("failRun", LoopOutcome.FAIL_RUN),
        ("returnLastResponse", LoopOutcome.RETURN_LAST_RESPONSE),
        (LoopOutcome.FAIL_RUN, LoopOutcome.FAIL_RUN),
    ],
    ids=["failRun", "returnLastResponse", "member"],
)
def test_the_outcomes_may_be_given_in_s3s_spelling(given: Any, meant: LoopOutcome):
    loop = LoopConfig(criteria=[Noting()], on_exhausted=given, on_criterion_error=given)
    assert loop.on_exhausted is loop.on_criterion_error is meant


@requirement("fail.spelling")
@pytest.mark.parametrize("bad", ["fail_run", "FailRun", None, True])
@pytest.mark.parametrize("name", ["on_exhausted", "on_criterion_error"])
def test_an_outcome_that_is_none_is_refused_with_those_that_are(name: str, bad: Any):
    settings: dict[str, Any] = {name: bad}
    with pytest.raises(ConfigError, match=f"{name}.*FAIL_RUN"):
        LoopConfig(criteria=[Noting()], **settings)


@requirement("fail.streamed-text")
async def test_a_streaming_reader_has_the_last_text_before_the_failure():
    loop = LoopConfig(max_iterations=2, convergence_fn=lambda r: False, on_exhausted=FAIL)
    queue: asyncio.Queue[Any] = asyncio.Queue()
    with pytest.raises(LoopUnsatisfiedError):
        await run_agent(looping(loop), ASK, queue=queue)
    shown = [queue.get_nowait() for _ in range(queue.qsize())][:-1]
    kinds = [event.event for event in shown]
    last_text = max(n for n, kind in enumerate(kinds) if kind is EventType.TEXT_DELTA)
    assert shown[last_text].data["chunk"] == "answer 2"
    assert last_text < kinds.index(EventType.ERROR)


@requirement("fail.ceiling")
async def test_by_default_an_exhausted_loop_returns_a_result_without_an_error():
    outcome, shown = await run_and_watch(looping(LoopConfig(criteria=[Noting(*[False] * 5)])))
    assert isinstance(outcome, AgentResult)
    assert (outcome.exit_reason, outcome.error) == (ExitReason.MAX_ITERATIONS, None)
    assert shown[-1].event is EventType.DONE
