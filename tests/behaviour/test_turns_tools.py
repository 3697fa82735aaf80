"""One batch of tool calls: run at once, answered in call order, each exactly once."""

import asyncio
import base64
import hashlib
import threading
from dataclasses import replace
from typing import Any

import pytest

from tests.behaviour.kit import answers, ask, check_conversation, check_requests
from tests.behaviour.manifest import requirement
from untildone import (
    Agent,
    AgentHooks,
    AgentResult,
    ExitReason,
    LoopConfig,
    LoopConvergedError,
    ToolError,
    image,
    run_agent,
    search_loop,
    tool,
)
from untildone.testing import ScriptedModel, call, reply
from untildone.tools import as_tool


async def batch(*calls: Any, tools: list[Any], **settings: Any) -> AgentResult:
    """A run whose first reply makes these calls and whose second one is "Done."."""
    options = {key: settings.pop(key) for key in ("max_sync_tools",) if key in settings}
    model = ScriptedModel([reply(None, calls), "Done."])
    result = await run_agent(Agent("ada", model, tools=tools, **settings), ask(), **options)
    assert result.text == "Done."
    check_requests(model)
    check_conversation(result.messages)
    assert len(answers(result.messages)) == len(calls)
    return result


async def answer_to(one: Any, *, tools: list[Any], **settings: Any) -> str:
    (text,) = answers((await batch(one, tools=tools, **settings)).messages)
    return text


# ── At once, and in order ────────────────────────────────────────────────────────────────────────


@requirement("tools.concurrent")
@pytest.mark.parametrize("count", [2, 5, 50])
async def test_the_calls_of_one_reply_run_at_the_same_time(count: int):
    all_there = asyncio.Barrier(count)

    async def meet(name: int) -> str:
        await all_there.wait()
        return f"met {name}"

    result = await batch(*(call("meet", name=n) for n in range(count)), tools=[meet])
    assert answers(result.messages) == [f"met {n}" for n in range(count)]


@requirement("tools.call-order")
async def test_results_stand_in_call_order_whatever_order_they_finish_in():
    done = {n: asyncio.Event() for n in range(5)}
    finished: list[int] = []
    done[4].set()

    async def wait(n: int) -> str:
        await done[n].wait()
        finished.append(n)
        if n:
            done[n - 1].set()
        return f"result {n}"

    result = await batch(*(call("wait", n=n) for n in range(5)), tools=[wait])
    assert finished == [4, 3, 2, 1, 0]
    assert answers(result.messages) == [f"result {n}" for n in range(5)]
    assert [each["args"] for each in result.tool_calls] == [{"n": n} for n in range(5)]
    assert [each["result"] for each in result.tool_calls] == [f"result {n}" for n in range(5)]


@requirement("tools.answered-once")
@pytest.mark.parametrize("ids", [("same", "same", "same"), ("", "", "")])
async def test_calls_whose_ids_are_doubled_or_missing_are_answered_one_by_one(ids):
    async def echo(n: int) -> str:
        return f"echo {n}"

    calls = [call("echo", _id=id_, n=n) for n, id_ in enumerate(ids)]
    result = await batch(*calls, tools=[echo])
    assert answers(result.messages) == ["echo 0", "echo 1", "echo 2"]


@requirement("tools.answered-once")
async def test_in_a_batch_of_all_kinds_of_calls_each_is_answered_once():
    async def approve(name: str, args: dict[str, Any]) -> bool:
        return args != {"n": 2}

    async def plain(n: int) -> str:
        return f"plain {n}"

    def blocking(n: int) -> str:
        return f"blocking {n}"

    async def broken(n: int) -> str:
        raise ValueError(n)

    names = ["plain", "broken", "plain", "blocking", "nowhere"]
    calls = [call(name, n=n) for n, name in enumerate(names)]
    calls.append(call("plain", _raw="[5]"))
    hooks = AgentHooks(approve_tool=approve)
    result = await batch(*calls, tools=[plain, blocking, broken], hooks=hooks)
    texts = answers(result.messages)
    assert texts[0] == "plain 0"
    assert texts[3] == "blocking 3"
    errors = [each["is_error"] for each in result.tool_calls]
    assert errors == [False, True, True, False, True, True]


# ── Blocking tools ───────────────────────────────────────────────────────────────────────────────


@requirement("tools.sync-in-thread")
async def test_a_sync_tool_runs_in_another_thread_and_an_async_one_in_the_loop():
    threads: dict[str, int] = {}

    def blocking() -> str:
        threads["sync"] = threading.get_ident()
        return "ok"

    async def waiting() -> str:
        threads["async"] = threading.get_ident()
        return "ok"

    await batch(call("blocking"), call("waiting"), tools=[blocking, waiting])
    assert threads["async"] == threading.get_ident() != threads["sync"]


@requirement("tools.sync-in-thread")
async def test_a_blocked_sync_tool_does_not_hold_up_the_event_loop():
    released = threading.Event()

    def blocking() -> str:
        return "released" if released.wait(timeout=10) else "the event loop was held up"

    async def release() -> str:
        released.set()
        return "set"

    result = await batch(call("blocking"), call("release"), tools=[blocking, release])
    assert answers(result.messages) == ["released", "set"]


@requirement("tools.sync-in-thread")
async def test_one_sync_tool_alone_does_not_hold_up_the_event_loop_either():
    released = threading.Event()

    def blocking() -> str:
        loop.call_soon_threadsafe(released.set)
        return "released" if released.wait(timeout=10) else "the event loop was held up"

    loop = asyncio.get_running_loop()
    assert await answer_to(call("blocking"), tools=[blocking]) == "released"


@requirement("tools.sync-in-thread")
async def test_sync_tools_of_one_reply_run_side_by_side():
    together = threading.Barrier(5)

    def meet(n: int) -> str:
        together.wait(timeout=10)
        return f"met {n}"

    result = await batch(*(call("meet", n=n) for n in range(5)), tools=[meet])
    assert answers(result.messages) == [f"met {n}" for n in range(5)]


@requirement("tools.pool-size")
@pytest.mark.parametrize("size", [1, 2, 3])
async def test_at_most_max_sync_tools_run_at_once(size: int):
    running, most = 0, 0
    lock = threading.Lock()
    full = threading.Barrier(size)

    def work(n: int) -> str:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        full.wait(timeout=10)
        with lock:
            running -= 1
        full.wait(timeout=10)
        return f"worked {n}"

    calls = [call("work", n=n) for n in range(size * 3)]
    result = await batch(*calls, tools=[work], max_sync_tools=size)
    assert most == size
    assert answers(result.messages) == [f"worked {n}" for n in range(size * 3)]


# ── Calls that run nothing ───────────────────────────────────────────────────────────────────────


@pytest.fixture
def wiped() -> list[dict[str, Any]]:
    """What the tool ``wipe`` was called with."""
    return []


@pytest.fixture
def wipe(wiped: list[dict[str, Any]]):
    async def wipe(path: str = "/", depth: int = 0) -> str:
        wiped.append({"path": path, "depth": depth})
        return "wiped"

    return wipe


@requirement("tools.arguments-must-fit", "tools.error-to-act-on")
@pytest.mark.parametrize(
    "raw",
    [
        pytest.param("", id="nothing"),
        pytest.param("   ", id="blank"),
        pytest.param("{", id="cut at once"),
        pytest.param('{"path": "/tm', id="cut in a value"),
        pytest.param('{"path": "/tmp"', id="cut before the end"),
        pytest.param('{"path": "/tmp"}}', id="too much"),
        pytest.param("{'path': '/tmp'}", id="Python"),
        pytest.param("null", id="null"),
        pytest.param("true", id="bool"),
        pytest.param("7", id="number"),
        pytest.param('"/tmp"', id="string"),
        pytest.param('["/tmp"]', id="array"),
        pytest.param("[]", id="empty array"),
        pytest.param('[{"path": "/tmp"}]', id="object in an array"),
        pytest.param("path=/tmp", id="no JSON"),
    ],
)
async def test_arguments_that_are_no_json_object_run_nothing(raw: str, wipe, wiped):
    text = await answer_to(call("wipe", _raw=raw), tools=[wipe])
    assert wiped == []
    assert len(text) < 500
    assert "path" in text, "it does not tell what would fit"


@requirement("tools.arguments-must-fit", "tools.error-to-act-on")
@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"path": 5}, "path"),
        ({"path": None}, "path"),
        ({"depth": "3"}, "depth"),
        ({"depth": 1.5}, "depth"),
        ({"depth": True}, "depth"),
        ({"paths": "/tmp"}, "paths"),
        ({"path": "/tmp", "force": True}, "force"),
    ],
)
async def test_arguments_that_do_not_fit_the_schema_run_nothing(arguments, named, wipe, wiped):
    text = await answer_to(call("wipe", **arguments), tools=[wipe])
    assert wiped == []
    assert named in text
    assert len(text) < 500


@requirement("tools.arguments-must-fit", "tools.error-to-act-on")
async def test_a_missing_argument_is_named_and_runs_nothing():
    ran: list[str] = []

    async def send(to: str, text: str) -> str:
        ran.append(to)
        return "sent"

    assert "text" in await answer_to(call("send", to="bob"), tools=[send])
    assert ran == []


@requirement("tools.cut-reply")
@pytest.mark.parametrize("raw", ["", '{"path": "/tm', "{"])
async def test_a_call_of_a_reply_that_was_cut_off_runs_nothing_and_says_why(raw, wipe, wiped):
    model = ScriptedModel(
        [reply(None, call("wipe", _raw=raw), finish_reason="length"), "Shorter, then."]
    )
    result = await run_agent(Agent("ada", model, tools=[wipe]), ask())
    (text,) = answers(result.messages)
    assert wiped == []
    assert "cut" in text


@requirement("tools.unknown-tool", "tools.error-to-act-on")
async def test_an_unknown_tool_runs_nothing_and_names_those_there_are(wipe, wiped):
    text = await answer_to(call("whipe", path="/tmp"), tools=[wipe])
    assert wiped == []
    assert "whipe" in text
    assert "wipe" in text.replace("whipe", "")


@requirement("tools.unknown-tool", "tools.error-to-act-on")
async def test_an_unknown_name_is_not_echoed_whole(wipe):
    text = await answer_to(call("n" * 1_000_000), tools=[wipe])
    assert len(text) < 300
    assert text.startswith(f"Error: there is no tool '{'n' * 80}…'. Tools you can call: ")


@requirement("tools.unknown-tool")
async def test_a_call_of_an_agent_without_tools_is_answered_too():
    text = await answer_to(call("search", query="x"), tools=[])
    assert "search" in text


@requirement("tools.unknown-tool", "tools.answered-once")
async def test_beside_a_call_that_runs_nothing_the_others_run(wipe, wiped):
    calls = [
        call("whipe"),
        call("wipe", path="/a"),
        call("wipe", _raw="["),
        call("wipe", path="/b"),
    ]
    result = await batch(*calls, tools=[wipe])
    assert sorted(each["path"] for each in wiped) == ["/a", "/b"]
    assert [each["is_error"] for each in result.tool_calls] == [True, False, True, False]


# ── Tools that fail ──────────────────────────────────────────────────────────────────────────────


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@requirement("tools.raising")
@pytest.mark.parametrize("kind", [ValueError, ToolError])
async def test_what_a_tool_raises_can_be_sent_and_stored(kind: type[Exception]):
    async def fail() -> str:
        raise kind("half \ud800, whole é")

    text = await answer_to(call("fail"), tools=[fail])
    assert text.endswith("half ?, whole é")


FAILURES = [
    ValueError("no such city: Atlantis"),
    ToolError("no such city: Atlantis"),
    KeyError("no such city: Atlantis"),
    TimeoutError("no such city: Atlantis"),
    AssertionError("no such city: Atlantis"),
    ExceptionGroup("no such city: Atlantis", [ValueError("a"), ValueError("b")]),
    asyncio.QueueEmpty("no such city: Atlantis"),
    StopAsyncIteration("no such city: Atlantis"),
]


@requirement("tools.raising")
@pytest.mark.parametrize("sync", [False, True])
@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("error", FAILURES, ids=lambda error: type(error).__name__)
async def test_what_a_tool_raises_is_told_to_the_model_and_the_run_goes_on(
    error: Exception, sync: bool, alone: bool
):
    def blocking() -> str:
        raise error

    async def waiting() -> str:
        raise error

    weather = tool(name="weather")(blocking if sync else waiting)

    async def fine() -> str:
        return "fine"

    calls = [call("weather")] if alone else [call("fine"), call("weather"), call("fine")]
    result = await batch(*calls, tools=[weather, fine])
    failed = [each["result"] for each in result.tool_calls if each["is_error"]]
    assert len(failed) == 1
    assert "no such city: Atlantis" in failed[0]
    assert "Traceback" not in failed[0]
    assert answers(result.messages).count("fine") == len(calls) - 1


@requirement("tools.raising")
@pytest.mark.parametrize("alone", [False, True])
async def test_an_exception_that_cannot_be_printed_is_told_by_its_name(alone: bool):
    async def odd() -> str:
        raise UnprintableError

    calls = [call("odd")] if alone else [call("odd"), call("odd")]
    result = await batch(*calls, tools=[odd])
    assert all("UnprintableError" in text for text in answers(result.messages))


@requirement("tools.foreign-cancel")
@pytest.mark.parametrize("alone", [False, True])
async def test_a_cancelled_error_that_is_not_the_runs_own_is_the_failure_of_that_call(alone: bool):
    async def wait() -> str:
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        future.cancel()
        return await future

    async def fine() -> str:
        return "fine"

    calls = [call("wait")] if alone else [call("fine"), call("wait"), call("fine")]
    result = await batch(*calls, tools=[wait, fine])
    assert result.exit_reason is ExitReason.SATISFIED
    assert [each["is_error"] for each in result.tool_calls].count(True) == 1
    assert answers(result.messages).count("fine") == len(calls) - 1


@requirement("tools.foreign-cancel")
async def test_a_cancelled_task_inside_a_tool_is_the_failure_of_that_call():
    async def forever() -> None:
        await asyncio.Event().wait()

    async def delegate() -> str:
        inner = asyncio.create_task(forever())
        asyncio.get_running_loop().call_soon(inner.cancel)
        await inner
        return "never"

    result = await batch(call("delegate"), tools=[delegate])
    assert result.tool_calls[0]["is_error"] is True


@requirement("tools.foreign-cancel")
async def test_a_cancelled_error_raised_in_a_thread_is_the_failure_of_that_call():
    def blocking() -> str:
        raise asyncio.CancelledError

    result = await batch(call("blocking"), call("blocking"), tools=[blocking])
    assert [each["is_error"] for each in result.tool_calls] == [True, True]


# ── Runs inside tools ────────────────────────────────────────────────────────────────────────────


def converging(text: str) -> Agent:
    """An agent whose run ends by raising ``LoopConvergedError``."""
    loop = LoopConfig(stop_condition=lambda result: True)
    return Agent("inner", ScriptedModel([text]), loop_config=loop)


@requirement("tools.converged-inside")
@pytest.mark.parametrize("alone", [False, True])
async def test_a_converged_run_inside_a_tool_is_the_calls_success(alone: bool):
    async def research() -> str:
        return (await run_agent(converging("42"), ask())).text

    calls = [call("research")] if alone else [call("research"), call("research")]
    result = await batch(*calls, tools=[research])
    assert answers(result.messages) == ["42"] * len(calls)
    assert not any(each["is_error"] for each in result.tool_calls)


@requirement("tools.converged-inside")
@pytest.mark.parametrize(
    ("given", "answer"),
    [
        (AgentResult("other", "the answer"), "the answer"),
        ("the answer", "the answer"),
        (42, "42"),
        (None, "the stop condition was met"),
    ],
)
async def test_a_converged_error_that_a_tool_raises_itself_is_its_success_too(given, answer):
    async def research() -> str:
        raise LoopConvergedError(given)

    result = await batch(call("research"), tools=[research])
    assert answers(result.messages) == [answer]
    assert result.tool_calls[0]["is_error"] is False


@requirement("tools.converged-inside")
async def test_a_converged_run_inside_a_tool_does_not_end_the_loop_around_it():
    async def research() -> str:
        return (await run_agent(converging("42"), ask())).text

    model = ScriptedModel([reply(None, call("research")), "one", "two"])
    loop = LoopConfig(max_iterations=2)
    result = await run_agent(Agent("outer", model, tools=[research], loop_config=loop), ask())
    assert (result.text, result.exit_reason) == ("two", ExitReason.MAX_ITERATIONS)


# ── Which tools there are ────────────────────────────────────────────────────────────────────────


class CountingTool:
    """A tool that counts how often it is asked what it is."""

    def __init__(self) -> None:
        async def look(n: int) -> str:
            return f"seen {n}"

        self.asked = 0
        self._tool = as_tool(look)

    @property
    def spec(self):
        self.asked += 1
        return self._tool.spec

    def parse(self, arguments: str):
        return self._tool.parse(arguments)

    async def run(self, arguments, offload):
        return await self._tool.run(arguments, offload)


@requirement("tools.discovered-once")
async def test_tools_are_discovered_once_a_run_not_once_an_iteration():
    asked: list[int] = []
    for iterations in (1, 4):
        counting = CountingTool()
        model = ScriptedModel(
            lambda seen: reply("", call("look", n=seen.index)) if seen.index % 2 else "ok"
        )
        loop = LoopConfig(max_iterations=iterations)
        agent = Agent("ada", model, tools=[counting], loop_config=loop)
        result = await run_agent(agent, ask())
        assert result.loop_iterations == iterations
        asked.append(counting.asked)
    assert asked[0] == asked[1] > 0


@requirement("tools.tool-defs")
@pytest.mark.parametrize(("given", "offered"), [(None, ["own"]), ([], []), (["other"], ["other"])])
async def test_tool_defs_replace_the_agents_tools_and_none_means_its_own(given, offered):
    async def own() -> str: ...

    async def other() -> str: ...

    model = ScriptedModel(["ok"])
    defs = None if given is None else [other for _ in given]
    await run_agent(Agent("ada", model, tools=[own]), ask(), tool_defs=defs)
    assert model.requests[0].tool_names == offered


# ── Hooks ────────────────────────────────────────────────────────────────────────────────────────


async def echo(text: str) -> str:
    return text.upper()


@requirement("tools.hooks")
async def test_hooks_are_told_of_the_agent_and_of_each_tool():
    told: list[tuple[Any, ...]] = []

    async def started() -> None:
        told.append(("agent",))

    async def before(name: str, args: dict[str, Any]) -> None:
        told.append(("before", name, args))

    async def after(name: str, result: str) -> None:
        told.append(("after", name, result))

    hooks = AgentHooks(on_agent_start=started, on_tool_start=before, on_tool_end=after)
    await batch(call("echo", text="hi"), tools=[echo], hooks=hooks)
    assert told == [("agent",), ("before", "echo", {"text": "hi"}), ("after", "echo", "HI")]


@requirement("tools.hooks")
@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("hook", ["on_agent_start", "on_tool_start", "on_tool_end"])
async def test_a_hook_that_raises_changes_nothing(hook: str, alone: bool):
    async def broken(*_: Any) -> None:
        raise RuntimeError("the hook")

    hooks = AgentHooks(**{hook: broken})
    calls = [call("echo", text="hi")] * (1 if alone else 3)
    result = await batch(*calls, tools=[echo], hooks=hooks)
    assert answers(result.messages) == ["HI"] * len(calls)


@requirement("tools.hooks", "tools.answered-once")
@pytest.mark.timeout(10)
@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("hook", ["on_agent_start", "on_tool_start", "on_tool_end"])
async def test_a_hook_whose_own_work_was_cancelled_changes_nothing(hook: str, alone: bool):
    times = 0

    async def cancelled(*_: Any) -> None:
        nonlocal times
        times += 1
        assert times < 10, "the same call again and again"
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    hooks = AgentHooks(**{hook: cancelled})
    calls = [call("echo", text="hi")] * (1 if alone else 3)
    result = await batch(*calls, tools=[echo], hooks=hooks)
    assert answers(result.messages) == ["HI"] * len(calls)
    assert times == (1 if hook == "on_agent_start" else len(calls))


@requirement("tools.hooks")
async def test_agents_derived_from_an_agent_keep_its_hooks():
    ran: list[str] = []

    async def search(query: str) -> str:
        ran.append(query)
        return "found"

    async def deny(name: str, args: dict[str, Any]) -> bool:
        return False

    def agent() -> Agent:
        model = ScriptedModel([reply(None, call("search", query="x")), "Nothing."])
        return Agent("ada", model, tools=[echo], hooks=AgentHooks(approve_tool=deny))

    with pytest.warns(UserWarning, match="confidence"):
        await search_loop("x?", search, agent(), max_iterations=1)
    await run_agent(replace(agent(), tools=[search]), ask())
    await run_agent(agent(), ask(), tool_defs=[search])
    assert ran == []


@requirement("tools.raising")
async def test_a_tool_that_times_out_is_told_to_the_model():
    @tool(timeout_s=1e-6)
    async def slow() -> str:
        await asyncio.Event().wait()
        return "never"

    result = await batch(call("slow"), tools=[slow])
    assert "timed out" in answers(result.messages)[0]
    assert result.tool_calls[0]["is_error"] is True


# ── Images and files ──────────────────────────────────────────────────────────────────────────────

PNG = b"\x89PNG\r\n\x1a\n" + bytes(92)


@requirement("tools.attachments")
@pytest.mark.parametrize("is_async", [False, True])
async def test_a_run_gives_the_model_the_image_and_people_the_note(is_async: bool):
    async def screen(n: int) -> list[Any]:
        return screen_of(n)

    def screen_of(n: int) -> list[Any]:
        return [f"screen {n}", image(PNG)]

    shown = tool(name="look")(screen if is_async else screen_of)
    ended: list[str] = []
    model = ScriptedModel([reply(None, [call("look", n=1)]), "Done."])

    async def ended_with(_name: str, text: str) -> None:
        ended.append(text)

    hooks = AgentHooks(on_tool_end=ended_with)
    result = await run_agent(Agent("ada", model, tools=[shown], hooks=hooks), ask())
    data = base64.b64encode(PNG).decode()
    digest = hashlib.sha256(data.encode()).hexdigest()[:12]
    note = f"screen 1\n[attachment 1: image/png, 100 bytes, sha256 {digest}]"
    assert ended == [note]
    assert [each["result"] for each in result.tool_calls] == [note]
    assert model.requests[1].request.messages[-2].content == [
        {"type": "text", "text": note},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}},
    ]
