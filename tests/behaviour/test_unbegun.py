"""A run that is cancelled before its first step: whoever reads its queue must not wait for ever."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from tests.behaviour.kit import ask
from tests.behaviour.manifest import requirement
from untildone import (
    Agent,
    EventType,
    StreamEvent,
    resume_agent,
    run_agent,
    run_agent_loop,
    search_loop,
    tool,
)
from untildone.testing import EventLog, ScriptedModel, call, reply


def agent() -> Agent:
    return Agent("ada", ScriptedModel(["Done."]))


@tool
def search(query: str) -> str:
    """Searches."""
    return query


DOORS: dict[str, Callable[[asyncio.Queue[Any]], Any]] = {
    "run_agent": lambda queue: run_agent(agent(), ask(), queue=queue, agent_id="ada"),
    "run_agent_loop": lambda queue: run_agent_loop(agent(), ask(), queue=queue, agent_id="ada"),
    "search_loop": lambda queue: search_loop("q", search, agent(), queue=queue, agent_id="ada"),
    "resume_agent": lambda queue: resume_agent(agent(), [], queue=queue),
}


@requirement("events.ended-unbegun")
@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
@pytest.mark.parametrize("size", [0, 1, 2])
async def test_a_run_cancelled_before_its_first_step_ends_its_queue(door: Any, size: int):
    queue: asyncio.Queue[Any] = asyncio.Queue(size)
    task = asyncio.create_task(door(queue))
    task.cancel()
    events: list[StreamEvent] = []
    async with asyncio.timeout(5):
        while (event := await queue.get()) is not None:
            events.append(event)
        with pytest.raises(asyncio.CancelledError):
            await task
    assert [(e.event, e.data["exit_reason"]) for e in events] == (
        [] if size == 1 else [(EventType.ERROR, "cancelled")]
    )
    assert queue.empty()


@requirement("events.ended-unbegun")
async def test_the_queue_of_a_run_around_it_stays_open():
    queue: asyncio.Queue[Any] = asyncio.Queue()

    async def research() -> str:
        """Starts a run and gives it up."""
        inner = asyncio.create_task(run_agent(agent(), ask(), queue=queue))
        inner.cancel()
        await asyncio.wait([inner])
        return "gave up"

    outer = Agent(
        "outer", ScriptedModel([reply(None, call("research")), "Done."]), tools=[research]
    )
    result = await run_agent(outer, ask(), queue=queue)
    events: list[Any] = []
    while (event := await queue.get()) is not None:
        events.append(event.event)
    assert result.text == "Done."
    assert events[-1] is EventType.DONE
    assert EventType.ERROR not in events


@requirement("events.ended-unbegun")
async def test_what_a_door_gives_is_a_coroutine_like_any_other():
    queue: asyncio.Queue[Any] = asyncio.Queue()
    log = EventLog()
    begun = run_agent(agent(), ask(), queue=queue, log=log)
    assert asyncio.iscoroutine(begun)
    assert inspect.isawaitable(begun)
    assert begun.__name__ == "run_agent"
    assert (await asyncio.wait_for(begun, 5)).text == "Done."
    unused = run_agent(agent(), ask(), queue=queue)
    unused.close()
    with pytest.raises(RuntimeError, match="cannot reuse already awaited coroutine"):
        await begun
