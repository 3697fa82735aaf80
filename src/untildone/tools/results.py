"""What a tool returned, as the text a model reads, whatever it is."""

from __future__ import annotations

import dataclasses
import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import date, time
from enum import Enum
from itertools import islice
from typing import Any, Final, cast

from untildone.domain.tools import ToolOutput
from untildone.policy.cutting import cut_text, encodable
from untildone.tools.attachments import checked, with_attachments

MAX_ITERATED: Final = 10_000
"""Most items taken of an iterator, which may be endless."""


def result_text(value: object) -> str:
    """Any value as text for a model: a text verbatim, ``null`` for None, the rest as JSON.

    Dataclasses, pydantic models, mappings, sets, iterators and numpy values become JSON; dates,
    paths, decimals and what has no JSON form become their ``str()``; bytes become a note of their
    number. A value that cannot even be written as text becomes a note that says so.
    """
    if type(value) is str:
        return encodable(value)
    plain = value
    if isinstance(value, Enum) or not _is_json(value):
        plain = _plain(value)
    if isinstance(plain, str):
        return encodable(str.__str__(plain))
    return encodable(_json(plain))


def tool_output(value: object, max_chars: int) -> str | ToolOutput:
    """Any value as what a model gets: its text, cut, and the images and files in it apart.

    Args:
        value: What the tool returned.
        max_chars: Most characters of the text.

    Raises:
        ToolError: A ``ToolOutput`` has an attachment that is none.
    """
    if isinstance(value, ToolOutput):
        text = cut_text(result_text(value.text), max_chars)
        return checked(ToolOutput(text, tuple(value.attachments)))
    text = result_text(value)
    if isinstance(value, str):
        return cut_text(text, max_chars)
    return with_attachments(value, text, max_chars)


_JSON_TYPES: Final[tuple[type[Any], ...]] = (str, int, float, bool, dict, list, tuple, type(None))


def _json(value: object) -> str:
    for encoded in (_encode, _encode_any_key):
        try:
            return encoded(value)
        except Exception:  # noqa: S112  keys that are no text, circles, depth, a user's own code
            continue
    return text_of(value)


def _encode_any_key(value: object) -> str:
    return _encode(_tree(value))


def _plain(value: Any) -> Any:
    """One step towards JSON; ``json`` asks again for what is inside."""
    try:
        return _step(value)
    except Exception:  # properties and serializers are a user's code
        return text_of(value)


def _step(value: Any) -> Any:
    if isinstance(value, Enum):
        return _of_enum(value.value)
    if isinstance(value, type):
        return text_of(value)
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if callable(getattr(value, "model_dump", None)):  # pydantic's, without importing it
        return value.model_dump(mode="json")
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, bytes | bytearray | memoryview):
        return f"[{memoryview(cast('bytes', value)).nbytes:,} bytes, not shown]"
    if isinstance(value, BaseException):
        return f"{type(value).__name__}: {text_of(value)}"
    if type(value).__module__.partition(".")[0] == "numpy":
        return value.tolist()
    return _collected(value)


def _of_enum(value: Any) -> Any:
    return value if _is_json(value) else _plain(value)


def _is_json(value: object) -> bool:
    return isinstance(value, _JSON_TYPES)


def _collected(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(cast("Mapping[Any, Any]", value))
    if isinstance(value, AbstractSet):
        return _sorted(cast("AbstractSet[Any]", value))
    if isinstance(value, Iterator):
        return taken(cast("Iterator[Any]", value))
    if isinstance(value, deque) or (isinstance(value, Sequence) and not isinstance(value, range)):
        return list(cast("Iterable[Any]", value))
    return text_of(value)


def _sorted(values: Iterable[Any]) -> list[Any]:
    """In an order that is the same in every process, so that equal results are equal texts."""
    listed = list(values)
    try:
        return sorted(listed)
    except TypeError:
        return sorted(listed, key=repr)


def taken(values: Iterator[Any]) -> list[Any]:
    """The items of an iterator as a list, of an endless one the first.

    Raises:
        Exception: Whatever the iterator raises.
    """
    listed = list(islice(values, MAX_ITERATED + 1))
    if len(listed) > MAX_ITERATED:
        listed[MAX_ITERATED] = f"… only the first {MAX_ITERATED:,} items are shown"
    return listed


def _tree(value: Any) -> Any:
    """The whole value in JSON's own types, with keys as text: slower, but takes any key."""
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value).items()
        return {_key(key): _tree(part) for key, part in items}
    if isinstance(value, list | tuple):
        return [_tree(part) for part in cast("Sequence[Any]", value)]
    if isinstance(value, Enum) or not _is_json(value):
        plain = _plain(value)
        return plain if isinstance(plain, str) else _tree(plain)
    return value


def _key(key: Any) -> str:
    return key if type(key) is str else result_text(key)


def text_of(value: object) -> str:
    """Its ``str()``, or a note where that raises."""
    try:
        return str(value)
    except Exception as error:  # a user's __str__, or a circle too deep to print
        return f"<{type(value).__name__} without text: str() raised {type(error).__name__}>"


_encode: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=_plain).encode
