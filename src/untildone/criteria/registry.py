"""Kinds of stop criteria by name, for definitions: the built-in ones, and those written in code.

A definition names a kind; only what somebody registered in code can stand behind the name. There
is no process-wide registry: make one, register, and hand it to ``build_agent``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
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
_NAMES_ARE: Final = "a kind has a letter, then letters, digits, _, . and -, at most 64"


def folded(name: str) -> str:
    """A name by which it is matched: upper and lower case of A to Z are one, nothing else is."""
    return name.lower() if name.isascii() else name


_BUILT_IN: Final = frozenset(map(folded, BUILT_IN_KINDS))


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
        self._entries: dict[str, _Entry] = {}

    def __repr__(self) -> str:
        return f"CriterionRegistry({list(self.kinds)!r})"

    @classmethod
    def installed(cls) -> CriterionRegistry:
        """A registry with the kinds that installed packages offer by entry point.

        A package is imported when a definition uses its kind, and only where its registry was asked
        for. One that cannot be imported, or that offers what another one offers too, costs only
        the definitions that use that kind.
        """
        registry = cls()
        for point in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda each: each.name):
            if folded(point.name) not in _BUILT_IN:
                entry = registry._entries.setdefault(folded(point.name), _Entry(point.name))
                entry.points.append(point)
        return registry

    @property
    def kinds(self) -> tuple[str, ...]:
        """The registered kinds as they were spelled, in order."""
        return tuple(entry.kind for entry in self._entries.values() if _is_kind(entry.kind))

    def register(self, kind: str, criterion: Any) -> None:
        """Lets definitions use a criterion by name.

        Args:
            kind: The name: a letter, then letters, digits, ``_``, ``.`` and ``-``, at most 64.
            criterion: A criterion as for ``LoopConfig.criteria``, which serves every definition;
                or an object or class with ``from_options(options)`` that makes one for each.

        Raises:
            ConfigError: The name cannot be used, is built in, or is taken; or it is no criterion.
        """
        if not _is_kind(kind):
            raise ConfigError(f"the kind {kind!r:.80} cannot be used: {_NAMES_ARE}")
        key = folded(kind)
        if key in _BUILT_IN:
            raise ConfigError(f"the kind {kind!r} is built in; register yours under another name")
        if key in self._entries:
            raise ConfigError(
                f"the kind {kind!r} is registered already, as {self._entries[key].shown()};"
                " register yours under another name"
            )
        if not isinstance(criterion, CriterionFactory):
            checked_criterion(criterion, where=f"register({kind!r}, criterion)")
        self._entries[key] = _Entry(kind, criterion)

    def canonical(self, kind: str) -> str | None:
        """A kind as it was registered, or None where it was not."""
        entry = self._entries.get(folded(kind))
        return None if entry is None else entry.kind

    def load(self, kind: str) -> None:
        """Imports the package that offers a registered kind, where one does.

        Args:
            kind: The kind; in upper or lower case.

        Raises:
            ConfigError: It cannot be used; the text names the packages, and what to do.
        """
        self._entries[folded(kind)].load()

    def takes_options(self, kind: str) -> bool:
        """Whether criteria of a registered kind are made with settings.

        Raises:
            ConfigError: See ``load``.
        """
        return isinstance(self._entries[folded(kind)].load(), CriterionFactory)

    def make(self, kind: str, options: Mapping[str, Any]) -> Any:
        """A criterion of a registered kind, under the kind's name.

        Raises:
            ConfigError: The settings cannot work; or see ``load``.
        """
        entry = self._entries[folded(kind)]
        name, registered = entry.kind, entry.load()
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


@dataclass(slots=True)
class _Entry:
    """A kind: what was registered, or the entry points that offer it and are not loaded yet."""

    kind: str
    criterion: Any = None
    points: list[EntryPoint] = field(default_factory=list[EntryPoint])
    problem: str | None = None

    def shown(self) -> str:
        """The kind as it is spelled, and who offers it where that is a package."""
        offered = f" of {_packages(self.points)}" if self.points else ""
        return f"{self.kind!r}{offered}"

    def load(self) -> Any:
        """What judges, or makes what does.

        Raises:
            ConfigError: The packages that offer it are in its way.
        """
        if self.problem is None and self.points and self.criterion is None:
            try:
                self.criterion = self._loaded()
            except ConfigError as error:
                self.problem = str(error)
        if self.problem is not None:
            raise ConfigError(self.problem)
        return self.criterion

    def _loaded(self) -> Any:
        if len(self.points) > 1:
            raise ConfigError(
                f"the kind {self.kind!r} is offered by {_packages(self.points)}; uninstall all but"
                " one of them"
            )
        (point,) = self.points
        offered = f"the kind {self.kind!r}, which is {point.value!r} of {_packages(self.points)},"
        if not _is_kind(self.kind):
            raise ConfigError(
                f"{offered} cannot be used: {_NAMES_ARE}; that package has to rename it"
            )
        try:
            found = point.load()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # SystemExit too: importing a package runs what is in it
            raise ConfigError(
                f"{offered} cannot be loaded: {describe(error)}; mend or uninstall that package"
            ) from error
        if not isinstance(found, CriterionFactory):
            checked_criterion(found, where=offered.removesuffix(","))
        return found


def _is_kind(name: object) -> bool:
    return isinstance(name, str) and _KIND.fullmatch(name) is not None


def _packages(points: Iterable[EntryPoint]) -> str:
    """The packages of entry points; where one is offered twice, by what stands behind it."""
    listed = [(point, "unknown" if point.dist is None else point.dist.name) for point in points]
    names = [name for _, name in listed]
    shown = (f"{name} ({point.value})" if names.count(name) > 1 else name for point, name in listed)
    return f"the package{'s' if len(names) > 1 else ''} {' and '.join(shown)}"
