"""TOML as data. The library tells no places, so that problems have paths only."""

from __future__ import annotations

import re
import tomllib
from typing import Final

from untildone.app.definitions.frozen_json import DEEPEST
from untildone.app.definitions.parsed import TOO_DEEP, TOO_LONG, Parsed, broken, excess_of

# Read as the library reads them: a string may end in up to five quotes, of which the last three
# close it. One that is never closed goes to the end of the text or the line, where the library
# stops: looking for its end again and again would take a time that grows with the square.
_STRING_OR_COMMENT: Final = re.compile(
    r'"""(?:\\.|[^\\])*?(?:"{3,5}|\\?\Z)'
    r"|'''.*?(?:'{3,5}|\Z)"
    r'|"(?:\\[^\n]|[^"\\\n])*(?:"|\\?(?=\n|\Z))'
    r"|'[^'\n]*'?"
    r"|#[^\n]*",
    re.DOTALL,
)
_KEY: Final = re.compile(r"[\w.\- \t]+")


def parse_toml(text: str) -> Parsed:
    """A TOML text as data."""
    if _has_endless_key(text):
        return broken(TOO_DEEP)
    try:
        data = tomllib.loads(text)
    except RecursionError:
        return broken(TOO_DEEP)
    except tomllib.TOMLDecodeError as error:
        return broken(f"this is no TOML: {error}")
    except ValueError:  # of Python's own reader of whole numbers
        return broken(TOO_LONG)
    excess = excess_of(data)
    return Parsed(data) if excess is None else broken(excess)


def _has_endless_key(text: str) -> bool:
    """Whether a dotted key has too many parts: the library's time grows with their square."""
    bare = _STRING_OR_COMMENT.sub("x", text)
    return any(found[0].count(".") > DEEPEST for found in _KEY.finditer(bare))
