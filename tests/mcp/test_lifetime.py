"""When servers are opened, asked and closed; and that nothing else changes by having them."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from tests.behaviour.kit import ask, watch
from tests.behaviour.refine_kit import in_turn, scoring
from tests.mcp.kit import InProcess, in_process, results, run_calls
from untildone import (
    Agent,
    AgentHooks,
    ConfigError,
    ExitReason,
    LoopConfig,
    ResumeError,
    partial_result,
    resume_agent,
    run_agent,
)
from untildone.testing import EventLog, ScriptedModel, call, reply
from untildone.tools.mcp import StdioMCP


async def test_tools_are_listed_once_a_run_whatever_iterations_and_branches_it_has():
    log: list[str] = []
    loop = LoopConfig(max_iterations=3, branches=2, verifier=scoring(0.1, 0.1, 0.1))
    model = ScriptedModel(lambda seen: f"answer {seen.index}")
    agent = Agent("ada", model, mcps=[in_process(log)], loop_config=loop)
    result = await run_agent(agent, ask())
    assert result.loop_iterations == 3
    assert log == ["opened", "listed", "closed"]
    await run_agent(agent, ask())
    assert log == ["opened", "listed", "closed"] * 2


async def test_a_server_is_closed_before_the_queue_ends():
    log: list[str] = []
    queue: asyncio.Queue[Any] = asyncio.Queue()
    agent = Agent("ada", ScriptedModel(["Hi."]), mcps=[in_process(log)])
    closed_at: list[bool] = []

    async def read() -> None:
        while await queue.get() is not None:
            closed_at.append("closed" in log)

    reader = asyncio.create_task(read())
    await run_agent(agent, ask(), queue=queue)
    await reader
    assert closed_at[0] is False
    assert closed_at[-1] is True


async def test_given_tool_defs_open_no_server():
    log: list[str] = []
    agent = Agent("ada", ScriptedModel(["Hi."]), mcps=[in_process(log)])
    await run_agent(agent, ask(), tool_defs=[])
    assert log == []


async def test_functions_skills_and_servers_stand_side_by_side():
    async def halve(number: int) -> float:
        return number / 2

    log: list[str] = []
    result = await run_calls(
        in_process(log), [call("double", number=2), call("halve", number=3)], tools=[halve]
    )
    assert results(result) == ["4", "1.5"]


async def test_the_agents_own_tools_are_still_read_once_and_not_mixed_with_a_servers():
    async def halve(number: int) -> float:
        return number / 2

    model = ScriptedModel(lambda seen: "Hi.")
    server = in_process()
    agent = Agent("ada", model, tools=[halve], mcps=[server])
    await run_agent(agent, ask())
    await run_agent(agent, ask())
    assert [each.tool_names for each in model.requests] == [["halve", "double", "fail"]] * 2


@pytest.mark.parametrize("own", ["tools", "skills"])
async def test_a_name_that_the_agent_has_already_is_refused_and_told_how_to_go_on(own: str):
    async def double(number: int) -> int:
        return number

    log: list[str] = []
    model = ScriptedModel(["never"])
    settings: dict[str, Any] = {own: [double]}
    with pytest.raises(ConfigError, match=r"'in-process' has a tool 'double'.*in-process_"):
        await run_agent(Agent("ada", model, mcps=[in_process(log)], **settings), ask())
    assert model.requests == []
    assert log[-1] == "closed"


async def test_a_name_that_two_servers_have_is_refused_and_a_prefix_helps():
    model = ScriptedModel(["Hi."])
    with pytest.raises(ConfigError, match=r"a tool of the MCP server 'one'.*prefix="):
        await run_agent(
            Agent("ada", model, mcps=[in_process(name="one"), in_process(name="two")]), ask()
        )
    servers = [in_process(), in_process(prefix="second_")]
    await run_agent(Agent("ada", model, mcps=servers), ask())
    assert model.requests[0].tool_names == ["double", "fail", "second_double", "second_fail"]


async def test_only_the_chosen_tools_are_offered_and_unknown_ones_are_named():
    model = ScriptedModel(["Hi."])
    await run_agent(Agent("ada", model, mcps=[in_process(only=["fail"])]), ask())
    assert model.requests[0].tool_names == ["fail"]
    with pytest.raises(ConfigError, match=r"no tool 'nope'; its tools: double, fail"):
        await run_calls(in_process(only=["nope"]))


async def test_a_server_is_closed_on_every_path():
    def stop(result: Any) -> bool:
        return True

    class Weird(BaseException):
        pass

    async def pause(name: str, args: dict[str, Any]) -> None: ...

    calls = reply(None, call("double", number=1))
    paths: list[tuple[list[Any], dict[str, Any]]] = [
        (["Hi."], {}),
        ([calls], {"max_turns": 1}),
        ([calls], {"max_turns": 1, "on_max_turns": "raise"}),
        (["Hi."], {"loop_config": LoopConfig(stop_condition=stop)}),
        ([ZeroDivisionError("model")], {}),
        ([Weird()], {}),
        ([calls], {"hooks": AgentHooks(approve_tool=pause)}),
    ]
    for script, settings in paths:
        log: list[str] = []
        agent = Agent("ada", ScriptedModel(script), mcps=[in_process(log)], **settings)
        await watch(agent)
        assert log == ["opened", "listed", "closed"]


async def test_a_finished_answer_is_not_lost_when_the_run_is_cancelled_while_a_server_closes():
    closing, go_on = asyncio.Event(), asyncio.Event()

    @dataclass(frozen=True, eq=False)
    class Slow(InProcess):
        @asynccontextmanager
        async def transport(self, words: Any) -> AsyncGenerator[Any]:
            yield self.server
            closing.set()
            await go_on.wait()

    server = Slow(in_process().server, [])
    task = asyncio.create_task(
        run_agent(Agent("ada", ScriptedModel(["Hi."]), mcps=[server]), ask())
    )
    await closing.wait()
    task.cancel()
    await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    result = partial_result(caught.value)
    assert result is not None
    assert (result.text, result.exit_reason) == ("Hi.", ExitReason.SATISFIED)


# ── Resuming ─────────────────────────────────────────────────────────────────────────────────────


async def test_every_prefix_of_a_log_with_a_server_resumes_to_the_same_result():
    def script() -> list[Any]:
        return [
            reply(None, [call("double", "c1", number=2), call("fail", "c2")]),
            "first",
            reply(None, call("double", "c3", number=3)),
            "second",
        ]

    def agent(begun: int) -> Agent:
        loop = LoopConfig(convergence_fn=in_turn(False, True))
        return Agent("ada", ScriptedModel(script()[begun:]), mcps=[in_process()], loop_config=loop)

    log = EventLog()
    whole = await run_agent(agent(0), ask(), log=log)
    assert results(whole) == ["4", "Error: Error executing tool fail", "6"]
    for length in range(1, len(log) + 1):
        prefix = log[:length]
        replies = [type(event).__name__ for event in prefix].count("ModelCallReplied")
        resumed = await resume_agent(agent(replies), prefix)
        assert resumed.text == whole.text
        assert (resumed.turns, resumed.exit_reason) == (whole.turns, whole.exit_reason)
        started = [each for each in prefix if type(each).__name__ == "ToolStarted"]
        finished = [each for each in prefix if type(each).__name__ == "ToolFinished"]
        if len(started) == len(finished):
            assert resumed.messages == whole.messages


async def test_a_server_with_other_tools_now_is_another_configuration():
    log = EventLog()
    agent = Agent("ada", ScriptedModel(["Hi."]), mcps=[in_process()])
    await run_agent(agent, ask(), log=log)
    other = Agent("ada", ScriptedModel(["Hi."]), mcps=[in_process(only=["fail"])])
    with pytest.raises(ResumeError, match="another configuration"):
        await resume_agent(other, log[:1])


# ── Loading ──────────────────────────────────────────────────────────────────────────────────────


def test_the_sdk_is_not_loaded_before_a_run_needs_it():
    program = """
import asyncio, sys
from untildone import Agent, run_agent
from untildone.testing import ScriptedModel
from untildone.tools.mcp import HTTPMCP, SSEMCP, StdioMCP
agent = Agent("a", ScriptedModel(["x"]), mcps=[StdioMCP("x"), HTTPMCP("https://x"), SSEMCP("https://x")])
asyncio.run(run_agent(agent, [{"role": "user", "content": "q"}], tool_defs=[]))
print([name for name in ("mcp", "anyio", "httpx2", "jsonschema") if name in sys.modules])
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert ran.stdout == "[]\n"


async def test_without_the_sdk_the_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "mcp", None)
    seen = await watch(Agent("ada", ScriptedModel(["never"]), mcps=[StdioMCP("x")]))
    assert isinstance(seen.error, ConfigError)
    assert "pip install 'untildone[mcp]'" in str(seen.error)
    assert len(seen.events) == 1


async def test_other_runs_go_on_beside_one_with_a_server():
    reached, gate = asyncio.Event(), asyncio.Event()

    async def slow_model(seen: Any) -> str:
        reached.set()
        await gate.wait()
        return "Hi."

    waiting = asyncio.create_task(
        run_agent(Agent("a", ScriptedModel(slow_model), mcps=[in_process()]), ask())
    )
    await reached.wait()
    assert (await run_agent(Agent("b", ScriptedModel(["Ho."])), ask())).text == "Ho."
    gate.set()
    assert (await waiting).text == "Hi."
