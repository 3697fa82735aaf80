"""What candidates voted for, as text: the log keeps it, and a resumed run counts by it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

_PLAIN: Final = frozenset(
    {type(None), bool, int, float, str, bytes, list, tuple, set, frozenset, dict}
)


def key_text(key: Any) -> str | None:
    """A key that is plain data as text: of two keys it is the same exactly if they are equal.

    Plain data is what JSON knows, with a dict's keys in any order, and tuples, sets and bytes. For
    anything else it is None: only the object itself knows what it equals.
    """
    try:
        return _text(key)
    except (_NotPlainError, RecursionError):
        return None


class _NotPlainError(Exception):
    pass


def _text(key: Any) -> str:
    # Exact types: a class made of a plain one may compare in its own way.
    match type(key).__name__ if type(key) in _PLAIN else "":
        case "NoneType":
            return "null"
        case "bool" | "int":
            return str(int(key))  # True equals 1
        case "float":
            return str(int(key)) if key.is_integer() else repr(key)
        case "str":
            return json.dumps(key)
        case "bytes":
            return repr(key)
        case "list":
            return f"[{_joined(map(_text, key))}]"
        case "tuple":
            return f"({_joined(map(_text, key))})"
        case "set" | "frozenset":
            return f"<{_joined(sorted(map(_text, key)))}>"
        case "dict":
            return f"{{{_joined(sorted(f'{_text(k)}: {_text(v)}' for k, v in key.items()))}}}"
        case _:
            raise _NotPlainError


def _joined(texts: Iterable[str]) -> str:
    return ", ".join(texts)
