"""What a skill is, and that none calls itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from typing import Any, ClassVar

from untildone.domain.errors import ConfigError, SkillError
from untildone.domain.tools import ToolSpec
from untildone.ports import Offload, Tool
from untildone.tools import as_tool
from untildone.tools.json_arguments import JsonArguments

_NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}}

_running: ContextVar[tuple[str, ...]] = ContextVar("untildone_running_skills", default=())
"""The names of the skills that this code runs inside of, the outermost first."""


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

    @abstractmethod
    async def execute(self, **kwargs: Any) -> str:
        """Does it and gives the text that the caller reads.

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

    async def run(self, arguments: dict[str, Any], offload: Offload) -> str:
        """One call by a model.

        Raises:
            SkillError: The call comes out of this very skill.
            Exception: Whatever the skill raises.
        """
        del offload
        if self._guards_itself:
            return await self.execute(**arguments)
        with running(self.name):
            return await self.execute(**arguments)

    @cached_property
    def _arguments(self) -> JsonArguments:
        return JsonArguments(self.parameters)


@contextmanager
def running(name: str) -> Generator[None]:
    """While it is open, the skill of this name cannot be called again from inside.

    Raises:
        SkillError: It is open already: without this, two skills could call each other without end.
    """
    chain = _running.get()
    if name in chain:
        path = " → ".join([*chain[chain.index(name) :], name])
        raise SkillError(
            f"the skill {name!r} is already at work and cannot call itself ({path});"
            " go on without it"
        )
    token = _running.set((*chain, name))
    try:
        yield
    finally:
        _running.reset(token)
