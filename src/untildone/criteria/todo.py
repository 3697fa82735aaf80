"""``todoCompletion``: done when every item of the agent's todo list is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast

from untildone.criteria.own_messages import own_messages
from untildone.domain.errors import ConfigError
from untildone.domain.grading import CriterionContext, CriterionVerdict
from untildone.tools.todo import (
    TOOL_NAMES,
    TodoList,
    Todos,
    merged_todos,
    open_in_words,
    told_in,
)


class TodoCompletion:
    """Done when the todo list that the agent keeps in this run has no open item (S3).

    It is the list of the run: what an earlier iteration left open counts with a fresh context too.
    Where candidates were merged, the list is that of all of them: items of one text are one, and
    what any of them has done is done.

    A run in which the agent made no list has nothing open: put a criterion that asks for the work
    itself beside this one.

    Args:
        todos: The list whose tools the agent has.
        modes: The modes in which open items keep the loop going; in any other it is satisfied.
            Default: in every mode.

    Raises:
        ConfigError: ``todos`` is no ``TodoList``, or it has no such mode.
    """

    kind: Final = "todoCompletion"

    __slots__ = ("modes", "todos")

    def __init__(self, todos: TodoList, *, modes: Sequence[str] | None = None) -> None:
        if not isinstance(todos, TodoList):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(f"TodoCompletion takes a TodoList, not {todos!r:.80}")
        self.todos = todos
        self.modes = None if modes is None else _checked(modes, todos.modes)

    def __repr__(self) -> str:
        modes = "" if self.modes is None else f", modes={list(self.modes)!r}"
        return f"TodoCompletion({self.todos!r}{modes})"

    def evaluate(self, ctx: CriterionContext) -> CriterionVerdict:
        """Looks for open items."""
        todos = self._todos_of(ctx)
        if not todos.open_items or (self.modes is not None and todos.mode not in self.modes):
            return CriterionVerdict(satisfied=True)
        return CriterionVerdict(
            satisfied=False,
            feedback=f"{open_in_words(todos)}\nDo what is left, and mark each item with"
            " todo_complete as soon as it is done.",
        )

    def _todos_of(self, ctx: CriterionContext) -> Todos:
        """What the iteration made of the list; else as an earlier one has left it.

        A merge goes forward as one message, without the calls that its candidates made.
        """
        told = [
            call["result"]
            for call in ctx.result.tool_calls
            if call["tool"] in TOOL_NAMES and not call["is_error"] and call["result"] is not None
        ]
        if not told:
            return self.todos.items_in((), ctx.attempts)
        own = own_messages(ctx)
        if told_in(own)[-len(told) :] != told:
            return merged_todos(told, first_mode=self.todos.first_mode)
        return self.todos.items_in(own)


def _checked(modes: object, known: Sequence[str]) -> tuple[str, ...]:
    listed = tuple(cast("Sequence[Any]", modes)) if isinstance(modes, list | tuple) else ()
    if listed and all(mode in known for mode in listed):
        return listed
    names = ", ".join(known) or "none: give it some with TodoList(modes=[...])"
    raise ConfigError(
        f"TodoCompletion.modes is {modes!r:.80}; give a list of modes of the TodoList, which has"
        f" {names}"
    )
