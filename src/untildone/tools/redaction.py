"""Takes what may be a secret or personal data out of a text that will be shown to others.

It goes by how things look, so it takes out too much rather than too little. What does not look like
anything, such as a name or a street, stays.
"""

from __future__ import annotations

import re
from typing import Final

_WORD: Final = r"(?<![A-Za-z0-9])"
"""Where a word of ASCII letters begins; ``\\b`` sees none between a Han character and ``sk-``."""
_KEY: Final = r"[A-Za-z0-9_+/=.~-]"
_RUN: Final = r"(?<![A-Za-z0-9_+/=.~-])"
"""Where a run of key characters begins, so that each is looked at once."""

_NAMED: Final = (
    r"(pass(?:word|wd|phrase|code)|pwd|secret|token|credentials?"
    r"|(?:api|access|private|auth|signing)[ _-]?key|authorization|cookie|sig(?:nature)?)"
)
_BEGINNINGS: Final = (
    r"(?:sk|pk|rk|whsec|gh[opsur]|github_pat|glpat|xox[a-z]|xapp|hf|npm|dop_v1|shpat"
    r"|AKIA|ASIA|AIza|ya29|eyJ|SG)"
)
_IS: Final = r"(\s{0,9}[=:]\s{0,9}|\s{1,9}(?:is|are)\s{1,9})"
_OUTSIDE: Final = r"\s@<>()\[\]\"',;:"

_RULES: Final = (
    # A private key, to its end or to the end of the text.
    (r"(?s)-----BEGIN [A-Z ]{0,40}-----.*?(?:-----END [A-Z ]{0,40}-----|\Z)", "[secret]"),
    # user:password@ in an address
    (r"(?<=://)[^\s/@]{1,200}@", "[secret]@"),
    # What is called a password, a token or a key
    (rf"(?i){_WORD}{_NAMED}{_IS}(?:(?:basic|bearer|digest)\s{{1,9}})?\S+", r"\1\2[secret]"),
    (rf"(?i){_WORD}((?:bearer|basic)\s{{1,9}}){_KEY}{{6,}}", r"\1[secret]"),
    (rf"[^{_OUTSIDE}]{{1,100}}@[^{_OUTSIDE}.]{{1,100}}\.[^{_OUTSIDE}]+", "[email]"),
    # Keys by the beginning that their makers gave them
    (rf"{_WORD}{_BEGINNINGS}[._-]?{_KEY}{{8,}}", "[secret]"),
    # Long, with letters and digits: hashes, ids, tokens
    (
        rf"{_RUN}(?=[A-Za-z_+/=.~-]*+[0-9])(?=[0-9_+/=.~-]*+[A-Za-z]){_KEY}{{20,}}+",
        "[secret]",
    ),
    # Shorter, but in no order that words have
    (
        rf"{_WORD}(?=[a-z0-9]*+[A-Z])(?=[A-Z0-9]*+[a-z])(?=[A-Za-z]*+[0-9])[A-Za-z0-9]{{10,}}+",
        "[secret]",
    ),
    (rf"{_RUN}[A-Za-z0-9+/]{{40,}}+", "[secret]"),
    # Telephone, card and account numbers, dates, addresses of machines
    (r"\+?\d(?:[\s().\u2010-\u2015/-]{0,3}\d){6,}", "[number]"),
    (r"\d{6,}", "[number]"),
)
_COMPILED: Final = tuple((re.compile(pattern), word) for pattern, word in _RULES)


def redacted(text: str) -> str:
    """The text with what looks like an address, a number or a key replaced by a word for it."""
    for pattern, replacement in _COMPILED:
        text = pattern.sub(replacement, text)
    return text
