"""Servers started as programs: one made with the SDK, one that misbehaves in every way."""

import asyncio
import hashlib
import logging
import sys
from typing import Any

import pytest

from tests.behaviour.kit import ask, check_requests, other_tasks, settle, watch
from tests.mcp.kit import SERVERS, is_running, raw, results, run_calls, sdk_stdio
from untildone import Agent, AgentHooks, EventType, MCPError, run_agent
from untildone.testing import ScriptedModel, call, reply
from untildone.tools.mcp import StdioMCP
from untildone.tools.mcp_connection import LastWords

DIED = (
    "Error: the MCP server broke down during this call; whether the call had an effect is not"
    " known. The next call connects to it anew."
)


async def test_the_tools_of_an_sdk_server_are_used_like_functions():
    result = await run_calls(
        sdk_stdio(),
        [call("add", a=1, b=2), call("words", text="a b"), call("boom"), call("picture")],
    )
    digest = hashlib.sha256(b"iVBORy4uLi4=").hexdigest()[:12]
    assert [each["result"] for each in result.tool_calls] == [
        "3",
        "a\nb",
        "Error: Error executing tool boom",
        f"[attachment 1: image/png, 8 bytes, sha256 {digest}]",
    ]
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORy4uLi4="}}
    assert results(result)[3] == [
        {"type": "text", "text": f"[attachment 1: image/png, 8 bytes, sha256 {digest}]"},
        picture,
    ]
    assert [each["is_error"] for each in result.tool_calls] == [False, False, True, False]


async def test_the_model_is_told_what_the_server_says_of_its_tools():
    model = ScriptedModel(["Done."])
    await run_agent(Agent("ada", model, mcps=[raw(prefix="r_")]), ask())
    spec = model.requests[0].request.tools.specs[0].to_dict()["function"]
    assert spec == {
        "name": "r_echo",
        "description": "Does echo.",
        "parameters": {
            "type": "object",
            "properties": {"text": {"type": "string"}},
            "required": ["text"],
        },
    }


async def test_all_pages_of_tools_are_asked_for_once_and_in_order():
    model = ScriptedModel([reply(None, call("pid")), reply(None, call("pid")), "Done."])
    result = await run_agent(Agent("ada", model, mcps=[raw()]), ask())
    assert model.requests[0].tool_names == (
        ["echo", "pid", "die", "hang", "flood", "noise", "pair", "huge", "fail", "refuse", "long"]
    )
    assert {text.split()[1] for text in results(result)} == {"3"}
    check_requests(model)


async def test_one_process_serves_the_whole_run_and_is_gone_after_it():
    result = await run_calls(raw(), call("pid"), [call("pid"), call("pid")])
    (pid,) = {int(text.split()[0]) for text in results(result)}
    assert not is_running(pid)
    assert other_tasks() == set()


async def test_two_runs_at_once_have_a_process_each():
    server = raw()
    runs = await asyncio.gather(*(run_calls(server, call("pid")) for _ in range(3)))
    assert len({results(each)[0] for each in runs}) == 3


# ── What may go wrong in a call ──────────────────────────────────────────────────────────────────


async def test_a_server_that_dies_costs_one_error_and_is_started_anew(caplog: Any):
    with caplog.at_level(logging.WARNING, "untildone"):
        result = await run_calls(
            raw(), call("pid"), call("die"), call("pid"), call("echo", text="still here")
        )
    first, died, second, echoed = results(result)
    assert died == DIED
    assert first.split()[0] != second.split()[0]
    assert echoed == "still here"
    assert result.text == "Done."
    assert "broke down in a call of 'die'" in caplog.text


async def test_calls_that_were_under_way_when_it_died_are_each_answered():
    result = await run_calls(raw(), [call("hang"), call("die"), call("hang")], call("pid"))
    assert results(result)[:3] == [DIED] * 3
    assert results(result)[3].split()[1] == "3"


async def test_a_server_that_hangs_costs_the_time_limit_and_one_error():
    result = await run_calls(
        raw(timeout_s=1), [call("hang"), call("echo", text="meanwhile")], call("echo", text="on")
    )
    hung, meanwhile, on = results(result)
    assert hung == (
        "Error: timed out: the MCP server gave no result within 1 s; whether the call had an"
        " effect is not known"
    )
    assert (meanwhile, on) == ("meanwhile", "on")


async def test_a_server_that_floods_stderr_is_not_blocked():
    result = await run_calls(raw(), call("flood"))
    assert results(result) == ["after three million characters"]


async def test_answers_out_of_order_find_their_calls():
    result = await run_calls(raw(), [call("pair", text="one"), call("pair", text="two")])
    assert results(result) == ["answer to one", "answer to two"]


async def test_noise_between_the_messages_is_passed_over():
    result = await run_calls(raw(), call("noise"), call("echo", text="fine"))
    assert results(result) == ["after noise", "fine"]


async def test_results_are_cut_like_those_of_other_tools_errors_too():
    result = await run_calls(raw(max_result_chars=1_000), [call("huge"), call("fail")])
    huge, fail = results(result)
    assert len(huge) <= 1_000
    assert "characters left out" in huge
    assert len(fail) <= 1_000 + len("Error: ")
    assert fail.startswith("Error: yyy")


async def test_a_refusal_of_the_protocol_is_an_error_result():
    result = await run_calls(raw(), call("refuse"), call("echo", text="fine"))
    assert results(result) == ["Error: no such thing", "fine"]


async def test_arguments_that_do_not_fit_never_reach_the_server():
    result = await run_calls(raw(), [call("echo"), call("echo", text=5), call("echo", _raw="[")])
    missing, wrong, garbled = results(result)
    assert "'text' is a required property" in missing
    assert "`text`: 5 is not of type 'string'" in wrong
    assert "not valid JSON" in garbled
    for text in results(result):
        assert 'Expected: {"text": string}' in text


async def test_a_server_that_cannot_be_started_again_is_an_error_for_each_call(tmp_path: Any):
    script = tmp_path / "server.py"
    script.write_text((SERVERS / "raw.py").read_text())
    server = StdioMCP(sys.executable, ["-I", str(script)])

    async def forget(name: str, args: dict[str, Any]) -> None:
        script.unlink(missing_ok=True)

    hooks = AgentHooks(on_tool_start=forget)
    result = await run_calls(server, call("die"), call("echo", text="a"), hooks=hooks)
    died, down = results(result)
    assert died == DIED
    assert down.startswith("Error: the MCP server ")
    assert "Connection closed" in down
    assert "can't open file" in down
    assert result.text == "Done."


# ── What may go wrong at the start ───────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("server", "told"),
    [
        (StdioMCP("no-such-command-anywhere"), "no-such-command-anywhere"),
        (raw("exit"), "Its last words: 'the config file is missing'"),
        (raw("mute", connect_timeout_s=0.3), "did not answer within 0.3 s"),
        (StdioMCP(sys.executable, ["-c", "print('hello')"]), "Connection closed"),
    ],
)
async def test_a_server_that_cannot_be_used_is_named_and_the_queue_ends(
    server: StdioMCP, told: str
):
    model = ScriptedModel(["never"])
    seen = await watch(Agent("ada", model, mcps=[server]))
    assert isinstance(seen.error, MCPError)
    assert told in str(seen.error)
    assert "in a terminal" in str(seen.error)
    assert seen.kinds == [EventType.ERROR]
    assert seen.events[0].data["error_type"] == "MCPError"
    assert model.requests == []
    assert other_tasks() == set()


async def test_of_several_servers_the_others_are_closed_where_one_cannot_be_used():
    with pytest.raises(MCPError, match="last words"):
        await run_calls([raw(prefix="a_"), raw("exit"), raw(prefix="b_")])
    assert other_tasks() == set()


async def test_an_error_shows_no_secret_of_the_command():
    server = StdioMCP("no-such-command", ["--token=hunter2", "--key", "sk-abcdefgh12345678"])
    with pytest.raises(MCPError) as caught:
        await run_calls(server)
    assert "hunter2" not in str(caught.value)
    assert "sk-abc" not in str(caught.value)
    assert "no-such-command --token=[secret]" in str(caught.value)


async def test_only_what_is_safe_of_the_environment_reaches_the_program(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("NAP", "an hour")
    assert results(await run_calls(raw(), call("long"))) == ["slept for nothing"]
    given = raw(env={"NAP": "a minute"})
    assert results(await run_calls(given, call("long"))) == ["slept for a minute"]


# ── The end ──────────────────────────────────────────────────────────────────────────────────────


async def pid_of_a_cancelled_run(server: StdioMCP, waiting_in: str) -> int:
    reached = asyncio.Event()
    pids: list[int] = []

    async def note_pid(name: str, result: str) -> None:
        pids.append(int(result.split(maxsplit=1)[0]))

    async def note_start(name: str, args: dict[str, Any]) -> None:
        if name == waiting_in:
            reached.set()

    hooks = AgentHooks(on_tool_start=note_start, on_tool_end=note_pid)
    task = asyncio.create_task(run_calls(server, call("pid"), call(waiting_in), hooks=hooks))
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert other_tasks() == set()
    return pids[0]


async def test_a_cancelled_run_leaves_no_process():
    assert not is_running(await pid_of_a_cancelled_run(raw(), "hang"))


async def test_a_server_that_will_not_end_is_killed():
    result = await run_calls(raw("stubborn"), call("pid"))
    assert not is_running(int(results(result)[0].split()[0]))


async def test_cancelled_again_while_it_closes_a_run_still_leaves_no_process():
    reached = asyncio.Event()
    pids: list[int] = []

    async def note(name: str, result: str) -> None:
        pids.append(int(result.split(maxsplit=1)[0]))
        reached.set()

    task = asyncio.create_task(
        run_calls(raw("stubborn"), call("pid"), call("hang"), hooks=AgentHooks(on_tool_end=note))
    )
    await reached.wait()
    for _ in range(20):
        task.cancel()
        await asyncio.sleep(0)
    assert not task.done()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not is_running(pids[0])
    assert other_tasks() == set()


def starts(server: StdioMCP) -> asyncio.Queue[None]:
    """Gets an item each time the server is started."""
    started: asyncio.Queue[None] = asyncio.Queue()
    original = server.transport

    def transport(words: LastWords) -> Any:
        started.put_nowait(None)
        return original(words)

    object.__setattr__(server, "transport", transport)
    return started


async def test_cancelled_while_a_server_starts_a_run_leaves_nothing():
    server = raw("mute")
    started = starts(server)
    task = asyncio.create_task(run_calls(server))
    await started.get()
    await settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert other_tasks() == set()


async def test_cancelled_while_a_server_is_started_anew_a_run_leaves_nothing():
    server = raw()
    started = starts(server)

    async def silence(name: str, text: str) -> None:
        object.__setattr__(server, "env", {"MISBEHAVE": "mute"})

    task = asyncio.create_task(
        run_calls(server, call("die"), call("pid"), hooks=AgentHooks(on_tool_end=silence))
    )
    for _ in "12":
        await started.get()
    await settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert other_tasks() == set()


async def test_a_run_that_fails_leaves_no_process():
    pids: list[int] = []

    async def note(name: str, result: str) -> None:
        pids.append(int(result.split(maxsplit=1)[0]))

    model = ScriptedModel([reply(None, call("pid")), ZeroDivisionError("model")])
    agent = Agent("ada", model, mcps=[raw()], hooks=AgentHooks(on_tool_end=note))
    with pytest.raises(ZeroDivisionError, match="model"):
        await run_agent(agent, ask())
    assert not is_running(pids[0])
