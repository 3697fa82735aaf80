"""Taking turns at a provider that cannot change a value atomically."""

from __future__ import annotations

import asyncio
import gc
import threading

import pytest

from tests.behaviour.kit import settle
from tests.memory.places import FourMethods
from untildone.memory import scoped
from untildone.memory.scoped import Turns, update_value


async def test_turns_come_in_the_order_in_which_they_were_asked_for():
    turns, seen = Turns(), list[str]()

    async def take(name: str) -> None:
        async with turns.turn():
            seen.append(name)
            await asyncio.sleep(0)
            seen.append(name)

    await asyncio.gather(*(take(name) for name in "abc"))
    assert seen == ["a", "a", "b", "b", "c", "c"]


async def test_who_is_cancelled_while_waiting_gives_the_turn_on_when_it_comes():
    turns, seen = Turns(), list[str]()
    go_on = asyncio.Event()

    async def take(name: str) -> None:
        async with turns.turn():
            seen.append(f"{name} begins")
            if name == "first":
                await go_on.wait()
            seen.append(f"{name} ends")

    tasks = [asyncio.create_task(take(name)) for name in ("first", "second", "third")]
    await settle()
    tasks[1].cancel()
    await settle()
    assert seen == ["first begins"]
    go_on.set()
    await asyncio.gather(tasks[0], tasks[2])
    assert seen == ["first begins", "first ends", "third begins", "third ends"]
    with pytest.raises(asyncio.CancelledError):
        await tasks[1]


async def test_a_turn_that_fails_is_given_on():
    turns = Turns()
    with pytest.raises(LookupError):
        async with turns.turn():
            raise LookupError
    async with asyncio.timeout(10), turns.turn():
        pass


def test_event_loops_in_different_threads_share_turns():
    provider = FourMethods()

    def add(old: str | None) -> str:
        return str(int(old or 0) + 1)

    async def work() -> None:
        await asyncio.gather(*(update_value(provider, "count", add) for _ in range(50)))

    threads = [threading.Thread(target=asyncio.run, args=[work()]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert asyncio.run(provider.retrieve("count")) == "200"


async def test_turns_at_a_provider_are_forgotten_with_it():
    provider = FourMethods()
    await update_value(provider, "k", lambda _: "v")
    assert provider in scoped._turns
    known = len(scoped._turns)
    del provider
    gc.collect()
    assert len(scoped._turns) == known - 1
