"""From what a person puts in ``tools=[...]`` to tools by name."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any, cast

from untildone.domain.errors import ConfigError
from untildone.domain.tools import ToolOutput, ToolSpec
from untildone.policy.cutting import DEFAULT_MAX_RESULT_CHARS
from untildone.ports import Offload, Tool
from untildone.tools.function_tool import FunctionTool, function_label
from untildone.tools.options import check_name
from untildone.tools.results import tool_output


def as_tool(item: object) -> Tool:
    """Makes a tool of a function, method, callable object or partial; a ``Tool`` stays one.

    Args:
        item: The function or tool. Of an object with ``spec``, ``parse`` and ``run``, results are
            cut at its ``max_result_chars``, if it has that, else at 50,000 characters.

    Raises:
        ConfigError: It is neither, or has no name that a model could use.
    """
    if isinstance(item, FunctionTool | CutTool):
        return item
    if isinstance(item, staticmethod):
        return FunctionTool(cast("staticmethod[..., Any]", item).__func__)
    if isinstance(item, type):
        raise ConfigError(
            f"tools has the class {item.__qualname__}; make an object of it:"
            f" {item.__name__}(...), or give one of its methods"
        )
    if all(hasattr(item, name) for name in ("spec", "parse", "run")):
        return CutTool(cast("Tool", item))
    if callable(item):
        return FunctionTool(item)
    raise ConfigError(_no_tool(item))


def collect_tools(items: Iterable[object]) -> dict[str, Tool]:
    """The tools of a run by name, in order.

    Raises:
        ConfigError: Something is no tool, or two have one name.
    """
    tools: dict[str, Tool] = {}
    origins: dict[str, object] = {}
    for item in items:
        made = as_tool(item)
        name = made.name if isinstance(made, FunctionTool | CutTool) else made.spec.name
        if name in tools:
            raise ConfigError(
                f"two tools are named {name!r}: {_label(origins[name])} and {_label(item)};"
                ' leave one out or rename it: tool(name="...")(function)'
            )
        tools[name] = made
        origins[name] = item
    return tools


class CutTool:
    """A tool that is no function of ours, with its results cut like those of the others.

    Raises:
        ConfigError: Its spec or its name cannot be used.
    """

    __slots__ = ("_max_chars", "name", "wrapped")

    def __init__(self, wrapped: Tool) -> None:
        self.name = check_name(_checked_spec(wrapped, wrapped.spec).name)
        self.wrapped = wrapped
        self._max_chars: int = getattr(wrapped, "max_result_chars", DEFAULT_MAX_RESULT_CHARS)

    @property
    def spec(self) -> ToolSpec:
        """The wrapped tool's."""
        return self.wrapped.spec

    def parse(self, arguments: str) -> dict[str, Any]:
        """What the wrapped tool makes of them."""
        return self.wrapped.parse(arguments)

    async def run(self, arguments: dict[str, Any], offload: Offload) -> str | ToolOutput:
        """What the wrapped tool gives, as text and cut, its attachments apart."""
        return tool_output(await self.wrapped.run(arguments, offload), self._max_chars)


def _checked_spec(owner: object, spec: object) -> ToolSpec:
    if isinstance(spec, ToolSpec):
        return spec
    raise ConfigError(f"the spec of {_label(owner)} is {spec!r:.80}; it must be a ToolSpec")


def _label(item: object) -> str:
    if isinstance(item, FunctionTool):
        return repr(item)
    if callable(item):
        return function_label(item)
    return f"a {type(item).__module__}.{type(item).__qualname__}"


def _no_tool(item: object) -> str:
    if inspect.iscoroutine(item):
        item.close()
        return (
            f"tools has a coroutine of {item.__qualname__}(); give the function, without calling it"
        )
    hint = "give functions, methods or objects with spec, parse and run"
    if isinstance(item, dict):
        hint = "a schema alone cannot run: give the function, its schema is made from type hints"
    elif isinstance(item, classmethod):
        hint = "give the method of the class: SomeClass.method"
    elif isinstance(item, list | tuple):
        hint = "put all tools in one flat list"
    return f"tools has {item!r:.80}, which is no tool; {hint}"
