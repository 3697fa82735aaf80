"""Tasks that an agent starts and that go on while it works: start, list, wait.

A task belongs to the run that started it and ends with it. Whether the agent knows how a task ended
is read off the conversation; the tasks themselves live in this process, and one that is not here
any more (the run was resumed elsewhere) is ``lost``.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Self

from untildone.domain.errors import ConfigError, ToolError, describe
from untildone.domain.messages import Message
from untildone.domain.tools import ToolSpec, ToolTraits, output_text
from untildone.policy.cutting import cut_text
from untildone.ports import Offload, Tool
from untildone.tools.call_site import answered_calls, call_site
from untildone.tools.collect import as_tool
from untildone.tools.function_tool import FunctionTool
from untildone.tools.options import ToolOptions, check_name

State = Literal["running", "finished", "failed", "lost"]

LONGEST_WAIT_S: Final = 300.0
"""The most seconds that the agent itself can wait in one call."""

_START: Final = "start_"
_WAS_CANCELLED: Final = "It was cancelled."
_MOST_ENDED: Final = 1000
_MOST_REPORTED: Final = 4000
_STARTED: Final = re.compile(r"Task ([0-9a-f]{8}) \(([A-Za-z0-9_-]+)\) was started")
_ENDED: Final = re.compile(r"Task ([0-9a-f]{8}) \([A-Za-z0-9_-]+\): (?:finished|failed|lost)")


@dataclass(slots=True)
class BackgroundTask:
    """One task.

    Attributes:
        id: Eight hex digits, different in every process and run.
        name: The function's name.
        run_id: The run that started it.
        state: All but ``running`` are final.
        report: What it gave, or how it failed.
    """

    id: str
    name: str
    run_id: str
    state: State = "running"
    report: str = ""
    work: asyncio.Task[None] | None = field(default=None, repr=False)

    def in_words(self) -> str:
        """The task on one line; with its report below, once it has ended."""
        head = f"Task {self.id} ({self.name}): {self.state}"
        return f"{head}\n{self.report}" if self.report else head


class BackgroundTasks:
    """Functions that an agent can start in the background, as tools for ``Agent.tools``.

    Each function ``f`` becomes a tool ``start_f`` with the same parameters; ``background_list`` and
    ``background_wait`` tell how tasks stand and what they gave. With ``BackgroundTaskCompletion``
    among the criteria, the loop goes on until every task has ended and the agent knows of it.

    A run that ends, however it ends, cancels those of its tasks that still run, and waits until
    they are gone. Tasks that code started under an id of its own are left alone; ``async with
    BackgroundTasks(...) as background``, or ``aclose()``, ends those too.

    Args:
        functions: Functions, sync or async, or tools. For an agent give an async function that
            runs it.

    Raises:
        ConfigError: There are none, or one of them is no tool.
    """

    name: Final = "background"

    __slots__ = ("_tasks", "tools")

    def __init__(self, functions: Sequence[Any]) -> None:
        self._tasks: dict[str, BackgroundTask] = {}
        starts = [_StartTool(self, as_tool(function)) for function in _checked(functions)]
        self.tools: tuple[Tool, ...] = (
            *starts,
            _ReportTool(self, FunctionTool(background_list, _POLLING)),
            _ReportTool(self, FunctionTool(background_wait, _POLLING)),
        )

    def __repr__(self) -> str:
        names = ", ".join(tool.spec.name.removeprefix(_START) for tool in self.tools[:-2])
        return f"BackgroundTasks([{names}])"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Cancels every task that runs in this event loop, and waits until they are gone."""
        await _cancel(self._tasks.values())

    async def close_run(self, run_id: str) -> None:
        """Cancels what a run's tasks still do, and waits until they are gone; its end calls this.

        Args:
            run_id: The run, or the id under which code started its tasks.
        """
        await _cancel(task for task in self._tasks.values() if task.run_id == run_id)

    def tasks_of(self, run_id: str, messages: Sequence[Message]) -> list[BackgroundTask]:
        """A run's tasks, oldest first; those that are gone from this process are ``lost``.

        Args:
            run_id: The run.
            messages: Its own messages, which tell of lost ones.
        """
        own = [task for task in self._tasks.values() if task.run_id == run_id]
        known = {task.id for task in own}
        lost = [
            BackgroundTask(found[1], found[2], run_id, "lost", "The process it ran in is gone.")
            for found in _starts_in(messages)
            if found[1] not in known
        ]
        return [*lost, *own]

    def start(self, tool: Tool, arguments: dict[str, Any], run_id: str) -> BackgroundTask:
        """Starts a task for a run.

        Args:
            tool: What is run.
            arguments: Its arguments, as values.
            run_id: The run that waits for it and whose end cancels it; in code outside of a run
                any other id, which no end of a run touches.
        """
        name = tool.spec.name
        task = BackgroundTask(os.urandom(4).hex(), name, run_id)
        self._forget_some()
        self._tasks[task.id] = task
        task.work = asyncio.get_running_loop().create_task(_work(task, tool, arguments))
        return task

    def _forget_some(self) -> None:
        """Of the tasks that have ended, the oldest; how they ended is in their conversations."""
        ended = [task.id for task in self._tasks.values() if task.state != "running"]
        for task_id in ended[: max(0, len(ended) - _MOST_ENDED)]:
            del self._tasks[task_id]


def told_of(messages: Iterable[Message], feedback: Iterable[str] = ()) -> set[str]:
    """The ids of the tasks whose end the agent was told of, by a tool or by feedback."""
    texts = [message.text for message in messages if message.role in ("tool", "user")]
    return {found[1] for text in (*texts, *feedback) for found in _ENDED.finditer(text)}


async def ended(tasks: Iterable[BackgroundTask], seconds: float) -> None:
    """Waits until all of these tasks have ended, or time is up."""
    works = [task.work for task in tasks if task.work is not None and not task.work.done()]
    if works:
        await asyncio.wait(works, timeout=seconds)


def in_words(tasks: Sequence[BackgroundTask]) -> str:
    """How tasks stand, with what they gave."""
    return "\n".join(task.in_words() for task in tasks) or "No task was started."


async def _cancel(tasks: Iterable[BackgroundTask]) -> None:
    """Cancels those of these tasks that run in this event loop, and waits until they are gone."""
    loop = asyncio.get_running_loop()
    running = {
        task.work: task
        for task in tasks
        if task.work is not None and not task.work.done() and task.work.get_loop() is loop
    }
    for work in running:
        work.cancel()
    if running:
        await asyncio.wait(running)
    for task in running.values():
        if task.state == "running":  # it was cancelled before its first step
            task.state, task.report = "failed", _WAS_CANCELLED


async def _work(task: BackgroundTask, tool: Tool, arguments: dict[str, Any]) -> None:
    try:
        report = output_text(await tool.run(arguments, _in_thread))
    except asyncio.CancelledError:
        task.state, task.report = "failed", _WAS_CANCELLED
        raise
    except Exception as error:
        task.state = "failed"
        task.report = cut_text(
            str(error) if isinstance(error, ToolError) else describe(error), _MOST_REPORTED
        )
    else:
        task.state, task.report = "finished", cut_text(report, _MOST_REPORTED)


async def _in_thread(function: Callable[[], Any]) -> Any:
    """A blocking function; not in the run's own pool, which closes when the run ends."""
    return await asyncio.to_thread(function)


def _starts_in(messages: Sequence[Message]) -> list[re.Match[str]]:
    answers = [
        answer.text
        for call, answer in answered_calls(messages)
        if call.name.startswith(_START) and not answer.is_error
    ]
    return [found for text in answers if (found := _STARTED.match(text)) is not None]


class _StartTool:
    """Starts one function in the background."""

    __slots__ = ("_background", "_spec", "_tool")

    def __init__(self, background: BackgroundTasks, tool: Tool) -> None:
        self._background = background
        self._tool = tool
        inner = tool.spec
        self._spec = ToolSpec(
            name=check_name(f"{_START}{inner.name}"),
            description=f"Start in the background, and go on at once: {inner.description}".strip(),
            parameters=inner.parameters,
            traits=ToolTraits(nondeterministic=True),
        )

    @property
    def spec(self) -> ToolSpec:
        """What the model is told of it."""
        return self._spec

    def parse(self, arguments: str) -> dict[str, Any]:
        """The function's arguments."""
        return self._tool.parse(arguments)

    async def run(self, arguments: dict[str, Any], offload: Offload) -> str:  # noqa: ARG002
        """Starts the task and gives its id.

        Raises:
            ToolError: No run calls it.
        """
        site = call_site()
        if site is None:
            raise ToolError("background tasks belong to a run, and no run calls this tool here")
        task = self._background.start(self._tool, arguments, site.run_id)
        site.closers.add(self._background.close_run)
        return (
            f"Task {task.id} ({task.name}) was started. It goes on while you work;"
            " background_wait tells what it gave."
        )


class _ReportTool:
    """Tells how the run's tasks stand, at once or after waiting."""

    __slots__ = ("_background", "_form")

    def __init__(self, background: BackgroundTasks, form: FunctionTool) -> None:
        self._background = background
        self._form = form

    @property
    def spec(self) -> ToolSpec:
        """What the model is told of it."""
        return self._form.spec

    def parse(self, arguments: str) -> dict[str, Any]:
        """The arguments of a call."""
        return self._form.parse(arguments)

    async def run(self, arguments: dict[str, Any], offload: Offload) -> str:  # noqa: ARG002
        """Waits where it is asked to, and tells how the tasks stand.

        Raises:
            ToolError: There is no such task, or no run calls it.
        """
        site = call_site()
        if site is None:
            raise ToolError("background tasks belong to a run, and no run calls this tool here")
        tasks = self._background.tasks_of(site.run_id, site.own)
        if self._form.name == background_wait.__name__:
            tasks = _chosen(tasks, arguments.get("ids") or [])
            seconds = arguments.get("seconds", _DEFAULT_WAIT_S)
            await ended(tasks, min(max(0.0, float(seconds)), LONGEST_WAIT_S))
        return in_words(tasks)


def _chosen(tasks: list[BackgroundTask], ids: Sequence[str]) -> list[BackgroundTask]:
    unknown = set(ids).difference(task.id for task in tasks)
    if unknown:
        known = ", ".join(task.id for task in tasks) or "none"
        raise ToolError(f"there is no task {', '.join(sorted(unknown))}; there are: {known}")
    return [task for task in tasks if task.id in ids] if ids else tasks


def _checked(functions: object) -> Sequence[Any]:
    if isinstance(functions, list | tuple) and functions:
        return functions  # pyright: ignore[reportUnknownVariableType]
    raise ConfigError(
        f"BackgroundTasks takes a list of functions, not {functions!r:.80};"
        " give those that the agent may start: BackgroundTasks([render])"
    )


_DEFAULT_WAIT_S: Final = 60.0
_POLLING: Final = ToolOptions(traits=ToolTraits(polling=True, idempotent=True))


def background_list() -> None:
    """See how the tasks stand that you started in the background."""


def background_wait(ids: list[str] | None = None, seconds: float = _DEFAULT_WAIT_S) -> None:
    """Wait until tasks that you started in the background have ended, and see what they gave.

    Args:
        ids: The ids of the tasks; leave it out for all.
        seconds: Most seconds to wait, up to 300.
    """
