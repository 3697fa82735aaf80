"""Anthropic messages, the request: from messages in OpenAI form to content blocks. Pure.

A message becomes blocks, encoded once and kept with it; neighbours of one role become one message
by joining those bytes. Cache marks are put into the joined bytes, never into kept ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Any, Final

from untildone.domain.messages import Message, ToolCall
from untildone.domain.tools import ToolSpecs
from untildone.models.loose_json import as_dict, as_list, as_text, encoded, parsed

CONTENT_KEY: Final = "anthropic_content"
"""Where ``Message.extra`` keeps a reply's blocks verbatim, where they are more than text and calls:
signed thinking must come back exactly as it was."""

_FORM: Final = "anthropic"
_CACHE_MARK: Final = b',"cache_control":{"type":"ephemeral"}}'
_ID_MARKS: Final = re.compile(r"[^a-zA-Z0-9_-]")
_ID_TAIL: Final = 8
_DATA_URL: Final = re.compile(r"data:([^;,]+)(?:;[^;,]*)*;base64,(.*)", re.DOTALL | re.IGNORECASE)
_SYSTEM_ROLES: Final = ("system", "developer")


def system_and_messages(messages: Sequence[Message], *, cache: bool) -> tuple[bytes, bytes]:
    """The system blocks and the messages, each as the inside of a JSON array.

    System messages at the beginning become the system prompt; later ones, which the protocol does
    not know, become user text at their place, so that the prefix of the conversation stays as it
    was and caches hit.
    """
    start = 0
    while start < len(messages) and messages[start].role in _SYSTEM_ROLES:
        start += 1
    system = b",".join(filter(None, map(_blocks_of, messages[:start])))
    groups = list(_groups(messages[start:]))
    if cache:
        system = marked(system)
        if groups and groups[-1][0] == b"user":
            groups[-1] = (b"user", marked(groups[-1][1]))
    return system, b",".join(
        b'{"role":"%b","content":[%b]}' % (role, blocks) for role, blocks in groups
    )


def has_cache_marks(messages: Sequence[Message]) -> bool:
    """Whether somebody marked a part of a message already, which then is theirs to do.

    The protocol takes four marks at most, longer-lived ones first: ours beside them may be refused.
    """
    return any(
        isinstance(message.content, list)
        and any(as_dict(part).get("cache_control") for part in message.content)
        for message in messages
    )


def tools_of(tools: ToolSpecs, *, cache: bool) -> bytes:
    """The tools as the inside of a JSON array."""
    form = tools.wire_form(_FORM, _encode_tools)
    return marked(form) if cache else form


def marked(blocks: bytes) -> bytes:
    """The blocks with a cache mark on the last one."""
    return blocks[:-1] + _CACHE_MARK if blocks else blocks


def _groups(messages: Sequence[Message]) -> Iterator[tuple[bytes, bytes]]:
    """Neighbours of one role as one message; tool results are the user's."""
    role, held = b"", list[bytes]()
    for message in messages:
        blocks = _blocks_of(message)
        if not blocks:
            continue
        speaker = b"assistant" if message.role == "assistant" else b"user"
        if speaker != role and held:
            yield role, b",".join(held)
            held = []
        role = speaker
        held.append(blocks)
    if held:
        yield role, b",".join(held)


def _blocks_of(message: Message) -> bytes:
    return message.wire_form(_FORM, _encode)


def _encode(message: Message) -> bytes:
    """One message's blocks, as the inside of a JSON array."""
    return b",".join(map(encoded, _blocks(message)))


def _encode_tools(tools: ToolSpecs) -> bytes:
    return b",".join(
        encoded(
            {
                "name": spec.name,
                "description": spec.description,
                "input_schema": spec.parameters or {"type": "object"},
            }
        )
        for spec in tools.specs
    )


def _blocks(message: Message) -> list[dict[str, Any]]:
    if message.role == "tool":
        return [_tool_result(message)]
    kept = as_list((message.extra or {}).get(CONTENT_KEY))
    if message.role == "assistant" and kept:
        return kept
    blocks = list(_content_blocks(message.content))
    return blocks + [_tool_use(call) for call in message.tool_calls]


def sendable_input(arguments: str) -> dict[str, Any]:
    """A call's arguments as an object, which they must be; unreadable ones as text in one.

    Such a call was answered with an error; the model still sees what it wrote.
    """
    try:
        value = parsed(arguments or "{}")
    except ValueError:
        value = None
    return as_dict(value) if isinstance(value, dict) else {"unreadable_arguments": arguments}


def _tool_use(call: ToolCall) -> dict[str, Any]:
    return {
        "type": "tool_use",
        "id": _call_id(call.id),
        "name": call.name,
        "input": sendable_input(call.arguments),
    }


def _tool_result(message: Message) -> dict[str, Any]:
    block: dict[str, Any] = {
        "type": "tool_result",
        "tool_use_id": _call_id(message.tool_call_id or ""),
        "content": list(_content_blocks(message.content)),
    }
    if message.is_error:
        block["is_error"] = True
    return block


def _call_id(call_id: str) -> str:
    """The id in the letters this protocol allows; other providers' ids may have more.

    One that has gets a tail of its own, since ``a.b`` and ``a:b`` are two calls.
    """
    allowed = _ID_MARKS.sub("_", call_id)
    if allowed != call_id:
        allowed += f"_{sha256(call_id.encode('utf-8', 'replace')).hexdigest()[:_ID_TAIL]}"
    return allowed or "call"


def _content_blocks(content: Any) -> Iterator[dict[str, Any]]:
    """Content of OpenAI form as blocks; blocks of this protocol pass through; no empty text."""
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else as_list(content)
    for item in parts:
        part = as_dict(item)
        kind = part.get("type")
        if kind == "text":
            if as_text(part.get("text")).strip():
                yield part
        elif kind == "image_url":
            image = part.get("image_url")
            url = image if isinstance(image, str) else as_text(as_dict(image).get("url"))
            yield {"type": "image", "source": _source(url)}
        elif kind == "file":
            file = as_dict(part.get("file"))
            file_id = as_text(file.get("file_id"))
            source = (
                {"type": "file", "file_id": file_id}
                if file_id
                else _source(as_text(file.get("file_data")))
            )
            block = {"type": "document", "source": source}
            name = as_text(file.get("filename"))
            yield {**block, "title": name} if name else block
        elif kind == "refusal":
            yield {"type": "text", "text": as_text(part.get("refusal")) or "(refused)"}
        elif part:
            yield part


def _source(url: str) -> dict[str, Any]:
    inline = _DATA_URL.fullmatch(url)
    if inline is None:
        return {"type": "url", "url": url}
    return {"type": "base64", "media_type": inline[1], "data": inline[2]}
