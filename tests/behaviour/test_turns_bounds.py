"""Words and bounds: what is called what, and which values cannot work."""

import asyncio
import inspect
import math
from collections.abc import Callable
from dataclasses import fields
from enum import StrEnum
from typing import Any

import pytest

import untildone
from tests.behaviour.kit import ask, drained, ended
from tests.behaviour.manifest import requirement
from untildone import (
    CODING,
    RESEARCH,
    SIMPLE,
    Agent,
    AgentResult,
    ConfigError,
    EventType,
    ExitReason,
    LoopConfig,
    LoopUnsatisfiedError,
    MaxTurnsError,
    RetryPolicy,
    StuckPolicy,
    UntildoneError,
    Verifier,
    VerifierConfig,
    VerifierFeedback,
    run_agent,
    run_agent_loop,
    run_agent_sync,
    search_loop,
)
from untildone.testing import ScriptedModel, call, reply

# ── Words ────────────────────────────────────────────────────────────────────────────────────────


@requirement("words.two-bounds")
def test_the_two_bounds_share_no_field_no_exit_and_no_error():
    agent, loop = ({field.name for field in fields(kind)} for kind in (Agent, LoopConfig))
    assert "max_turns" in agent - loop
    assert "max_iterations" in loop - agent
    assert ExitReason.MAX_TURNS.value == "max_turns"
    assert ExitReason.MAX_ITERATIONS.value == "max_iterations"
    assert not issubclass(MaxTurnsError, LoopUnsatisfiedError)
    assert not issubclass(LoopUnsatisfiedError, MaxTurnsError)


@requirement("words.two-bounds")
@pytest.mark.parametrize("door", [run_agent, run_agent_loop, untildone.stream_agent])
def test_no_door_takes_a_bound_of_its_own(door: Callable[..., Any]):
    assert not {"max_turns", "max_iterations"} & set(inspect.signature(door).parameters)


@requirement("words.two-bounds")
async def test_each_bound_bounds_its_own_loop():
    async def look(n: int) -> str:
        return f"seen {n}"

    model = ScriptedModel(lambda seen: reply(None, call("look", n=seen.index)))
    loop = LoopConfig(max_iterations=3)
    result = await run_agent(
        Agent("ada", model, tools=[look], max_turns=2, loop_config=loop), ask()
    )
    assert (len(model.requests), result.loop_iterations) == (6, 3)
    assert result.exit_reason is ExitReason.MAX_ITERATIONS


@requirement("words.query")
async def test_the_query_is_the_callers_last_user_message_in_every_iteration():
    queries: list[str] = []

    async def grade(query: str, result: AgentResult) -> VerifierFeedback:
        queries.append(query)
        return VerifierFeedback(0.1, issues=["Too short."])

    def judge(context: untildone.CriterionContext) -> bool:
        queries.append(context.query)
        return True

    loop = LoopConfig(max_iterations=3, verifier=Verifier(VerifierConfig(evaluate_fn=grade)))
    history = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is the capital of France?"},
        {"role": "assistant", "content": "Paris."},
        {"role": "user", "content": "And of Italy?"},
    ]
    model = ScriptedModel(["Rome", "Rome.", "It is Rome."])
    await run_agent(Agent("ada", model, loop_config=loop), history)
    await run_agent(
        Agent("ada", ScriptedModel(["Rome"]), loop_config=LoopConfig(criteria=[judge])), history
    )
    assert queries == ["And of Italy?"] * 4


@requirement("words.query")
async def test_the_query_of_a_message_in_parts_is_its_text():
    queries: list[str] = []

    async def grade(query: str, result: AgentResult) -> VerifierFeedback:
        queries.append(query)
        return VerifierFeedback(1.0)

    parts = [
        {"type": "text", "text": "What is "},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
        {"type": "text", "text": "this?"},
    ]
    loop = LoopConfig(verifier=Verifier(VerifierConfig(evaluate_fn=grade)))
    agent = Agent("ada", ScriptedModel(["A cat."]), loop_config=loop)
    await run_agent(agent, [{"role": "user", "content": parts}])
    assert queries == ["What is this?"]


@requirement("words.exit-reasons")
def test_the_exit_reasons_are_the_contracts_and_strings():
    assert issubclass(ExitReason, StrEnum)
    assert {reason.value for reason in ExitReason} == {
        "satisfied",
        "max_turns",
        "stuck",
        "converged",
        "stop_condition",
        "plateau",
        "max_iterations",
        "unsatisfied",
        "criterion_error",
        "budget",
        "awaiting_approval",
        "cancelled",
        "error",
    }


@requirement("bounds.presets")
def test_the_presets_are_s2s_sizes():
    assert (SIMPLE, RESEARCH, CODING) == (10, 30, 100)
    assert Agent("ada", ScriptedModel([])).max_turns == SIMPLE


# ── Bounds ───────────────────────────────────────────────────────────────────────────────────────


async def search(query: str) -> str: ...


def searching(name: str) -> Callable[[Any], Any]:
    def run(value: Any) -> Any:
        agent = Agent("ada", ScriptedModel([]))
        return asyncio.run(search_loop("q", search, agent, **{name: value}))

    return run


def with_pool(value: Any) -> Any:
    return run_agent_sync(Agent("ada", ScriptedModel([])), ask(), max_sync_tools=value)


def setting(kind: Any, name: str, *positional: Any) -> Callable[[Any], Any]:
    return lambda value: kind(*positional, **{name: value})


MODEL = ScriptedModel([])
COUNTS = {
    "max_turns": setting(Agent, "max_turns", "ada", MODEL),
    "max_iterations": setting(LoopConfig, "max_iterations"),
    "branches": setting(LoopConfig, "branches"),
    "plateau_patience": setting(LoopConfig, "plateau_patience"),
    "max_sync_tools": with_pool,
    "max_iterations of search_loop": searching("max_iterations"),
    **{
        field.name: setting(StuckPolicy, field.name)
        for field in fields(StuckPolicy)
        if field.name not in ("action", "nudge_text")
    },
}
SHARES = {
    "skill_confidence_threshold": setting(LoopConfig, "skill_confidence_threshold"),
    "threshold": setting(VerifierConfig, "threshold"),
    "confidence_threshold of search_loop": searching("confidence_threshold"),
}
NOT_NEGATIVE = {
    "min_improvement": setting(LoopConfig, "min_improvement"),
    "max_retries": setting(RetryPolicy, "max_retries"),
    "backoff_seconds": setting(RetryPolicy, "backoff_seconds"),
    "confirmations": setting(VerifierConfig, "confirmations"),
    "temperature": setting(Agent, "temperature", "ada", MODEL),
}
NEVER = [math.nan, math.inf, -math.inf, True, False, "3", "", [], {}]


def cases(settings: dict[str, Any], values: list[Any]) -> list[Any]:
    return [
        pytest.param(name.partition(" ")[0], build, value, id=f"{name}={value!r}")
        for name, build in settings.items()
        for value in values
    ]


def refused(name: str, build: Callable[[Any], Any], value: Any) -> ConfigError:
    """Builds with a value that cannot work; the error must name the setting and the value."""
    with pytest.raises(ConfigError) as caught:
        build(value)
    text = str(caught.value)
    assert name in text
    assert repr(value) in text
    return caught.value


@requirement("bounds.counts", "bounds.no-unlimited")
@pytest.mark.parametrize(("name", "build", "value"), cases(COUNTS, [0, -1, None, 0.5, 2.0, *NEVER]))
def test_a_count_that_is_no_whole_number_of_one_or_more_is_refused(name, build, value):
    assert "1 or more" in str(refused(name, build, value))


@requirement("bounds.counts")
@pytest.mark.parametrize("name", ["max_turns", "max_iterations", "plateau_patience"])
@pytest.mark.parametrize("value", [1, 2, 10**9])
def test_one_and_more_are_counts(name: str, value: int):
    assert getattr(COUNTS[name](value), name) == value


@requirement("bounds.thresholds")
@pytest.mark.parametrize(("name", "build", "value"), cases(SHARES, [-0.01, 1.01, 80, None, *NEVER]))
def test_a_threshold_outside_zero_to_one_is_refused(name, build, value):
    assert "[0, 1]" in str(refused(name, build, value))


@requirement("bounds.thresholds")
@pytest.mark.parametrize("name", ["skill_confidence_threshold", "threshold"])
@pytest.mark.parametrize("value", [0, 0.0, 0.5, 1, 1.0])
def test_zero_and_one_are_thresholds(name: str, value: float):
    assert getattr(SHARES[name](value), name) == value


@requirement("bounds.not-negative")
@pytest.mark.parametrize(("name", "build", "value"), cases(NOT_NEGATIVE, [-1, -0.01, *NEVER]))
def test_a_number_that_must_not_be_negative_is_refused_where_it_is(name, build, value):
    assert "0 or more" in str(refused(name, build, value))


@requirement("bounds.not-negative")
def test_min_improvement_may_be_zero_and_none_is_no_number():
    assert LoopConfig(min_improvement=0).min_improvement == 0
    refused("min_improvement", NOT_NEGATIVE["min_improvement"], None)


@requirement("bounds.config-error")
def test_a_config_error_is_both_ours_and_a_value_error():
    error = refused("max_turns", COUNTS["max_turns"], 0)
    assert isinstance(error, UntildoneError)
    assert isinstance(error, ValueError)


@requirement("bounds.no-unlimited")
@pytest.mark.parametrize("name", ["max_turns", "max_iterations"])
@pytest.mark.parametrize("value", [0, None])
def test_zero_and_none_are_told_that_there_is_no_unlimited(name: str, value: Any):
    assert "unlimited" in str(refused(name, COUNTS[name], value))


@requirement("bounds.stuck-pairs")
@pytest.mark.parametrize("rule", ["no_novelty", "same_error", "error_streak", "near_duplicates"])
def test_a_stop_limit_below_its_nudge_limit_is_refused(rule: str):
    limits: dict[str, Any] = {f"{rule}_nudge": 5, f"{rule}_stop": 4}
    with pytest.raises(ConfigError, match=rf"{rule}_stop is 4.*raise {rule}_stop"):
        StuckPolicy(**limits)


@requirement("bounds.choices")
@pytest.mark.parametrize("value", ["nudges", "", None, True, 0])
def test_a_choice_that_is_none_is_refused_and_the_choices_are_named(value: Any):
    with pytest.raises(ConfigError, match="'nudge', 'stop' or 'off'"):
        StuckPolicy(action=value)
    with pytest.raises(ConfigError, match="'return' or 'raise'"):
        Agent("ada", MODEL, on_max_turns=value)
    with pytest.raises(ConfigError, match="FAIL_RUN"):
        LoopConfig(on_exhausted=value)


@requirement("bounds.bad-input")
@pytest.mark.parametrize(
    ("messages", "named"),
    [
        ("hello", "list of dicts"),
        ({"role": "user", "content": "hello"}, "list of dicts"),
        (["hello"], r"messages\[0\].*'hello'"),
        ([{"content": "hello"}], r"messages\[0\].*role None"),
        ([*ask(), {"role": "robot", "content": "hi"}], r"messages\[1\].*'robot'"),
        ([{"role": "user", "content": 5}], r"messages\[0\].*int"),
        ([{"role": "assistant", "tool_calls": "x"}], r"messages\[0\].*list"),
    ],
)
async def test_messages_that_are_none_are_named_before_anything_runs(messages: Any, named: str):
    model = ScriptedModel(["never"])
    with pytest.raises(ConfigError, match=named):
        await run_agent(Agent("ada", model), messages)
    assert model.requests == []


@requirement("bounds.bad-input")
async def test_two_tools_of_one_name_are_refused_before_anything_runs():
    model = ScriptedModel(["never"])
    with pytest.raises(ConfigError, match="'search'"):
        await run_agent(Agent("ada", model, tools=[search, search]), ask())
    assert model.requests == []


@requirement("bounds.bad-input")
@pytest.mark.parametrize("name", ["", "  ", None, 5])
def test_an_agent_needs_a_name(name: Any):
    with pytest.raises(ConfigError, match="name"):
        Agent(name, MODEL)


@requirement("bounds.bad-input")
@pytest.mark.parametrize("model", [None, "", 5, object()])
def test_an_agent_needs_a_model(model: Any):
    with pytest.raises(ConfigError, match="model"):
        Agent("ada", model)


@requirement("bounds.bad-input")
async def test_the_sync_door_inside_an_event_loop_says_what_to_use():
    with pytest.raises(ConfigError, match="await run_agent"):
        run_agent_sync(Agent("ada", MODEL), ask())


@requirement("bounds.bad-input", "events.end-mark")
@pytest.mark.parametrize("agent", [None, "ada", {"name": "ada"}], ids=repr)
async def test_what_is_no_agent_is_named_and_the_queue_ends_all_the_same(agent: Any):
    queue: asyncio.Queue[Any] = asyncio.Queue()
    with pytest.raises(ConfigError, match="Agent"):
        await run_agent(agent, ask(), queue=queue)
    assert [event.event for event in ended(drained(queue))] == [EventType.ERROR]
