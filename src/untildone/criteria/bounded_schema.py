"""``jsonSchema`` for definitions: a schema from outside can be wrong, but it cannot hang us.

Schemas are small programs: references that fan out, recursion, patterns that backtrack. Here every
keyword that is applied counts as a step, and as more where what it looks at is large, and the steps
are bounded; patterns are searched by the engine that does not backtrack; what cannot be bounded is
refused when the criterion is built; and only what was looked at then is ever applied.
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

_MOST_NODES: Final = 2000
_MOST_STEPS: Final = 50_000
# A problem is told with the whole value that it is about, so 50,000 steps mean 10 million
# characters; numbers, true and null count as 8.
_CHARACTERS_A_STEP: Final = 200
_SIZE_OF_SCALAR: Final = 8
# ``uniqueItems`` compares items in pairs where they cannot be sorted.
_COMPARED_A_STEP: Final = 500
# Of the steps of a pattern, so that all searches together take what one of them may take alone.
_SEARCHED_A_STEP: Final = 200

_BY_NAME: Final = frozenset(
    {"properties", "$defs", "definitions", "dependentSchemas", "dependencies"}
)
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
    """What one evaluation may use up, and what it may apply.

    Attributes:
        patterns: The patterns it searches with.
        surveyed: The schemas that may be applied, by ``id``.
        sizes: How large the lists and objects of schema and answer are, by ``id``.
        steps_left: How many steps it may still take.
    """

    patterns: Mapping[str, LinearRegex]
    surveyed: frozenset[int]
    sizes: Mapping[int, int]
    steps_left: int = _MOST_STEPS

    def spend(self, steps: int) -> None:
        """Takes some of the steps.

        Raises:
            GradingError: There are not so many left.
        """
        self.steps_left -= steps
        if self.steps_left < 0:
            raise GradingError("checking the answer takes too many steps")

    def size(self, value: object) -> int:
        """About how many characters a value has."""
        if isinstance(value, str):
            return len(value)
        if isinstance(value, dict | list):
            own = id(cast("object", value))
            return self.sizes.get(own) or _sizes_in(cast("object", value))[own]
        return _SIZE_OF_SCALAR


_bounds: ContextVar[_Bounds] = ContextVar("untildone_schema_bounds")


class BoundedJsonSchema(JsonSchema):
    """Done when the latest answer is JSON that fits ``schema``, which comes from outside.

    Args:
        schema: A JSON Schema of at most 2,000 values, without ``patternProperties``,
            ``unevaluated…`` and dynamic references. What it refers to must stand in it, as a
            schema. An answer that takes too many steps to check is a ``GradingError``.

    Raises:
        ConfigError: It is no such schema, or the package ``jsonschema`` is missing.
    """

    __slots__ = ("_patterns", "_sizes", "_surveyed")

    def __init__(self, schema: Mapping[str, Any]) -> None:
        survey = _Survey(schema)
        super().__init__(schema)
        kind = cast("Any", type(self._validator))
        # With ``$schema`` in it the library would take its own validator for every part.
        own = {key: value for key, value in schema.items() if key != "$schema"}
        self._patterns = survey.patterns
        self._surveyed = survey.schemas | {id(own)}
        self._sizes = _sizes_in(own)
        registry = import_module("referencing").Registry()
        self._validator = _counting(kind)(
            own, registry=registry, format_checker=kind.FORMAT_CHECKER
        )

    def _problems(self, value: object) -> list[str]:
        bounds = _Bounds(self._patterns, self._surveyed, {**self._sizes, **_sizes_in(value)})
        token = _bounds.set(bounds)
        try:
            return super()._problems(value)
        finally:
            _bounds.reset(token)

    def _check_schema(self, kind: Any) -> None:
        # The survey has compiled the patterns, in Rust's syntax, which Python's ``re`` may refuse.
        kind.check_schema(self.schema, format_checker=None)


class _Survey:
    """One look at every part of a schema.

    Attributes:
        patterns: The regular expressions in it, ready to search.
        schemas: The objects in it that are schemas and no plain data, by ``id``.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.patterns: dict[str, LinearRegex] = {}
        self.schemas: frozenset[int] = frozenset()
        self._schema = schema
        self._references: set[str] = set()
        self._anchors: set[str] = set()
        self._nodes = 0
        self._look_at(schema)
        for reference in sorted(self._references - self._anchors):
            self._check_reference(reference)

    def _look_at(self, schema: Mapping[str, Any]) -> None:
        seen: set[int] = set()
        waiting: list[tuple[Any, bool]] = [(schema, True)]
        while waiting:
            value, is_schema = waiting.pop()
            self._nodes += 1
            if self._nodes > _MOST_NODES:
                raise ConfigError(f"the schema has more than {_MOST_NODES:,} values; use a smaller")
            if isinstance(value, Mapping):
                if is_schema:
                    seen.add(id(cast("object", value)))
                for key, below in cast("Mapping[str, Any]", value).items():
                    if is_schema:
                        self._look_at_keyword(key, below, is_root=value is schema)
                    if not (is_schema and key in _NO_SCHEMAS):
                        waiting.append((below, not (is_schema and key in _BY_NAME)))
            elif isinstance(value, list | tuple):
                waiting.extend((below, True) for below in cast("list[Any]", value))
        self.schemas = frozenset(seen)

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
        if not is_pointer or not (isinstance(found, bool) or id(found) in self.schemas):
            raise ConfigError(
                f"the schema refers to {reference!r:.80}, which does not stand in it as a schema;"
                " put it under '$defs' and refer to '#/$defs/NAME'"
            )


@cache
def _counting(kind: Any) -> Any:
    """The validator of a draft, counting its steps; made once for each draft."""
    checks = {**kind.VALIDATORS, "pattern": _check_pattern, **dict.fromkeys(_REFUSED, _refuse)}
    counted = {name: _counted(name, check) for name, check in checks.items()}
    return import_module("jsonschema.validators").extend(kind, counted)


def _counted(name: str, check: _Check) -> _Check:
    def counted(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
        bounds = _bounds.get()
        if id(schema) not in bounds.surveyed:
            raise GradingError(f"{name!r} stands in a part that is no schema")
        size = bounds.size(instance)
        told = size * (1 + _falses_in(value))
        bounds.spend(1 + (told + bounds.size(value)) // _CHARACTERS_A_STEP)
        if name == "uniqueItems" and isinstance(instance, list):
            bounds.spend(len(cast("list[Any]", instance)) * size // _COMPARED_A_STEP)
        for error in check(validator, value, instance, schema) or ():
            bounds.spend(1 + len(error.message) // _CHARACTERS_A_STEP)
            yield error

    return counted


def _falses_in(value: object) -> int:
    """How many schemas ``false`` there are: each tells the whole value without taking a step."""
    return sum(part is False for part in _parts_of(value))


def _refuse(_validator: Any, _value: Any, _instance: Any, _schema: Any) -> None:
    raise GradingError("the schema has a keyword that a definition's schema cannot have")


def _check_pattern(_validator: Any, pattern: str, instance: Any, _schema: Any) -> Iterator[Any]:
    if not isinstance(instance, str):
        return
    bounds = _bounds.get()
    regex = bounds.patterns[pattern]
    bounds.spend(regex.steps_for(instance) // _SEARCHED_A_STEP)
    if not regex.found_in(instance):
        error = import_module("jsonschema.exceptions").ValidationError
        yield error(f"{instance!r} does not match {pattern!r}")


def _parts_of(value: Any) -> list[Any]:
    """What is in an object, or in a list."""
    if isinstance(value, dict):
        return list(cast("dict[str, Any]", value).values())
    return cast("list[Any]", value) if isinstance(value, list) else []


def _keys_of(value: Any) -> list[Any]:
    return list(cast("dict[str, Any]", value)) if isinstance(value, dict) else []


def _sizes_in(value: object) -> dict[int, int]:
    """How large a value and the lists and objects in it are, by ``id``; see ``_Bounds.size``."""
    found: list[Any] = []
    waiting: list[Any] = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict | list):
            found.append(each)
            waiting += _parts_of(each)
    sizes: dict[int, int] = {}
    for each in reversed(found):  # what is inside comes first
        sizes[id(each)] = _SIZE_OF_SCALAR + sum(
            len(part) if isinstance(part, str) else sizes.get(id(part), _SIZE_OF_SCALAR)
            for part in _keys_of(each) + _parts_of(each)
        )
    return sizes
