"""How runs end: which exits are returned, which are raised, and that the end is the end."""

import asyncio
import inspect
from typing import Any

import pytest

from tests.behaviour.endings import ENDINGS, RAISED, RETURNED, Ending, each
from tests.behaviour.kit import ask, check_conversation, drained, ended, settle, until, watch
from tests.behaviour.manifest import requirement
from untildone import (
    Agent,
    AgentResult,
    EventType,
    ExitReason,
    LoopConfig,
    LoopConvergedError,
    LoopOutcome,
    LoopUnsatisfiedError,
    MaxTurnsError,
    StuckPolicy,
    UntildoneError,
    Verifier,
    VerifierConfig,
    VerifierFeedback,
    event_to_dict,
    partial_result,
    run_agent,
    run_agent_loop,
    run_agent_sync,
)
from untildone.testing import EventLog, ScriptedModel, call, reply


@requirement("exits.returned")
@each(RETURNED)
async def test_these_exits_are_returned_as_a_result(ending: Ending):
    watched = await watch(ending.agent())
    assert watched.error is None
    assert watched.result is not None
    assert watched.result.exit_reason is ending.reason
    assert watched.result.text == ending.text


@requirement("exits.raised", "lost.partial-result")
@each(RAISED)
async def test_these_exits_are_raised_and_carry_the_best_so_far(ending: Ending):
    watched = await watch(ending.agent())
    assert watched.result is None
    assert type(watched.error) is ending.raises
    assert watched.error is not None
    result = partial_result(watched.error)
    assert result is not None
    assert result.exit_reason is ending.reason
    assert result.text == ending.text
    check_conversation(result.messages)
    if isinstance(watched.error, UntildoneError) and hasattr(watched.error, "result"):
        assert watched.error.result is result  # pyright: ignore[reportAttributeAccessIssue]


@requirement("exits.named-everywhere")
@each(ENDINGS)
async def test_the_exit_reason_stands_in_the_log_and_in_the_terminal_event(ending: Ending):
    log = EventLog()
    watched = await watch(ending.agent(), log=log)
    assert watched.events[-1].data["exit_reason"] == ending.reason.value
    last = event_to_dict(log[len(log) - 1])
    assert (last["type"], last["reason"]) == ("RunEnded", ending.reason.value)


@requirement("exits.terminal")
@each(ENDINGS)
async def test_after_the_end_nothing_is_logged_and_the_end_is_logged_once(ending: Ending):
    log = EventLog()
    await watch(ending.agent(), log=log)
    count = len(log)
    await settle()
    assert len(log) == count
    kinds = [event_to_dict(event)["type"] for event in log]
    assert kinds.count("RunEnded") == 1
    assert kinds[-1] == "RunEnded"


@requirement("exits.unsatisfied")
async def test_an_unsatisfied_run_has_s3s_error_type():
    watched = await watch(ENDINGS["unsatisfied"].agent())
    assert isinstance(watched.error, LoopUnsatisfiedError)
    assert watched.error.error_type == "loop_unsatisfied"
    assert watched.events[-1].data["error_type"] == "loop_unsatisfied"


@requirement("exits.named-everywhere", "lost.foreign-unchanged")
async def test_an_exception_of_a_run_inside_a_judge_does_not_lend_the_outer_run_its_exit():
    async def judge(_: Any) -> bool:
        await run_agent(ENDINGS["max_turns raising"].agent(), ask())
        return True

    loop = LoopConfig(criteria=[judge], on_criterion_error=LoopOutcome.FAIL_RUN)
    log = EventLog()
    watched = await watch(Agent("ada", ScriptedModel(["Hi."]), loop_config=loop), log=log)
    assert isinstance(watched.error, MaxTurnsError)
    assert event_to_dict(log[len(log) - 1])["reason"] == "criterion_error"
    assert watched.events[-1].data["exit_reason"] == "criterion_error"
    assert watched.events[-1].data["error_type"] == "MaxTurnsError"


@requirement("exits.named-everywhere", "events.done-or-error")
@pytest.mark.parametrize("with_result", [False, True])
async def test_a_run_that_a_predicate_ended_by_raising_is_done_with_that_reason(with_result: bool):
    def accept(result: AgentResult) -> bool:
        raise LoopConvergedError(AgentResult("ada", "mine") if with_result else None)

    loop = LoopConfig(convergence_fn=accept)
    watched = await watch(Agent("ada", ScriptedModel(["Hi."]), loop_config=loop))
    assert isinstance(watched.error, LoopConvergedError)
    assert watched.error.result is not None
    assert watched.error.result.text == ("mine" if with_result else "Hi.")
    assert watched.events[-1].event is EventType.DONE
    assert watched.events[-1].data["exit_reason"] == "stop_condition"
    assert watched.error.result.exit_reason is ExitReason.STOP_CONDITION


# ── Terminal is terminal ─────────────────────────────────────────────────────────────────────────


@requirement("exits.terminal")
async def test_after_stop_condition_no_grader_and_no_worker_is_called():
    called: list[str] = []

    async def grade(query: str, result: Any) -> VerifierFeedback:
        called.append("verifier")
        return VerifierFeedback(1.0)

    def accept(_: Any) -> bool:
        called.append("convergence_fn or criterion")
        return True

    loop = LoopConfig(
        stop_condition=lambda result: True,
        verifier=Verifier(VerifierConfig(evaluate_fn=grade)),
        convergence_fn=accept,
        criteria=[accept],
    )
    model = ScriptedModel(["Hi."])
    with pytest.raises(LoopConvergedError):
        await run_agent(Agent("ada", model, loop_config=loop), ask())
    assert called == []
    assert len(model.requests) == 1


@requirement("exits.terminal")
@pytest.mark.parametrize("exit_", ["max_turns", "stuck"])
async def test_after_the_last_batch_the_model_is_not_told_its_results(exit_: str):
    ran: list[str] = []

    async def look(where: str) -> str:
        ran.append(where)
        return "nothing"

    settings: dict[str, Any] = {
        "max_turns": {"max_turns": 5, "stuck": StuckPolicy(action="off")},
        "stuck": {"stuck": StuckPolicy(action="stop")},
    }[exit_]
    model = ScriptedModel(lambda seen: reply(None, call("look", where="attic")))
    result = await run_agent(Agent("ada", model, tools=[look], **settings), ask())
    assert result.exit_reason == exit_
    assert (len(model.requests), len(ran)) == (5, 5)


@requirement("exits.terminal")
async def test_after_a_failing_criterion_nothing_more_is_evaluated():
    asked: list[str] = []

    def first(_: Any) -> bool:
        asked.append("first")
        raise ValueError("first")

    def second(_: Any) -> bool:
        asked.append("second")
        return True

    model = ScriptedModel(["Hi."])
    loop = LoopConfig(criteria=[first, second])
    result = await run_agent(Agent("ada", model, loop_config=loop), ask())
    assert result.exit_reason is ExitReason.CRITERION_ERROR
    assert asked == ["first"]


@requirement("exits.first-cause")
async def test_a_cancellation_that_comes_after_the_end_does_not_change_how_it_ended():
    queue: asyncio.Queue[Any] = asyncio.Queue(maxsize=2)
    # AGENT_START and TEXT_DELTA are taken below; AGENT_DONE and DONE fill the queue, None waits.
    agent = Agent("ada", ScriptedModel(["Hi."]))
    log = EventLog()
    task = asyncio.create_task(run_agent(agent, ask(), queue=queue, log=log))
    taken = [await queue.get(), await queue.get()]
    await until(lambda: queue.full() and event_to_dict(log[len(log) - 1])["type"] == "RunEnded")
    await settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    result = partial_result(caught.value)
    assert result is not None
    assert (result.exit_reason, result.text) == (ExitReason.SATISFIED, "Hi.")
    rest = [queue.get_nowait() for _ in range(queue.qsize())]
    assert rest[-1] is None
    assert [event.event for event in taken] == ["agent_start", "text_delta"]
    assert all(event.data.get("exit_reason") in (None, "satisfied") for event in rest[:-1])


# ── Doors ────────────────────────────────────────────────────────────────────────────────────────


@requirement("doors.sync")
@each(ENDINGS)
def test_the_sync_door_returns_and_raises_the_same(ending: Ending):
    if ending is ENDINGS["cancelled"]:
        return  # its model cancels the task it runs in, which here is all there is
    if ending.raises is None:
        result = run_agent_sync(ending.agent(), ask())
    else:
        with pytest.raises(ending.raises) as caught:
            run_agent_sync(ending.agent(), ask())
        result = partial_result(caught.value)
    assert result is not None
    assert (result.exit_reason, result.text) == (ending.reason, ending.text)


@requirement("doors.sync")
async def test_the_sync_door_works_in_a_tool_that_runs_in_a_thread():
    def delegate() -> str:
        return run_agent_sync(ENDINGS["satisfied"].agent(), ask()).text

    agent = Agent("outer", ScriptedModel([reply(None, call("delegate")), "Ok."]), tools=[delegate])
    watched = await watch(agent)
    assert watched.result is not None
    assert watched.result.tool_calls[0]["result"] == "Hi."
    assert (watched.result.input_tokens, watched.result.output_tokens) == (30, 15)


@requirement("doors.s1-signature")
@pytest.mark.parametrize("door", [run_agent, run_agent_loop])
def test_the_doors_take_what_s1s_take(door: Any):
    parameters = inspect.signature(door).parameters
    assert list(parameters)[:5] == ["agent", "messages", "tool_defs", "queue", "agent_id"]
    assert [parameters[name].default for name in ("tool_defs", "queue", "agent_id")] == [None] * 3
    assert parameters["max_sync_tools"].default == 32


@requirement("doors.s1-signature")
async def test_s1s_call_by_keyword_runs_without_a_loop_config_as_one_agent_run():
    queue: asyncio.Queue[Any] = asyncio.Queue()
    result = await run_agent_loop(
        agent=Agent("drafter", ScriptedModel(["A draft."])),
        messages=ask("Draft an executive summary"),
        tool_defs=None,
        queue=queue,
        agent_id="drafter",
    )
    assert (result.text, result.loop_iterations) == ("A draft.", 0)
    assert ended(drained(queue))[-1].data["exit_reason"] == "satisfied"
