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
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Self

from untildone.domain.errors import ConfigError, ToolError, describe
from untildone.domain.messages import Message
from untildone.domain.tools import ToolSpec, ToolTraits, output_text
from untildone.policy.cutting import cut_text, encodable
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
_IS_LOST: Final = "The process it ran in is gone."
_MOST_ENDED: Final = 1000
_MOST_REPORTED: Final = 4000
_MOST_TOLD: Final = 40_000
_STARTED: Final = re.compile(r"Task ([0-9a-f]{8}) \(([A-Za-z0-9_-]+)\) was started")
_ENDED: Final = re.compile(r"Task ([0-9a-f]{8}) \([A-Za-z0-9_-]+\): (?:finished|failed|lost)")
_ADVICE: Final = "call background_wait to see them: what you have not seen comes first."
_LONGEST_NOTE: Final = 150


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

    def settle(self) -> None:
        """Notes the end of work that was cancelled before its first step, and so could not."""
        if self.state == "running" and self.work is not None and self.work.done():
            self.state, self.report = "failed", _WAS_CANCELLED


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

    __slots__ = ("_of_runs", "_others", "tools")

    def __init__(self, functions: Sequence[Any]) -> None:
        self._of_runs: dict[str, list[BackgroundTask]] = {}
        self._others: list[BackgroundTask] = []
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
        await _cancel([*self._others, *(task for own in self._of_runs.values() for task in own)])

    async def close_run(self, run_id: str) -> None:
        """Cancels what a run's tasks still do, and waits until they are gone; its end calls this.

        Args:
            run_id: The run, or the id under which code started its tasks.
        """
        try:
            await _cancel(self._own(run_id))
        finally:
            self._others += self._of_runs.pop(run_id, [])
            self._forget_some()

    def tasks_of(self, run_id: str, messages: Sequence[Message]) -> list[BackgroundTask]:
        """A run's tasks, oldest first; those that are gone from this process are ``lost``.

        Args:
            run_id: The run.
            messages: Its own messages, which tell of lost ones; some may be there twice.
        """
        own = self._own(run_id)
        for task in own:
            task.settle()
        known = {task.id for task in own}
        lost = {
            found[1]: BackgroundTask(found[1], found[2], run_id, "lost", _IS_LOST)
            for found in _starts_in(messages)
            if found[1] not in known
        }
        return [*lost.values(), *own]

    def hold(self, run_id: str) -> None:
        """Keeps what becomes of a run's tasks until ``close_run``, however many there are.

        Args:
            run_id: The run.
        """
        self._of_runs.setdefault(run_id, [])

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
        self._of_runs.get(run_id, self._others).append(task)
        task.work = asyncio.get_running_loop().create_task(_work(task, tool, arguments))
        task.work.add_done_callback(lambda _: task.settle())
        return task

    def _own(self, run_id: str) -> list[BackgroundTask]:
        earlier = [task for task in self._others if task.run_id == run_id]
        return [*earlier, *self._of_runs.get(run_id, ())]

    def _forget_some(self) -> None:
        """Of the tasks that have ended and whose run has too, or that code started, the oldest."""
        too_many = sum(task.state != "running" for task in self._others) - _MOST_ENDED
        if too_many <= 0:
            return
        kept: list[BackgroundTask] = []
        for task in self._others:
            if too_many > 0 and task.state != "running":
                too_many -= 1
            else:
                kept.append(task)
        self._others = kept


def told_of(
    tasks: Iterable[BackgroundTask], messages: Iterable[Message], feedback: Iterable[str] = ()
) -> set[str]:
    """The ids of the tasks whose whole report the agent was given, by a tool or by feedback."""
    ended = {task.id: task for task in tasks if task.state != "running"}
    texts = [message.text for message in messages if message.role in ("tool", "user")]
    return {
        task.id
        for text in (*texts, *feedback)
        for found in _ENDED.finditer(text)
        if (task := ended.get(found[1])) is not None
        # What a lost one reported is not known here; elsewhere the agent may have been given it.
        and (task.state == "lost" or text.startswith(task.in_words(), found.start()))
    }


async def ended(tasks: Iterable[BackgroundTask], seconds: float) -> None:
    """Waits until all of these tasks have ended, or time is up."""
    works = [task.work for task in tasks if task.work is not None and not task.work.done()]
    if works:
        await asyncio.wait(works, timeout=seconds)


def unseen_first(tasks: Sequence[BackgroundTask], told: AbstractSet[str]) -> list[BackgroundTask]:
    """Tasks whose end the agent does not know, then those that run, then those it knows of."""
    return sorted(tasks, key=lambda task: (task.id in told, task.state == "running"))


def in_words(tasks: Sequence[BackgroundTask], most_chars: int = _MOST_TOLD) -> str:
    """How tasks stand, with what they gave: as many whole reports as there is room for.

    Args:
        tasks: The tasks, what matters most first.
        most_chars: The room.
    """
    reports = [task.in_words() for task in tasks]
    whole = "\n".join(reports) or "No task was started."
    if len(whole) <= most_chars:
        return whole
    told: list[str] = []
    room = most_chars - _LONGEST_NOTE
    for report in reports:
        if len(report) < room:
            told.append(report)
            room -= len(report) + 1
    left_out = len(reports) - len(told)
    return "\n".join([*told, f"… and {left_out} more, for which there is no room here; {_ADVICE}"])


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
        task.settle()


async def _work(task: BackgroundTask, tool: Tool, arguments: dict[str, Any]) -> None:
    try:
        report = output_text(await tool.run(arguments, _in_thread))
    except (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt):
        task.state, task.report = "failed", _WAS_CANCELLED
        raise
    except BaseException as error:  # a tool's own kind too, and SystemExit of a command line parser
        task.state = "failed"
        task.report = _report(str(error) if isinstance(error, ToolError) else describe(error))
    else:
        task.state, task.report = "finished", _report(report)


def _report(text: str) -> str:
    """A report as it is sent, so that it can be found again in the conversation."""
    return cut_text(encodable(text), _MOST_REPORTED)


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
        site.closers.add(self._background.close_run)
        self._background.hold(site.run_id)
        task = self._background.start(self._tool, arguments, site.run_id)
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
        messages = [*(each for done in site.attempts for each in done.messages), *site.own]
        tasks = self._background.tasks_of(site.run_id, messages)
        if self._form.name == background_wait.__name__:
            tasks = _chosen(tasks, arguments.get("ids") or [])
            seconds = arguments.get("seconds", _DEFAULT_WAIT_S)
            await ended(tasks, min(max(0.0, float(seconds)), LONGEST_WAIT_S))
        return in_words(unseen_first(tasks, told_of(tasks, site.own)))


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
