"""Threads for blocking tools: bounded for each run, shared by all, in nobody's way at the end."""

import asyncio
import subprocess
import sys
import threading
from contextvars import ContextVar

import pytest

from untildone.engine import worker_pool
from untildone.engine.worker_pool import WorkerPool

WHO: ContextVar[str] = ContextVar("WHO", default="nobody")


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "untildone-tool"]


def python(script: str) -> str:
    """What a process of its own prints, which has to end by itself."""
    command = [sys.executable, "-W", "ignore", "-c", script]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert ended.stderr == ""
    return ended.stdout


async def test_a_function_gives_its_value_or_raises_its_error():
    pool = WorkerPool(1)
    assert await pool(lambda: 5) == 5
    with pytest.raises(KeyError):
        await pool(lambda: {}["a"])
    with pytest.raises(SystemExit):
        await pool(sys.exit)
    with pytest.raises(RuntimeError, match="StopIteration"):
        await pool(lambda: next(iter(())))


async def test_the_callers_context_reaches_the_function_and_stays_the_callers():
    pool = WorkerPool(1)

    def work() -> str:
        seen = WHO.get()
        WHO.set("the tool")
        return seen

    WHO.set("ann")
    assert await pool(work) == "ann"
    assert WHO.get() == "ann"
    WHO.set("bob")
    assert await pool(work) == "bob"


async def test_a_function_that_is_given_up_still_counts():
    pool, begun, release = WorkerPool(1), threading.Event(), threading.Event()

    def stuck() -> None:
        begun.set()
        release.wait(30)

    given_up = asyncio.create_task(pool(stuck))
    await asyncio.to_thread(begun.wait, 30)
    given_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await given_up
    next_one = asyncio.create_task(pool(release.is_set))
    await asyncio.sleep(0)
    release.set()
    assert await next_one is True


async def test_one_that_is_cancelled_while_it_waits_never_runs():
    pool, release, ran = WorkerPool(1), threading.Event(), list[int]()
    first = asyncio.create_task(pool(lambda: release.wait(30)))
    second = asyncio.create_task(pool(lambda: ran.append(2)))
    third = asyncio.create_task(pool(lambda: ran.append(3)))
    await asyncio.sleep(0)
    second.cancel()
    release.set()
    await asyncio.gather(first, third)
    assert ran == [3]


async def test_closing_gives_up_what_has_not_begun():
    pool, release = WorkerPool(1), threading.Event()
    first = asyncio.create_task(pool(lambda: release.wait(30)))
    second = asyncio.create_task(pool(lambda: None))
    await asyncio.sleep(0)
    pool.close()
    with pytest.raises(asyncio.CancelledError):
        await second
    release.set()
    assert await first is True


async def test_pools_one_after_another_share_a_thread():
    seen = {await WorkerPool(32)(threading.get_ident) for _ in range(100)}
    assert len(seen) == 1


async def test_threads_are_started_only_when_none_is_idle():
    before = set(threads())
    pools = [WorkerPool(32) for _ in range(50)]
    for _ in range(5):
        await asyncio.gather(*(pool(threading.get_ident) for pool in pools))
    meet = threading.Barrier(3)
    await asyncio.gather(*(pool(lambda: meet.wait(30)) for pool in pools[:3]))
    assert len(set(threads()) - before) <= 50


async def test_an_idle_thread_ends(monkeypatch):
    monkeypatch.setattr(worker_pool, "IDLE_S", 0.01)
    thread = await WorkerPool(1)(threading.current_thread)
    await asyncio.to_thread(thread.join, 30)
    assert not thread.is_alive()
    assert await WorkerPool(1)(lambda: 5) == 5


async def test_a_system_without_threads_is_an_error_and_no_hang(monkeypatch):
    def refused(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(worker_pool._threads, "_idle", {})
    pool = WorkerPool(1)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refused)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            await pool(lambda: 5)
    assert await pool(lambda: 5) == 5


def test_a_blocking_tool_that_starts_runs_waits_for_no_thread_of_theirs():
    def nested(depth: int) -> int:
        if depth == 0:
            return 0
        return 1 + asyncio.run(WorkerPool(1)(lambda: nested(depth - 1)))

    assert nested(20) == 20


def test_a_stuck_tool_does_not_keep_the_process():
    script = """
import threading
from untildone import Agent, run_agent_sync, tool
from untildone.testing import ScriptedModel, call, reply

@tool(timeout_s=0.05)
def stuck() -> str:
    threading.Event().wait()

model = ScriptedModel([reply(None, call("stuck")), "Gave it up."])
print(run_agent_sync(Agent("ada", model, tools=[stuck]), [{"role": "user", "content": "go"}]).text)
"""
    assert python(script) == "Gave it up.\n"


@pytest.mark.skipif(sys.platform == "win32", reason="no fork")
def test_a_forked_child_starts_threads_of_its_own():
    script = """
import asyncio, os
from untildone.engine.worker_pool import WorkerPool

print(asyncio.run(WorkerPool(1)(lambda: "parent")), flush=True)
child = os.fork()
if not child:
    print(asyncio.run(WorkerPool(1)(lambda: "child")), flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""
    assert python(script) == "parent\nchild\n"
