"""Whether a tool call may run: ``approve_tool`` and its answers."""

import asyncio
from typing import Any

import pytest

from tests.behaviour.kit import answers, ask, check_conversation, check_requests, watch
from tests.behaviour.manifest import requirement
from untildone import (
    Agent,
    AgentHooks,
    EventType,
    ExitReason,
    LoopConfig,
    resume_agent,
    run_agent,
)
from untildone.testing import EventLog, ScriptedModel, call, reply


class Desk:
    """A tool ``send``, and a person who is asked about its calls."""

    def __init__(self, *decisions: Any) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.sent: list[str] = []
        self._decisions = list(decisions)

    async def send(self, to: str) -> str:
        self.sent.append(to)
        return f"sent to {to}"

    async def approve(self, name: str, args: dict[str, Any]) -> Any:
        decision = self._decisions[len(self.asked) % len(self._decisions)]
        self.asked.append((name, args))
        if isinstance(decision, BaseException):
            raise decision
        return decision

    def agent(self, *script: Any, **settings: Any) -> Agent:
        hooks = AgentHooks(approve_tool=self.approve)
        return Agent("ada", ScriptedModel(script), tools=[self.send], hooks=hooks, **settings)


SEND = [reply(None, call("send", to="bob")), "Done."]


@requirement("approval.true-runs")
async def test_an_approved_call_runs_and_the_person_saw_its_tool_and_arguments():
    desk = Desk(True)
    result = await run_agent(desk.agent(*SEND), ask())
    assert desk.asked == [("send", {"to": "bob"})]
    assert desk.sent == ["bob"]
    assert answers(result.messages) == ["sent to bob"]


DENIALS = [
    pytest.param(False, id="False"),
    pytest.param("Bob is on holiday.", id="text"),
    pytest.param("", id="empty text"),
    pytest.param(0, id="0"),
    pytest.param(1, id="1 is not True"),
    pytest.param(RuntimeError("no one at the desk"), id="raises"),
    pytest.param(asyncio.CancelledError(), id="foreign cancel"),
]


@requirement("approval.denied-runs-nothing")
@pytest.mark.parametrize("decision", DENIALS)
async def test_a_denied_call_runs_nothing_and_is_answered(decision: Any):
    desk = Desk(decision)
    watched = await watch(desk.agent(*SEND))
    result = watched.result
    assert result is not None
    assert desk.sent == []
    assert result.text == "Done."
    (denied,) = result.tool_calls
    assert denied["is_error"] is True
    assert denied["result"].strip()
    check_conversation(result.messages)
    assert len(watched.data(EventType.TOOL_DENIED)) == 1
    assert watched.data(EventType.TOOL_RESULT) == []


@requirement("approval.reason-is-read")
async def test_the_model_reads_the_text_of_a_denial():
    result = await run_agent(Desk("Bob is on holiday.").agent(*SEND), ask())
    assert answers(result.messages) == ["Bob is on holiday."]


@requirement("approval.reason-is-read")
async def test_a_denial_can_be_sent_whatever_text_it_has():
    desk = Desk("no " * 500_000, "half \ud800")
    calls = [call("send", to="ann"), call("send", to="bob")]
    result = await run_agent(desk.agent(reply(None, calls), "Done."), ask())
    long, half = answers(result.messages)
    assert len(long) <= 50_000
    assert long.startswith("no no ")
    assert "characters left out" in long
    assert half == "half ?"


@requirement("approval.denied-runs-nothing")
async def test_in_a_batch_only_the_denied_calls_do_not_run():
    desk = Desk(True, False, "no", True)
    calls = [call("send", to=name) for name in ("ann", "bob", "cy", "di")]
    model_result = await run_agent(desk.agent(reply(None, calls), "Done."), ask())
    assert sorted(desk.sent) == ["ann", "di"]
    texts = answers(model_result.messages)
    assert (texts[0], texts[2], texts[3]) == ("sent to ann", "no", "sent to di")


@requirement("approval.denied-runs-nothing")
async def test_a_call_that_cannot_run_is_not_put_to_a_person():
    desk = Desk(True)
    calls = [call("send", to=5), call("sendd", to="bob"), call("send", _raw="[")]
    await run_agent(desk.agent(reply(None, calls), "Done."), ask())
    assert desk.asked == []


@requirement("approval.none-pauses", "exits.returned")
async def test_none_pauses_the_run_before_anything_else_happens():
    desk = Desk(None)
    agent = desk.agent(reply("I will write to Bob.", call("send", to="bob")))
    watched = await watch(agent)
    assert watched.result is not None
    assert watched.result.exit_reason is ExitReason.AWAITING_APPROVAL
    assert watched.result.text == "I will write to Bob."
    assert desk.sent == []
    (asked,) = watched.data(EventType.APPROVAL_REQUESTED)
    assert (asked["tool"], asked["args"]) == ("send", {"to": "bob"})
    assert watched.data(EventType.DONE)[0]["exit_reason"] == "awaiting_approval"


@requirement("approval.none-pauses", "approval.nothing-judged")
async def test_a_paused_iteration_is_not_judged_not_counted_and_the_last_one():
    judged: list[int] = []
    desk = Desk(None)
    loop = LoopConfig(
        max_iterations=5,
        stop_condition=lambda result: bool(judged.append(1)),
        convergence_fn=lambda result: bool(judged.append(2)),
    )
    script = ["A draft.", reply("Now I send it.", call("send", to="bob"))]
    watched = await watch(desk.agent(*script, loop_config=loop))
    assert watched.result is not None
    assert watched.result.exit_reason is ExitReason.AWAITING_APPROVAL
    assert watched.result.loop_iterations == 1
    assert judged == [1, 2]
    assert len(watched.data(EventType.LOOP_ITERATION)) == 1


@requirement("approval.none-pauses")
async def test_beside_a_waiting_call_the_approved_ones_run_once_and_for_all():
    desk, log = Desk(True, None, True), EventLog()
    calls = [call("send", _id=f"c{n}", to=name) for n, name in enumerate(("ann", "bob", "cy"))]
    agent = desk.agent(reply(None, calls), "Done.")
    paused = await run_agent(agent, ask(), log=log)
    assert paused.exit_reason is ExitReason.AWAITING_APPROVAL
    assert desk.sent == ["ann", "cy"]
    resumed = await resume_agent(agent, log[:], approvals={"c1": True})
    assert desk.sent == ["ann", "cy", "bob"]
    assert answers(resumed.messages) == ["sent to ann", "sent to bob", "sent to cy"]
    assert (resumed.text, resumed.exit_reason) == ("Done.", ExitReason.SATISFIED)


@requirement("approval.resume-with-decision")
@pytest.mark.parametrize(
    ("decision", "sent", "answer"),
    [(True, ["bob"], "sent to bob"), ("Not today.", [], "Not today."), (False, [], None)],
)
async def test_a_paused_run_goes_on_with_the_decision(decision, sent, answer):
    desk, log = Desk(None), EventLog()
    model = ScriptedModel([reply(None, call("send", _id="c1", to="bob")), "Done."])
    hooks = AgentHooks(approve_tool=desk.approve)
    agent = Agent("ada", model, tools=[desk.send], hooks=hooks)
    await run_agent(agent, ask(), log=log)
    result = await resume_agent(agent, log[:], approvals={"c1": decision})
    assert (result.text, result.exit_reason, result.turns) == ("Done.", ExitReason.SATISFIED, 2)
    assert desk.sent == sent
    assert len(desk.asked) == 1
    assert answer in (None, *answers(result.messages))
    check_requests(model)
