"""What the stuck detector takes for equal: arguments, results and errors, as text.

Text in, an answer out: nothing is remembered here. What is remembered of calls is in
``stuck_calls``, the rules and the verdict in ``stuck``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final

# ── Arguments ────────────────────────────────────────────────────────────────────────────────────

_encode = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode


def canonical(text: str, leave_out: Sequence[str] = ()) -> str:
    """Equal JSON gives equal text; what is no JSON stays as it is."""

    def without(value: dict[str, Any]) -> dict[str, Any]:
        return {name: part for name, part in value.items() if name not in leave_out}

    try:
        return _encode(json.loads(text, object_hook=without if leave_out else None))
    except (ValueError, RecursionError):
        return text


def without_fields(result: str, leave_out: Sequence[str]) -> str:
    """A JSON result without these fields, at any depth; what is no JSON stays as it is."""
    return canonical(result, leave_out) if result.lstrip()[:1] in ("{", "[") else result


def has_optional_escape(text: str) -> bool:
    """Whether a character may be written in a way that JSON does not force."""
    return "\\u" in text or "\\/" in text


def shape_of(text: str) -> str:
    """The pieces between JSON's marks, sorted: equal for equal JSON, and cheaper than parsing."""
    text = "".join(text.split())
    for mark in "{}[]":
        text = text.replace(mark, ",")
    pieces = text.split(",")
    pieces.sort()
    return ",".join(pieces)


_MAX_COMPARED: Final = 400
"""Longer arguments are a text being written, not a query being varied."""
_NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?")
_WORD: Final = re.compile(r"[^\W\d_]+|\d+")
_MIN_STEM: Final = 3
_MAX_VARIED: Final = 3


def near_duplicates(one: str, other: str) -> bool:
    """Whether two texts of arguments are the same query in other words.

    They are if one has the words of the other and at most as many more, where a word may also be
    the beginning of the other's ("auth" and "authentication"). A word *replaced* by another is
    batch work ("alice", then "bob"), and so is a difference in numbers only (paging).
    """
    if one == other:
        return True
    if len(one) > _MAX_COMPARED or len(other) > _MAX_COMPARED:
        return False
    if _NUMBER.sub("#", one) == _NUMBER.sub("#", other):
        return False
    few, many = sorted((_words(one), _words(other)), key=len)
    if len(few) * 2 < len(many):
        return False
    missing, extra = few - many, many - few
    return len(missing) <= _MAX_VARIED and all(
        any(_begins(word, long) for long in extra) for word in missing
    )


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.casefold()))


def _begins(one: str, other: str) -> bool:
    short, long = (one, other) if len(one) < len(other) else (other, one)
    return len(short) >= _MIN_STEM and short.isalpha() and long.startswith(short)


# ── Results ──────────────────────────────────────────────────────────────────────────────────────

_AS_LETTERS: Final = str.maketrans("0123456789", "ghijklmnop")


def letters(text: str) -> str:
    """A hash that masking leaves alone, since it has no digits."""
    from hashlib import blake2b

    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16)
    return digest.hexdigest().translate(_AS_LETTERS)


_ACKNOWLEDGEMENT: Final = re.compile(
    r"\b(?:ok|okay|done|success\w*|true|saved|stored|written|wrote|created|updated|added|removed"
    r"|deleted|applied|sent|set|accepted|recorded|noted)\b",
    re.IGNORECASE,
)
_MAX_ACKNOWLEDGEMENT: Final = 80


def says_something(result: str) -> bool:
    """Whether an equal result says that nothing was gained: every write answers "ok"."""
    if len(result) > _MAX_ACKNOWLEDGEMENT:
        return True
    return bool(result.strip()) and not _ACKNOWLEDGEMENT.search(result)


# ── Errors ────────────────────────────────────────────────────────────────────────────────────────

_ERROR_HEAD: Final = 400
"""Where in a result an error is looked for."""
_TRANSIENT: Final = re.compile(
    r"""
    rate.?limit | too\ many\ requests | overloaded | temporarily\ unavailable
    | internal\ server\ error | bad\ gateway | service\ unavailable
    | timed[\ -]?out | time-?out(?:error|exception)?(?!\w) | deadline\ exceeded
    | (?<![a-z])(?:http|status|code|error)[\W\d]{0,8}\b(?:429|5\d\d)\b
    | ^\W*(?:429|5\d\d)\b
    """,
    re.VERBOSE | re.IGNORECASE,
)
_ERROR: Final = re.compile(
    r"""
    [^\w{]{0,4}(?:
        [\w.]{0,60}(?:error|exception)\b | traceback\b | fail(?:ed|ure)\b | fatal\b
        | invalid\b | malformed\b | unable\ to\b | cannot\b | can't\b | could\ not\b
        | unknown\ (?:tool|function|command)\b | (?:access|permission)\ denied\b
        | (?:\w+\ ){0,3}timed\ out\b
        | http\W{0,3}(?:\d\.\d\ )?[45]\d\d\b
        | (?:429|5\d\d)\W{1,3}(?:too\ many|internal|bad\ gateway|service|gateway|server)\b
    )
    | \s*\{\s*"(?:error|errors|exception)"\s*:(?!\s*(?:null|false|""|\[\s*\]|\{\s*\}))
    """,
    re.VERBOSE | re.IGNORECASE,
)


def reads_as_error(text: str) -> bool:
    """Whether a result that is not marked either way begins as an error would."""
    return _ERROR.match(text, 0, _ERROR_HEAD) is not None


def reads_as_transient(error: str) -> bool:
    """Whether an error passes by itself: a rate limit, a server error, a time-out."""
    return _TRANSIENT.search(error, 0, _ERROR_HEAD) is not None
