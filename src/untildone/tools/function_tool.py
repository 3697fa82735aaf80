"""``@tool``, and a function as something a model may call.

``@tool`` only makes a note on the function: it stays the function it was, for its callers, for
type checkers and for ``inspect``. One without a note is a tool too, with the defaults.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing
from typing import Any, cast

from untildone.domain.errors import ConfigError, ToolError
from untildone.domain.tools import ToolOutput, ToolSpec
from untildone.ports import Offload
from untildone.tools.callables import call_of, class_of, is_kind, unwrapped_partial
from untildone.tools.decorator import OPTIONS_MARK
from untildone.tools.options import PLAIN_OPTIONS, ToolOptions, check_name
from untildone.tools.results import MAX_ITERATED, taken, tool_output
from untildone.tools.schema import FunctionSchema, function_schema


class FunctionTool:
    """A function as a ``Tool``. Its schema is made when it is first needed.

    Attributes:
        name: What the model calls it.
        options: What was said of it.

    Args:
        function: Any callable, sync or async.
        options: Default: those that ``@tool`` noted on it, if any.

    Raises:
        ConfigError: It has no name that a model could use.
    """

    __slots__ = ("_function", "_in_loop", "_known", "_spec", "_yields", "name", "options")

    name: str
    options: ToolOptions

    def __init__(self, function: Callable[..., Any], options: ToolOptions | None = None) -> None:
        self.options = options or _noted_options(function)
        self.name = self.options.name or _own_name(function)
        self._function = function
        self._yields = is_kind(function, inspect.isasyncgenfunction)
        self._in_loop = self._yields or is_kind(function, inspect.iscoroutinefunction)
        self._known: FunctionSchema | None = None
        self._spec: ToolSpec | None = None

    def __repr__(self) -> str:
        return f"FunctionTool({self.name!r}, {function_label(self._function)})"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the function itself."""
        return self._function(*args, **kwargs)

    @property
    def spec(self) -> ToolSpec:
        """What the model is told of it.

        Raises:
            ConfigError: A parameter's type is unknown at run time or has no form in JSON.
        """
        if self._spec is None:
            known = self._schema()
            description = self.options.description
            self._spec = ToolSpec(
                name=self.name,
                description=known.description if description is None else description,
                parameters=known.json_schema,
                traits=self.options.traits,
            )
        return self._spec

    def _schema(self) -> FunctionSchema:
        if self._known is None:
            self._known = function_schema(self._function, function_label(self._function))
        return self._known

    def parse(self, arguments: str) -> dict[str, Any]:
        """The arguments as the function takes them: models, enum members, dates.

        Values must have the type that the schema says: ``"5"`` is no integer. Unknown ones are
        refused. What was left out is not in it, so the function's defaults apply.

        Raises:
            ToolError: They are no JSON object or do not fit; the text tells the model what would.
        """
        return (self._known or self._schema()).arguments.parse(arguments)

    async def run(self, arguments: dict[str, Any], offload: Offload) -> str | ToolOutput:
        """Runs one call with parsed arguments and gives what the model gets.

        An async function runs here, any other one through ``offload``; an awaitable that it
        returns is awaited, what it yields is collected.

        Raises:
            ToolError: It took longer than ``timeout_s``.
            Exception: Whatever the function raises.
        """
        seconds = self.options.timeout_s
        if seconds is None:
            return await self._outcome(arguments, offload)
        return await self._outcome_within(seconds, arguments, offload)

    async def _outcome_within(
        self, seconds: float, arguments: dict[str, Any], offload: Offload
    ) -> str | ToolOutput:
        scope = asyncio.timeout(seconds)
        try:
            async with scope:
                return await self._outcome(arguments, offload)
        except TimeoutError as error:
            if not scope.expired():  # the function's own
                raise
            raise ToolError(
                f"timed out: {self.name} gave no result within {seconds:g} s;"
                " whether it had an effect is not known"
            ) from error

    async def _outcome(self, arguments: dict[str, Any], offload: Offload) -> str | ToolOutput:
        if not self._in_loop:
            outcome = await offload(functools.partial(self._call_in_thread, arguments))
            if isinstance(outcome, str | ToolOutput):
                return outcome
            return self._output(await outcome)
        if self._yields:
            return self._output(iter(await _first_items(self._call(arguments))))
        return self._output(await self._call(arguments))

    def _call(self, arguments: dict[str, Any]) -> Any:
        bind = (self._known or self._schema()).bind
        if bind is None:
            return self._function(**arguments)
        positional, keyword = bind(arguments)
        return self._function(*positional, **keyword)

    def _call_in_thread(self, arguments: dict[str, Any]) -> str | ToolOutput | Awaitable[Any]:
        """The text, made where it blocks nobody; or an awaitable, which only the loop can await."""
        try:
            value = self._call(arguments)
            return value if inspect.isawaitable(value) else self._output(value)
        except StopIteration as error:  # no future can carry it
            raise RuntimeError(f"{self.name} raised StopIteration") from error

    def _output(self, value: object) -> str | ToolOutput:
        """A value as text, cut. What a generator raises on the way is the function's error."""
        if type(value) is not str and isinstance(value, Iterator):
            value = taken(cast("Iterator[Any]", value))
        return tool_output(value, self.options.max_result_chars)


async def _first_items(values: AsyncGenerator[Any, None]) -> list[Any]:
    items: list[Any] = []
    async with aclosing(values):
        async for item in values:
            items.append(item)
            if len(items) > MAX_ITERATED:
                break
    return items


def _noted_options(function: Any) -> ToolOptions:
    function = unwrapped_partial(function)
    noted: object = getattr(function, OPTIONS_MARK, None)
    if noted is None:
        noted = getattr(call_of(function), OPTIONS_MARK, None)
    return noted if isinstance(noted, ToolOptions) else PLAIN_OPTIONS


def _own_name(function: Any) -> str:
    """The name of a function that was given none."""
    function = unwrapped_partial(function)
    name: object = getattr(function, "__name__", None)
    if not isinstance(name, str):
        return check_name(class_of(function).__name__)
    if name == "<lambda>":
        raise ConfigError(
            f"a lambda has no name to call it by ({function!r:.80});"
            ' name it: tool(name="search")(lambda query: ...)'
        )
    return check_name(name)


def function_label(function: Any) -> str:
    """How errors name a function: module and qualified name."""
    function = unwrapped_partial(function)
    named: Any = function if hasattr(function, "__qualname__") else class_of(function)
    module: object = getattr(named, "__module__", None)
    return f"{module}.{named.__qualname__}" if module else f"{named.__qualname__}"
