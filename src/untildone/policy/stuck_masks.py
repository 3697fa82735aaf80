"""Results without what changes from call to call: timestamps, durations, ids.

Loaded with the first call that repeats with another result; most runs have none. Its patterns take
two milliseconds to compile, OpenSSL one to load.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Final

# Patterns begin with a small set of characters, which `re` skips to quickly; what must stand before
# is looked at from there. One pattern with all alternatives takes 3 to 15 times as long.
_STAMP: Final = re.compile(
    r"""[0-9](?<![\w:.][0-9])(?:
        \d{3}-\d\d-\d\d[T\ _]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?\s?(?:Z|[+-]\d\d:?\d\d)? # date and time
        | \d?:\d\d(?::\d\d(?:[.,]\d+)?)?(?![\w:])                                    # time of day
        | (?<=1)[5-9]\d{8}(?:\d{3}|\d{6}|\d{9})?(?:\.\d+)?(?!\w)                     # Unix time
        | \d*(?:\.\d+)?(?:\s?(?:[nuµμm]?s|secs?|seconds?|mins?|minutes?|hrs?|hours?|days?)|[mhd])
          (?:\d+(?:\.\d+)?[hms]s?)*(?!\w)                                            # duration
    )""",
    re.VERBOSE,
)
_LABELLED_ID: Final = re.compile(
    r"""[iI][dD](?:(?<=id)(?<![a-zA-Z\d]id)|(?<=\bpid)|(?<=[^A-Z]I[dD])|(?<=\bI[dD])|(?<=\bPID))
        ["']?(?:\s*[:=\#]|\s)\s*["'\#]*(?=[\w-]*\d)[\w-]+""",
    re.VERBOSE,
)
_PREFIXED_ID: Final = re.compile(
    r"""[-_](?:(?<=\breq.)|(?<=\brequest.)|(?<=\btrace.)|(?<=\bspan.)|(?<=\bsession.)|(?<=\btxn.)
        |(?<=\bevt.)|(?<=\bmsg.)|(?<=\brun.)|(?<=\bcall.)|(?<=\bresp.))
        (?=[\w-]*\d)[\w-]{6,}""",
    re.VERBOSE,
)
_LABELLED_DURATION: Final = re.compile(
    r"""[edlut](?:lapsed|uration|atency|ptime|ook)\w{0,20}["']?\s*[:=]?\s*\d+(?:\.\d+)?(?!\s*[\w.])"""
)
_UUID: Final = re.compile(r"\b[\da-fA-F]{8}-(?:[\da-fA-F]{4}-){3}[\da-fA-F]{12}\b")
_BARE_UUID_MIDDLE: Final = re.compile(r"[47](?<=\b[\da-f]{12}.)[\da-f]{3}[89ab][\da-f]{15}\b")
_BARE_UUID: Final = re.compile(r"\b[\da-f]{12}[47][\da-f]{3}[89ab][\da-f]{15}\b")
_ADDRESS: Final = re.compile(r"0x[\da-fA-F]{6,}\b")
_DURATION_LABELS: Final = ("elapsed", "duration", "latency", "uptime", "took")


def _masked(text: str) -> str:
    """The text without timestamps, durations and ids: UUIDs, addresses, what is labelled an id.

    Bare hexadecimal stays, and so do dates without a time: a new checksum is news.
    """
    if text.count("-") >= 4:  # noqa: PLR2004  the hyphens of one UUID
        text = _UUID.sub("~", text)
    if _BARE_UUID_MIDDLE.search(text):
        text = _BARE_UUID.sub("~", text)
    if "0x" in text:
        text = _ADDRESS.sub("~", text)
    if any(label in text for label in _DURATION_LABELS):
        text = _LABELLED_DURATION.sub("~", text)
    return _STAMP.sub("~", _PREFIXED_ID.sub("~", _LABELLED_ID.sub("~", text)))


def masked_hash(text: str) -> bytes:
    """Equal for texts that differ only in what masking takes away."""
    return blake2b(_masked(text).encode("utf-8", "surrogatepass"), digest_size=16).digest()
