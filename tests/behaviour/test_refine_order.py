"""Who is asked about an iteration, in which order, and when nobody is asked any more."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from tests.behaviour.manifest import requirement
from tests.behaviour.refine_kit import (
    ASK,
    in_turn,
    iterations_of,
    judging,
    loop_of,
    looping,
    model_of,
    result_of,
    said,
    scoring,
    sent,
)
from untildone import (
    Agent,
    AgentResult,
    CriterionContext,
    CriterionVerdict,
    ExitReason,
    LoopConfig,
    LoopConvergedError,
    Verifier,
    VerifierConfig,
    VerifierFeedback,
    run_agent,
)
from untildone.testing import ScriptedModel


class Panel:
    """Every judge a loop can have, each noting that it was asked: ``"first 2"`` in iteration 2."""

    def __init__(
        self,
        *,
        stop: tuple[bool, ...] = (),
        passes: tuple[bool, ...] = (),
        converges: tuple[bool, ...] = (),
        first: tuple[bool, ...] = (),
        second: tuple[bool, ...] = (),
    ) -> None:
        self.asked: list[str] = []
        settings: dict[str, Any] = {}
        if stop:
            settings["stop_condition"] = self._noting("stop", in_turn(*stop))
        if converges:
            settings["convergence_fn"] = self._noting("convergence", in_turn(*converges))
        if passes:

            def grade(_query: str, result: AgentResult) -> VerifierFeedback:
                self.asked.append(f"verifier {result.loop_iterations}")
                return VerifierFeedback(1.0 if passes[result.loop_iterations - 1] else 0.0)

            settings["verifier"] = Verifier(VerifierConfig(evaluate_fn=grade))
        criteria = {"first": first, "second": second}
        settings["criteria"] = [
            self._noting(name, judging(*verdicts))
            for name, verdicts in criteria.items()
            if verdicts
        ]
        self.settings = settings

    def _noting(self, name: str, judge: Callable[[Any], bool]) -> Callable[[Any], bool]:
        def ask(shown: AgentResult | CriterionContext) -> bool:
            number = (
                shown.iteration if isinstance(shown, CriterionContext) else shown.loop_iterations
            )
            self.asked.append(f"{name} {number}")
            return judge(shown)

        return ask

    async def exit(self, **settings: Any) -> ExitReason | None:
        agent = looping(LoopConfig(**{"max_iterations": 9, **self.settings, **settings}))
        try:
            return (await run_agent(agent, ASK)).exit_reason
        except LoopConvergedError as error:
            return result_of(error).exit_reason


@requirement("refine.evaluation-order")
async def test_the_order_is_stop_condition_verifier_convergence_fn_then_criteria():
    panel = Panel(stop=(False,), passes=(False,), converges=(True,), first=(True,), second=(True,))
    assert await panel.exit() is ExitReason.CONVERGED
    assert panel.asked == ["stop 1", "verifier 1", "convergence 1", "first 1", "second 1"]


@requirement("refine.stop-condition-first")
async def test_nobody_is_asked_once_the_stop_condition_is_met():
    panel = Panel(
        stop=(False, True), passes=(False,), converges=(False,), first=(True,), second=(True,)
    )
    assert await panel.exit() is ExitReason.STOP_CONDITION
    assert panel.asked == ["stop 1", "verifier 1", "convergence 1", "stop 2"]


@requirement("refine.either-of-the-pair", "refine.criteria-after-the-pair")
async def test_a_pass_of_the_verifier_is_enough_and_convergence_fn_is_not_asked_then():
    panel = Panel(passes=(True,), converges=(False,), first=(True,))
    assert await panel.exit() is ExitReason.CONVERGED
    assert panel.asked == ["verifier 1", "first 1"]


@requirement("refine.either-of-the-pair")
async def test_convergence_fn_is_enough_where_the_verifier_refuses():
    panel = Panel(passes=(False, False), converges=(False, True))
    assert await panel.exit() is ExitReason.CONVERGED
    assert panel.asked == ["verifier 1", "convergence 1", "verifier 2", "convergence 2"]


@requirement("refine.criteria-after-the-pair")
async def test_criteria_are_not_asked_while_verifier_and_convergence_fn_refuse():
    panel = Panel(
        passes=(False, False, True),
        converges=(False, True),
        first=(True, False, True),
        second=(True, True, True),
    )
    assert await panel.exit() is ExitReason.CONVERGED
    assert panel.asked == [
        *("verifier 1", "convergence 1"),
        *("verifier 2", "convergence 2", "first 2"),
        *("verifier 3", "first 3", "second 3"),
    ]


@requirement("refine.first-that-asks-wins", "refine.all-criteria")
async def test_criteria_after_the_first_that_asks_for_another_iteration_are_not_asked():
    panel = Panel(first=(False, True, True), second=(True, False, True))
    assert await panel.exit() is ExitReason.CONVERGED
    assert panel.asked == ["first 1", "first 2", "second 2", "first 3", "second 3"]


@requirement("refine.first-that-asks-wins", "refine.winning-feedback")
async def test_the_feedback_sent_is_that_of_the_first_criterion_that_asks():
    criteria = [
        lambda ctx: (True, "never sent: satisfied"),
        lambda ctx: (ctx.iteration > 1, "too short"),
        lambda ctx: (ctx.iteration > 1, "never sent: not asked"),
    ]
    agent = looping(LoopConfig(criteria=criteria))
    result = await run_agent(agent, ASK)
    assert result.exit_reason is ExitReason.CONVERGED
    assert sent(agent, 1) == [*ASK, said("assistant", "answer 1"), said("user", "too short")]


@requirement("refine.verifier-every-iteration")
async def test_the_verifier_grades_every_iteration_the_last_one_too():
    panel = Panel(passes=(False, False, False))
    assert await panel.exit(max_iterations=3) is ExitReason.MAX_ITERATIONS
    assert panel.asked == ["verifier 1", "verifier 2", "verifier 3"]


@requirement("refine.nothing-set")
async def test_a_loop_that_nothing_judges_runs_to_its_ceiling():
    agent = looping(LoopConfig(max_iterations=4))
    result = await run_agent(agent, ASK)
    assert result.exit_reason is ExitReason.MAX_ITERATIONS
    assert (result.loop_iterations, result.text) == (4, "answer 4")
    assert len(model_of(agent).requests) == 4


@requirement("refine.nothing-set")
async def test_nobody_is_named_as_asking_for_more_where_nobody_judges():
    told = await iterations_of(looping(LoopConfig(max_iterations=2)))
    assert [(each["continued"], each["continued_by"]) for each in told] == [
        (True, None),
        (False, None),
    ]


@requirement("refine.who-asked")
async def test_the_iteration_tells_who_asked_for_another_one():
    def too_short(ctx: CriterionContext) -> bool:
        return ctx.iteration > 2

    loop = LoopConfig(
        max_iterations=9,
        verifier=scoring(0.1, 0.9, 0.9),
        criteria=[lambda ctx: True, too_short],
    )
    told = await iterations_of(looping(loop))
    assert [(each["continued_by"], each["criterion_index"]) for each in told] == [
        ("verifier", None),
        ("too_short", 1),
        (None, None),
    ]
    told = await iterations_of(looping(LoopConfig(convergence_fn=in_turn(False, True))))
    assert [each["continued_by"] for each in told] == ["convergence_fn", None]


@requirement("refine.who-asked")
async def test_a_criterion_is_named_by_its_kind_else_by_its_name_else_by_its_class():
    class Marked:
        kind = "completionMarker"

        def evaluate(self, ctx: CriterionContext) -> bool:
            return ctx.iteration != 1

    class Plain:
        def evaluate(self, ctx: CriterionContext) -> bool:
            return ctx.iteration != 2

    def named(ctx: CriterionContext) -> bool:
        return ctx.iteration != 3

    told = await iterations_of(looping(LoopConfig(criteria=[Marked(), Plain(), named])))
    assert [each["continued_by"] for each in told] == ["completionMarker", "Plain", "named", None]


async def _no(_: object) -> bool:
    return False


async def _yes(_: object) -> bool:
    return True


def _later(answer: Any) -> Callable[[object], Awaitable[Any]]:
    """An async judge whose own answer may again have to be awaited."""

    async def judge(_: object) -> Any:
        return answer(_) if callable(answer) else answer

    return judge


class _AsyncCall:
    async def __call__(self, _: object) -> bool:
        return False


class _Await:
    """An awaitable that is no coroutine."""

    def __init__(self, answer: bool) -> None:
        self._answer = answer

    def __await__(self):
        yield from _no(None).__await__()
        return self._answer


REFUSING: dict[str, Callable[[Any], Any]] = {
    "sync": lambda _: False,
    "async": _no,
    "a partial of an async function": partial(_no),
    "a function that gives an awaitable object": lambda _: _Await(False),
    "an object with an async call": _AsyncCall(),
    "a coroutine that gives a coroutine": _later(_no),
}


@requirement("refine.awaitable-awaited")
@pytest.mark.parametrize("judge", REFUSING.values(), ids=REFUSING)
@pytest.mark.parametrize("place", ["convergence_fn", "stop_condition"])
async def test_what_a_predicate_gives_is_awaited_and_never_taken_as_true(
    judge: Callable[[Any], Any], place: str
):
    agent = looping(loop_of(max_iterations=2, **{place: judge}))
    result = await run_agent(agent, ASK)
    assert result.exit_reason is ExitReason.MAX_ITERATIONS
    assert result.loop_iterations == 2


@requirement("refine.awaitable-awaited", "criteria.forms")
@pytest.mark.parametrize("judge", REFUSING.values(), ids=REFUSING)
async def test_what_a_criterion_gives_is_awaited_and_never_taken_as_satisfied(
    judge: Callable[[Any], Any],
):
    agent = looping(LoopConfig(max_iterations=2, criteria=[judge], evaluate_final=True))
    result = await run_agent(agent, ASK)
    assert result.exit_reason is ExitReason.MAX_ITERATIONS


@requirement("refine.sync-and-async")
@pytest.mark.parametrize(
    "judge",
    [lambda _: True, _yes, partial(_yes), lambda _: _Await(True), _later(_yes)],
    ids=["sync", "async", "partial", "awaitable", "twice"],
)
@pytest.mark.parametrize("place", ["convergence_fn", "criteria"])
async def test_a_judge_may_be_sync_or_async(judge: Callable[[Any], Any], place: str):
    agent = looping(loop_of(**{place: [judge] if place == "criteria" else judge}))
    result = await run_agent(agent, ASK)
    assert (result.exit_reason, result.loop_iterations) == (ExitReason.CONVERGED, 1)


@requirement("refine.sync-and-async", "refine.stop-condition")
@pytest.mark.parametrize("judge", [lambda _: True, _yes], ids=["sync", "async"])
async def test_a_stop_condition_may_be_sync_or_async(judge: Callable[[Any], Any]):
    agent = looping(LoopConfig(stop_condition=judge))
    with pytest.raises(LoopConvergedError):
        await run_agent(agent, ASK)
    assert len(model_of(agent).requests) == 1


@requirement("refine.truth-of-a-predicate")
@pytest.mark.parametrize(("given", "met"), [("words", True), ("", False), (None, False), (3, True)])
async def test_a_predicates_answer_counts_by_its_truth(given: object, met: bool):
    def convergence_fn(_: AgentResult) -> Any:
        return given

    result = await run_agent(looping(LoopConfig(convergence_fn=convergence_fn)), ASK)
    assert result.loop_iterations == (1 if met else 5)


@requirement("refine.own-text")
async def test_the_stop_phrase_in_the_callers_own_text_ends_nothing():
    ask = [said("user", "Begin your answer with FINAL ANSWER: when you are done.")]
    phrase = "FINAL ANSWER:"
    agent = looping(
        LoopConfig(max_iterations=3, stop_condition=lambda r: phrase in r.text),
        ["thinking", f"{phrase} 42"],
    )
    with pytest.raises(LoopConvergedError) as raised:
        await run_agent(agent, ask)
    assert result_of(raised.value).text == "FINAL ANSWER: 42"


@requirement("refine.verifier-among-criteria")
async def test_a_verifier_may_stand_among_the_criteria_after_cheaper_ones():
    graded: list[int] = []

    def grade(_query: str, result: AgentResult) -> VerifierFeedback:
        graded.append(result.loop_iterations)
        return VerifierFeedback((0.0, 0.5, 0.9)[result.loop_iterations - 1], ["no source"])

    judge = Verifier(VerifierConfig(evaluate_fn=grade))
    agent = looping(LoopConfig(criteria=[judging(False, True, True), judge]))
    result = await run_agent(agent, ASK)
    assert result.exit_reason is ExitReason.CONVERGED
    assert graded == [2, 3]
    assert result.scores == []
    assert "no source" in sent(agent, 2)[-1]["content"]


@requirement("refine.verifier-among-criteria", "verifier.confirmations")
async def test_a_pass_of_a_verifier_among_the_criteria_is_confirmed_too():
    grades = iter([0.9, 0.3, 0.9, 0.85])

    def grade(_query: str, _result: AgentResult) -> VerifierFeedback:
        return VerifierFeedback(next(grades))

    judge = Verifier(VerifierConfig(evaluate_fn=grade, confirmations=1))
    result = await run_agent(looping(LoopConfig(criteria=[judge])), ASK)
    assert (result.exit_reason, result.loop_iterations) == (ExitReason.CONVERGED, 2)
    assert next(grades, None) is None


@requirement("refine.one-result-for-all-judges")
async def test_all_judges_of_an_iteration_are_shown_the_same_result():
    shown: list[AgentResult] = []

    def predicate(result: AgentResult) -> bool:
        shown.append(result)
        return False

    def grade(_query: str, result: AgentResult) -> VerifierFeedback:
        shown.append(result)
        return VerifierFeedback(0.9)

    def criterion(ctx: CriterionContext) -> CriterionVerdict:
        shown.append(ctx.result)
        return CriterionVerdict(satisfied=ctx.iteration == 2)

    loop = LoopConfig(
        stop_condition=predicate,
        verifier=Verifier(VerifierConfig(evaluate_fn=grade)),
        criteria=[criterion],
    )
    await run_agent(looping(loop), ASK)
    first, second = shown[:3], shown[3:]
    assert len({id(each) for each in first}) == len({id(each) for each in second}) == 1
    assert (first[0].text, second[0].text) == ("answer 1", "answer 2")
    assert (first[0].loop_iterations, second[0].loop_iterations) == (1, 2)


@pytest.mark.parametrize("name", ["convergence_fn", "stop_condition"])
@requirement("refine.awaitable-awaited")
async def test_a_pair_from_a_predicate_is_a_criterion_error_and_never_true(name: str):
    judge: dict[str, Any] = {name: lambda _: (False, "too short")}
    loop = LoopConfig(max_iterations=2, **judge)
    agent = Agent("tester", ScriptedModel(["one", "two"]), loop_config=loop)
    result = await run_agent(agent, [{"role": "user", "content": "go"}])
    assert result.exit_reason is ExitReason.CRITERION_ERROR
    assert result.loop_iterations == 1
    assert "(False, 'too short')" in (result.error or "")
