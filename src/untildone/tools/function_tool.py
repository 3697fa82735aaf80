"""``@tool``, and a function as something a model may call.

``@tool`` only makes a note on the function: it stays the function it was, for its callers, for
type checkers and for ``inspect``. One without a note is a tool too, with the defaults.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import types
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from typing import Any, Final, TypeVar, cast, overload

from untildone.domain.errors import ConfigError, ToolError
from untildone.domain.tools import ToolSpec
from untildone.ports import Offload
from untildone.tools.options import PLAIN_OPTIONS, ToolOptions, check_name, checked_traits
from untildone.tools.results import (
    DEFAULT_MAX_RESULT_CHARS,
    MAX_ITERATED,
    cut_text,
    result_text,
    taken,
)
from untildone.tools.schema import FunctionSchema, function_schema, unwrapped_partial

Function = TypeVar("Function", bound=Callable[..., Any])

_NOTE: Final = "__untildone_tool__"


@overload
def tool(function: Function, /) -> Function: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    timeout_s: float | None = None,
    polling: bool = False,
    idempotent: bool = False,
    nondeterministic: bool = False,
    volatile: Sequence[str] = (),
    max_result_chars: int = DEFAULT_MAX_RESULT_CHARS,
) -> Callable[[Function], Function]: ...


def tool(
    function: Any = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    timeout_s: float | None = None,
    polling: bool = False,
    idempotent: bool = False,
    nondeterministic: bool = False,
    volatile: Sequence[str] = (),
    max_result_chars: int = DEFAULT_MAX_RESULT_CHARS,
) -> Any:
    """Marks a function as a tool: ``@tool`` or ``@tool(name="search", timeout_s=10)``.

    The function itself is returned and can be called as before. What has a mark already, or cannot
    bear one, is wrapped, so ``tool(name="b")(f)`` makes a second tool of one function.

    Args:
        function: A function, sync or async, or a method.
        name: What the model calls it; letters, digits, ``_`` and ``-``, at most 64. Default: the
            function's name.
        description: What the model is told. Default: the docstring without its sections.
        timeout_s: Most seconds a call may take; then the model reads that it timed out. An async
            function is cancelled; a sync one cannot be and goes on in its thread, unheard.
        polling: An unchanged answer is not a repeat.
        idempotent: Running a call twice does what running it once does.
        nondeterministic: Only the call counts for novelty, not the wording of its result.
        volatile: Fields of the arguments or of a JSON result that comparing leaves out.
        max_result_chars: Most characters of a result that are sent, 200 or more.

    Raises:
        ConfigError: A value cannot work, or it is no function.
    """
    options = ToolOptions(
        name=name,
        description=description,
        timeout_s=timeout_s,
        traits=checked_traits(
            polling=polling,
            idempotent=idempotent,
            nondeterministic=nondeterministic,
            volatile=volatile,
        ),
        max_result_chars=max_result_chars,
    )
    if function is None:
        return functools.partial(_marked, options=options)
    return _marked(function, options)


def _marked(function: Any, options: ToolOptions) -> Any:
    if isinstance(function, staticmethod | classmethod):
        kind: Any = type(cast("object", function))
        return kind(_marked(cast("Any", function).__func__, options))
    if isinstance(function, type) or not callable(function):
        raise ConfigError(
            f"@tool is for functions and methods, not for {function!r:.80};"
            ' put it right above a def, options by name: @tool(name="search")'
        )
    if not isinstance(function, types.FunctionType) or hasattr(function, _NOTE):
        function = _wrapped(function)
    setattr(function, _NOTE, options)
    return function


def _wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    if _is_kind(function, inspect.iscoroutinefunction):

        async def call_async(*args: Any, **kwargs: Any) -> Any:
            return await function(*args, **kwargs)

        return functools.wraps(function)(call_async)

    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return functools.wraps(function)(call)


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
        self._yields = _is_kind(function, inspect.isasyncgenfunction)
        self._in_loop = self._yields or _is_kind(function, inspect.iscoroutinefunction)
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

    async def run(self, arguments: dict[str, Any], offload: Offload) -> str:
        """Runs one call with parsed arguments and gives the text for the model.

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
    ) -> str:
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

    async def _outcome(self, arguments: dict[str, Any], offload: Offload) -> str:
        if not self._in_loop:
            outcome = await offload(functools.partial(self._call_in_thread, arguments))
            return outcome if isinstance(outcome, str) else self._text(await outcome)
        if self._yields:
            return self._text(iter(await _first_items(self._call(arguments))))
        return self._text(await self._call(arguments))

    def _call(self, arguments: dict[str, Any]) -> Any:
        bind = (self._known or self._schema()).bind
        if bind is None:
            return self._function(**arguments)
        positional, keyword = bind(arguments)
        return self._function(*positional, **keyword)

    def _call_in_thread(self, arguments: dict[str, Any]) -> str | Awaitable[Any]:
        """The text, made where it blocks nobody; or an awaitable, which only the loop can await."""
        try:
            value = self._call(arguments)
            return value if inspect.isawaitable(value) else self._text(value)
        except StopIteration as error:  # no future can carry it
            raise RuntimeError(f"{self.name} raised StopIteration") from error

    def _text(self, value: object) -> str:
        """A value as text, cut. What a generator raises on the way is the function's error."""
        if type(value) is not str and isinstance(value, Iterator):
            value = taken(cast("Iterator[Any]", value))
        text = result_text(value)
        most = self.options.max_result_chars
        return text if len(text) <= most else cut_text(text, most)


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
    noted: object = getattr(function, _NOTE, None)
    if noted is None:
        noted = getattr(_call_of(function), _NOTE, None)
    return noted if isinstance(noted, ToolOptions) else PLAIN_OPTIONS


def _call_of(function: Any) -> Any:
    """What runs when an object is called."""
    return cast("Any", _class_of(function)).__call__


def _own_name(function: Any) -> str:
    """The name of a function that was given none."""
    function = unwrapped_partial(function)
    name: object = getattr(function, "__name__", None)
    if not isinstance(name, str):
        return check_name(_class_of(function).__name__)
    if name == "<lambda>":
        raise ConfigError(
            f"a lambda has no name to call it by ({function!r:.80});"
            ' name it: tool(name="search")(lambda query: ...)'
        )
    return check_name(name)


def function_label(function: Any) -> str:
    """How errors name a function: module and qualified name."""
    function = unwrapped_partial(function)
    named: Any = function if hasattr(function, "__qualname__") else _class_of(function)
    module: object = getattr(named, "__module__", None)
    return f"{module}.{named.__qualname__}" if module else f"{named.__qualname__}"


def _class_of(function: Any) -> type[Any]:
    return function.__class__


def _is_kind(function: Any, ask: Callable[[Any], bool]) -> bool:
    """Whether a function is of a kind, or the one that a partial or an object stands for."""
    function = unwrapped_partial(function)
    return ask(function) or ask(_call_of(function))
