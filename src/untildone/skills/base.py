"""What a skill is, and that none calls itself."""

from __future__ import annotations

import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from typing import Any, ClassVar, Final

from untildone.domain.errors import ConfigError, LoopConvergedError, SkillError
from untildone.domain.tools import ToolOutput, ToolSpec
from untildone.ports import Offload, Tool
from untildone.tools import as_tool
from untildone.tools.json_arguments import JsonArguments

_NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}}

_MOST_NESTED: Final = 16
"""How many skills may run inside one another; more is a circle of ever new objects."""

_running: ContextVar[tuple[Skill, ...]] = ContextVar("untildone_running_skills", default=())
"""The skills that this code runs inside of, the outermost first."""


class Skill(ABC):
    """Something an agent may call like a tool: derive from it, name it, and write ``execute`` (S1).

    A skill is a ``Tool`` as well, so it may stand in ``tools`` and ``tool_defs`` too.

    Attributes:
        name: What the model calls it: letters, digits, ``_`` and ``-``, at most 64.
        description: What the model is told.
        parameters: JSON Schema of the arguments, an object.
    """

    name: str
    description: str = ""
    parameters: dict[str, Any] = _NO_PARAMETERS

    _guards_itself: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own: Any = cls.__dict__.get("execute")
        if inspect.iscoroutinefunction(own) and not getattr(own, "__isabstractmethod__", False):
            cls.execute = _converging(own)

    @abstractmethod
    async def execute(self, **kwargs: Any) -> str:
        """Does it and gives the text that the caller reads.

        A ``LoopConvergedError`` that leaves it is its success: the text of that result.

        Args:
            **kwargs: The arguments, by the names in ``parameters``.
        """

    def to_tool_def(self) -> Tool:
        """The skill as an entry of ``tools`` or ``tool_defs``."""
        return as_tool(self)

    @property
    def spec(self) -> ToolSpec:
        """What the model is told of it.

        Raises:
            ConfigError: It has no name.
        """
        name = getattr(self, "name", None)
        if not isinstance(name, str):
            raise ConfigError(f"the skill {self!r:.80} has no name; set name = '...' in its class")
        return ToolSpec(name=name, description=self.description, parameters=self.parameters)

    def parse(self, arguments: str) -> dict[str, Any]:
        """The arguments of a call, held against ``parameters``.

        Raises:
            ToolError: They are no JSON object or do not fit.
        """
        return self._arguments.parse(arguments)

    async def run(self, arguments: dict[str, Any], offload: Offload) -> str | ToolOutput:
        """One call by a model.

        Raises:
            SkillError: The call comes out of this very skill.
            Exception: Whatever the skill raises.
        """
        del offload
        if self._guards_itself:
            return await self.execute(**arguments)
        with running(self):
            return await self.execute(**arguments)

    @cached_property
    def _arguments(self) -> JsonArguments:
        return JsonArguments(self.parameters)


def converged_text(error: LoopConvergedError) -> str:
    """What a run that converged early inside a skill gives the skill's caller."""
    return error.answer


def _converging(execute: Callable[..., Awaitable[str]]) -> Any:
    @functools.wraps(execute)
    async def execute_to_the_end(self: Skill, **kwargs: Any) -> str:
        try:
            return await execute(self, **kwargs)
        except LoopConvergedError as error:
            return converged_text(error)

    return execute_to_the_end


@contextmanager
def running(skill: Skill) -> Generator[None]:
    """While it is open, this skill cannot be called again from inside; another of its name can.

    Raises:
        SkillError: It is open already, or too many are: without this, two skills could call each
            other without end.
    """
    chain = _running.get()
    if any(other is skill for other in chain):
        begin = next(index for index, other in enumerate(chain) if other is skill)
        path = " → ".join(other.name for other in (*chain[begin:], skill))
        raise SkillError(
            f"the skill {skill.name!r} is already at work and cannot call itself ({path});"
            " go on without it"
        )
    if len(chain) >= _MOST_NESTED:
        raise SkillError(
            f"the skill {skill.name!r} would run inside {len(chain)} others, the outermost of which"
            f" is {chain[0].name!r}; the most is {_MOST_NESTED}; go on without it"
        )
    token = _running.set((*chain, skill))
    try:
        yield
    finally:
        _running.reset(token)
