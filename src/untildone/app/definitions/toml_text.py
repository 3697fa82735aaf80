"""TOML as data. The library tells no places, so that problems have paths only."""

from __future__ import annotations

import re
import tomllib
from typing import Final

from untildone.app.definitions.frozen_json import DEEPEST
from untildone.app.definitions.parsed import TOO_DEEP, Parsed, broken, excess_of

_STRING_OR_COMMENT: Final = re.compile(
    r'"""(?:\\.|[^\\])*?"""|' + r"'''.*?'''" + r'|"(?:\\.|[^"\\\n])*"' + r"|'[^'\n]*'|#[^\n]*",
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
    except ValueError as error:  # of the library, or a whole number of 5,000 digits
        return broken(f"this is no TOML: {error}")
    excess = excess_of(data)
    return Parsed(data) if excess is None else broken(excess)


def _has_endless_key(text: str) -> bool:
    """Whether a dotted key has too many parts: the library's time grows with their square."""
    bare = _STRING_OR_COMMENT.sub("x", text)
    return any(found[0].count(".") > DEEPEST for found in _KEY.finditer(bare))
