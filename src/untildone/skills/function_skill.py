"""``@skill``: a function as a skill."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any, overload

from untildone.domain.errors import ConfigError, LoopConvergedError
from untildone.domain.tools import ToolOutput, ToolSpec, output_text
from untildone.ports import Offload, Tool
from untildone.skills.base import Skill, converged_text, running
from untildone.tools import FunctionTool, as_tool
from untildone.tools.options import ToolOptions


class FunctionSkill(Skill):
    """A skill made of a function; ``@skill`` makes them.

    Arguments, schema and results are those of a tool: see ``untildone.tool``. The skill can still
    be called like the function.

    Args:
        function: A function, sync or async.
        name: What the model calls it; default: the function's name.
        description: What the model is told; default: its docstring.

    Raises:
        ConfigError: It is no function, or has no name or signature that a model could use.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
    ) -> None:
        noted = _noted(function, name)
        if not isinstance(noted, FunctionTool):
            raise ConfigError(f"a skill cannot be made of {function!r:.80}; give a function")
        options = replace(
            noted.options,
            name=noted.name if name is None else name,
            description=noted.options.description if description is None else description,
            max_result_chars=sys.maxsize,  # cut where a model reads it, not for callers in Python
        )
        self._tool = FunctionTool(function, options)
        self.max_result_chars = noted.options.max_result_chars
        spec = self._tool.spec
        self.name = spec.name
        self.description = spec.description
        self.parameters = spec.parameters

    def __repr__(self) -> str:
        return f"FunctionSkill({self.name!r})"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the function itself."""
        return self._tool(*args, **kwargs)

    @property
    def spec(self) -> ToolSpec:
        """What the model is told of it."""
        return self._tool.spec

    def parse(self, arguments: str) -> dict[str, Any]:
        """The arguments as the function takes them.

        Raises:
            ToolError: They are no JSON object or do not fit.
        """
        return self._tool.parse(arguments)

    async def execute(self, **kwargs: Any) -> str:
        """Calls the function, a sync one in a thread, and gives what it returns as text.

        A ``LoopConvergedError`` of a run inside it is its success: the text of that result.

        Raises:
            SkillError: The call comes out of this very skill.
            Exception: Whatever the function raises.
        """
        return output_text(await self.run(kwargs, asyncio.to_thread))

    async def run(self, arguments: dict[str, Any], offload: Offload) -> str | ToolOutput:
        """One call by a model; see ``execute``."""
        with running(self):
            try:
                return await self._tool.run(arguments, offload)
            except LoopConvergedError as error:
                return converged_text(error)


def _noted(function: Any, name: str | None) -> Tool:
    """The function as a tool; a name given here serves what has none of its own, like a lambda."""
    try:
        return as_tool(function)
    except ConfigError:
        if name is None or isinstance(function, type) or not callable(function):
            raise
        return FunctionTool(function, ToolOptions(name=name))


@overload
def skill(function: Callable[..., Any], /) -> FunctionSkill: ...


@overload
def skill(
    *, name: str | None = None, description: str | None = None
) -> Callable[[Callable[..., Any]], FunctionSkill]: ...


def skill(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
) -> Any:
    """Makes a skill of a function: ``@skill`` or ``@skill(name="…", description="…")`` (S1).

    It is not registered by that: give it to an agent in ``skills=[...]``, or to
    ``SkillRegistry.register``.

    Args:
        function: A function, sync or async.
        name: What the model calls it; default: the function's name.
        description: What the model is told; default: its docstring.
    """
    if function is not None:
        return FunctionSkill(function)

    def made(function: Callable[..., Any]) -> FunctionSkill:
        return FunctionSkill(function, name=name, description=description)

    return made
