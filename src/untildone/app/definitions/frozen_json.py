"""JSON values that cannot be changed: mappings with a hash, tuples instead of lists."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

DEEPEST: Final = 64
"""How many levels of lists and mappings a definition may have."""
DEEPEST_VALUE: Final = 32
"""How many of them may be inside of one value, such as a JSON Schema."""
HALF_A_CHARACTER: Final = "has half a character (a lone surrogate); write it whole"
_LARGEST: Final = 2**63


class FrozenMapping(Mapping[str, Any]):
    """A mapping of JSON values; equal to one with the same items, whatever their order.

    As in JSON, ``true`` is no number, and ``1`` and ``1.0`` are the same one.
    """

    __slots__ = ("_hash", "_items")

    def __init__(self, items: Mapping[str, Any]) -> None:
        self._items = dict(items)
        self._hash: int | None = None

    def __getitem__(self, key: str) -> Any:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mapping):
            return NotImplemented
        return _are_equal(self, cast("Mapping[Any, Any]", other))

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self._items.items()))
        return self._hash

    def __repr__(self) -> str:
        return repr(thawed(self))

    def __reduce__(self) -> tuple[type[FrozenMapping], tuple[dict[str, Any]]]:
        return FrozenMapping, (self._items,)


def frozen(value: object, deepest: int = DEEPEST_VALUE) -> Any:
    """A JSON value as one that cannot be changed.

    Raises:
        ValueError: It is no JSON value; the text says which part and why.
    """
    match value:
        case None | bool():
            return value
        case str():
            return _encodable(value)
        case int():
            if not -_LARGEST <= value < _LARGEST:
                raise ValueError("has a whole number of more than 64 bits")
            return value
        case float():
            if not math.isfinite(value):
                raise ValueError(f"has the number {value}, which JSON does not know")
            return value
        case Mapping() | list() | tuple() if deepest == 0:
            raise ValueError(f"is nested more than {DEEPEST_VALUE} levels deep")
        case Mapping():
            items = cast("Mapping[Any, Any]", value)
            return FrozenMapping({_key(key): frozen(items[key], deepest - 1) for key in items})
        case list() | tuple():
            items = cast("list[Any]", value)
            return tuple(frozen(item, deepest - 1) for item in items)
        case _:
            raise ValueError(f"has a {type(value).__name__}; use text, numbers, lists and mappings")


def _are_equal(one: object, other: object) -> bool:
    """Whether two JSON values are the same one."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        mine, theirs = cast("Mapping[str, Any]", one), cast("Mapping[str, Any]", other)
        return mine.keys() == theirs.keys() and all(_are_equal(mine[k], theirs[k]) for k in mine)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        parts, others = cast("Sequence[Any]", one), cast("Sequence[Any]", other)
        return len(parts) == len(others) and all(map(_are_equal, parts, others))
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def thawed(value: Any) -> Any:
    """A frozen value as plain dicts and lists, fresh ones."""
    if isinstance(value, Mapping):
        return {key: thawed(item) for key, item in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, tuple):
        return [thawed(item) for item in cast("tuple[Any, ...]", value)]
    return value


def _encodable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(HALF_A_CHARACTER) from None
    return text


def _key(key: object) -> str:
    if isinstance(key, str):
        return _encodable(key)
    raise ValueError(f"has a key that is no text, but a {type(key).__name__}; put it in quotes")
