"""``@tool``: a function says that it is a tool, and how its calls count.

Light on purpose: a script that marks functions loads neither schemas nor pydantic by that.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar, cast, overload

from untildone.domain.errors import ConfigError
from untildone.policy.cutting import DEFAULT_MAX_RESULT_CHARS
from untildone.tools.callables import is_kind
from untildone.tools.options import ToolOptions, checked_traits

Function = TypeVar("Function", bound=Callable[..., Any])

OPTIONS_MARK: Final = "__untildone_tool__"
"""The attribute in which a function carries what ``@tool`` was told."""


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
    if not isinstance(function, types.FunctionType) or hasattr(function, OPTIONS_MARK):
        function = _wrapped(function)
    setattr(function, OPTIONS_MARK, options)
    return function


def _wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    if is_kind(function, inspect.iscoroutinefunction):

        async def call_async(*args: Any, **kwargs: Any) -> Any:
            return await function(*args, **kwargs)

        return functools.wraps(function)(call_async)

    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return functools.wraps(function)(call)
