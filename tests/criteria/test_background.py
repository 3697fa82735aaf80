"""``backgroundTaskCompletion`` and background tasks: started, waited for, told of, never lost."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from untildone import (
    Agent,
    AgentHooks,
    ConfigError,
    EventType,
    ExitReason,
    LoopConfig,
    LoopConvergedError,
    LoopOutcome,
    LoopUnsatisfiedError,
    resume_agent,
    run_agent,
    stream_agent,
    tool,
)
from untildone.criteria import CompletionMarker
from untildone.criteria.background import BackgroundTaskCompletion
from untildone.domain.errors import ToolError
from untildone.domain.log import ApprovalRequested, RunEnded
from untildone.testing import EventLog, ScriptedModel, call, reply
from untildone.tools import as_tool
from untildone.tools.background import BackgroundTask, BackgroundTasks
from untildone.tools.call_site import call_site

ASK = [{"role": "user", "content": "Render the film."}]


def worker(background: BackgroundTasks, script: Any, *, wait_s: float = 600, **settings: Any):
    loop = LoopConfig(criteria=[BackgroundTaskCompletion(background, wait_s=wait_s)], **settings)
    model = ScriptedModel(script)
    return Agent("worker", model, tools=[*background.tools], loop_config=loop), model


def start(function: str = "render", /, **arguments: Any):
    return reply(calls=call(f"start_{function}", **arguments))


def tool_texts(messages: list[dict[str, Any]]) -> list[str]:
    return [message["content"] for message in messages if message["role"] == "tool"]


def ids_in(text: str) -> list[str]:
    return re.findall(r"Task ([0-9a-f]{8})", text)


class Gate:
    """A function that goes on only when it is told to, and says when it has begun."""

    def __init__(self, gives: Any = "film.mp4") -> None:
        self.begun = asyncio.Event()
        self.opened = asyncio.Event()
        self.was_left = False
        self.gives = gives

    async def __call__(self) -> Any:
        """Renders."""
        self.begun.set()
        try:
            await self.opened.wait()
        except asyncio.CancelledError:
            self.was_left = True
            raise
        if isinstance(self.gives, BaseException):
            raise self.gives
        return self.gives


def gated(gate: Gate, name: str = "render") -> BackgroundTasks:
    return BackgroundTasks([tool(name=name)(gate.__call__)])


# ── In a loop ────────────────────────────────────────────────────────────────────────────────────


async def test_the_loop_waits_for_a_running_task_without_a_model_call_and_tells_what_it_gave():
    gate = Gate()
    background = gated(gate)
    agent, model = worker(background, [start(), "It renders.", "Here: film.mp4"])
    queue: asyncio.Queue[Any] = asyncio.Queue()
    run = asyncio.create_task(run_agent(agent, ASK, queue=queue))
    await gate.begun.wait()
    while (await queue.get()).event is not EventType.AGENT_DONE:
        pass
    for _ in range(50):
        await asyncio.sleep(0)
    assert not run.done()
    assert len(model.requests) == 2  # the agent has answered; nothing is asked while it renders
    gate.opened.set()
    result = await run
    assert (result.exit_reason, result.loop_iterations) == (ExitReason.CONVERGED, 2)
    assert result.text == "Here: film.mp4"
    told = model.requests[2].messages[-1]["content"]
    (task_id,) = ids_in(tool_texts(result.messages)[0])
    assert told == (
        "How the tasks stand that you started in the background:\n"
        f"Task {task_id} (render): finished\nfilm.mp4\n"
        "Use what they gave, and give your complete answer."
    )


async def test_a_task_the_agent_waited_for_itself_needs_no_further_iteration():
    async def render(scene: int) -> str:
        """Renders a scene."""
        return f"scene {scene} is film.mp4"

    background = BackgroundTasks([render])
    script = [start(scene=3), reply(calls=call("background_wait")), "Here: film.mp4"]
    agent, _ = worker(background, script)
    result = await run_agent(agent, ASK)
    assert (result.exit_reason, result.loop_iterations) == (ExitReason.CONVERGED, 1)
    started, waited = tool_texts(result.messages)
    (task_id,) = ids_in(started)
    assert started.startswith(f"Task {task_id} (render) was started.")
    assert waited == f"Task {task_id} (render): finished\nscene 3 is film.mp4"


async def test_a_run_that_started_nothing_is_satisfied_at_once():
    agent, _ = worker(gated(Gate()), ["nothing to do"])
    result = await run_agent(agent, ASK)
    assert (result.exit_reason, result.loop_iterations) == (ExitReason.CONVERGED, 1)


async def test_failed_tasks_have_ended_and_the_agent_is_told_why():
    gate = Gate(gives=OSError("disk full"))
    gate.opened.set()
    agent, model = worker(gated(gate), [start(), "started", "It failed: disk full"])
    result = await run_agent(agent, ASK)
    assert (result.exit_reason, result.loop_iterations) == (ExitReason.CONVERGED, 2)
    assert "(render): failed\nOSError: disk full" in model.requests[2].messages[-1]["content"]


async def test_what_a_tool_itself_says_of_its_failure_is_told_as_it_is():
    gate = Gate(gives=ToolError("no such scene"))
    gate.opened.set()
    agent, model = worker(gated(gate), [start(), "started", "sorry"])
    await run_agent(agent, ASK)
    assert "(render): failed\nno such scene\n" in model.requests[2].messages[-1]["content"]


async def test_a_task_that_outlasts_the_wait_costs_another_iteration_and_is_named():
    gate = Gate()
    agent, model = worker(gated(gate), [start(), "one", "two"], wait_s=0, max_iterations=2)
    result = await run_agent(agent, ASK)
    gate.opened.set()
    assert result.exit_reason is ExitReason.MAX_ITERATIONS
    told = model.requests[2].messages[-1]["content"]
    assert "(render): running\nWait for those that still run with background_wait.\n" in told


async def test_with_fail_run_a_task_that_never_ends_fails_the_run_at_the_ceiling():
    gate = Gate()
    async with gated(gate) as background:
        agent, _ = worker(
            background,
            [start(), "one", "two"],
            wait_s=0,
            max_iterations=2,
            on_exhausted=LoopOutcome.FAIL_RUN,
        )
        with pytest.raises(LoopUnsatisfiedError):
            await run_agent(agent, ASK)


async def test_with_a_fresh_context_a_task_that_was_told_of_in_feedback_is_known():
    gate = Gate()
    gate.opened.set()
    agent, model = worker(gated(gate), [start(), "started", "Here"], fresh_context=True)
    result = await run_agent(agent, ASK)
    assert (result.exit_reason, result.loop_iterations) == (ExitReason.CONVERGED, 2)
    assert "film.mp4" in model.requests[2].messages[-1]["content"]


async def test_many_tasks_run_at_once_and_are_told_of_together():
    gates = [Gate(gives=f"part {number}") for number in range(3)]
    functions = [tool(name=f"render_{number}")(gate.__call__) for number, gate in enumerate(gates)]
    calls = [call(f"start_render_{number}") for number in range(3)]
    agent, model = worker(BackgroundTasks(functions), [reply(calls=calls), "all run", "done"])
    run = asyncio.create_task(run_agent(agent, ASK))
    for gate in gates:
        await gate.begun.wait()
    for gate in reversed(gates):
        gate.opened.set()
    result = await run
    assert (result.exit_reason, result.loop_iterations) == (ExitReason.CONVERGED, 2)
    told = model.requests[2].messages[-1]["content"]
    assert re.findall(r"\((\w+)\): finished\n(.*)", told) == [
        ("render_0", "part 0"),
        ("render_1", "part 1"),
        ("render_2", "part 2"),
    ]


# ── The tools ────────────────────────────────────────────────────────────────────────────────────


async def test_the_list_tells_how_the_tasks_of_this_run_stand_at_once():
    gate = Gate()
    async with gated(gate) as background:
        script = [start(), reply(calls=call("background_list")), "x"]
        agent, _ = worker(background, script, wait_s=0, max_iterations=1)
        result = await run_agent(agent, ASK)
        started, listed = tool_texts(result.messages)
        assert listed == f"Task {ids_in(started)[0]} (render): running"
        other, _ = worker(background, [reply(calls=call("background_list")), "x"])
        result = await run_agent(other, ASK)
        assert tool_texts(result.messages) == ["No task was started."]


async def test_waiting_can_be_for_some_tasks_only_and_unknown_ones_are_refused():
    slow, quick = Gate(), Gate(gives="quick result")
    quick.opened.set()
    functions = [tool(name="slow")(slow.__call__), tool(name="quick")(quick.__call__)]

    def script(seen):
        texts = tool_texts(seen.messages)
        steps = [
            reply(calls=[call("start_slow"), call("start_quick")]),
            lambda: reply(calls=call("background_wait", ids=ids_in(texts[1]))),
            reply(calls=call("background_wait", ids=["00000000"])),
            lambda: reply(calls=call("background_wait", ids=ids_in(texts[0]), seconds=0)),
            "x",
        ]
        step = steps[[0, 0, 1, 2, 3, 4][len(texts)]]
        return step() if callable(step) else step

    async with BackgroundTasks(functions) as background:
        agent, _ = worker(background, script, wait_s=0, max_iterations=1)
        result = await run_agent(agent, ASK)
    texts = tool_texts(result.messages)
    assert texts[2].endswith("(quick): finished\nquick result")
    assert texts[3].startswith("Error: there is no task 00000000; there are: ")
    assert texts[4].endswith("(slow): running")


async def test_a_start_tool_has_the_parameters_of_its_function():
    def render(scene: int, quality: str = "low") -> str:
        """Renders a scene.

        Args:
            scene: Which one.
            quality: How well.
        """
        return f"{scene} {quality}"

    background = BackgroundTasks([render])
    spec = background.tools[0].spec
    assert spec.name == "start_render"
    assert spec.description == "Start in the background, and go on at once: Renders a scene."
    assert spec.parameters["properties"]["scene"]["type"] == "integer"
    assert spec.parameters["required"] == ["scene"]
    agent, _ = worker(background, [start(scene="three"), start(scene=3), "started", "done"])
    result = await run_agent(agent, ASK)
    refused, started = tool_texts(result.messages)
    assert "scene" in refused
    assert ids_in(refused) == []
    assert len(ids_in(started)) == 1


async def test_a_blocking_function_runs_in_a_thread_while_the_agent_goes_on():
    go, ran_in = threading.Event(), []

    def render() -> str:
        """Renders."""
        ran_in.append(threading.current_thread())
        go.wait(10)
        return "film.mp4"

    def open_the_gate(result: Any) -> bool:
        go.set()  # the agent has answered while the function was blocked
        return True

    background = BackgroundTasks([render])
    loop = LoopConfig(convergence_fn=open_the_gate, criteria=[BackgroundTaskCompletion(background)])
    model = ScriptedModel([start(), "started", "Here: film.mp4"])
    agent = Agent("worker", model, tools=[*background.tools], loop_config=loop)
    result = await run_agent(agent, ASK)
    assert (result.exit_reason, result.loop_iterations) == (ExitReason.CONVERGED, 2)
    assert "(render): finished\nfilm.mp4\n" in model.requests[2].messages[-1]["content"]
    assert ran_in[0] is not threading.main_thread()


async def test_outside_of_a_run_the_tools_say_so():
    background = gated(Gate())
    for each in background.tools:
        with pytest.raises(ToolError, match="background tasks belong to a run"):
            await each.run({}, None)  # pyright: ignore[reportArgumentType]


# ── Runs, processes, cancelling ──────────────────────────────────────────────────────────────────


async def test_each_run_has_its_own_tasks():
    async def render(name: str) -> str:
        """Renders."""
        await asyncio.sleep(0)
        return f"film of {name}"

    def script(seen):
        name = seen.messages[0]["content"]
        answers = [m for m in seen.messages if m["role"] == "assistant"]
        return [start(name=name), "started", f"done {name}"][len(answers)]

    agent, model = worker(BackgroundTasks([render]), script)
    names = [f"job {number}" for number in range(30)]
    found = await asyncio.gather(
        *(run_agent(agent, [{"role": "user", "content": name}]) for name in names)
    )
    assert [result.exit_reason for result in found] == [ExitReason.CONVERGED] * 30
    assert [result.loop_iterations for result in found] == [2] * 30
    for request in model.requests:
        messages = request.messages
        told = messages[-1]["content"] or ""
        if told.startswith("How the tasks stand"):
            assert f"film of {messages[0]['content']}\n" in told
            assert told.count("finished") == 1


async def test_a_task_whose_process_is_gone_is_lost_and_the_agent_is_told_once():
    gate, log = Gate(), EventLog()
    async with gated(gate) as background:
        agent, _ = worker(background, [start(), "one", "two"], wait_s=0, max_iterations=3)
        with pytest.raises(AssertionError, match="the script"):
            await run_agent(agent, ASK, log=log)
    ended = next(i for i, event in enumerate(log) if type(event).__name__ == "AgentRunEnded")
    elsewhere, model = worker(gated(Gate()), ["I know now."], wait_s=0, max_iterations=3)
    resumed = await resume_agent(elsewhere, log[: ended + 1])
    assert (resumed.exit_reason, resumed.loop_iterations) == (ExitReason.CONVERGED, 2)
    told = model.requests[0].messages[-1]["content"]
    assert "(render): lost\nThe process it ran in is gone.\n" in told


def alone() -> bool:
    """Whether nothing but the test itself runs in this event loop."""
    return asyncio.all_tasks() == {asyncio.current_task()}


def end_of(log: EventLog) -> RunEnded:
    """A run's last event."""
    last = log[-1]
    assert isinstance(last, RunEnded)
    return last


def the_task(background: BackgroundTasks, run_id: str) -> BackgroundTask:
    (task,) = background.tasks_of(run_id, [])
    return task


def once_begun(gate: Gate, text: str) -> Callable[[Any], Any]:
    """A line of a script that is said when the task has begun."""

    async def line(_seen: Any) -> str:
        await gate.begun.wait()
        return text

    return line


EXITS: dict[str, dict[str, Any]] = {
    "max_iterations": {"max_iterations": 1},
    "unsatisfied": {"max_iterations": 1, "on_exhausted": LoopOutcome.FAIL_RUN},
    "stop_condition": {"stop_condition": lambda result: True},
    "criterion_error": {"criteria": [lambda ctx: 1 / 0]},
}


@pytest.mark.parametrize("exit_reason", EXITS)
async def test_a_run_that_ends_takes_the_tasks_along_that_it_still_has(exit_reason: str):
    gate, log = Gate(), EventLog()
    background = gated(gate)
    agent, _ = worker(background, [start(), once_begun(gate, "started")], wait_s=0)
    loop = replace(agent.loop_config or LoopConfig(), **EXITS[exit_reason])
    with suppress(LoopUnsatisfiedError, LoopConvergedError):
        await run_agent(replace(agent, loop_config=loop), ASK, log=log)
    assert end_of(log).reason == exit_reason
    task = the_task(background, log[0].at.run)
    assert (task.state, task.report) == ("failed", "It was cancelled.")
    assert gate.was_left
    assert alone()


async def test_a_run_without_a_loop_takes_its_tasks_along_too():
    gate = Gate()
    background = gated(gate)
    model = ScriptedModel([start(), "started"])
    result = await run_agent(Agent("a", model, tools=[*background.tools]), ASK)
    assert the_task(background, result.run_id).state == "failed"
    assert alone()


async def test_so_does_a_run_that_fails():
    gate, log = Gate(), EventLog()
    background = gated(gate)
    agent, _ = worker(background, [start(), OSError("no network")])
    with pytest.raises(OSError, match="no network"):
        await run_agent(agent, ASK, log=log)
    assert the_task(background, log[0].at.run).state == "failed"
    assert alone()


@pytest.mark.parametrize("door", ["run_agent", "stream_agent"])
async def test_so_does_a_run_that_is_cancelled(door: str):
    gate, log = Gate(), EventLog()
    background = gated(gate)
    agent, _ = worker(background, [start(), "started"])
    if door == "run_agent":
        run = asyncio.create_task(run_agent(agent, ASK, log=log))
        await gate.begun.wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
    else:
        async with stream_agent(agent, ASK, log=log) as stream:
            await anext(stream)
            await gate.begun.wait()
    assert end_of(log).reason is ExitReason.CANCELLED
    assert the_task(background, log[0].at.run).state == "failed"
    assert gate.was_left
    assert alone()


async def test_a_run_that_waits_for_an_approval_has_ended_and_the_agent_is_told_when_it_goes_on():
    gate, log = Gate(), EventLog()
    background = gated(gate)

    @tool
    def publish() -> str:
        """Publishes."""
        return "published"

    async def ask_a_person(name: str, arguments: dict[str, Any]) -> bool | None:
        return None if name == "publish" else True

    agent, model = worker(
        background, [start(), reply(calls=call("publish")), "published", "it has to be begun anew"]
    )
    hooks = AgentHooks(approve_tool=ask_a_person)
    agent = replace(agent, tools=[*agent.tools, publish], hooks=hooks)
    waiting = await run_agent(agent, ASK, log=log)
    assert waiting.exit_reason is ExitReason.AWAITING_APPROVAL
    assert the_task(background, waiting.run_id).state == "failed"
    assert alone()
    (asked,) = [event for event in log if isinstance(event, ApprovalRequested)]
    resumed = await resume_agent(agent, list(log), approvals={asked.call_id: True})
    assert resumed.exit_reason is ExitReason.CONVERGED
    assert "(render): failed\nIt was cancelled.\n" in model.requests[3].messages[-1]["content"]


async def test_a_task_that_had_no_time_to_begin_has_ended_all_the_same():
    begun: list[str] = []

    async def render() -> str:
        """Renders."""
        begun.append("render")
        return "film"

    background = BackgroundTasks([render])
    task = background.start(as_tool(render), {}, "a run")
    await background.close_run("a run")
    assert (task.state, task.report, begun) == ("failed", "It was cancelled.", [])


async def test_the_end_of_a_run_touches_no_other_runs_tasks_and_none_that_code_started():
    """One ``BackgroundTasks`` serves many runs at once, each of which ends with its own."""
    gates = {f"job {number}": Gate(f"film of job {number}") for number in range(20)}
    gates["of code"] = Gate("tonight's film")

    async def render(name: str) -> str:
        """Renders."""
        return await gates[name]()

    async def script(seen):
        name = seen.messages[0]["content"]
        await (gates[name].begun.wait() if _said(seen) == 1 else asyncio.sleep(0))
        return [start(name=name), "started", f"done {name}"][_said(seen)]

    background = BackgroundTasks([render])
    patient, _ = worker(background, script)
    hasty = replace(patient, loop_config=None)
    shared = background.start(as_tool(render), {"name": "of code"}, "nightly")
    names = [f"job {number}" for number in range(20)]
    runs = [
        asyncio.create_task(
            run_agent(patient if index % 2 else hasty, [{"role": "user", "content": name}])
        )
        for index, name in enumerate(names)
    ]
    for name, run in list(zip(names, runs, strict=True))[0::2]:
        assert the_task(background, (await run).run_id).state == "failed"
        assert gates[name].was_left
    for name, run in list(zip(names, runs, strict=True))[1::2]:
        assert not gates[name].was_left
        gates[name].opened.set()
        result = await run
        assert result.exit_reason is ExitReason.CONVERGED
        assert the_task(background, result.run_id).report == f"film of {name}"
    assert shared.state == "running"
    gates["of code"].opened.set()
    assert shared.work is not None
    await shared.work
    assert (shared.state, shared.report) == ("finished", "tonight's film")


async def test_leaving_the_block_cancels_what_code_started():
    gate = Gate()
    async with gated(gate) as background:
        task = background.start(as_tool(gate.__call__), {}, "nightly")
        await gate.begun.wait()
        assert task.state == "running"
    assert (task.state, task.report) == ("failed", "It was cancelled.")
    assert alone()
    await background.aclose()


async def test_an_agent_in_the_background_costs_what_it_had_cost_when_the_run_took_it_along():
    """Its calls count for the run that started it, also where that run ends before it has."""
    helper_asked = asyncio.Event()

    @tool
    async def think() -> str:
        """Thinks for ever."""
        helper_asked.set()
        await asyncio.Event().wait()
        return ""

    helper = Agent("helper", ScriptedModel([reply(calls=call("think"))]), tools=[think])

    async def research() -> str:
        """Researches."""
        return (await run_agent(helper, ASK)).text

    background = BackgroundTasks([research])

    async def script(seen):
        if seen.index == 0:
            return start("research")
        await helper_asked.wait()
        return "enough"

    agent = Agent("a", ScriptedModel(script), tools=[*background.tools])
    result = await run_agent(agent, ASK)
    assert (result.turns, result.text) == (2, "enough")
    assert result.input_tokens == 30  # two calls of its own and the one of the helper, 10 each


async def test_a_tool_that_cannot_let_go_costs_no_answer(caplog: pytest.LogCaptureFixture):
    closed: list[str] = []

    class Holding:
        spec = as_tool(tool(name="hold")(lambda: "")).spec

        def parse(self, arguments: str) -> dict[str, Any]:
            return {}

        async def run(self, arguments: dict[str, Any], offload: Any) -> str:
            site = call_site()
            assert site is not None
            site.closers.add(self.close)
            return "held"

        async def close(self, run_id: str) -> None:
            closed.append(run_id)
            raise OSError("it is stuck")

    script = [reply(calls=[call("hold"), call("hold")]), "done"]
    agent = Agent("a", ScriptedModel(script), tools=[Holding()])
    with caplog.at_level("WARNING", "untildone"):
        result = await run_agent(agent, ASK)
    assert (result.text, result.exit_reason) == ("done", ExitReason.SATISFIED)
    assert closed == [result.run_id]
    assert "a tool could not end what it did for the run" in caplog.text


async def test_cancelling_the_run_while_it_waits_is_a_cancelled_run():
    gate = Gate()
    async with gated(gate) as background:
        agent, model = worker(background, [start(), "started"])
        run = asyncio.create_task(run_agent(agent, ASK))
        await gate.begun.wait()
        while len(model.requests) < 2:  # noqa: ASYNC110  the model has no event to wait for
            await asyncio.sleep(0)
        for _ in range(20):
            await asyncio.sleep(0)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run


async def test_ended_tasks_do_not_pile_up_for_ever(monkeypatch: pytest.MonkeyPatch):
    from untildone.tools import background as module

    monkeypatch.setattr(module, "_MOST_ENDED", 3)

    async def render() -> str:
        """Renders."""
        return "film"

    background = BackgroundTasks([render])
    agent, _ = worker(background, lambda seen: [start(), "x", "y"][min(2, _said(seen))])
    for _ in range(10):
        result = await run_agent(agent, ASK)
        assert result.exit_reason is ExitReason.CONVERGED
    assert len(background._others) <= 4
    assert not background._of_runs


async def test_what_tasks_gave_is_kept_while_their_run_goes_on_however_many_runs_there_are(
    monkeypatch: pytest.MonkeyPatch,
):
    """One ``BackgroundTasks`` serves a thousand runs: here ten, where three ended ones are kept."""
    from untildone.tools import background as module

    monkeypatch.setattr(module, "_MOST_ENDED", 3)
    runs, all_ended = 10, asyncio.Event()
    waiting: list[str] = []

    async def render(name: str) -> str:
        """Renders."""
        return f"film of {name}"

    async def script(seen: Any) -> Any:
        name = seen.messages[0]["content"]
        if _said(seen) == 1:
            waiting.append(name)
            if len(waiting) == runs:
                all_ended.set()
            await all_ended.wait()
        return [start(name=name), "started", f"done {name}"][_said(seen)]

    agent, model = worker(BackgroundTasks([render]), script)
    names = [f"job {number}" for number in range(runs)]

    async def begin(index: int, name: str) -> Any:
        for _ in range(20 * index):
            await asyncio.sleep(0)
        return await run_agent(agent, [{"role": "user", "content": name}])

    found = await asyncio.gather(*(begin(index, name) for index, name in enumerate(names)))
    assert [result.loop_iterations for result in found] == [2] * runs
    told = [request.messages[-1]["content"] or "" for request in model.requests]
    told = [text for text in told if text.startswith("How the tasks stand")]
    assert len(told) == runs
    assert all("): finished\nfilm of job " in text for text in told), told


async def test_a_task_of_a_kind_of_error_that_is_no_exception_has_failed():
    class Stop(BaseException):
        pass

    for gives in (Stop("no more"), SystemExit(2)):
        gate = Gate(gives=gives)
        gate.opened.set()
        agent, model = worker(gated(gate), [start(), "started", "It failed."])
        result = await run_agent(agent, ASK)
        assert (result.exit_reason, result.loop_iterations) == (ExitReason.CONVERGED, 2)
        assert "(render): failed\n" in model.requests[2].messages[-1]["content"]


async def test_a_task_that_somebody_cancelled_before_it_began_has_ended():
    background = gated(Gate())
    task = background.start(as_tool(Gate().__call__), {}, "nightly")
    assert task.work is not None
    task.work.cancel()
    with suppress(asyncio.CancelledError):
        await task.work
    (known,) = background.tasks_of("nightly", [])
    assert (known.state, known.report) == ("failed", "It was cancelled.")


# ── More reports than there is room for ──────────────────────────────────────────────────────────


def report_of(number: int) -> str:
    return f"BEGIN-{number} {'x' * 3900} END-{number}"


async def long_report(number: int) -> str:
    """Gives a long report."""
    return report_of(number)


def numbers_in(text: str) -> list[int]:
    """The reports that a text has as a whole; one that was cut fails the test."""
    begun = [int(number) for number in re.findall(r"BEGIN-(\d+) ", text)]
    assert all(report_of(number) in text for number in begun)
    assert len(re.findall(r" END-\d+", text)) == len(begun)
    return begun


@pytest.mark.parametrize("fresh", [False, True])
async def test_feedback_has_as_many_whole_reports_as_there_is_room_for_and_none_is_lost(
    fresh: bool,
):
    starts = reply(calls=[call("start_long_report", number=number) for number in range(10)])
    background = BackgroundTasks([long_report])
    script = [starts, *["answer"] * 4]
    agent, model = worker(background, script, max_iterations=9, fresh_context=fresh)
    result = await run_agent(agent, ASK)
    assert (result.exit_reason, result.loop_iterations) == (ExitReason.CONVERGED, 4)
    told = [request.messages[-1]["content"] for request in model.requests[2:]]
    if fresh:  # there the log of all feedback goes along
        assert sorted(numbers_in(told[-1])) == list(range(10))
        return
    assert [numbers_in(text) for text in told] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    waits = "for which there is no room here; call background_wait to see them"
    assert f"… and 6 more, {waits}" in told[0]
    assert f"… and 2 more, {waits}" in told[1]
    assert waits not in told[2]


async def test_the_agent_can_read_the_other_reports_itself_in_one_iteration():
    """What it has not seen comes first, each time it asks."""

    def script(seen: Any) -> Any:
        said = _said(seen)
        if said == 0:
            return reply(calls=[call("start_long_report", number=n) for n in range(30)])
        return "answer" if said in (1, 5) else reply(calls=call("background_wait"))

    agent, model = worker(BackgroundTasks([long_report]), script, max_iterations=9)
    result = await run_agent(agent, ASK)
    assert (result.exit_reason, result.loop_iterations) == (ExitReason.CONVERGED, 2)
    texts = [text for text in tool_texts(result.messages) if "BEGIN" in text]
    fed = numbers_in(str(model.requests[2].messages[-1]["content"]))
    seen = [numbers_in(text) for text in texts]
    assert fed == [0, 1, 2, 3]
    assert seen[0] == list(range(4, 14))
    assert sorted({*fed, *seen[0], *seen[1], *seen[2]}) == list(range(30))


async def test_a_report_that_was_cut_on_its_way_does_not_count_as_told():
    """Another criterion's words can push it over the limit of one feedback."""
    background = BackgroundTasks([long_report])
    inner = BackgroundTaskCompletion(background)

    async def with_many_words(ctx: Any) -> Any:
        verdict = await inner.evaluate(ctx)
        if ctx.iteration == 1 and verdict.feedback is not None:
            return False, f"{'y' * 8_000}\n{verdict.feedback}\n{'z' * 17_000}"
        return verdict

    script = [start("long_report", number=7), "one", "two", "three"]
    agent, model = worker(background, script)
    agent = replace(agent, loop_config=LoopConfig(criteria=[with_many_words]))
    result = await run_agent(agent, ASK)
    assert (result.exit_reason, result.loop_iterations) == (ExitReason.CONVERGED, 3)
    cut, whole = (request.messages[-1]["content"] for request in model.requests[2:])
    assert "(long_report): finished\nBEGIN-7 " in cut
    assert report_of(7) not in cut
    assert numbers_in(whole) == [7]


async def test_with_a_fresh_context_a_task_that_was_lost_in_an_earlier_iteration_is_told_of():
    def agent_of(background: BackgroundTasks, script: Any) -> Agent:
        criteria = [CompletionMarker("DONE"), BackgroundTaskCompletion(background, wait_s=0)]
        loop = LoopConfig(criteria=criteria, max_iterations=5, fresh_context=True)
        tools = [*background.tools]
        return Agent("w", ScriptedModel(script), tools=tools, loop_config=loop)

    log = EventLog()
    async with gated(Gate()) as background:
        with pytest.raises(AssertionError, match="the script"):
            await run_agent(agent_of(background, [start(), "not yet"]), ASK, log=log)
    refined = next(i for i, event in enumerate(log) if type(event).__name__ == "Refined")
    elsewhere = agent_of(gated(Gate()), ["DONE", "DONE again"])
    resumed = await resume_agent(elsewhere, log[: refined + 1])
    assert (resumed.exit_reason, resumed.loop_iterations) == (ExitReason.CONVERGED, 3)
    assert "(render): lost\n" in resumed.messages[-2]["content"]


def _said(seen: Any) -> int:
    return sum(message["role"] == "assistant" for message in seen.messages)


# ── Bounds ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("functions", [[], None, "render", 3, len])
def test_what_is_no_list_of_functions_is_refused(functions: Any):
    with pytest.raises(ConfigError, match="BackgroundTasks takes a list of functions"):
        BackgroundTasks(functions)


def test_what_is_no_function_is_refused():
    with pytest.raises(ConfigError, match="which is no tool"):
        BackgroundTasks([3])


def test_a_name_that_gets_too_long_is_refused():
    long: Callable[[], str] = tool(name="x" * 60)(lambda: "")
    with pytest.raises(ConfigError, match="at most 64"):
        BackgroundTasks([long])


@pytest.mark.parametrize("wait_s", [-1, float("nan"), float("inf"), True, "5"])
def test_the_wait_is_a_finite_number_of_seconds(wait_s: Any):
    with pytest.raises(ConfigError, match=r"BackgroundTaskCompletion.wait_s is"):
        BackgroundTaskCompletion(gated(Gate()), wait_s=wait_s)


def test_the_criterion_needs_the_tasks():
    with pytest.raises(ConfigError, match="takes BackgroundTasks, not None"):
        BackgroundTaskCompletion(None)  # pyright: ignore[reportArgumentType]


def test_its_kind_is_the_name_that_events_use():
    criterion = BackgroundTaskCompletion(gated(Gate()))
    assert criterion.kind == "backgroundTaskCompletion"
    assert repr(criterion) == "BackgroundTaskCompletion(BackgroundTasks([render]))"
