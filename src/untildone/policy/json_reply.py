"""JSON out of a model's reply: bare, fenced, or with prose around one object."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any, Final, cast

from untildone.domain.errors import GradingError

_FENCE: Final = re.compile(r"```(?:json)?[ \t]*\n(.*?)```", re.DOTALL | re.IGNORECASE)
# Where an object or a list of objects may begin.
_OPENING: Final = re.compile(r"""(?:\[\s*)?\{\s*["}]""")


def json_candidates(text: str) -> list[str]:
    """What may be the JSON of a reply, the likeliest first; nothing empty."""
    candidates = [text.strip(), *(block.strip() for block in _FENCE.findall(text))]
    start, end = text.find("{"), text.rfind("}")
    if 0 <= start < end:
        candidates.append(text[start : end + 1])
    return [candidate for candidate in candidates if candidate]


def read_json_object(text: str) -> dict[str, Any]:
    """The one JSON object in a reply, bare, fenced or in prose; repeated alike it is still one.

    Of two different ones, one may be a quotation, such as of a verdict that the judged answer
    brought with it. Which, nobody can tell, so neither counts.

    Raises:
        GradingError: There is none or more than one, a key stands twice in it, or what is there is
            a list, a number, null or cut off.
    """
    found, around = _scanned(text)
    if len(found) > 1:
        found.pop("{}", None)  # it says nothing, as in prose about code
    if len(found) > 1:
        raise GradingError(f"the reply has {len(found)} different JSON objects; give one")
    if not found:
        shown = text.strip()
        raise GradingError(
            f"the reply is no JSON object: {shown[:120]!r}" if shown else "the reply is empty"
        )
    (value,) = found.values()
    if not isinstance(value, dict):
        raise GradingError("the reply is a JSON list; give one object")
    fields = cast("dict[str, Any]", value)
    if _begins_another(around, fields):
        raise GradingError("the reply has more than one JSON object, and not all can be read")
    return fields


def _scanned(text: str) -> tuple[dict[str, Any], str]:
    """The outermost JSON objects of a text, and lists of objects; and the text around them.

    What begins like one and is none ends the scan: it then stands in the text around.

    Raises:
        GradingError: A key stands twice in one, or the text is nested too deeply.
    """
    found: dict[str, Any] = {}
    around: list[str] = []
    end = 0
    for start in (match.start() for match in _OPENING.finditer(text)):
        if start < end:
            continue
        try:
            value, stop = _DECODER.raw_decode(text, start)
            found[json.dumps(value, sort_keys=True)] = value
        except ValueError:
            break
        except RecursionError:
            raise GradingError("the reply is nested too deeply") from None
        around.append(text[end:start])
        end = stop
    return found, " ".join([*around, text[end:]])


def _begins_another(around: str, fields: dict[str, Any]) -> bool:
    """Whether an object is begun that is cut or malformed: with a quoted key, or one of these."""
    keys = "|".join(re.escape(key) for key in fields) or '"'
    begun = rf"""\{{\s*(?:"|['\u201c\u2018]?(?:{keys})\b)"""  # also in single or curly quotes
    return re.search(begun, around) is not None


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        doubled = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise GradingError(f"the key {doubled!r:.80} stands twice in a JSON object; give it once")
    return fields


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_without_doubles)
