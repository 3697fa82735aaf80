"""One run's way in and out: what it is given is checked, and its queue always ends.

A run knows the run that it was started in: what it costs counts there, and the queue of that run is
left open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from inspect import iscoroutinefunction
from typing import Any

from untildone.agent import Agent
from untildone.domain.bounds import check_count
from untildone.domain.errors import (
    ConfigError,
    LoopConvergedError,
    attach_partial_result,
    describe,
    partial_result,
)
from untildone.domain.exits import ExitReason
from untildone.domain.log import At, NestedRunEnded
from untildone.domain.results import AgentResult
from untildone.domain.stream import EventType
from untildone.engine.context import Run
from untildone.engine.live import EventQueue, LiveStream
from untildone.engine.worker_pool import WorkerPool
from untildone.ports import Clock, EventSink

Distil = Callable[[Agent, str, str], Awaitable[str]]
"""Makes a skill of an agent, its task tag and a query, and gives the skill's name."""


@dataclass(slots=True, kw_only=True)
class Options:
    """What the doors take beside an agent and its messages; see ``run_agent``.

    ``distil`` is the doors' own: what makes skills stands on a floor above this one. A run inside
    another one has it from there.
    """

    tool_defs: Sequence[Any] | None = None
    queue: EventQueue | None = None
    agent_id: str | None = None
    max_sync_tools: int = 32
    log: EventSink | Sequence[EventSink] = ()
    clock: Clock | None = None
    distil: Distil | None = None


@dataclass(slots=True)
class Scope:
    """A run as the code inside it sees it.

    Attributes:
        run_id: Its id.
        queues: The queues that it and the runs around it will end.
        loop: The event loop it runs in.
        distil: What makes a skill of it, or of a run inside it.
        run: The run, once there is one.
        is_over: Whether it has ended and learned what it could.
    """

    run_id: str
    queues: tuple[EventQueue, ...]
    loop: asyncio.AbstractEventLoop
    distil: Distil | None = None
    run: Run | None = None
    is_over: bool = False

    def charge(self, nested: Run) -> None:
        """Adds the cost of a run inside this one, from whatever thread that ran in."""
        event = NestedRunEnded(At(self.run_id), nested.run_id, _exit_of(nested), nested.spent())
        if asyncio.get_running_loop() is self.loop:
            self._note(event)
        else:
            with suppress(RuntimeError):  # that loop is closed: the run around this one is over
                self.loop.call_soon_threadsafe(self._note, event)

    def _note(self, event: NestedRunEnded) -> None:
        run = self.run
        if run is None or self.is_over:
            return  # it outlived the run that started it
        event.at = run.at()
        run.record.note(event)


def is_event_queue(queue: Any) -> bool:
    """Whether something can hold a run's events: an ``asyncio.Queue``, or what works like one."""
    if isinstance(queue, type):
        return False
    waits = iscoroutinefunction(getattr(queue, "put", None))
    return waits and all(hasattr(queue, name) for name in ("put_nowait", "full", "maxsize"))


def _exit_of(run: Run) -> ExitReason | None:
    ended = run.state.ended
    return None if ended is None else ended.reason


_scope: ContextVar[Scope | None] = ContextVar("untildone_scope", default=None)


def end_unbegun(queue: Any, agent_id: Any, error: BaseException) -> None:
    """Ends the queue of a run that was ended before it began; not one of a run around it."""
    outer = _scope.get()
    if is_event_queue(queue) and not (outer and any(queue is known for known in outer.queues)):
        live = LiveStream(queue, agent_id if isinstance(agent_id, str) else "")
        live.end_now(EventType.ERROR, _error_view(error, None))


class Entrance:
    """One run's way in and out: what is opened here is closed here, and its queue always ends."""

    __slots__ = ("agent", "live", "options", "outer", "pool", "run_id", "scope", "sinks")

    def __init__(self, agent: Agent, run_id: str, options: Options) -> None:
        self.agent = agent
        self.outer = _scope.get()
        log: Any = options.log
        self.sinks: list[Any] = [*log] if isinstance(log, list | tuple) else [log]
        self.run_id = run_id
        self.options = options
        self.live = None
        if options.queue is not None and is_event_queue(options.queue):
            name = options.agent_id or getattr(agent, "name", "")
            self.live = LiveStream(options.queue, name, self._loop_of(options.queue))
        self.pool = WorkerPool(options.max_sync_tools)

    async def watch(self, work: Callable[[], Awaitable[AgentResult]]) -> AgentResult:
        """Awaits the run and ends its queue in the way that fits how it ended.

        The queue of a run around this one is left open: that run ends it.
        """
        outer, queue = self.outer, self.options.queue
        outer_queues = () if outer is None else outer.queues
        queues = outer_queues if queue is None else (*outer_queues, queue)
        distil = self.options.distil or (None if outer is None else outer.distil)
        self.scope = Scope(self.run_id, queues, asyncio.get_running_loop(), distil)
        token = _scope.set(self.scope)
        try:
            if self.live is None or any(queue is known for known in outer_queues):
                return await self._done(work)
            return await self._ending_queue(self.live, work)
        finally:
            _scope.reset(token)
            self.pool.close()
            if outer is not None and self.scope.run is not None:
                outer.charge(self.scope.run)
            # Contexts outlive the run: a kept connection has the one it was opened in.
            self.scope.run = None

    def _check(self) -> None:
        """Checks what the doors were given; only here, so that a queue given with it still ends."""
        agent: Any = self.agent
        if not isinstance(agent, Agent):
            raise ConfigError(
                f"agent must be an Agent, not {agent!r:.80}; make one: Agent('name', 'openai/…')"
            )
        check_count("max_sync_tools", self.options.max_sync_tools)
        queue = self.options.queue
        if queue is not None and not is_event_queue(queue):
            raise ConfigError(f"queue must be an asyncio.Queue object, not {queue!r:.80}")
        for sink in self.sinks:
            write = getattr(sink, "write", None)
            if isinstance(sink, type) or not callable(write) or iscoroutinefunction(write):
                raise ConfigError(
                    f"log must be an object with a plain write(event), or a list of them,"
                    f" not {sink!r:.80}; EventLog() of untildone.testing keeps events in memory"
                )

    def _loop_of(self, queue: EventQueue) -> asyncio.AbstractEventLoop | None:
        """The loop of the run around this one that the queue is read in, where it is another."""
        outer = self.outer
        if outer is None or not any(queue is known for known in outer.queues):
            return None
        return None if outer.loop is asyncio.get_running_loop() else outer.loop

    async def _done(self, work: Callable[[], Awaitable[AgentResult]]) -> AgentResult:
        """The run's own part; what ends inside it later than that is not charged to it."""
        try:
            self._check()
            return await work()
        finally:
            self.scope.is_over = True

    async def _ending_queue(
        self, live: LiveStream, work: Callable[[], Awaitable[AgentResult]]
    ) -> AgentResult:
        try:
            result = await self._done(work)
        except Exception as error:
            met = isinstance(error, LoopConvergedError) and error.run_id == self.run_id
            data = _done_view(partial_result(error)) if met else _error_view(error, self.scope.run)
            await _end(live, EventType.DONE if met else EventType.ERROR, data, error)
            raise
        except BaseException as error:
            live.end_now(EventType.ERROR, _error_view(error, self.scope.run))
            raise
        await _end(live, EventType.DONE, _done_view(result), result)
        return result


async def _end(
    live: LiveStream, kind: EventType, data: dict[str, Any], outcome: AgentResult | Exception
) -> None:
    """Ends a queue; cancelled while its reader is slow, at once and with the same last event."""
    try:
        await live.end(kind, data)
    except BaseException as error:
        live.end_now(kind, data)
        known = partial_result(outcome) if isinstance(outcome, Exception) else outcome
        attach_partial_result(error, known)
        raise


def _done_view(result: AgentResult | None) -> dict[str, Any]:
    if result is None:
        return {}
    return {
        "exit_reason": None if result.exit_reason is None else result.exit_reason.value,
        "final_text": result.text,
        "loop_iterations": result.loop_iterations,
        "best_iteration": result.best_iteration,
        "turns": result.turns,
        "input_tokens": result.input_tokens,
        "output_tokens": result.output_tokens,
    }


def _error_view(error: BaseException, run: Run | None) -> dict[str, Any]:
    """The reason is this run's: an exception of a run inside it carries another one."""
    reason = None if run is None else _exit_of(run)
    if reason is None:
        cancelled = isinstance(error, asyncio.CancelledError)
        reason = ExitReason.CANCELLED if cancelled else ExitReason.ERROR
    return {
        "message": describe(error),
        "error_type": getattr(error, "error_type", type(error).__name__),
        "exit_reason": reason.value,
    }
