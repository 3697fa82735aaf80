from __future__ import annotations

import asyncio
import queue as threads_queue
import sys
from typing import Any

import pytest

from tests.behaviour.manifest import requirement
from untildone import (
    Agent,
    AgentHooks,
    APEXSynthesizer,
    ConfigError,
    ExitReason,
    FallbackChain,
    LoopConfig,
    ResumeError,
    ServerError,
    Usage,
    Verifier,
    VerifierConfig,
    VerifierFeedback,
    partial_result,
    resume_agent,
    run_agent,
)
from untildone.domain.log import ModelCallReplied
from untildone.policy.json_reply import json_candidates
from untildone.testing import EventLog, ScriptedModel, call, reply
from untildone.verify.apex import split_confidence

ASK = [{"role": "user", "content": "q"}]


async def _kept_to_itself(seen: asyncio.Event) -> None:
    seen.set()
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        return


async def _cancelled_while(seen: asyncio.Event, agent: Agent) -> None:
    task = asyncio.create_task(run_agent(agent, ASK))
    await seen.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("place", ["predicate", "grader", "criterion", "hook", "model"])
@requirement("attacks.swallowed-cancellation")
async def test_a_cancellation_that_somebody_swallows_still_ends_the_run(place: str):
    seen = asyncio.Event()
    calls: list[str] = []

    async def predicate(_: Any) -> bool:
        await _kept_to_itself(seen)
        return False

    async def grader(_query: str, _result: Any) -> VerifierFeedback:
        await _kept_to_itself(seen)
        return VerifierFeedback(0.1)

    async def hook() -> None:
        await _kept_to_itself(seen)

    async def speak(_: Any) -> str:
        calls.append("model")
        if place == "model":
            await _kept_to_itself(seen)
        return "text"

    verifier = Verifier(VerifierConfig(evaluate_fn=grader))
    agent = Agent(
        "a",
        ScriptedModel(speak),
        hooks=AgentHooks(on_agent_start=hook) if place == "hook" else None,
        loop_config=LoopConfig(
            max_iterations=8,
            convergence_fn=predicate if place == "predicate" else None,
            verifier=verifier if place == "grader" else None,
            criteria=[predicate] if place == "criterion" else [],
        ),
    )
    await _cancelled_while(seen, agent)
    assert len(calls) == (0 if place == "hook" else 1)


@requirement("attacks.swallowed-cancellation")
async def test_a_client_that_renames_the_cancellation_is_neither_retried_nor_replaced():
    seen = asyncio.Event()
    others: list[str] = []

    async def rename(_: Any) -> str:
        seen.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            raise ServerError("connection closed") from error
        return ""

    async def other(_: Any) -> str:
        others.append("called")
        return "other"

    chain = FallbackChain([ScriptedModel(other)])
    await _cancelled_while(seen, Agent("a", ScriptedModel(rename), fallback_chain=chain))
    assert others == []


@requirement("attacks.swallowed-cancellation")
async def test_a_tool_does_not_run_after_an_approval_that_swallowed_the_cancellation():
    seen = asyncio.Event()
    ran: list[int] = []

    async def approve(_tool: str, _args: dict[str, Any]) -> bool:
        await _kept_to_itself(seen)
        return True

    def pay(x: int) -> str:
        ran.append(x)
        return "paid"

    model = ScriptedModel([reply(None, call("pay", x=1)), "done"])
    agent = Agent("a", model, tools=[pay], hooks=AgentHooks(approve_tool=approve))
    await _cancelled_while(seen, agent)
    assert ran == []


@requirement("attacks.doubled-ids")
async def test_of_two_waiting_calls_with_one_id_the_one_that_was_meant_is_run():
    ran: list[int] = []

    def pay(x: int) -> str:
        ran.append(x)
        return "paid"

    async def ask_a_person(_tool: str, _args: dict[str, Any]) -> None:
        return None

    def agent(*script: Any) -> Agent:
        hooks = AgentHooks(approve_tool=ask_a_person)
        return Agent("a", ScriptedModel(script), tools=[pay], hooks=hooks)

    log = EventLog()
    calls = [call("pay", _id="x", x=1), call("pay", _id="x", x=1_000_000)]
    queue: asyncio.Queue[Any] = asyncio.Queue()
    await run_agent(agent(reply(None, calls)), ASK, log=log, queue=queue)
    shown = [queue.get_nowait() for _ in range(queue.qsize())]
    keys = [event.data["approval_key"] for event in shown if event and "approval_key" in event.data]
    assert keys == ["0.0.1.0", "0.0.1.1"]
    with pytest.raises(ResumeError, match=r"'x': more than one call has this id"):
        await resume_agent(agent("done"), log.events, approvals={"x": True})
    decided = {"0.0.1.0": True, "0.0.1.1": "too much"}
    result = await resume_agent(agent("done"), log.events, approvals=decided)
    assert ran == [1]
    assert [made["result"] for made in result.tool_calls] == ["paid", "too much"]


@requirement("attacks.mixed-logs")
async def test_a_log_of_two_runs_is_refused():
    agent = Agent("a", ScriptedModel(lambda _: "answer"))
    log = EventLog()
    await run_agent(agent, [{"role": "user", "content": "ALICE"}], log=log)
    await run_agent(agent, [{"role": "user", "content": "BOB"}], log=log)
    with pytest.raises(ResumeError, match="events of 2 runs"):
        await resume_agent(agent, log.events)


@requirement("attacks.stale-reply")
async def test_an_unused_judge_reply_never_grades_the_next_iteration():
    grades = iter(["0.1", "0.95"])
    judge = ScriptedModel(lambda _: f'{{"issues": [], "suggestion": "", "score": {next(grades)}}}')
    loop = LoopConfig(max_iterations=2, verifier=Verifier(VerifierConfig(judge)))
    log = EventLog()
    await run_agent(Agent("a", ScriptedModel(["one", "two"]), loop_config=loop), ASK, log=log)
    judged = next(
        position
        for position, event in enumerate(log.events)
        if isinstance(event, ModelCallReplied) and event.purpose == "judge"
    )
    # The verdict is in the log, so what the judge said for it is used up: iteration 2 asks anew.
    later = iter(["0.95"])
    judge = ScriptedModel(lambda _: f'{{"issues": [], "suggestion": "", "score": {next(later)}}}')
    loop = LoopConfig(max_iterations=2, verifier=Verifier(VerifierConfig(judge)))
    agent = Agent("a", ScriptedModel(["two"]), loop_config=loop)
    result = await resume_agent(agent, log.events[: judged + 2])
    assert result.scores == [0.1, 0.95]


@pytest.mark.parametrize("kind", [ValueError, ConfigError])
@requirement("attacks.long-errors")
async def test_a_long_error_of_a_tool_is_cut(kind: type[Exception]):
    def boom() -> str:
        raise kind("x" * 5_000_000)

    model = ScriptedModel([reply(None, call("boom")), "done"])
    result = await run_agent(Agent("a", model, tools=[boom]), ASK)
    assert len(result.messages[-2]["content"]) <= 50_000


@requirement("attacks.long-errors")
async def test_long_issues_of_a_grader_are_cut():
    async def grade(_query: str, _result: Any) -> VerifierFeedback:
        return VerifierFeedback(0.1, ["i" * 5_000_000] * 3)

    model = ScriptedModel(["one", "two"])
    loop = LoopConfig(max_iterations=2, verifier=Verifier(VerifierConfig(evaluate_fn=grade)))
    await run_agent(Agent("a", model, loop_config=loop), ASK)
    assert len(model.requests[1].messages[-1]["content"]) <= 20_000


@requirement("attacks.explicit-synthesizer")
async def test_an_own_synthesizer_counts_for_the_run():
    dear = ScriptedModel(["merged"], usage=Usage(input_tokens=1000, output_tokens=500))
    loop = LoopConfig(max_iterations=1, branches=2, synthesizer=APEXSynthesizer(dear))
    result = await run_agent(Agent("a", ScriptedModel(["one", "two"]), loop_config=loop), ASK)
    assert (result.text, result.input_tokens, result.output_tokens) == ("merged", 1020, 510)


@requirement("attacks.fallback-for-judges")
async def test_the_fallback_chain_also_judges_and_merges():
    down = ScriptedModel(lambda _: ServerError("down"))
    good = '{"issues": [], "suggestion": "", "score": 0.9}'
    chain = FallbackChain([ScriptedModel(["draft", good])])
    agent = Agent("a", down, fallback_chain=chain, loop_config=LoopConfig(verifier=Verifier()))
    result = await run_agent(agent, ASK)
    assert (result.exit_reason, result.text) == (ExitReason.CONVERGED, "draft")
    chain = FallbackChain([ScriptedModel(["one", "two", "merged"])])
    loop = LoopConfig(max_iterations=1, branches=2)
    result = await run_agent(Agent("a", down, fallback_chain=chain, loop_config=loop), ASK)
    assert result.text == "merged"


@requirement("attacks.failed-merge")
async def test_a_failed_merge_sends_the_first_candidate_forward():
    model = ScriptedModel(["one", "two", ServerError("down")])
    loop = LoopConfig(max_iterations=1, branches=2)
    result = await run_agent(Agent("a", model, loop_config=loop), ASK)
    assert (result.text, result.exit_reason) == ("one", ExitReason.MAX_ITERATIONS)


@requirement("attacks.best-candidate")
async def test_candidates_that_answered_are_the_partial_result_of_a_cancelled_run():
    waiting = asyncio.Event()

    async def speak(seen: Any) -> str:
        if seen.request.at.branch == 0:
            waiting.set()
            await asyncio.Event().wait()
        return f"good {seen.request.at.branch}"

    loop = LoopConfig(branches=3, convergence_fn=lambda _: True)
    task = asyncio.create_task(run_agent(Agent("a", ScriptedModel(speak), loop_config=loop), ASK))
    await waiting.wait()
    for _ in range(20):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    result = partial_result(caught.value)
    assert result is not None
    assert result.text == "good 1"


@requirement("attacks.endless-whitespace")
def test_readers_of_replies_look_at_whitespace_once():
    endless = "```json" + "\n" * 200_000
    assert json_candidates(endless) == ["```json"]
    assert split_confidence("a " + " " * 200_000 + "x")[1] is None


@requirement("attacks.empty-merge")
async def test_an_empty_merge_is_not_sent_back():
    model = ScriptedModel(["one", "two", "CONFIDENCE: 0.3", "three", "four", "merged"])
    loop = LoopConfig(max_iterations=2, branches=2)
    await run_agent(Agent("a", model, loop_config=loop), ASK)
    _, sent_back, _ = model.requests[3].messages
    assert (sent_back["role"], sent_back["content"]) == ("assistant", "one")


@requirement("attacks.exiting-tool")
@pytest.mark.parametrize("is_async", [False, True])
async def test_a_tool_that_exits_has_failed(is_async: bool):
    def leave() -> str:
        sys.exit(2)

    async def leave_async() -> str:
        sys.exit(2)

    function = leave_async if is_async else leave
    model = ScriptedModel([reply(None, call(function.__name__)), "done"])
    result = await run_agent(Agent("a", model, tools=[function]), ASK)
    assert result.tool_calls[0]["is_error"]
    assert "SystemExit" in result.tool_calls[0]["result"]


@pytest.mark.parametrize("queue", [threads_queue.Queue(), "x", 5, asyncio.Queue])
@requirement("attacks.bad-doors")
async def test_what_is_no_queue_is_refused(queue: Any):
    with pytest.raises(ConfigError, match=r"queue must be an asyncio\.Queue"):
        await run_agent(Agent("a", ScriptedModel(["x"])), ASK, queue=queue)


@pytest.mark.parametrize("log", ["run.jsonl", 5, print, [5], EventLog, None])
@requirement("attacks.bad-doors")
async def test_what_is_no_sink_is_refused_and_the_queue_ends(log: Any):
    queue: asyncio.Queue[Any] = asyncio.Queue()
    with pytest.raises(ConfigError, match=r"log must be an object with a plain write"):
        await run_agent(Agent("a", ScriptedModel(["x"])), ASK, log=log, queue=queue)
    assert [queue.get_nowait() for _ in range(queue.qsize())][-1] is None


@pytest.mark.parametrize("log", [[{"type": "RunStarted"}], "x", 5, [], None])
@requirement("attacks.bad-doors")
async def test_what_is_no_log_is_refused_and_the_queue_ends(log: Any):
    queue: asyncio.Queue[Any] = asyncio.Queue()
    with pytest.raises(ResumeError, match="event_from_dict"):
        await resume_agent(Agent("a", ScriptedModel(["x"])), log, queue=queue)
    assert [queue.get_nowait() for _ in range(queue.qsize())][-1] is None


@pytest.mark.parametrize(
    "messages", [None, 5, "hi", {"role": "user"}, [{"role": "user", "content": ["hi"]}]]
)
@requirement("attacks.bad-doors")
async def test_what_is_no_conversation_is_refused(messages: Any):
    with pytest.raises(ConfigError, match="messages"):
        await run_agent(Agent("a", ScriptedModel(["x"])), messages)


@pytest.mark.parametrize(
    "settings",
    [
        {"verifier": Verifier},
        {"synthesizer": "x"},
        {"adaptive": "no"},
        {"evaluate_final": "false"},
    ],
)
@requirement("attacks.bad-doors")
def test_a_loop_setting_of_the_wrong_kind_is_refused_by_name(settings: dict[str, Any]):
    name = next(iter(settings))
    with pytest.raises(ConfigError, match=rf"LoopConfig\.{name}"):
        LoopConfig(branches=2, **settings)
