"""What behaviour tests are built of: runs watched from outside, and conversations read strictly."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from untildone import Agent, AgentResult, EventType, StreamEvent, run_agent
from untildone.testing import ScriptedModel


def ask(text: str = "Go on.") -> list[dict[str, Any]]:
    """A caller's messages: one question."""
    return [{"role": "user", "content": text}]


@dataclass
class Watched:
    """A run and all that its queue was given: the events, without the end mark."""

    events: list[StreamEvent] = field(default_factory=list[StreamEvent])
    result: AgentResult | None = None
    error: BaseException | None = None

    @property
    def kinds(self) -> list[EventType]:
        return [event.event for event in self.events]

    def data(self, kind: EventType) -> list[dict[str, Any]]:
        """The payloads of one kind, in order."""
        return [event.data for event in self.events if event.event is kind]


async def watch(
    agent: Agent, messages: Sequence[Mapping[str, Any]] | None = None, **options: Any
) -> Watched:
    """Runs an agent in a task with an unbounded queue, which must end with one end mark."""
    queue: asyncio.Queue[StreamEvent | None] = asyncio.Queue()
    watched = Watched()

    async def run() -> None:
        try:
            watched.result = await run_agent(agent, messages or ask(), queue=queue, **options)
        except BaseException as error:
            watched.error = error

    await asyncio.create_task(run())
    watched.events = ended(drained(queue))
    return watched


def drained(queue: asyncio.Queue[Any]) -> list[Any]:
    """What is in a queue now."""
    items: list[Any] = []
    while not queue.empty():
        items.append(queue.get_nowait())
    return items


def ended(items: list[Any]) -> list[StreamEvent]:
    """The events before the end mark, which must stand at the end and nowhere else."""
    assert items, "the queue got nothing at all"
    assert items[-1] is None, f"the queue does not end with None but with {items[-1]!r}"
    events = items[:-1]
    assert None not in events, "an end mark stands in the middle"
    return events


def check_conversation(messages: Sequence[Mapping[str, Any]]) -> None:
    """What a strict provider checks: every call answered once, in order, at once; nothing empty."""
    waiting: list[str] = []
    for index, message in enumerate(messages):
        where = f"messages[{index}]: {message}"
        if message["role"] == "tool":
            assert waiting, f"answers no open call: {where}"
            assert message["tool_call_id"] == waiting.pop(0), f"out of call order: {where}"
            assert isinstance(message["content"], str), where
            continue
        assert not waiting, f"calls {waiting} have no answer before {where}"
        calls = message.get("tool_calls") or []
        if message["role"] == "assistant":
            assert message["content"] or calls, f"an empty assistant message: {where}"
        waiting = [each["id"] for each in calls]
    assert not waiting, f"calls {waiting} have no answer at the end"
    json.dumps(messages)


def check_requests(model: ScriptedModel) -> None:
    """Every request valid for a strict provider, and none changing what was sent before it."""
    sent: list[dict[str, Any]] = []
    for request in model.requests:
        messages = request.messages
        check_conversation(messages)
        assert messages[: len(sent)] == sent, "an already sent prefix was changed"
        sent = messages


def answers(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """The texts of the tool messages, in order."""
    return [message["content"] for message in messages if message["role"] == "tool"]


async def until(condition: Callable[[], bool]) -> None:
    """Lets others work until something is so."""
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came about")


async def settle() -> None:
    """Lets others work on until they have come as far as they can."""
    for _ in range(50):
        await asyncio.sleep(0)


def other_tasks() -> set[asyncio.Task[Any]]:
    """The tasks that run beside this one."""
    return {task for task in asyncio.all_tasks() if task is not asyncio.current_task()}
