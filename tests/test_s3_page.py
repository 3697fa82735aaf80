"""S3's page, line by line: each property, remark and example of ``LoopSettings``.

Everything runs over HTTP against a scripted server, through ``run_agent`` and ``stream_agent``.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.definitions.kit import (
    ASK,
    DOORS,
    asked,
    called,
    down,
    serving,
    through,
    verdict,
)
from tests.models.raw_server import head, stall
from untildone import (
    AgentDefinition,
    ConfigError,
    DefinitionError,
    EventType,
    ExitReason,
    HarnessSettings,
    LoopCriterion,
    LoopOutcome,
    LoopSettings,
    LoopUnsatisfiedError,
    ModelBinding,
    ServerError,
    build_agent,
    load_definition,
    run_agent,
    stream_agent,
    tool,
)
from untildone.domain.log import RunEnded
from untildone.testing import EventLog

EXAMPLES = Path(__file__).parents[1] / "examples" / "definitions"
FAIL, RETURN = LoopOutcome.FAIL_RUN, LoopOutcome.RETURN_LAST_RESPONSE

MARKER = LoopCriterion(kind="completionMarker", marker="ALL DONE")
JUDGE = LoopCriterion(kind="aiJudge", judge_criteria=["The draft is ready to publish"])


def agent_with(
    *criteria: LoopCriterion, tools: Any = (), turns: int | None = None, **settings: Any
):
    """An agent as the page's first example has it, with other settings of the loop."""
    definition = AgentDefinition(
        name="researcher",
        model=ModelBinding(provider="openai", model="gpt-5"),
        tools=[function.__name__ for function in tools],
        harness=HarnessSettings(
            loop=LoopSettings(criteria=criteria, **settings),
            maximum_iterations_per_request=turns,
        ),
    )
    return build_agent(definition, tools=tools)


# ── Summary and examples ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("door", DOORS)
async def test_the_agent_is_run_again_until_a_stop_criterion_says_that_the_work_is_finished(door):
    async with serving("draft", "better draft", "the report. ALL DONE") as server:
        watched = await through(door, agent_with(MARKER))
    assert watched.got.exit_reason is ExitReason.CONVERGED
    assert (watched.got.text, watched.got.loop_iterations) == ("the report. ALL DONE", 3)
    assert asked(server) == ["worker"] * 3
    assert server.body(0)["model"] == "gpt-5"


@pytest.mark.parametrize("door", DOORS)
async def test_example_1_works_until_it_writes_all_done_for_at_most_five_iterations(door):
    agent = build_agent(
        AgentDefinition(
            name="researcher",
            model=ModelBinding(provider="openai", model="gpt-5"),
            harness=HarnessSettings(
                loop=LoopSettings(
                    criteria=[LoopCriterion(kind="completionMarker", marker="ALL DONE")],
                    max_iterations=5,
                ),
            ),
        )
    )
    async with serving("one", "two", "three, ALL DONE"):
        done = await through(door, agent)
    assert (done.got.exit_reason, done.got.loop_iterations) == (ExitReason.CONVERGED, 3)
    async with serving("still at it") as server:
        never = await through(door, agent)
    assert (never.got.exit_reason, never.got.loop_iterations) == (ExitReason.MAX_ITERATIONS, 5)
    assert len(server.requests) == 5


REVIEWER = LoopSettings(
    criteria=[LoopCriterion(kind="aiJudge", judge_criteria=["The draft is ready to publish"])],
    max_iterations=3,
    on_exhausted=LoopOutcome.FAIL_RUN,
    on_criterion_error=LoopOutcome.RETURN_LAST_RESPONSE,
)


def reviewed():
    definition = AgentDefinition(
        name="reviewed",
        model=ModelBinding(provider="openai", model="gpt-5"),
        harness=HarnessSettings(loop=REVIEWER),
    )
    return build_agent(definition)


@pytest.mark.parametrize("door", DOORS)
async def test_example_2_fails_the_run_when_the_judge_is_not_convinced_after_three_drafts(door):
    no = verdict(False, "No sources.")
    async with serving("draft 1", no, "draft 2", no, "draft 3", no) as server:
        watched = await through(door, reviewed())
    assert isinstance(watched.error, LoopUnsatisfiedError)
    assert watched.error.result is not None
    assert watched.error.result.text == "draft 3"
    assert asked(server) == ["worker", "judge"] * 3


@pytest.mark.parametrize("door", DOORS)
async def test_example_2_keeps_the_last_draft_when_the_judge_itself_cannot_be_reached(door):
    async with serving("draft 1", verdict(False, "No sources."), "draft 2", down()):
        watched = await through(door, reviewed())
    assert watched.got.exit_reason is ExitReason.CRITERION_ERROR
    assert (watched.got.text, watched.got.loop_iterations) == ("draft 2", 2)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", ["researcher", "reviewer"])
async def test_both_examples_as_yaml_files_are_the_same_definitions_and_run(name, door):
    definition = load_definition(EXAMPLES / f"{name}.yaml")
    loop = definition.harness.loop
    if name == "researcher":
        assert loop == LoopSettings(criteria=[MARKER], max_iterations=5)
        replies = ["notes", "the report. ALL DONE"]
    else:
        assert loop == REVIEWER
        replies = ["notes", verdict(False, "Too short."), "the report", verdict(True)]
    async with serving(*replies):
        watched = await through(door, build_agent(definition))
    assert (watched.got.exit_reason, watched.got.loop_iterations) == (ExitReason.CONVERGED, 2)


# ── Remarks ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("door", DOORS)
async def test_the_loop_is_off_while_harness_settings_loop_is_null_and_nothing_turns_it_on(door):
    plain = AgentDefinition(name="a", model=ModelBinding(provider="openai", model="gpt-5"))
    off = plain.model_copy(
        update={"harness": HarnessSettings(loop=None, maximum_iterations_per_request=3)}
    )
    assert plain.harness.loop is None
    for definition in (plain, off):
        agent = build_agent(definition)
        assert agent.loop_config is None
        async with serving("an answer") as server:
            watched = await through(door, agent)
        assert (watched.got.exit_reason, watched.got.loop_iterations) == (ExitReason.SATISFIED, 0)
        assert watched.iterations == []
        assert len(server.requests) == 1


def test_the_two_numbers_stand_in_separate_types_and_neither_knows_the_other():
    assert "maximum_iterations_per_request" in HarnessSettings.model_fields
    assert "max_iterations" not in HarnessSettings.model_fields
    assert "max_iterations" in LoopSettings.model_fields
    with pytest.raises(DefinitionError, match="maximum_iterations_per_request: unknown key"):
        LoopSettings(criteria=[MARKER], maximum_iterations_per_request=3)  # pyright: ignore[reportCallIssue]


@tool
def look() -> str:
    """Look again."""
    return "nothing yet"


@pytest.mark.parametrize("door", DOORS)
async def test_maximum_iterations_per_request_bounds_the_inner_loop_and_max_iterations_the_outer(
    door,
):
    agent = agent_with(MARKER, tools=[look], turns=2, max_iterations=3)
    assert (agent.max_turns, agent.loop_config and agent.loop_config.max_iterations) == (2, 3)
    async with serving(called("look")) as server:
        watched = await through(door, agent)
    assert len(server.requests) == 6  # 3 iterations of 2 turns
    assert watched.got.exit_reason is ExitReason.MAX_ITERATIONS
    assert [each["agent_exit"] for each in watched.iterations] == ["max_turns"] * 3


@pytest.mark.parametrize("door", DOORS)
async def test_the_inner_ceiling_is_no_stop_criterion_the_loop_goes_on_after_it(door):
    agent = agent_with(MARKER, tools=[look], turns=1, max_iterations=3)
    async with serving(called("look"), "ALL DONE"):
        watched = await through(door, agent)
    assert (watched.got.exit_reason, watched.got.loop_iterations) == (ExitReason.CONVERGED, 2)


@pytest.mark.parametrize("door", DOORS)
async def test_criteria_are_asked_in_order_and_the_first_that_asks_for_another_iteration_wins(door):
    async with serving("one", "two", "three. ALL DONE", verdict(True)) as server:
        watched = await through(door, agent_with(MARKER, JUDGE))
    assert watched.got.exit_reason is ExitReason.CONVERGED
    assert [each["continued_by"] for each in watched.iterations] == [
        "completionMarker",
        "completionMarker",
        None,
    ]
    # The judge cost nothing on the iterations that the marker kept going.
    assert asked(server) == ["worker", "worker", "worker", "judge"]


@pytest.mark.parametrize("door", DOORS)
async def test_the_loop_stops_only_when_every_criterion_is_satisfied(door):
    no = verdict(False, "Where are the sources?")
    async with serving("ALL DONE", no, "almost", "with sources. ALL DONE", verdict(True)) as server:
        watched = await through(door, agent_with(MARKER, JUDGE))
    assert watched.got.loop_iterations == 3
    assert [each["continued_by"] for each in watched.iterations] == [
        "aiJudge",
        "completionMarker",
        None,
    ]
    assert asked(server) == ["worker", "judge", "worker", "worker", "judge"]
    assert "Where are the sources?" in server.body(2)["messages"][-1]["content"]


@pytest.mark.parametrize("door", DOORS)
async def test_every_completed_iteration_writes_one_loop_iteration_event(door):
    async with serving("one", "two", "ALL DONE"):
        watched = await through(door, agent_with(MARKER))
    assert [each["iteration"] for each in watched.iterations] == [1, 2, 3]
    assert [each["continued"] for each in watched.iterations] == [True, True, False]
    assert [each["converged"] for each in watched.iterations] == [False, False, True]
    assert [each["has_feedback"] for each in watched.iterations] == [True, True, False]
    assert watched.events[-1].event is EventType.DONE


@pytest.mark.parametrize("door", DOORS)
async def test_by_default_an_unsatisfied_run_returns_the_last_response_as_a_success(door):
    async with serving("one", "two"):
        ceiling = await through(door, agent_with(MARKER, max_iterations=2))
    assert (ceiling.got.text, ceiling.got.exit_reason) == ("two", ExitReason.MAX_ITERATIONS)
    async with serving("one", down()):
        threw = await through(door, agent_with(JUDGE, max_iterations=2))
    assert (threw.got.text, threw.got.exit_reason) == ("one", ExitReason.CRITERION_ERROR)
    assert ceiling.events[-1].event is threw.events[-1].event is EventType.DONE


@pytest.mark.parametrize("door", DOORS)
async def test_each_of_the_two_settings_fails_its_own_case_only(door):
    async with serving("one", "two"):
        watched = await through(door, agent_with(MARKER, max_iterations=2, on_criterion_error=FAIL))
    assert watched.got.exit_reason is ExitReason.MAX_ITERATIONS
    async with serving("one", down()):
        watched = await through(door, agent_with(JUDGE, max_iterations=2, on_exhausted=FAIL))
    assert watched.got.exit_reason is ExitReason.CRITERION_ERROR


# ── DefaultMaxIterations, MaxIterations, Criteria ────────────────────────────────────────────────


@pytest.mark.parametrize("door", DOORS)
async def test_default_max_iterations_is_ten_and_applies_when_max_iterations_is_null(door):
    assert LoopSettings.DEFAULT_MAX_ITERATIONS == 10
    settings = LoopSettings(criteria=[MARKER], max_iterations=None)
    assert settings == LoopSettings(criteria=[MARKER])
    async with serving("never done") as server:
        watched = await through(door, agent_with(MARKER, max_iterations=None))
    assert len(server.requests) == watched.got.loop_iterations == 10


@pytest.mark.parametrize("bad", [0, -1, 2.5, "5", True, float("inf")])
def test_the_ceiling_is_never_left_open_and_must_be_greater_than_zero(bad):
    with pytest.raises(DefinitionError, match=r"max_iterations: is .*; must be"):
        LoopSettings(criteria=[MARKER], max_iterations=bad)


def test_a_refused_ceiling_is_the_config_error_that_every_bound_raises():
    with pytest.raises(ConfigError, match="is 0; must be 1 or more"):
        LoopSettings(criteria=[MARKER], max_iterations=0)


def test_criteria_are_required_and_at_least_one():
    with pytest.raises(DefinitionError, match="criteria: required"):
        LoopSettings()  # pyright: ignore[reportCallIssue]
    with pytest.raises(DefinitionError, match="criteria: is empty; must have at least one"):
        LoopSettings(criteria=[])


def test_criteria_keep_their_order():
    assert LoopSettings(criteria=[JUDGE, MARKER]).criteria == (JUDGE, MARKER)
    assert LoopSettings(criteria=[JUDGE, MARKER]) != LoopSettings(criteria=[MARKER, JUDGE])


# ── FreshContextPerIteration ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("door", DOORS)
async def test_by_default_an_iteration_carries_the_earlier_messages_forward(door):
    assert LoopSettings(criteria=[MARKER]).fresh_context_per_iteration is False
    async with serving("one", "two", "ALL DONE") as server:
        await through(door, agent_with(MARKER))
    first, second, third = (server.body(index)["messages"] for index in range(3))
    assert first == ASK
    assert second[:2] == [*ASK, {"role": "assistant", "content": "one"}]
    assert third[: len(second)] == second
    assert third[len(second)] == {"role": "assistant", "content": "two"}


@pytest.mark.parametrize("door", DOORS)
async def test_a_fresh_context_has_the_original_request_and_the_feedback_only(door):
    no, no_again = verdict(False, "No sources."), verdict(False, "No title.")
    async with serving("one", no, "two", no_again, "three", verdict(True)) as server:
        await through(door, agent_with(JUDGE, fresh_context_per_iteration=True))
    second, third = server.body(2)["messages"], server.body(4)["messages"]
    for messages in (second, third):
        assert messages[0] == ASK[0]
        assert [message["role"] for message in messages] == ["user", "user"]
    assert "No sources." in second[1]["content"]
    assert "No sources." in third[1]["content"]
    assert "No title." in third[1]["content"]
    assert "one" not in str(second)


# ── OnCriterionError ─────────────────────────────────────────────────────────────────────────────


def test_on_criterion_error_returns_the_last_response_by_default():
    assert LoopSettings(criteria=[MARKER]).on_criterion_error is RETURN


@pytest.mark.parametrize("door", DOORS)
async def test_a_criterion_that_throws_stops_the_loop_and_the_event_names_it(door):
    async with serving("one. ALL DONE", down()) as server:
        watched = await through(door, agent_with(MARKER, JUDGE))
    assert watched.got.text == "one. ALL DONE"
    assert watched.got.error is not None
    assert watched.got.error.startswith("ServerError: ")
    assert len(watched.iterations) == 1
    assert watched.iterations[0]["failed_criterion"] == "aiJudge"
    assert watched.iterations[0]["criterion_index"] == 1
    assert watched.iterations[0]["fails_run"] is False
    assert asked(server) == ["worker", "judge"]


@pytest.mark.parametrize("door", DOORS)
async def test_with_fail_run_an_unreachable_judge_stays_a_provider_error(door):
    async with serving("one", down()):
        watched = await through(door, agent_with(JUDGE, on_criterion_error=FAIL))
    assert isinstance(watched.error, ServerError)
    assert not isinstance(watched.error, LoopUnsatisfiedError)
    assert watched.error.status == 503
    assert watched.iterations[-1]["failed_criterion"] == "aiJudge"
    assert watched.iterations[-1]["fails_run"] is True
    assert watched.events[-1].event is EventType.ERROR
    assert watched.events[-1].data["error_type"] == "ServerError"


@pytest.mark.parametrize("outcome", [RETURN, FAIL])
async def test_the_runs_own_cancellation_is_never_a_criterion_error_in_either_mode(outcome):
    agent = agent_with(JUDGE, on_criterion_error=outcome)
    queue: asyncio.Queue[Any] = asyncio.Queue()
    is_judging = asyncio.Event()

    async def answer_never(writer: asyncio.StreamWriter) -> None:
        is_judging.set()
        await stall(writer)

    async with serving("one", [head(), answer_never]):
        run = asyncio.create_task(run_agent(agent, ASK, queue=queue))
        await is_judging.wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
    events = [queue.get_nowait() for _ in range(queue.qsize())]
    assert events[-1] is None
    assert events[-2].data["exit_reason"] == "cancelled"
    assert all(event.event is not EventType.LOOP_ITERATION for event in events[:-1])


@pytest.mark.parametrize("outcome", [RETURN, FAIL])
async def test_a_stream_that_is_left_while_a_judge_is_asked_ends_as_cancelled_in_either_mode(
    outcome,
):
    agent, log = agent_with(JUDGE, on_criterion_error=outcome), EventLog()
    is_judging = asyncio.Event()

    async def answer_never(writer: asyncio.StreamWriter) -> None:
        is_judging.set()
        await stall(writer)

    served = serving("one", [head(), answer_never])
    async with served, stream_agent(agent, ASK, log=log) as stream:
        await anext(stream)
        await is_judging.wait()
    last = log[-1]
    assert isinstance(last, RunEnded)
    assert last.reason is ExitReason.CANCELLED
    assert stream.result is not None
    assert stream.result.exit_reason is ExitReason.CANCELLED


# ── OnExhausted ──────────────────────────────────────────────────────────────────────────────────


def test_on_exhausted_returns_the_last_response_by_default():
    assert LoopSettings(criteria=[MARKER]).on_exhausted is RETURN


@pytest.mark.parametrize("door", DOORS)
async def test_with_fail_run_the_run_fails_as_loop_unsatisfied_and_the_last_event_says_so(door):
    async with serving("one", "two"):
        watched = await through(door, agent_with(MARKER, max_iterations=2, on_exhausted=FAIL))
    assert isinstance(watched.error, LoopUnsatisfiedError)
    assert watched.error.error_type == "loop_unsatisfied"
    assert [each["fails_run"] for each in watched.iterations] == [False, True]
    assert [each["ceiling_reached"] for each in watched.iterations] == [False, True]
    assert watched.events[-1].event is EventType.ERROR
    assert watched.events[-1].data["error_type"] == "loop_unsatisfied"
    assert watched.events[-1].data["exit_reason"] == "unsatisfied"


@pytest.mark.parametrize("door", DOORS)
async def test_by_default_the_turn_that_reaches_the_ceiling_is_not_evaluated(door):
    async with serving("one", verdict(False, "No."), "two") as server:
        watched = await through(door, agent_with(JUDGE, max_iterations=2))
    assert asked(server) == ["worker", "judge", "worker"]
    assert watched.got.exit_reason is ExitReason.MAX_ITERATIONS


@pytest.mark.parametrize("door", DOORS)
async def test_with_fail_run_the_last_iteration_is_evaluated_for_one_more_model_call(door):
    replies = ["one", verdict(False, "No."), "two", verdict(False, "No.")]
    async with serving(*replies) as server:
        watched = await through(door, agent_with(JUDGE, max_iterations=2, on_exhausted=FAIL))
    assert asked(server) == ["worker", "judge", "worker", "judge"]
    assert isinstance(watched.error, LoopUnsatisfiedError)


@pytest.mark.parametrize("door", DOORS)
async def test_with_fail_run_a_last_response_that_meets_every_criterion_is_not_refused(door):
    async with serving("one", verdict(False, "No."), "two", verdict(True)):
        watched = await through(door, agent_with(JUDGE, max_iterations=2, on_exhausted=FAIL))
    assert watched.got.exit_reason is ExitReason.CONVERGED
    assert watched.got.text == "two"


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("most", [1, 2, 4])
async def test_the_number_of_agent_runs_stays_max_iterations_in_both_modes(most, door):
    for outcome in (RETURN, FAIL):
        async with serving("never") as server:
            await through(door, agent_with(MARKER, max_iterations=most, on_exhausted=outcome))
        assert asked(server) == ["worker"] * most


@pytest.mark.parametrize("door", DOORS)
async def test_with_max_iterations_1_the_single_turn_is_evaluated_with_fail_run_only(door):
    async with serving("one") as server:
        watched = await through(door, agent_with(JUDGE, max_iterations=1))
    assert (asked(server), watched.got.exit_reason) == (["worker"], ExitReason.MAX_ITERATIONS)
    async with serving("one", verdict(True)) as server:
        watched = await through(door, agent_with(JUDGE, max_iterations=1, on_exhausted=FAIL))
    assert asked(server) == ["worker", "judge"]
    assert watched.got.exit_reason is ExitReason.CONVERGED


@pytest.mark.parametrize("door", DOORS)
async def test_a_streaming_caller_has_the_last_turns_text_before_the_failure(door):
    async with serving("one", verdict(False, "No."), "the last words", verdict(False, "No.")):
        watched = await through(door, agent_with(JUDGE, max_iterations=2, on_exhausted=FAIL))
    kinds = [event.event for event in watched.events]
    last_text = max(index for index, kind in enumerate(kinds) if kind is EventType.TEXT_DELTA)
    assert watched.text == "onethe last words"
    assert last_text < kinds.index(EventType.ERROR) == len(kinds) - 1


# ── Methods and operators ────────────────────────────────────────────────────────────────────────


def test_equals_compares_by_value_and_with_anything():
    same = LoopSettings(criteria=[LoopCriterion(kind="COMPLETIONMARKER", marker="ALL DONE")])
    assert LoopSettings(criteria=[MARKER]).__eq__(same) is True
    assert LoopSettings(criteria=[MARKER]) == same
    assert (LoopSettings(criteria=[MARKER]) != same) is False
    assert LoopSettings(criteria=[MARKER]) != LoopSettings(criteria=[MARKER], max_iterations=3)
    assert LoopSettings(criteria=[MARKER]) != LoopSettings(criteria=[MARKER], on_exhausted=FAIL)
    for other in (None, 3, "LoopSettings", MARKER, {"criteria": (MARKER,)}):
        assert LoopSettings(criteria=[MARKER]) != other


def test_equal_settings_have_one_hash_code():
    by_python = LoopSettings(criteria=[MARKER, JUDGE], max_iterations=3)
    by_file = LoopSettings.model_validate(
        {
            "criteria": [
                {"kind": "completionmarker", "marker": "ALL DONE"},
                {"kind": "aijudge", "judgeCriteria": ["The draft is ready to publish"]},
            ],
            "maxIterations": 3,
        }
    )
    assert by_python == by_file
    assert hash(by_python) == hash(by_file)
    assert len({by_python, by_file}) == 1


def test_to_string_shows_what_is_set():
    text = str(LoopSettings(criteria=[MARKER], max_iterations=3))
    assert "ALL DONE" in text
    assert "max_iterations=3" in text


def test_settings_never_change():
    settings = LoopSettings(criteria=[MARKER])
    for name in ("criteria", "max_iterations", "on_exhausted"):
        with pytest.raises(ValueError, match="frozen"):
            setattr(settings, name, None)
    with suppress(AttributeError):
        settings.criteria.append(JUDGE)  # pyright: ignore[reportAttributeAccessIssue]
    assert settings == LoopSettings(criteria=[MARKER])
