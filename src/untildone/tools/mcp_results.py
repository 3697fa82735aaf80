"""What an MCP server's tool gave back, as the text a model reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from untildone.tools.results import result_text


def content_text(content: Sequence[Any], structured: object = None) -> str:
    """The parts of a result, a line or more each: texts as they are, a note for what is no text.

    Args:
        content: The content blocks of the SDK.
        structured: The structured content; shown where there are no blocks.
    """
    if not content and structured is not None:
        return result_text(structured)
    return "\n".join(_part_text(part) for part in content)


def _part_text(part: Any) -> str:
    match part.type:
        case "text":
            return part.text
        case "image" | "audio":
            return f"[{part.type}, {part.mime_type}, {_size(part.data)}, not shown]"
        case "resource_link":
            return f"[resource {part.name}: {part.uri}]"
        case "resource":
            return _resource_text(part.resource)
        case _:
            return result_text(part)


def _resource_text(resource: Any) -> str:
    text = getattr(resource, "text", None)
    if isinstance(text, str):
        return text
    kind = resource.mime_type or "binary"
    return f"[resource {resource.uri}, {kind}, {_size(resource.blob)}, not shown]"


def _size(base64_text: str) -> str:
    return f"{len(base64_text.rstrip('=')) * 3 // 4:,} bytes"
