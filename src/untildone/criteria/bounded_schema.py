"""``jsonSchema`` for definitions: a schema from outside can be wrong, but it cannot hang us.

Schemas are small programs: references that fan out, recursion, patterns that backtrack. Here every
keyword that is applied counts as a step, and the steps are bounded; patterns are searched by the
engine that does not backtrack; and what cannot be bounded is refused when the criterion is built.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, Final, cast
from urllib.parse import unquote

from untildone.criteria.json_schema import JsonSchema
from untildone.criteria.linear_regex import LinearRegex
from untildone.domain.errors import ConfigError, GradingError
from untildone.domain.grading import CriterionContext, CriterionVerdict

_MOST_NODES: Final = 2000
_MOST_STEPS: Final = 50_000
# ``uniqueItems`` compares items in pairs where they cannot be sorted.
_PAIRS_A_STEP: Final = 50

_BY_NAME: Final = frozenset({"properties", "$defs", "definitions", "dependentSchemas"})
_NO_SCHEMAS: Final = frozenset({"const", "enum", "default", "examples"})
_REFUSED: Final = frozenset(
    {
        "patternProperties",
        "unevaluatedItems",
        "unevaluatedProperties",
        "$dynamicRef",
        "$recursiveRef",
    }
)

_Check = Callable[[Any, Any, Any, Any], "Iterator[Any] | None"]


@dataclass(slots=True)
class _Bounds:
    """What one evaluation may use up, and the patterns it searches with."""

    patterns: Mapping[str, LinearRegex]
    steps_left: int = _MOST_STEPS


_bounds: ContextVar[_Bounds] = ContextVar("untildone_schema_bounds")


class BoundedJsonSchema(JsonSchema):
    """Done when the latest answer is JSON that fits ``schema``, which comes from outside.

    Args:
        schema: A JSON Schema of at most 2,000 values, without ``patternProperties``,
            ``unevaluated…`` and dynamic references. What it refers to must stand in it.

    Raises:
        ConfigError: It is no such schema, or the package ``jsonschema`` is missing.
    """

    __slots__ = ("_patterns",)

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._patterns = _Survey(schema).patterns
        super().__init__(schema)
        kind = cast("Any", type(self._validator))
        # With ``$schema`` in it the library would take its own validator for every part.
        own = {key: value for key, value in schema.items() if key != "$schema"}
        registry = import_module("referencing").Registry()
        self._validator = _counting(kind)(
            own, registry=registry, format_checker=kind.FORMAT_CHECKER
        )

    def evaluate(self, ctx: CriterionContext) -> CriterionVerdict:
        """Reads and checks the answer.

        Raises:
            GradingError: Checking takes too many steps.
        """
        token = _bounds.set(_Bounds(self._patterns))
        try:
            return super().evaluate(ctx)
        finally:
            _bounds.reset(token)


class _Survey:
    """One look at every part of a schema.

    Attributes:
        patterns: The regular expressions in it, ready to search.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.patterns: dict[str, LinearRegex] = {}
        self._schema = schema
        self._references: set[str] = set()
        self._anchors: set[str] = set()
        self._nodes = 0
        self._look_at(schema)
        for reference in sorted(self._references - self._anchors):
            self._check_reference(reference)

    def _look_at(self, schema: Mapping[str, Any]) -> None:
        waiting: list[tuple[Any, bool]] = [(schema, True)]
        while waiting:
            value, is_schema = waiting.pop()
            self._nodes += 1
            if self._nodes > _MOST_NODES:
                raise ConfigError(f"the schema has more than {_MOST_NODES:,} values; use a smaller")
            if isinstance(value, Mapping):
                for key, below in cast("Mapping[str, Any]", value).items():
                    if is_schema:
                        self._look_at_keyword(key, below, is_root=value is schema)
                    if not (is_schema and key in _NO_SCHEMAS):
                        waiting.append((below, not (is_schema and key in _BY_NAME)))
            elif isinstance(value, list | tuple):
                waiting.extend((below, True) for below in cast("list[Any]", value))

    def _look_at_keyword(self, key: str, value: object, *, is_root: bool) -> None:
        if key in _REFUSED or (key == "$schema" and not is_root):
            raise ConfigError(f"the schema has {key!r}, which a definition's schema cannot have")
        if not isinstance(value, str):
            return
        match key:
            case "pattern":
                self.patterns[value] = LinearRegex(value)
            case "$ref":
                self._references.add(value)
            case "$anchor":
                self._anchors.add(f"#{value}")
            case _:
                return

    def _check_reference(self, reference: str) -> None:
        found: Any = self._schema
        is_pointer = reference == "#" or reference.startswith("#/")
        for part in unquote(reference).split("/")[1:] if is_pointer else ():
            key = part.replace("~1", "/").replace("~0", "~")
            found = cast("Any", found).get(key) if isinstance(found, Mapping) else None
        if not is_pointer or not isinstance(found, Mapping | bool):
            raise ConfigError(
                f"the schema refers to {reference!r:.80}, which does not stand in it;"
                " put it under '$defs' and refer to '#/$defs/NAME'"
            )


@cache
def _counting(kind: Any) -> Any:
    """The validator of a draft, counting its steps; made once for each draft."""
    checks = {**kind.VALIDATORS, "pattern": _check_pattern}
    counted = {name: _counted(name, check) for name, check in checks.items()}
    return import_module("jsonschema.validators").extend(kind, counted)


def _counted(name: str, check: _Check) -> _Check:
    def counted(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
        bounds = _bounds.get()
        bounds.steps_left -= 1
        if name == "uniqueItems" and isinstance(instance, list):
            bounds.steps_left -= len(cast("list[Any]", instance)) ** 2 // _PAIRS_A_STEP
        if bounds.steps_left < 0:
            raise GradingError("checking the answer takes too many steps")
        yield from check(validator, value, instance, schema) or ()

    return counted


def _check_pattern(_validator: Any, pattern: str, instance: Any, _schema: Any) -> Iterator[Any]:
    if isinstance(instance, str) and not _bounds.get().patterns[pattern].found_in(instance):
        error = import_module("jsonschema.exceptions").ValidationError
        yield error(f"{instance!r} does not match {pattern!r}")
