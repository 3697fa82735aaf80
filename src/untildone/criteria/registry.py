"""Kinds of stop criteria by name, for definitions: the built-in ones, and those written in code.

A definition names a kind; only what somebody registered in code can stand behind the name. There
is no process-wide registry: make one, register, and hand it to ``build_agent``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, Protocol, runtime_checkable

from untildone.criteria.asking import ask, checked_criterion
from untildone.domain.errors import ConfigError, describe
from untildone.domain.grading import CriterionContext, CriterionVerdict

ENTRY_POINT_GROUP: Final = "untildone.criteria"
"""A package offers a kind with ``[project.entry-points."untildone.criteria"]``."""

BUILT_IN_KINDS: Final = (
    "completionMarker",
    "aiJudge",
    "todoCompletion",
    "backgroundTaskCompletion",
    "minScore",
    "jsonSchema",
    "regex",
    "command",
    "allOf",
    "anyOf",
    "not",
)
"""The kinds that are always there, in their canonical spelling."""

_KIND: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")


@runtime_checkable
class CriterionFactory(Protocol):
    """A kind whose criteria take settings: what stands under ``options`` in a definition."""

    def from_options(self, options: Mapping[str, Any]) -> Any:
        """A criterion with these settings.

        Raises:
            ConfigError: They cannot work; the text says why.
        """
        ...


class CriterionRegistry:
    """Kinds that are written in code, by name; names are matched without regard to case."""

    def __init__(self) -> None:
        self._entries: dict[str, tuple[str, Any]] = {}

    def __repr__(self) -> str:
        return f"CriterionRegistry({list(self.kinds)!r})"

    @classmethod
    def installed(cls) -> CriterionRegistry:
        """A registry with the kinds that installed packages offer by entry point.

        It imports those packages, which is why it is asked for and never done on a definition's
        word.

        Raises:
            ConfigError: One of them cannot be imported or is no criterion.
        """
        registry = cls()
        for entry in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda each: each.name):
            registry.register(entry.name, _loaded(entry))
        return registry

    @property
    def kinds(self) -> tuple[str, ...]:
        """The registered kinds as they were spelled, in order."""
        return tuple(kind for kind, _ in self._entries.values())

    def register(self, kind: str, criterion: Any) -> None:
        """Lets definitions use a criterion by name.

        Args:
            kind: The name: a letter, then letters, digits, ``_``, ``.`` and ``-``, at most 64.
            criterion: A criterion as for ``LoopConfig.criteria``, which serves every definition;
                or an object or class with ``from_options(options)`` that makes one for each.

        Raises:
            ConfigError: The name cannot be used, is built in, or is taken; or it is no criterion.
        """
        if not isinstance(kind, str) or not _KIND.fullmatch(kind):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(
                f"the kind {kind!r:.80} cannot be used: a kind has a letter, then letters, digits,"
                " _, . and -, at most 64"
            )
        key = kind.casefold()
        if key in (built_in.casefold() for built_in in BUILT_IN_KINDS):
            raise ConfigError(f"the kind {kind!r} is built in; register yours under another name")
        if key in self._entries:
            raise ConfigError(
                f"the kind {kind!r} is registered already, as {self._entries[key][0]!r};"
                " register yours under another name"
            )
        if not isinstance(criterion, CriterionFactory):
            checked_criterion(criterion, where=f"register({kind!r}, criterion)")
        self._entries[key] = (kind, criterion)

    def canonical(self, kind: str) -> str | None:
        """A kind as it was registered, or None where it was not."""
        entry = self._entries.get(kind.casefold())
        return None if entry is None else entry[0]

    def takes_options(self, kind: str) -> bool:
        """Whether criteria of a registered kind are made with settings."""
        return isinstance(self._entries[kind.casefold()][1], CriterionFactory)

    def make(self, kind: str, options: Mapping[str, Any]) -> Any:
        """A criterion of a registered kind, under the kind's name.

        Raises:
            ConfigError: The settings cannot work.
        """
        name, registered = self._entries[kind.casefold()]
        if not isinstance(registered, CriterionFactory):
            return NamedCriterion(name, registered)
        try:
            made = registered.from_options(options)
        except ConfigError:
            raise
        except Exception as error:
            raise ConfigError(f"{name} cannot be made: {describe(error)}") from error
        return NamedCriterion(name, checked_criterion(made, where=f"what {name} made"))


@dataclass(frozen=True, slots=True)
class NamedCriterion:
    """A criterion under the name of its kind, which events and errors then carry."""

    kind: str
    criterion: Any

    async def evaluate(self, ctx: CriterionContext) -> CriterionVerdict:
        """Asks it."""
        return await ask(self.criterion, ctx)


def _loaded(entry: EntryPoint) -> Any:
    try:
        return entry.load()
    except Exception as error:
        raise ConfigError(
            f"the kind {entry.name!r} of the entry point {entry.value!r} cannot be loaded:"
            f" {describe(error)}; mend or uninstall that package"
        ) from error
