"""Texts from models, tools and checks, made fit for a terminal."""

from __future__ import annotations

import json
import re
from typing import Any, Final

_LONGEST_VALUE: Final = 60
# Everything that moves the cursor, sets titles, rings or reverses the writing direction.
_CONTROLS: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def shown_text(text: str) -> str:
    """The text without control characters but newline and tab."""
    return _CONTROLS.sub("", text.replace("\r\n", "\n"))


def one_line(text: str, most: int) -> str:
    """The text on one line of at most ``most`` characters."""
    line = " ".join(shown_text(text).split())
    return line if len(line) <= most else f"{line[: max(0, most - 1)]}…"


def in_short(text: str, most: int) -> str:
    """The first line of a text that is not blank, with how many lines there are."""
    lines = [line for line in shown_text(text).splitlines() if line.strip()]
    if not lines:
        return "(nothing)"
    more = f"  (+{counted(len(lines) - 1, 'line')})" if len(lines) > 1 else ""
    return one_line(lines[0], most - len(more)) + more


def shown_call(tool: str, arguments: Any, most: int) -> str:
    """A tool call as a person would write it."""
    if isinstance(arguments, dict):
        items: dict[str, Any] = arguments  # pyright: ignore[reportUnknownVariableType]
        inside = ", ".join(f"{key}={_shown_value(value)}" for key, value in items.items())
    else:
        inside = str(arguments)
    return one_line(f"{tool}({inside})", most)


def _shown_value(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return one_line(text, _LONGEST_VALUE)


def counted(number: int, noun: str) -> str:
    """``1 turn``, ``2 turns``, ``1,234 tokens``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
