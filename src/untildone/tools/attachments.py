"""Images and documents in what a tool returned: found, and told in the text by a note each.

A tool returns what ``image()`` and ``pdf()`` make, alone, in a list with texts, or deep inside its
own data. The text is what logs, events and the stuck detector see, so the note of an attachment
holds a hash: another picture is another result.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, cast

from untildone.domain.errors import ToolError
from untildone.domain.tools import ToolOutput
from untildone.policy.cutting import cut_text

MAX_ATTACHMENTS: Final = 20
"""Most attachments of one result; of further ones the note alone is sent."""

_MARKS: Final = ('"image_url":', '"file_data":')
_IMAGE_KEYS: Final = ({"url"}, {"url", "detail"})
_FILE_KEYS: Final = ({"file_data"}, {"filename", "file_data"})
_ADDRESS: Final = re.compile(r"https?://[^\s\"<>]+", re.IGNORECASE)
_DATA_URL: Final = re.compile(
    r"data:(image/(?:png|jpeg|gif|webp)|application/pdf);base64,", re.IGNORECASE
)
_HASH_DIGITS: Final = 12
_LONGEST_SHOWN: Final = 200


def with_attachments(value: object, text: str, max_chars: int) -> str | ToolOutput:
    """A result's text, cut; with the attachments in it apart, if it has any.

    Args:
        value: What the tool returned: no text itself.
        text: What ``result_text`` made of it.
        max_chars: Most characters of the text; attachments have no such bound.
    """
    if _MARKS[0] not in text and _MARKS[1] not in text:
        return cut_text(text, max_chars)
    try:
        # A part alone is not parsed: a screenshot has megabytes.
        told = value if _is_part(value) else json.loads(text)
        return as_output(told, max_chars)
    except (ValueError, RecursionError):
        return cut_text(text, max_chars)


def as_output(value: Any, max_chars: int) -> str | ToolOutput:
    """JSON data, or a list of texts and content parts, as text with the attachments apart."""
    attachments: list[dict[str, Any]] = []
    text = cut_text(_as_text(_told(value, attachments)), max_chars)
    return ToolOutput(text, tuple(attachments[:MAX_ATTACHMENTS])) if attachments else text


def checked(output: ToolOutput) -> ToolOutput:
    """What a tool put together itself.

    Raises:
        ToolError: An attachment is nothing that ``image()`` or ``pdf()`` would make.
    """
    for part in output.attachments:
        if attached_url(part) is None:
            raise ToolError(
                f"the tool gave an attachment that is none: {part!r:.80};"
                " it has to come from image() or pdf()"
            )
    return output


def _is_part(value: object) -> bool:
    return isinstance(value, dict) and attached_url(cast("dict[str, Any]", value)) is not None


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


def attached_url(part: Any) -> str | None:
    """Where the data of an image or file part is; None for what is no such part.

    Only what ``image()`` and ``pdf()`` would make: a tool may hand on data of others that merely
    looks alike, and a provider that refuses a part ends the run.
    """
    if not isinstance(part, dict):
        return None
    fields = cast("dict[str, Any]", part)
    kind, inner = fields.get("type"), None
    if kind == "image_url" and fields.keys() == {"type", "image_url"}:
        inner, name, known = fields["image_url"], "url", _IMAGE_KEYS
    elif kind == "file" and fields.keys() == {"type", "file"}:
        inner, name, known = fields["file"], "file_data", _FILE_KEYS
    else:
        return None
    if not isinstance(inner, dict):
        return None
    values = cast("dict[str, Any]", inner)
    url = values.get(name)
    if values.keys() not in known or not all(isinstance(text, str) for text in values.values()):
        return None
    assert isinstance(url, str)  # noqa: S101  all of them are
    return url if _DATA_URL.match(url) or _ADDRESS.fullmatch(url) else None


def _note(number: int, part: dict[str, Any], url: str) -> str:
    inline = _DATA_URL.match(url)
    shown: list[str] = []
    if part["type"] == "file" and "filename" in part["file"]:
        shown.append(" ".join(part["file"]["filename"].split())[:_LONGEST_SHOWN])
    if inline is None:
        shown.append(url[:_LONGEST_SHOWN])
    else:
        from hashlib import sha256

        data = url[inline.end() :]
        digest = sha256(data.encode(), usedforsecurity=False).hexdigest()[:_HASH_DIGITS]
        size = len(data.rstrip("=")) * 3 // 4
        shown += [inline[1].lower(), f"{size:,} bytes", f"sha256 {digest}"]
    if number > MAX_ATTACHMENTS:
        shown.append("not shown")
    return f"[attachment {number}: {', '.join(shown)}]"


_encode: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
