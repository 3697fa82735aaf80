"""Texts made fit to be sent: long ones cut in the middle, half characters replaced."""

from __future__ import annotations

from typing import Final

DEFAULT_MAX_RESULT_CHARS: Final = 50_000
"""Most characters of one result that are sent, where a tool does not say otherwise."""

_HASH_DIGITS: Final = 12


def cut_text(text: str, max_chars: int = DEFAULT_MAX_RESULT_CHARS) -> str:
    """Leaves out the middle of a text that is too long, and says so there.

    The mark holds a hash of the whole, so different texts stay different when cut alike.

    Args:
        text: Any text.
        max_chars: Most characters of what is returned, the mark included; where not even the mark
            has room, the mark alone is returned.
    """
    total = len(text)
    if total <= max_chars:
        return text
    from hashlib import sha256

    whole = text.encode("utf-8", "surrogatepass")
    digest = sha256(whole, usedforsecurity=False).hexdigest()[:_HASH_DIGITS]
    room = max(0, max_chars - len(_mark(total, total, digest)))
    head = (room + 1) // 2
    tail = room - head
    return text[:head] + _mark(total - room, total, digest) + text[total - tail :]


def encodable(text: str) -> str:
    """The text, without the lone surrogates that no wire and no store can take."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def _mark(left_out: int, total: int, digest: str) -> str:
    return f"\n[… {left_out:,} of {total:,} characters left out; sha256 of all: {digest} …]\n"
