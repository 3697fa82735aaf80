"""Reading JSON that others wrote: a value of a wrong type is as good as none.

Pure. Not a validator: what must be there is checked by those who need it.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any, Final, cast

_ENCODE: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
# Without the looks around the value that ``json.loads`` takes: each chunk of a stream comes here.
_DECODE: Final = json.JSONDecoder().raw_decode
_EMPTY_DICT: Final[dict[str, Any]] = {}
_EMPTY_LIST: Final[list[Any]] = []


def as_dict(value: Any) -> dict[str, Any]:
    """The value where it is an object, else an empty one, not to be changed."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else _EMPTY_DICT


def as_list(value: Any) -> list[Any]:
    """The value where it is an array, else an empty one, not to be changed."""
    return cast("list[Any]", value) if isinstance(value, list) else _EMPTY_LIST


def as_text(value: Any) -> str:
    """The value where it is a string, else ``""``."""
    return value if isinstance(value, str) else ""


def as_count(value: Any) -> int | None:
    """The value as a number of things, 0 or more; None where it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        count = int(value)
    except (ValueError, OverflowError):  # NaN, infinity
        return None
    return count if count >= 0 else None


def parsed(text: str) -> Any:
    """The text as JSON.

    Raises:
        ValueError: It is none, or is nested deeper than any reply.
    """
    try:
        with suppress(ValueError):
            value, end = _DECODE(text)
            if end == len(text):
                return value
        return json.loads(text)  # blanks around it, or none at all
    except RecursionError as error:
        msg = "nested too deeply"
        raise ValueError(msg) from error


def encoded(value: Any) -> bytes:
    """The value as compact UTF-8 JSON; lone surrogates become ``?``.

    Raises:
        TypeError: Something in it has no JSON form.
        ValueError: It holds NaN or infinity, or contains itself.
    """
    return _ENCODE(value).encode("utf-8", "replace")


def without_half_pair(text: str) -> tuple[str, str]:
    """The text, and apart from it the first half of a surrogate pair that it ends with.

    JSON escapes can be cut between the two halves; the other one comes with the next piece.
    """
    if text and "\ud800" <= text[-1] <= "\udbff":
        return text[:-1], text[-1]
    return text, ""


def whole_unicode(text: str) -> str:
    """The text with surrogate pairs joined that JSON escapes had split, lone ones replaced.

    What leaves a wire can always be printed, stored and sent.
    """
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
