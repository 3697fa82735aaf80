"""A todo list that an agent keeps: it adds items, marks them as done, and reads what is left.

The list is the last answer that one of its tools gave in the run, in whichever iteration. So a
``TodoList`` holds nothing itself: one serves any number of runs and candidates at once, each with a
list of its own, and a resumed run goes on with the list it had.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from untildone.domain.attempts import Attempt
from untildone.domain.call_site import CallSite
from untildone.domain.errors import ConfigError, ToolError
from untildone.domain.messages import Message, ToolCall
from untildone.domain.tools import ToolSpec, ToolTraits
from untildone.ports import Offload, Tool
from untildone.tools.call_site import answered_calls, call_site
from untildone.tools.function_tool import FunctionTool
from untildone.tools.options import ToolOptions

MOST_ITEMS: Final = 200
"""How many items one list may have."""
LONGEST_ITEM: Final = 500
"""How many characters one item may have."""
MOST_CHARS: Final = 40_000
"""How many characters the items of one list may have together: every call gives the whole list."""

_MOST_TOLD: Final = 15_000

_HEAD: Final = "Todo list"
_ITEM: Final = re.compile(r"\[([ x])\] (\d+)\. (.+)")
_MODE: Final = re.compile(r"\(mode: ([A-Za-z0-9_-]+)\)")
_MODE_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class TodoItem:
    """One item; its number never changes."""

    number: int
    text: str
    done: bool = False


@dataclass(frozen=True, slots=True)
class Todos:
    """A list at one moment.

    Attributes:
        items: In the order in which they were added.
        mode: The mode the agent works in; None where the list has no modes.
    """

    items: tuple[TodoItem, ...] = ()
    mode: str | None = None

    @property
    def open_items(self) -> tuple[TodoItem, ...]:
        """What is not done."""
        return tuple(item for item in self.items if not item.done)

    def in_words(self) -> str:
        """The list as text; ``todos_in`` reads it back."""
        mode = f" (mode: {self.mode})" if self.mode is not None else ""
        if not self.items:
            return f"{_HEAD}{mode}: empty"
        done = len(self.items) - len(self.open_items)
        return "\n".join([f"{_HEAD}{mode}: {done} of {len(self.items)} done", *_lines(self.items)])


def open_in_words(todos: Todos) -> str:
    """What is not done, as feedback for the agent; of a long list as much as can be sent."""
    mode = f" (mode: {todos.mode})" if todos.mode is not None else ""
    lines = _lines(todos.open_items)
    sizes = itertools.accumulate(len(line) + 1 for line in lines)
    shown = sum(size <= _MOST_TOLD for size in sizes)
    left_out = len(lines) - shown
    more = [f"… and {left_out} more, which todo_read shows"] if left_out else []
    return "\n".join([f"Your todo list still has open items{mode}:", *lines[:shown], *more])


def todos_in(
    messages: Sequence[Message],
    *,
    attempts: Sequence[Attempt] = (),
    first_mode: str | None = None,
) -> Todos:
    """The list as a run has it.

    Args:
        messages: The run's own in the current iteration; nothing that the caller gave counts.
        attempts: What it did in earlier iterations, oldest first.
        first_mode: The mode before the agent has set one.
    """
    answers = told_in(messages)
    if answers:
        return _read(answers[-1], first_mode)
    for attempt in reversed(attempts):
        answers = told_in(attempt.messages)
        if answers and attempt.is_merge:
            return merged_todos(answers, first_mode=first_mode)
        if answers:
            return _read(answers[-1], first_mode)
    return Todos(mode=first_mode)


def told_in(messages: Sequence[Message]) -> list[str]:
    """What the list's tools answered, in order."""
    return [
        answer.text
        for call, answer in answered_calls(messages)
        if call.name in TOOL_NAMES and not answer.is_error
    ]


def merged_todos(told: Sequence[str], *, first_mode: str | None = None) -> Todos:
    """The list of several candidates whose answers were merged: their items, numbered anew.

    Items of one text are one, and what any candidate has done is done: nothing that somebody left
    open is forgotten, and nothing that is in the merged answer has to be done again.

    Args:
        told: What the tools of all of them answered.
        first_mode: The mode before an agent has set one.
    """
    done: dict[str, bool] = {}
    mode = first_mode
    for text in told:
        todos = _read(text, first_mode)
        mode = todos.mode
        for item in todos.items:
            done[item.text] = done.get(item.text, False) or item.done
    items = (TodoItem(number, text, done[text]) for number, text in enumerate(done, 1))
    return Todos(tuple(items), mode)


class TodoList:
    """A todo list as tools, for ``Agent.tools``: ``Agent(..., tools=[*TodoList().tools])``.

    With ``TodoCompletion`` among the criteria, the loop goes on until every item is done.

    Args:
        modes: Names of the modes that the agent can switch between, the first one it begins in,
            such as ``("plan", "execute")``; empty: there are none.

    Raises:
        ConfigError: A mode has no usable name, or stands twice.
    """

    name: Final = "todo"

    __slots__ = ("modes", "tools")

    def __init__(self, *, modes: Sequence[str] = ()) -> None:
        self.modes = _checked_modes(modes)
        forms = [FunctionTool(function, ToolOptions(traits=_REPEATABLE)) for function in _FORMS]
        if self.modes:
            told = f"Say which mode you work in from now on: {', '.join(self.modes)}."
            options = ToolOptions(description=told, traits=_REPEATABLE)
            forms.append(FunctionTool(todo_set_mode, options))
        self.tools: tuple[Tool, ...] = tuple(_TodoTool(self, form) for form in forms)

    def __repr__(self) -> str:
        return f"TodoList(modes={list(self.modes)!r})" if self.modes else "TodoList()"

    @property
    def first_mode(self) -> str | None:
        """The mode that an agent begins in."""
        return self.modes[0] if self.modes else None

    def items_in(self, messages: Sequence[Message], attempts: Sequence[Attempt] = ()) -> Todos:
        """The list as a run has it; see ``todos_in``."""
        return todos_in(messages, attempts=attempts, first_mode=self.first_mode)


class _TodoTool:
    """One of the list's tools; its answer is always the whole list, and therefore never cut."""

    __slots__ = ("_form", "_todos")

    max_result_chars: Final = sys.maxsize

    def __init__(self, todos: TodoList, form: FunctionTool) -> None:
        self._todos = todos
        self._form = form

    def __repr__(self) -> str:
        return f"<the tool {self._form.name!r} of {self._todos!r}>"

    @property
    def spec(self) -> ToolSpec:
        """What the model is told of it."""
        return self._form.spec

    def parse(self, arguments: str) -> dict[str, Any]:
        """The arguments of a call."""
        return self._form.parse(arguments)

    async def run(self, arguments: dict[str, Any], offload: Offload) -> str:  # noqa: ARG002
        """Does what the call asks for and gives the list.

        Raises:
            ToolError: It cannot be done; the list stays as it was.
        """
        name = self._form.name
        site = call_site()
        if site is None:
            raise ToolError(f"{name} works on the list of a run, and no run calls it here")
        before = self._before(site)
        return _changed(before, name, arguments, self._todos.modes).in_words()

    def _before(self, site: CallSite) -> Todos:
        """The list before this call: earlier calls of the same batch have their effect."""
        todos = self._todos.items_in(site.of_this_iteration, site.attempts)
        for call in site.batch[: site.index]:
            todos = self._after(todos, call)
        return todos

    def _after(self, todos: Todos, call: ToolCall) -> Todos:
        for tool in self._todos.tools:
            if tool.spec.name == call.name:
                try:
                    arguments = tool.parse(call.arguments)
                    return _changed(todos, call.name, arguments, self._todos.modes)
                except ToolError:
                    return todos
        return todos


def _changed(todos: Todos, name: str, arguments: Mapping[str, Any], modes: Sequence[str]) -> Todos:
    """The list after one call.

    Raises:
        ToolError: It cannot be done; the text tells the model why.
    """
    match name:
        case "todo_add":
            return _with_items(todos, arguments["items"])
        case "todo_complete":
            return _with_done(todos, arguments["numbers"])
        case "todo_set_mode":
            mode = arguments["mode"]
            if mode not in modes:
                raise ToolError(f"there is no mode {mode!r}; use one of {', '.join(modes)}")
            return replace(todos, mode=mode)
        case _:
            return todos


def _with_items(todos: Todos, texts: Sequence[str]) -> Todos:
    cleaned = [" ".join(text.split()) for text in texts]
    if not cleaned or not all(cleaned):
        raise ToolError("an item needs a text; nothing was added")
    if any(len(text) > LONGEST_ITEM for text in cleaned):
        raise ToolError(f"an item has at most {LONGEST_ITEM} characters; nothing was added")
    if len(todos.items) + len(cleaned) > MOST_ITEMS:
        raise ToolError(f"a list has at most {MOST_ITEMS} items; nothing was added")
    size = sum(len(text) for text in (*cleaned, *(item.text for item in todos.items)))
    if size > MOST_CHARS:
        raise ToolError(
            f"the items of a list have at most {MOST_CHARS:,} characters together, and with these"
            f" they would have {size:,}; nothing was added: use fewer words"
        )
    first = max((item.number for item in todos.items), default=0) + 1
    added = (TodoItem(number, text) for number, text in enumerate(cleaned, first))
    return replace(todos, items=(*todos.items, *added))


def _with_done(todos: Todos, numbers: Sequence[int]) -> Todos:
    unknown = sorted(set(numbers).difference(item.number for item in todos.items))
    if unknown:
        named = ", ".join(str(number) for number in unknown)
        raise ToolError(f"there is no item {named}; nothing was changed. {todos.in_words()}")
    items = (replace(item, done=item.done or item.number in numbers) for item in todos.items)
    return replace(todos, items=tuple(items))


def _lines(items: Sequence[TodoItem]) -> list[str]:
    return [f"[{'x' if item.done else ' '}] {item.number}. {item.text}" for item in items]


def _read(text: str, first_mode: str | None) -> Todos:
    """The list in a text: the line that names it, and the lines of items right below."""
    head, *below = text.splitlines()
    lines = itertools.takewhile(bool, (_ITEM.fullmatch(line) for line in below))
    items = (TodoItem(int(line[2]), line[3], done=line[1] == "x") for line in lines if line)
    mode = _MODE.search(head)
    return Todos(tuple(items), mode[1] if mode is not None else first_mode)


def _checked_modes(modes: object) -> tuple[str, ...]:
    if isinstance(modes, list | tuple):
        names = tuple(cast("Sequence[Any]", modes))
        are_names = all(isinstance(name, str) and _MODE_NAME.fullmatch(name) for name in names)
        if are_names and len(set(names)) == len(names):
            return names
    raise ConfigError(
        f"TodoList.modes is {modes!r:.80}; give a list of different names of letters, digits, _"
        " and -, such as ['plan', 'execute']"
    )


def todo_add(items: list[str]) -> None:
    """Add items to your todo list, one for each thing that has to be done.

    Args:
        items: What has to be done, one short text each.
    """


def todo_complete(numbers: list[int]) -> None:
    """Mark items of your todo list as done.

    Args:
        numbers: The numbers of the items.
    """


def todo_read() -> None:
    """Read your todo list."""


def todo_set_mode(mode: str) -> None:
    """Say which mode you work in from now on.

    Args:
        mode: The name of the mode.
    """


# A call that was cut off by a crash can be run again: it depends on the conversation alone.
_REPEATABLE: Final = ToolTraits(idempotent=True)
_FORMS: Final = (todo_add, todo_complete, todo_read)
TOOL_NAMES: Final = frozenset(form.__name__ for form in (*_FORMS, todo_set_mode))
"""How the model calls the list's tools."""
