"""The doors: how a run is started, streamed and resumed.

How one run is put together is in ``assembly.py``; the loops themselves are in ``engine/``.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncIterable, AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Self

from untildone.agent import Agent, LoopConfig
from untildone.assembly import Approvals, Messages, resume_run, start_run
from untildone.domain.bounds import check_number
from untildone.domain.errors import (
    ConfigError,
    LoopConfigWarning,
    LoopConvergedError,
    partial_result,
)
from untildone.domain.log import Log
from untildone.domain.results import AgentResult
from untildone.domain.stream import StreamEvent, StreamPolicy
from untildone.engine.live import EventQueue
from untildone.entrance import Options
from untildone.ports import Clock, EventSink
from untildone.unbegun import always_ending_its_queue

STREAM_BUFFER: Final = 1000
"""How many events ``stream_agent`` holds before it slows the run."""


@always_ending_its_queue
async def run_agent(
    agent: Agent,
    messages: Messages,
    *,
    tool_defs: Sequence[Any] | None = None,
    queue: EventQueue | None = None,
    agent_id: str | None = None,
    max_sync_tools: int = 32,
    log: EventSink | Sequence[EventSink] = (),
    clock: Clock | None = None,
) -> AgentResult:
    """Runs an agent, with its refine loop if it has one, and gives the result (S1).

    Args:
        agent: What to run.
        messages: The conversation in OpenAI form; it is copied, never changed.
        tool_defs: Tools or functions instead of the agent's own; ``[]`` for none.
        queue: Gets ``StreamEvent``s, and ``None`` at the end, on every path.
        agent_id: How events name the agent; default: its name.
        max_sync_tools: Most blocking tools that run at once in worker threads; 1 or more.
        log: Where the run's log goes, one sink or several.
        clock: What retries wait with; default: the system's.

    Returns:
        The result; ``exit_reason`` says why the run ended.

    Raises:
        ConfigError: Something cannot work; nothing was run.
        LoopConvergedError: ``stop_condition`` was met; ``.result`` has the result.
        LoopUnsatisfiedError: Nothing accepted the work and ``on_exhausted`` is ``FAIL_RUN``.
        MaxTurnsError: The turns are used up and ``on_max_turns`` is ``"raise"``.
        ModelError: The model failed for good.

    For every exception, ``partial_result(error)`` gives the best result so far.
    """
    # With a refine loop or without one, it is one path: see run_agent_loop.
    return await run_agent_loop(
        agent,
        messages,
        tool_defs=tool_defs,
        queue=queue,
        agent_id=agent_id,
        max_sync_tools=max_sync_tools,
        log=log,
        clock=clock,
    )


@always_ending_its_queue
async def run_agent_loop(
    agent: Agent,
    messages: Messages,
    *,
    tool_defs: Sequence[Any] | None = None,
    queue: EventQueue | None = None,
    agent_id: str | None = None,
    max_sync_tools: int = 32,
    log: EventSink | Sequence[EventSink] = (),
    clock: Clock | None = None,
) -> AgentResult:
    """Runs an agent's refine loop (S1); without ``loop_config``, one agent run.

    ``run_agent`` calls it where the agent has a ``loop_config``; see there for the arguments.
    """
    options = Options(
        tool_defs=tool_defs,
        queue=queue,
        agent_id=agent_id,
        max_sync_tools=max_sync_tools,
        log=log,
        clock=clock,
        distil=_distil,
    )
    return await start_run(agent, messages, options)


@always_ending_its_queue
async def resume_agent(
    agent: Agent,
    log_so_far: Log,
    *,
    approvals: Approvals | None = None,
    tool_defs: Sequence[Any] | None = None,
    queue: EventQueue | None = None,
    max_sync_tools: int = 32,
    log: EventSink | Sequence[EventSink] = (),
    clock: Clock | None = None,
) -> AgentResult:
    """Goes on with a run from its log, or from any prefix of it, repeating no finished call.

    A model call without a reply is made again. A tool call that was started but not finished is
    run again only if its tool is ``idempotent``; otherwise the model is told that nobody knows
    whether it took effect.

    Args:
        agent: The agent that the run was started with; callables are not in a log.
        log_so_far: The events, from ``RunStarted`` on.
        approvals: Decisions about waiting calls, by call id: True, False, or why not.
        tool_defs: As given when the run was started.
        queue: Gets the events from here on, and ``None`` at the end.
        max_sync_tools: See ``run_agent``.
        log: Gets the events from here on; the ones in ``log_so_far`` are not written again.
        clock: See ``run_agent``.

    Returns:
        The result, as the undisturbed run would have given it. A run that has already ended gives
        its result again, or raises again.

    Raises:
        ResumeError: The log has no beginning, or the agent is configured otherwise than then.
    """
    options = Options(
        tool_defs=tool_defs,
        queue=queue,
        max_sync_tools=max_sync_tools,
        log=log,
        clock=clock,
        distil=_distil,
    )
    return await resume_run(agent, log_so_far, approvals or {}, options)


async def _distil(agent: Agent, task_tag: str, query: str) -> str:
    """Makes a skill of an agent; what it takes is loaded by the first run that does."""
    from untildone.skills.distilled import distil_skill

    return await distil_skill(agent, task_tag, query)


def run_agent_sync(agent: Agent, messages: Messages, **options: Any) -> AgentResult:
    """``run_agent`` for code without an event loop; opens and closes its own connections.

    Args:
        agent: See ``run_agent``.
        messages: See ``run_agent``.
        **options: See ``run_agent``.

    Raises:
        ConfigError: An event loop is already running here: use ``await run_agent(...)``.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        msg = "run_agent_sync was called inside a running event loop; use 'await run_agent(...)'"
        raise ConfigError(msg)

    async def run_and_close() -> AgentResult:
        try:
            return await run_agent(agent, messages, **options)
        finally:
            await aclose()

    return asyncio.run(run_and_close())


@always_ending_its_queue
async def search_loop(
    query: str,
    search_tool: Any,
    agent: Agent,
    max_iterations: int = 3,
    confidence_threshold: float = 0.8,
    *,
    queue: EventQueue | None = None,
    agent_id: str | None = None,
) -> AgentResult:
    """Searches until the answer's confidence reaches a threshold (S1).

    Runs a fresh agent with the same settings whose only tool is ``search_tool``. Confidence is set
    by an ``evaluate_fn`` or a synthesizer; where nothing sets it, every iteration is used, and a
    ``LoopConfigWarning`` says so.

    Args:
        query: What to search for.
        search_tool: The tool.
        agent: Whose settings are used.
        max_iterations: The ceiling, 1 or more.
        confidence_threshold: In [0, 1].
        queue: See ``run_agent``.
        agent_id: See ``run_agent``.

    Raises:
        ConfigError: The threshold or the ceiling is out of bounds.
    """
    check_number("confidence_threshold", confidence_threshold, most=1)
    seen: list[float] = []

    def is_confident(result: AgentResult) -> bool:
        if result.confidence is not None:
            seen.append(result.confidence)
        return (result.confidence or 0.0) >= confidence_threshold

    loop = replace(
        agent.loop_config or LoopConfig(),
        max_iterations=max_iterations,
        convergence_fn=is_confident,
    )
    searcher = replace(agent, tools=[search_tool], mcps=[], skills=[], loop_config=loop)
    result = await run_agent_loop(
        searcher, [{"role": "user", "content": query}], queue=queue, agent_id=agent_id
    )
    if not seen and result.confidence is None:
        warnings.warn(
            "search_loop: no iteration set a confidence, so confidence_threshold had no effect;"
            " give the agent a Verifier with an evaluate_fn that sets result.confidence",
            LoopConfigWarning,
            stacklevel=2,
        )
    return result


async def aclose() -> None:
    """Closes what runs in the current event loop share; a later run opens connections anew."""
    from untildone.models.http import aclose as close_http

    await close_http()


async def filter_stream(
    stream: AsyncIterable[StreamEvent], policy: StreamPolicy
) -> AsyncIterator[StreamEvent]:
    """The events of a stream that a policy lets pass (S1); the run itself is not affected."""
    async for event in stream:
        if policy.allows(event.event):
            yield event


class AgentStream:
    """A run whose events can be iterated; made by ``stream_agent``.

    The run starts with the first event asked for, or on entering ``async with``. Leaving the block,
    ``aclose``, or dropping the stream cancels the run.
    """

    def __init__(self, agent: Agent, messages: Messages, options: Mapping[str, Any]) -> None:
        self._agent = agent
        self._messages = messages
        self._options = options
        self._queue: EventQueue = asyncio.Queue(STREAM_BUFFER)
        self._task: asyncio.Task[AgentResult] | None = None
        self._ended = False
        self.result: AgentResult | None = None
        """The result, once the stream has ended with DONE; the best so far after an ERROR."""

    async def __aenter__(self) -> Self:
        self._start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __aiter__(self) -> AsyncIterator[StreamEvent]:
        return self

    async def __anext__(self) -> StreamEvent:
        if self._ended:
            raise StopAsyncIteration
        task = self._start()
        event = await self._queue.get()
        if event is not None:
            return event
        self._ended = True
        try:
            self.result = await task
        except LoopConvergedError as error:
            self.result = error.result
        except BaseException as error:
            self.result = partial_result(error)
            raise
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Cancels the run, if it still runs, and waits until nothing of it is left."""
        self._ended = True
        task = self._task
        if task is None:
            return
        if not task.done():
            task.cancel()
            await asyncio.wait([task])
        try:
            self.result = task.result()
        except BaseException as error:
            self.result = partial_result(error)

    def _start(self) -> asyncio.Task[AgentResult]:
        if self._task is None:
            run = run_agent(self._agent, self._messages, queue=self._queue, **self._options)
            self._task = asyncio.get_running_loop().create_task(run)
        return self._task

    def __del__(self) -> None:
        task = self._task
        if task is not None and not task.done():
            task.get_loop().call_soon_threadsafe(task.cancel)


def stream_agent(agent: Agent, messages: Messages, **options: Any) -> AgentStream:
    """Runs an agent and gives its events as they come.

    ``async with stream_agent(agent, messages) as stream: async for event in stream: ...``; after
    the last event ``stream.result`` has the result. An exception of the run is raised after its
    ERROR event; ``LoopConvergedError`` is not, since its run ends with DONE.

    Args:
        agent: See ``run_agent``.
        messages: See ``run_agent``.
        **options: ``tool_defs``, ``agent_id``, ``max_sync_tools``, ``log``, ``clock``.
    """
    return AgentStream(agent, messages, options)
