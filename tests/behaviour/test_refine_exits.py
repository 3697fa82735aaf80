"""How a refine loop ends, what it then returns or raises, and what the inner exit is to it."""

from __future__ import annotations

import pytest

from tests.behaviour.manifest import requirement
from tests.behaviour.refine_kit import (
    ASK,
    in_turn,
    iterations_of,
    judging,
    looping,
    model_of,
    numbered,
    result_of,
    said,
    scoring,
    sent,
)
from untildone import (
    AgentHooks,
    ConfigError,
    ExitReason,
    LoopConfig,
    LoopConvergedError,
    LoopOutcome,
    LoopUnsatisfiedError,
    MaxTurnsError,
    ServerError,
    StuckPolicy,
    partial_result,
    resume_agent,
    run_agent,
    tool,
)
from untildone.testing import EventLog, ScriptedModel, call, reply


@tool
async def look(key: str) -> str:
    """Looks something up."""
    return f"value of {key}"


def looks(key: str, text: str | None = None):
    return reply(text, call("look", key=key))


# --- The inner exit -------------------------------------------------------------------------------


@requirement("refine.inner-exit-is-an-iteration", "refine.inner-exit-named")
async def test_an_agent_run_that_ends_at_max_turns_is_judged_refined_and_counted():
    script = [looks("a", "one"), looks("b", "two"), looks("c", "three"), "done"]
    seen: list[str] = []

    def done(result):
        seen.append(result.text)
        return result.text == "done"

    agent = looping(LoopConfig(convergence_fn=done), script, tools=[look], max_turns=2)
    told = await iterations_of(agent)
    assert seen == ["two", "done"]
    assert [each["agent_exit"] for each in told] == ["max_turns", "satisfied"]
    assert [each["converged"] for each in told] == [False, True]
    assert sent(agent, 2)[-2:] == [
        {
            "role": "tool",
            "content": "value of b",
            "tool_call_id": sent(agent, 2)[-2]["tool_call_id"],
        },
        said("user", LoopConfig().refine_prompt),
    ]


@requirement("refine.inner-exit-is-an-iteration", "refine.inner-exit-named")
async def test_a_stuck_agent_run_is_judged_refined_and_counted():
    script = [*(looks("a", f"try {n}") for n in range(5)), "done"]
    agent = looping(
        LoopConfig(convergence_fn=lambda r: r.text == "done"),
        script,
        tools=[look],
        stuck=StuckPolicy(action="stop"),
    )
    queue_told = await iterations_of(agent)
    assert [each["agent_exit"] for each in queue_told] == ["stuck", "satisfied"]
    assert [each["continued_by"] for each in queue_told] == ["convergence_fn", None]


@requirement("refine.inner-exit-named")
@pytest.mark.parametrize(
    ("settings", "inner"),
    [({"max_turns": 1}, "max_turns"), ({"stuck": StuckPolicy(action="stop")}, "stuck")],
)
async def test_an_inner_exit_is_never_the_exit_of_the_loop(settings: dict, inner: str):
    agent = looping(LoopConfig(max_iterations=2), lambda seen: looks("a"), tools=[look], **settings)
    told = await iterations_of(agent)
    assert [each["agent_exit"] for each in told] == [inner, inner]
    agent = looping(LoopConfig(max_iterations=2), lambda seen: looks("a"), tools=[look], **settings)
    assert (await run_agent(agent, ASK)).exit_reason is ExitReason.MAX_ITERATIONS


@requirement("refine.max-turns-raise")
async def test_max_turns_error_leaves_the_loop_before_anything_is_judged():
    asked: list[int] = []

    def never(result) -> bool:
        asked.append(result.loop_iterations)
        return False

    agent = looping(
        LoopConfig(convergence_fn=never, stop_condition=never),
        ["first", looks("a", "half"), "never"],
        tools=[look],
        max_turns=1,
        on_max_turns="raise",
    )
    with pytest.raises(MaxTurnsError) as raised:
        await run_agent(agent, ASK)
    result = result_of(raised.value)
    assert asked == [1, 1]
    assert result.exit_reason is ExitReason.ERROR
    assert (result.loop_iterations, result.turns) == (1, 2)
    assert result.input_tokens == 20
    assert partial_result(raised.value) is result


@requirement("refine.max-turns-raise")
async def test_max_turns_error_of_the_first_iteration_carries_its_last_text():
    agent = looping(
        LoopConfig(), [looks("a", "half")], tools=[look], max_turns=1, on_max_turns="raise"
    )
    with pytest.raises(MaxTurnsError) as raised:
        await run_agent(agent, ASK)
    result = result_of(raised.value)
    assert (result.text, result.loop_iterations) == ("half", 0)
    assert [message["role"] for message in result.messages] == ["user", "assistant", "tool"]


@requirement("refine.approval-stops")
async def test_a_pending_approval_ends_the_loop_before_anything_is_judged_and_can_be_resumed():
    async def ask_a_person(_tool, _args) -> None:
        return None

    judged: list[int] = []

    def criterion(ctx) -> bool:
        judged.append(ctx.iteration)
        return ctx.iteration == 2

    def agent_on(script):
        return looping(
            LoopConfig(
                criteria=[criterion],
                stop_condition=lambda r: bool(judged.append(-r.loop_iterations)),
            ),
            script,
            tools=[look],
            hooks=AgentHooks(approve_tool=ask_a_person),
        )

    log = EventLog()
    waits = reply("may I?", call("look", "call_1", key="a"))
    paused = await run_agent(agent_on(["one", waits]), ASK, log=log)
    assert paused.exit_reason is ExitReason.AWAITING_APPROVAL
    assert (paused.text, paused.loop_iterations) == ("may I?", 1)
    assert judged == [-1, 1]
    resumed = await resume_agent(agent_on(["two"]), log.events, approvals={"call_1": True})
    assert resumed.exit_reason is ExitReason.CONVERGED
    assert (resumed.text, resumed.loop_iterations, resumed.turns) == ("two", 2, 3)
    assert resumed.tool_calls[0]["result"] == "value of a"
    assert judged == [-1, 1, -2, 2]


# --- Converged, ceiling, best ---------------------------------------------------------------------


@requirement("refine.converged-returns-this")
async def test_a_converged_loop_returns_the_converged_iteration_even_if_another_scored_higher():
    loop = LoopConfig(verifier=scoring(0.7, 0.6), convergence_fn=in_turn(False, True))
    result = await run_agent(looping(loop), ASK)
    assert result.exit_reason is ExitReason.CONVERGED
    assert (result.text, result.best_iteration, result.scores) == ("answer 2", 2, [0.7, 0.6])


@requirement("refine.ceiling")
@pytest.mark.parametrize("ceiling", [1, 2, 5])
async def test_a_ceiling_of_n_makes_n_agent_runs_and_never_one_more(ceiling: int):
    agent = looping(LoopConfig(max_iterations=ceiling, convergence_fn=lambda r: False))
    told = await iterations_of(agent)
    assert len(model_of(agent).requests) == len(told) == ceiling
    assert [each["ceiling_reached"] for each in told] == [False] * (ceiling - 1) + [True]
    assert [each["iteration"] for each in told] == list(range(1, ceiling + 1))


@requirement("refine.ceiling")
async def test_the_ceiling_is_not_said_to_be_reached_where_the_last_iteration_converges():
    told = await iterations_of(
        looping(LoopConfig(max_iterations=2, convergence_fn=in_turn(False, True)))
    )
    assert [each["ceiling_reached"] for each in told] == [False, False]
    assert told[-1]["converged"] is True


@requirement("refine.ceiling", "refine.stop-condition")
async def test_the_ceiling_and_a_stop_condition_compose_neither_replaces_the_other():
    at_two = LoopConfig(max_iterations=4, stop_condition=lambda r: r.loop_iterations == 2)
    with pytest.raises(LoopConvergedError):
        await run_agent(looping(at_two), ASK)
    never = LoopConfig(max_iterations=4, stop_condition=lambda r: r.loop_iterations == 9)
    result = await run_agent(looping(never), ASK)
    assert (result.exit_reason, result.loop_iterations) == (ExitReason.MAX_ITERATIONS, 4)


@requirement("refine.bounds")
@pytest.mark.parametrize("bad", [0, -1, None, 1.5, True, float("nan"), "3"])
@pytest.mark.parametrize("name", ["max_iterations", "branches", "plateau_patience"])
def test_a_bound_below_one_is_refused_when_the_config_is_built(name: str, bad: object):
    with pytest.raises(ConfigError, match=name):
        LoopConfig(**{name: bad})  # pyright: ignore[reportArgumentType]


@requirement("refine.bounds")
@pytest.mark.parametrize("bad", [-0.01, float("nan"), float("inf"), None, True, "0.02"])
def test_a_min_improvement_that_is_no_finite_number_from_zero_on_is_refused(bad: object):
    with pytest.raises(ConfigError, match="min_improvement"):
        LoopConfig(min_improvement=bad)  # pyright: ignore[reportArgumentType]


@requirement("refine.bounds")
@pytest.mark.parametrize("bad", [-0.1, 1.1, float("nan"), None])
def test_a_threshold_outside_of_zero_to_one_is_refused(bad: object):
    with pytest.raises(ConfigError, match="skill_confidence_threshold"):
        LoopConfig(skill_confidence_threshold=bad)  # pyright: ignore[reportArgumentType]


@requirement("refine.ceiling-best")
@pytest.mark.parametrize(
    ("scores", "best"),
    [
        ((0.1, 0.2, 0.3), 3),
        ((0.3, 0.2, 0.1), 1),
        ((0.2, 0.7, 0.6), 2),
        ((0.0, 0.0, 0.0), 3),
    ],
)
async def test_at_the_ceiling_the_best_scored_iteration_is_returned(
    scores: tuple[float, ...], best: int
):
    result = await run_agent(looping(LoopConfig(max_iterations=3, verifier=scoring(*scores))), ASK)
    assert result.exit_reason is ExitReason.MAX_ITERATIONS
    assert (result.text, result.best_iteration) == (f"answer {best}", best)
    assert result.scores == list(scores)
    assert result.loop_iterations == 3


@requirement("refine.ties-latest")
@pytest.mark.parametrize(
    ("scores", "best"), [((0.5, 0.5, 0.4), 2), ((0.5, 0.4, 0.5), 3), ((0.5, 0.5, 0.5), 3)]
)
async def test_of_equal_scores_the_latest_is_returned(scores: tuple[float, ...], best: int):
    result = await run_agent(looping(LoopConfig(max_iterations=3, verifier=scoring(*scores))), ASK)
    assert (result.text, result.best_iteration) == (f"answer {best}", best)


@requirement("refine.ceiling-best")
async def test_the_best_scored_iteration_is_returned_even_if_criteria_refused_it_and_not_the_last():
    loop = LoopConfig(
        max_iterations=3, verifier=scoring(0.95, 0.3, 0.85), criteria=[lambda ctx: False]
    )
    result = await run_agent(looping(loop), ASK)
    assert result.exit_reason is ExitReason.MAX_ITERATIONS
    assert (result.text, result.best_iteration) == ("answer 1", 1)


@requirement("refine.ceiling-last")
async def test_at_the_ceiling_the_last_iteration_is_returned_where_nothing_was_scored():
    loop = LoopConfig(
        max_iterations=3, convergence_fn=lambda r: False, criteria=[lambda ctx: False]
    )
    result = await run_agent(looping(loop), ASK)
    assert (result.text, result.best_iteration, result.scores) == ("answer 3", 3, [])


@requirement("refine.criteria-scores-never-choose")
async def test_scores_made_inside_criteria_never_choose_the_result():
    loop = LoopConfig(max_iterations=3, criteria=[scoring(0.7, 0.1, 0.0)], evaluate_final=True)
    result = await run_agent(looping(loop), ASK)
    assert (result.text, result.best_iteration, result.scores) == ("answer 3", 3, [])


@requirement("refine.ceiling-best")
async def test_what_belongs_to_the_returned_iteration_is_taken_from_it():
    script = [
        looks("a"),
        reply("best", finish_reason="length"),
        looks("b"),
        reply("worse", finish_reason="stop"),
    ]
    agent = looping(LoopConfig(max_iterations=2, verifier=scoring(0.6, 0.2)), script, tools=[look])
    result = await run_agent(agent, ASK)
    assert result.text == "best"
    assert [each["args"] for each in result.tool_calls] == [{"key": "a"}]
    assert result.messages[-1] == said("assistant", "best")
    assert len(result.messages) == 4
    assert result.finish_reason == "length"
    assert result.turns == 4


# --- Stop condition -------------------------------------------------------------------------------


@requirement("refine.stop-condition")
async def test_a_met_stop_condition_closes_the_iteration_and_raises_with_its_result():
    loop = LoopConfig(verifier=scoring(0.7, 0.9), stop_condition=in_turn(False, True))
    with pytest.raises(LoopConvergedError) as raised:
        await run_agent(looping(loop), ASK)
    result = result_of(raised.value)
    assert result.exit_reason is ExitReason.STOP_CONDITION
    assert (result.text, result.loop_iterations, result.best_iteration) == ("answer 2", 2, 2)
    assert result.scores == [0.7]
    told = await iterations_of(looping(loop))
    assert [each["early_stop"] for each in told] == [None, "stop_condition"]
    assert told[1]["converged"] is False
    assert told[1]["continued"] is False
    assert told[1]["fails_run"] is False


# --- Returned and raised --------------------------------------------------------------------------

FAIL = LoopOutcome.FAIL_RUN


@requirement("refine.returned-exits")
@pytest.mark.parametrize(
    ("loop", "expected"),
    [
        (LoopConfig(convergence_fn=lambda r: True), ExitReason.CONVERGED),
        (
            LoopConfig(verifier=scoring(0.5, 0.5, 0.5), adaptive=True),
            ExitReason.PLATEAU,
        ),
        (LoopConfig(), ExitReason.MAX_ITERATIONS),
        (LoopConfig(convergence_fn=in_turn(OSError("down"))), ExitReason.CRITERION_ERROR),
        (
            LoopConfig(criteria=[judging(OSError("down"))], on_exhausted=FAIL),
            ExitReason.CRITERION_ERROR,
        ),
    ],
    ids=["converged", "plateau", "max_iterations", "convergence_fn raised", "criterion raised"],
)
async def test_these_exits_are_returned(loop: LoopConfig, expected: ExitReason):
    assert (await run_agent(looping(loop), ASK)).exit_reason is expected


@requirement("refine.raised-exits")
@pytest.mark.parametrize(
    ("loop", "expected", "error_type"),
    [
        (
            LoopConfig(stop_condition=lambda r: True),
            ExitReason.STOP_CONDITION,
            LoopConvergedError,
        ),
        (
            LoopConfig(convergence_fn=lambda r: False, on_exhausted=FAIL),
            ExitReason.UNSATISFIED,
            LoopUnsatisfiedError,
        ),
        (
            LoopConfig(convergence_fn=in_turn(OSError("down")), on_criterion_error=FAIL),
            ExitReason.CRITERION_ERROR,
            OSError,
        ),
    ],
    ids=["stop_condition", "unsatisfied", "criterion_error"],
)
async def test_these_exits_are_raised(
    loop: LoopConfig, expected: ExitReason, error_type: type[Exception]
):
    with pytest.raises(error_type) as raised:
        await run_agent(looping(loop), ASK)
    result = result_of(raised.value)
    assert result.exit_reason is expected


@requirement("refine.raised-exits", "holds.nothing-is-lost")
async def test_an_error_of_the_model_leaves_as_itself_with_the_best_result_so_far():
    error = ServerError("503", status=503)
    loop = LoopConfig(verifier=scoring(0.6, 0.2, 0.0))
    agent = looping(loop, ["good", "bad", error])
    with pytest.raises(ServerError) as raised:
        await run_agent(agent, ASK)
    assert raised.value is error
    assert str(raised.value) == "503"
    result = result_of(raised.value)
    assert result.exit_reason is ExitReason.ERROR
    assert (result.text, result.best_iteration, result.loop_iterations) == ("good", 1, 2)
    assert result.scores == [0.6, 0.2]
    assert result.error == "ServerError: 503"


@requirement("counts.nothing-shared")
async def test_the_loop_of_one_agent_serves_different_questions_one_after_another():
    agent = looping(LoopConfig(verifier=scoring(0.1, 0.9)), numbered)
    first = await run_agent(agent, ASK)
    second = await run_agent(agent, ASK)
    assert (first.loop_iterations, second.loop_iterations) == (2, 2)
    assert (first.scores, second.scores) == ([0.1, 0.9], [0.1, 0.9])
    assert isinstance(agent.model, ScriptedModel)
