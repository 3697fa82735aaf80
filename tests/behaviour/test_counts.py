"""What a result counts: iterations, turns, tokens and scores, on every path, for one run alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.behaviour.kit import until
from tests.behaviour.manifest import requirement
from tests.behaviour.refine_kit import (
    ASK,
    in_turn,
    judging,
    looping,
    model_of,
    result_of,
    run_and_watch,
    scoring,
)
from untildone import (
    Agent,
    AgentHooks,
    AgentResult,
    CriterionContext,
    EventType,
    LoopConfig,
    LoopOutcome,
    RateLimitError,
    RetryPolicy,
    ServerError,
    Usage,
    Verifier,
    VerifierConfig,
    VerifierFeedback,
    partial_result,
    run_agent,
    tool,
)
from untildone.testing import FakeClock, ScriptedModel, SeenRequest, call, reply

FAIL = LoopOutcome.FAIL_RUN


@tool
async def look(key: str) -> str:
    """Looks something up."""
    return f"value of {key}"


def looks(key: str):
    return reply(f"looking at {key}", call("look", key=key))


async def ends(agent: Agent) -> AgentResult:
    """The result of a run, returned or carried by what it raised."""
    try:
        return await run_agent(agent, ASK)
    except Exception as error:
        return result_of(error)


# --- On every path --------------------------------------------------------------------------------


async def _ask_a_person(_tool: str, _args: dict[str, Any]) -> None:
    return None


PATHS: dict[str, tuple[Callable[[], Agent], tuple[str, int, int, int, int]]] = {
    # exit, iterations, iteration returned, turns, tokens in (10 a call)
    "no loop": (lambda: looping(None), ("satisfied", 0, 0, 1, 10)),
    "no loop, capped": (
        lambda: looping(None, [looks("a"), looks("b")], tools=[look], max_turns=2),
        ("max_turns", 0, 0, 2, 20),
    ),
    "converged": (
        lambda: looping(LoopConfig(convergence_fn=in_turn(False, True))),
        ("converged", 2, 2, 2, 20),
    ),
    "converged at once": (
        lambda: looping(LoopConfig(convergence_fn=in_turn(True))),
        ("converged", 1, 1, 1, 10),
    ),
    "plateau": (
        lambda: looping(LoopConfig(verifier=scoring(0.3, 0.6, 0.5, 0.2, 0.1), adaptive=True)),
        ("plateau", 4, 2, 4, 40),
    ),
    "ceiling": (
        lambda: looping(LoopConfig(max_iterations=3, verifier=scoring(0.6, 0.5, 0.2))),
        ("max_iterations", 3, 1, 3, 30),
    ),
    "ceiling, not scored": (
        lambda: looping(LoopConfig(max_iterations=3)),
        ("max_iterations", 3, 3, 3, 30),
    ),
    "stop condition": (
        lambda: looping(LoopConfig(verifier=scoring(0.6), stop_condition=in_turn(False, True))),
        ("stop_condition", 2, 2, 2, 20),
    ),
    "unsatisfied": (
        lambda: looping(
            LoopConfig(max_iterations=3, verifier=scoring(0.6, 0.7, 0.2), on_exhausted=FAIL)
        ),
        ("unsatisfied", 3, 2, 3, 30),
    ),
    "criterion error": (
        lambda: looping(LoopConfig(criteria=[judging(False, OSError("down"))])),
        ("criterion_error", 2, 2, 2, 20),
    ),
    "criterion error, raised": (
        lambda: looping(LoopConfig(criteria=[judging(OSError("down"))], on_criterion_error=FAIL)),
        ("criterion_error", 1, 1, 1, 10),
    ),
    "model error": (
        lambda: looping(
            LoopConfig(), ["one", looks("a"), ServerError("down", usage=Usage())], tools=[look]
        ),
        ("error", 1, 1, 2, 20),
    ),
    "model error at once": (
        lambda: looping(LoopConfig(), [ServerError("down", usage=Usage())]),
        ("error", 0, 1, 0, 0),
    ),
    "capped, raised": (
        lambda: looping(
            LoopConfig(),
            ["one", looks("a"), looks("b")],
            tools=[look],
            max_turns=2,
            on_max_turns="raise",
        ),
        ("error", 1, 1, 3, 30),
    ),
    "waiting for a person": (
        lambda: looping(
            LoopConfig(),
            ["one", looks("a")],
            tools=[look],
            hooks=AgentHooks(approve_tool=_ask_a_person),
        ),
        ("awaiting_approval", 1, 2, 2, 20),
    ),
}


@requirement("counts.iterations", "counts.cut-short", "counts.best-iteration", "counts.usage")
@pytest.mark.parametrize("path", PATHS)
async def test_iterations_turns_and_tokens_are_counted_on_every_path(path: str):
    make, expected = PATHS[path]
    result = await ends(make())
    assert (
        str(result.exit_reason),
        result.loop_iterations,
        result.best_iteration,
        result.turns,
        result.input_tokens,
    ) == expected
    assert result.output_tokens * 2 == result.input_tokens
    assert result.total_tokens == result.input_tokens + result.output_tokens


@requirement("counts.cut-short")
async def test_a_cancelled_iteration_is_not_counted_but_its_turns_and_tokens_are():
    async def hangs(_: SeenRequest) -> str:
        await asyncio.Event().wait()
        return "never"

    agent = looping(LoopConfig(), ["one", looks("a"), hangs], tools=[look])
    task = asyncio.create_task(run_agent(agent, ASK))
    await until(lambda: len(model_of(agent).requests) == 3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as raised:
        await task
    result = result_of(raised.value)
    assert (str(result.exit_reason), result.text) == ("cancelled", "one")
    assert (result.loop_iterations, result.turns, result.input_tokens) == (1, 2, 20)
    assert result.unknown_usage_calls == 1


@requirement("counts.iterations")
async def test_the_events_count_as_the_result_does():
    for make, (_, iterations, best, turns, tokens) in PATHS.values():
        _, shown = await run_and_watch(make())
        told = [event for event in shown if event.event is EventType.LOOP_ITERATION]
        assert [event.data["iteration"] for event in told] == list(range(1, iterations + 1))
        if shown[-1].event is EventType.DONE:
            data = shown[-1].data
            assert data["loop_iterations"] == iterations
            assert data["best_iteration"] == best
            assert (data["turns"], data["input_tokens"]) == (turns, tokens)


@requirement("counts.before-the-predicates")
async def test_the_iteration_is_counted_before_anybody_judges_it():
    counted: list[tuple[str, int]] = []

    def seen(who: str, result: AgentResult) -> bool:
        counted.append((who, result.loop_iterations))
        return False

    def grade(_query: str, result: AgentResult) -> VerifierFeedback:
        seen("verifier", result)
        return VerifierFeedback(0.0)

    def criterion(ctx: CriterionContext) -> bool:
        return seen("criterion", ctx.result)

    loop = LoopConfig(
        max_iterations=2,
        stop_condition=lambda r: seen("stop", r),
        verifier=Verifier(VerifierConfig(evaluate_fn=grade)),
        convergence_fn=lambda r: not seen("fn", r),
        criteria=[criterion],
        evaluate_final=True,
    )
    await run_agent(looping(loop), ASK)
    names = ["stop", "verifier", "fn", "criterion"]
    assert counted == [(name, iteration) for iteration in (1, 2) for name in names]


@requirement("counts.best-iteration")
async def test_the_number_of_iterations_is_never_that_of_the_returned_one():
    loop = LoopConfig(max_iterations=5, verifier=scoring(0.1, 0.7, 0.2, 0.2, 0.2))
    result = await run_agent(looping(loop), ASK)
    assert (result.loop_iterations, result.best_iteration) == (5, 2)
    assert len(result.scores) == 5


@requirement("counts.belongs-to-the-iteration", "counts.belongs-to-the-run")
async def test_some_fields_belong_to_the_returned_iteration_and_some_to_the_whole_run():
    def grade(_query: str, result: AgentResult) -> VerifierFeedback:
        result.confidence = result.loop_iterations / 10
        return VerifierFeedback((0.2, 0.7, 0.3)[result.loop_iterations - 1])

    script = [
        *(looks("a"), "one"),
        *(looks("b"), reply("two", finish_reason="length", model="m-2")),
        *(looks("c"), "three"),
    ]
    loop = LoopConfig(max_iterations=3, verifier=Verifier(VerifierConfig(evaluate_fn=grade)))
    result = await run_agent(looping(loop, script, tools=[look]), ASK)
    assert (result.text, result.confidence, result.finish_reason) == ("two", 0.2, "length")
    assert result.model == "m-2"
    assert [each["args"]["key"] for each in result.tool_calls] == ["b"]
    assert result.messages[-1]["content"] == "two"
    assert [message["role"] for message in result.messages].count("tool") == 2
    assert (result.turns, result.loop_iterations, result.scores) == (6, 3, [0.2, 0.7, 0.3])
    assert (result.input_tokens, result.output_tokens) == (60, 30)


@requirement("counts.belongs-to-the-run")
async def test_a_judge_sees_what_the_run_has_cost_so_far():
    seen: list[tuple[int, int, int]] = []

    def cost(result: AgentResult) -> bool:
        seen.append((result.turns, result.input_tokens, result.output_tokens))
        return False

    await run_agent(looping(LoopConfig(max_iterations=3, convergence_fn=cost)), ASK)
    assert seen == [(1, 10, 5), (2, 20, 10), (3, 30, 15)]


# --- Usage ----------------------------------------------------------------------------------------


@requirement("counts.usage", "counts.retries")
async def test_failed_tries_are_charged_and_stay_the_same_turn():
    busy = RateLimitError("429", status=429, usage=Usage(input_tokens=3))
    cut = ServerError("cut", status=502)
    agent = looping(
        LoopConfig(convergence_fn=in_turn(False, True)),
        [busy, busy, "one", cut, "two"],
        retry_policy=RetryPolicy(max_retries=2, jitter=0),
    )
    result = await run_agent(agent, ASK, clock=FakeClock())
    assert (result.turns, result.loop_iterations) == (2, 2)
    assert (result.input_tokens, result.output_tokens) == (2 * 3 + 2 * 10, 2 * 5)
    assert result.unknown_usage_calls == 1


@requirement("counts.unknown-usage")
async def test_a_call_whose_cost_nobody_reports_is_unknown_and_never_free():
    class Silent:
        name = "silent"

        async def generate(self, request: Any, on_delta: Any = None):
            answered = reply("words")
            answered.usage = None
            return answered

    agent = Agent("tester", Silent(), loop_config=LoopConfig(max_iterations=2))
    result = await run_agent(agent, ASK)
    assert (result.input_tokens, result.unknown_usage_calls) == (0, 2)


@requirement("counts.usage")
async def test_the_cost_of_a_run_inside_a_tool_is_the_outer_runs_too_once():
    inner = looping(LoopConfig(max_iterations=3))

    @tool
    async def research(topic: str) -> str:
        """Looks into a topic."""
        return (await run_agent(inner, ASK)).text

    outer = looping(
        LoopConfig(max_iterations=1),
        [reply(None, call("research", topic="x")), "done"],
        tools=[research],
    )
    result = await run_agent(outer, ASK)
    assert (result.input_tokens, result.turns, result.loop_iterations) == (50, 2, 1)


# --- Nothing is shared between runs ---------------------------------------------------------------


def busy_agent() -> Agent:
    """One agent with everything that could be tempted to count: verifier, criteria, tools."""

    async def model(seen: SeenRequest) -> Any:
        messages = seen.messages
        await asyncio.sleep(0)
        if messages[-1]["role"] == "tool":
            return f"draft after {sum(m['role'] == 'assistant' for m in messages)} messages"
        return reply(None, [call("look", key=str(len(messages))), call("look", key="b")])

    async def grade(_query: str, result: AgentResult) -> VerifierFeedback:
        await asyncio.sleep(0)
        scores = (0.1, 0.9, 0.85, 0.2)
        return VerifierFeedback(scores[result.loop_iterations - 1], ["thin"])

    loop = LoopConfig(
        max_iterations=4,
        verifier=Verifier(VerifierConfig(evaluate_fn=grade, confirmations=1)),
        criteria=[judging(True, (False, "again"), (False, "again"), True)],
        adaptive=True,
    )
    return looping(loop, model, tools=[look], max_turns=4)


def counts(result: AgentResult) -> tuple[Any, ...]:
    return (
        result.exit_reason,
        result.loop_iterations,
        result.best_iteration,
        result.turns,
        result.input_tokens,
        result.output_tokens,
        result.scores,
        result.text,
        len(result.tool_calls),
        len(result.messages),
    )


# 0.1 · 0.9 improves · 0.85 and 0.2 miss: a plateau after four iterations of two turns; the second
# is returned: ask, (calls, 2 answers, draft), refined, (calls, 2 answers, draft).
BUSY = ("plateau", 4, 2, 8, 80, 40, [0.1, 0.9, 0.85, 0.2], "draft after 3 messages", 2, 10)


@requirement("counts.nothing-shared")
@pytest.mark.parametrize("runs", [1, 200, 1000])
async def test_any_number_of_runs_of_one_agent_at_once_count_as_one_alone_does(runs: int):
    agent = busy_agent()
    results = await asyncio.gather(*(run_agent(agent, ASK) for _ in range(runs)))
    assert len({result.run_id for result in results}) == runs
    assert [counts(result) for result in results] == [BUSY] * runs


@requirement("counts.nothing-shared")
async def test_counters_do_not_shrink_from_run_to_run():
    agent = busy_agent()
    for _ in range(3):
        assert counts(await run_agent(agent, ASK)) == BUSY


@requirement("counts.nothing-shared")
async def test_a_run_that_fails_or_is_cancelled_leaves_nothing_in_the_shared_agent():
    agent = busy_agent()
    task = asyncio.create_task(run_agent(agent, ASK))
    await until(lambda: len(model_of(agent).requests) == 3)
    task.cancel()
    await asyncio.wait([task])
    assert counts(await run_agent(agent, ASK)) == BUSY


# --- Nothing is lost ------------------------------------------------------------------------------


@requirement("holds.nothing-is-lost")
def test_an_exception_that_left_no_run_has_no_partial_result():
    assert partial_result(ValueError("x")) is None


@requirement("holds.nothing-is-lost")
async def test_an_error_in_a_later_iteration_throws_no_earlier_one_away():
    for k in range(1, 5):
        loop = LoopConfig(verifier=scoring(0.7, 0.1, 0.1, 0.1))
        script = [*(f"answer {n}" for n in range(1, k + 1)), OSError("disk full")]
        with pytest.raises(OSError, match=r"^disk full$") as raised:
            await run_agent(looping(loop, script), ASK)
        result = result_of(raised.value)
        assert (result.text, result.loop_iterations) == ("answer 1", k)
        assert result.scores == [0.7, 0.1, 0.1, 0.1][:k]
        assert (result.input_tokens, result.unknown_usage_calls) == (10 * k, 1)


@requirement("holds.nothing-is-lost")
async def test_an_error_in_the_first_iteration_keeps_what_was_said_so_far():
    agent = looping(LoopConfig(), [looks("a"), OSError("disk full")], tools=[look])
    with pytest.raises(OSError, match="disk full") as raised:
        await run_agent(agent, ASK)
    result = result_of(raised.value)
    assert (result.text, result.loop_iterations, result.turns) == ("looking at a", 0, 1)
    assert [message["role"] for message in result.messages] == ["user", "assistant", "tool"]


@requirement("holds.no-group")
async def test_no_exception_group_leaks_out_of_tools_that_run_at_once():
    class Broken(BaseException):
        pass

    @tool
    async def breaks(key: str) -> str:
        """Breaks beyond repair."""
        raise Broken(key)

    agent = looping(
        LoopConfig(),
        [reply(None, [call("breaks", key="a"), call("look", key="b")])],
        tools=[breaks, look],
    )
    with pytest.raises(Broken) as raised:
        await run_agent(agent, ASK)
    assert str(raised.value) == "a"
    assert result_of(raised.value).turns == 1


@requirement("counts.nothing-shared")
async def test_the_scripted_model_of_many_runs_was_asked_as_often_as_they_say():
    agent = busy_agent()
    results = await asyncio.gather(*(run_agent(agent, ASK) for _ in range(20)))
    assert isinstance(agent.model, ScriptedModel)
    assert len(agent.model.requests) == sum(result.turns for result in results) == 160
