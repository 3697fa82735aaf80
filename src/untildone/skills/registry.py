"""The skills of this process, by name."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from threading import Lock
from typing import ClassVar

from untildone.domain.errors import ConfigError
from untildone.skills.base import Skill
from untildone.tools.options import check_name


class SkillRegistry:
    """Holds skills for the whole process (S1): all methods are called on the class.

    Distilled skills are put here. May be used from any thread.
    """

    _layers: ClassVar[list[dict[str, Skill]]] = [{}]
    _lock: ClassVar[Lock] = Lock()

    @classmethod
    def register(cls, skill: Skill) -> None:
        """Adds a skill; it takes the place of one with the same name.

        Raises:
            ConfigError: It is no skill, or has no name that a model could use.
        """
        if not isinstance(skill, Skill):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(
                f"{skill!r:.80} is no skill; put @skill above a function or derive from Skill"
            )
        name = check_name(skill.spec.name)
        with cls._lock:
            cls._layers[-1][name] = skill

    @classmethod
    def get(cls, name: str) -> Skill | None:
        """The skill of this name, or None."""
        with cls._lock:
            return cls._layers[-1].get(name)

    @classmethod
    def list_all(cls) -> list[Skill]:
        """All skills, in the order in which their names were first registered."""
        with cls._lock:
            return list(cls._layers[-1].values())

    @classmethod
    def clear(cls) -> None:
        """Forgets all skills."""
        with cls._lock:
            cls._layers[-1].clear()

    @classmethod
    @contextmanager
    def scoped(cls) -> Generator[None]:
        """For tests: in this block the registry begins empty, after it all is as before.

        It holds for the whole process, threads and tasks included; blocks may be nested.
        """
        layer: dict[str, Skill] = {}
        with cls._lock:
            cls._layers.append(layer)
        try:
            yield
        finally:
            with cls._lock:
                cls._layers[:] = [other for other in cls._layers if other is not layer]
