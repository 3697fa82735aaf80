"""What an MCP server's tool gave back, as what a model gets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from untildone.domain.tools import ToolOutput
from untildone.tools.attachments import as_output
from untildone.tools.results import result_text, tool_output

_IMAGES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
_PDF: Final = "application/pdf"


def content_output(content: Sequence[Any], structured: object, max_chars: int) -> str | ToolOutput:
    """The parts of a result, a line or more each; images and PDFs apart, a note for other data.

    Args:
        content: The content blocks of the SDK.
        structured: The structured content; shown where there are no blocks.
        max_chars: Most characters of the text.
    """
    if not content and structured is not None:
        return tool_output(structured, max_chars)
    return as_output([_part(part) for part in content], max_chars)


def _part(part: Any) -> str | dict[str, Any]:
    """A block as text or as a content part."""
    match part.type:
        case "text":
            return part.text
        case "image" if part.mime_type in _IMAGES:
            url = f"data:{part.mime_type};base64,{part.data}"
            return {"type": "image_url", "image_url": {"url": url}}
        case "image" | "audio":
            return f"[{part.type}, {part.mime_type}, {_size(part.data)}, not shown]"
        case "resource_link":
            return f"[resource {part.name}: {part.uri}]"
        case "resource":
            return _resource(part.resource)
        case _:
            return result_text(part)


def _resource(resource: Any) -> str | dict[str, Any]:
    text = getattr(resource, "text", None)
    if isinstance(text, str):
        return text
    kind = resource.mime_type or "binary"
    if kind == _PDF:
        name = str(resource.uri).rpartition("/")[2] or "document.pdf"
        url = f"data:{kind};base64,{resource.blob}"
        return {"type": "file", "file": {"filename": name, "file_data": url}}
    return f"[resource {resource.uri}, {kind}, {_size(resource.blob)}, not shown]"


def _size(base64_text: str) -> str:
    return f"{len(base64_text.rstrip('=')) * 3 // 4:,} bytes"
