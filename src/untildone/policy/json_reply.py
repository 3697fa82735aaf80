"""JSON out of a model's reply: bare, fenced, or with prose around one object."""

from __future__ import annotations

import json
import re
from typing import Any, Final, cast

from untildone.domain.errors import GradingError

_FENCE: Final = re.compile(r"```(?:json)?[ \t]*\n(.*?)```", re.DOTALL | re.IGNORECASE)


def json_candidates(text: str) -> list[str]:
    """What may be the JSON of a reply, the likeliest first; nothing empty."""
    candidates = [text.strip(), *(block.strip() for block in _FENCE.findall(text))]
    start, end = text.find("{"), text.rfind("}")
    if 0 <= start < end:
        candidates.append(text[start : end + 1])
    return [candidate for candidate in candidates if candidate]


def read_json_object(text: str) -> dict[str, Any]:
    """The one JSON object in a reply.

    Raises:
        GradingError: There is none, or what is there is a list, a number, null or cut off.
    """
    found: list[dict[str, Any]] = []
    for candidate in json_candidates(text):
        value = _parsed(candidate)
        if isinstance(value, dict) and value not in found:
            found.append(cast("dict[str, Any]", value))
    if len(found) == 1:
        return found[0]
    if found:
        # One may be a quotation, such as of a verdict that the judged answer brought with it.
        raise GradingError(f"the reply has {len(found)} different JSON objects; give one")
    shown = text.strip()
    raise GradingError(
        f"the reply is no JSON object: {shown[:120]!r}" if shown else "the reply is empty"
    )


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
