"""Images and documents in what a tool returned: found, and told in the text by a note each.

A tool returns what ``image()`` and ``pdf()`` make, alone, in a list with texts, or deep inside its
own data. The text is what logs, events and the stuck detector see, so the note of an attachment
holds a hash: another picture is another result.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from untildone.domain.tools import ToolOutput
from untildone.policy.cutting import cut_text

_MARKS: Final = ('"image_url":', '"file_data":')
_DATA_URL: Final = re.compile(r"data:([^;,]*)[^,]*,", re.IGNORECASE)
_HASH_DIGITS: Final = 12
_LONGEST_SHOWN: Final = 200


def with_attachments(text: str, max_chars: int) -> str | ToolOutput:
    """A result's JSON text, cut; with the attachments in it apart, if it has any.

    Args:
        text: What ``result_text`` made of a value that was no text itself.
        max_chars: Most characters of the text; attachments have no such bound.
    """
    if _MARKS[0] in text or _MARKS[1] in text:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return cut_text(text, max_chars)
        attachments: list[dict[str, Any]] = []
        told = _told(value, attachments)
        if attachments:
            return ToolOutput(cut_text(_as_text(told), max_chars), tuple(attachments))
    return cut_text(text, max_chars)


def as_output(parts: Sequence[str | dict[str, Any]], max_chars: int) -> str | ToolOutput:
    """Texts and content parts as lines, with the attachments apart."""
    attachments: list[dict[str, Any]] = []
    text = cut_text(_as_text([_told(part, attachments) for part in parts]), max_chars)
    return ToolOutput(text, tuple(attachments)) if attachments else text


def _told(value: Any, attachments: list[dict[str, Any]]) -> Any:
    """The value with a note in the place of each attachment, which goes to the list."""
    if isinstance(value, dict):
        part = cast("dict[str, Any]", value)
        url = attached_url(part)
        if url is not None:
            attachments.append(part)
            return _note(len(attachments), part, url)
        return {key: _told(item, attachments) for key, item in part.items()}
    if isinstance(value, list):
        return [_told(item, attachments) for item in cast("list[Any]", value)]
    return value


def _as_text(told: Any) -> str:
    """A list of texts and notes as lines, a single one as it is, all else as JSON."""
    if isinstance(told, str):
        return told
    if isinstance(told, list):
        return "\n".join(map(_line, cast("list[Any]", told)))
    return _encode(told)


def _line(item: Any) -> str:
    if isinstance(item, str):
        return item
    part = cast("dict[str, Any]", item) if isinstance(item, dict) else {}
    return str(part.get("text")) if part.get("type") == "text" else _encode(item)


def attached_url(part: Mapping[str, Any]) -> str | None:
    """Where the data of an image or file part is; None for what is no such part."""
    kind = part.get("type")
    if kind == "image_url":
        url = _field(part.get("image_url"), "url")
    elif kind == "file":
        url = _field(part.get("file"), "file_data")
    else:
        return None
    return url if url.startswith(("data:", "https://", "http://")) else None


def _field(inner: object, name: str) -> str:
    value = cast("dict[str, Any]", inner).get(name) if isinstance(inner, dict) else None
    return value if isinstance(value, str) else ""


def _note(number: int, part: Mapping[str, Any], url: str) -> str:
    inline = _DATA_URL.match(url)
    name = _field(part.get("file"), "filename")
    shown = [name] if name else []
    if inline is None:
        shown.append(url[:_LONGEST_SHOWN])
    else:
        from hashlib import sha256

        data = url[inline.end() :]
        digest = sha256(data.encode(), usedforsecurity=False).hexdigest()[:_HASH_DIGITS]
        size = len(data.rstrip("=")) * 3 // 4
        shown += [inline[1] or "data", f"{size:,} bytes", f"sha256 {digest}"]
    return f"[attachment {number}: {', '.join(shown)}]"


_encode: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
