"""Anthropic messages, the answer: from events to one reply. Pure: no I/O."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from untildone.domain.errors import ModelError
from untildone.domain.messages import Message, ToolCall
from untildone.domain.requests import Delta, ModelReply, TextDelta, ThinkingDelta
from untildone.domain.usage import Usage
from untildone.models.anthropic_request import CONTENT_KEY, sendable_input
from untildone.models.call_ids import own_id
from untildone.models.endpoint import Endpoint
from untildone.models.failures import broken_inside, unreadable
from untildone.models.loose_json import (
    as_count,
    as_dict,
    as_list,
    as_text,
    parsed,
    whole_unicode,
    without_half_pair,
)

FINISH_REASONS: Final = {
    "end_turn": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}
"""Stop reasons in the words that the field uses; others stay as they are."""

_NO_DELTAS: Final[tuple[Delta, ...]] = ()
_PLAIN: Final = ("text", "tool_use")
_WHOLE: Final = ("tool_use", "end_turn")
"""After these stop reasons a call's input is whole, also an empty one."""


class _Block:
    """A content block while its pieces come in."""

    __slots__ = ("arguments", "form", "signature", "text", "thinking")

    def __init__(self, form: dict[str, Any]) -> None:
        self.form = dict(form)
        self.text: list[str] = [as_text(form.get("text"))]
        self.thinking: list[str] = [as_text(form.get("thinking"))]
        self.signature: list[str] = [as_text(form.get("signature"))]
        self.arguments: list[str] = []

    @property
    def kind(self) -> str:
        return as_text(self.form.get("type"))

    def whole(self) -> dict[str, Any]:
        """The block as it is to be sent back."""
        form = dict(self.form)
        match self.kind:
            case "text":
                form["text"] = whole_unicode("".join(self.text))
            case "thinking":
                form["thinking"] = whole_unicode("".join(self.thinking))
                form["signature"] = "".join(self.signature)
            case _ if self.arguments:
                form["input"] = sendable_input("".join(self.arguments))
            case _:
                pass
        return form

    def call(self, *, is_whole: bool) -> ToolCall:
        """The block as a tool call.

        Each block begins with the input ``{}``; of a call that was cut there it is no arguments.
        """
        arguments = whole_unicode("".join(self.arguments))
        if not arguments.strip():
            given: Any = self.form.get("input") or {}
            arguments = whole_unicode(json.dumps(given, ensure_ascii=False))
            if not given and not is_whole:
                arguments = ""
        return ToolCall(as_text(self.form.get("id")), as_text(self.form.get("name")), arguments)


class MessageAssembler:
    """Puts one streamed reply together.

    Args:
        endpoint: For error texts.
        request_id: The provider's id of the request.

    Attributes:
        done: Whether ``message_stop`` was seen.
        heard: See ``exchange.Assembler``; a ``ping`` counts, since these models can think for
            minutes without a visible token.
    """

    def __init__(self, endpoint: Endpoint, request_id: str | None = None) -> None:
        self.done = False
        self.heard = False
        self._endpoint = endpoint
        self._request_id = request_id
        self._blocks: list[_Block] = []
        self._by_index: dict[int, _Block] = {}
        self._half_pair = ""
        self._stop_reason = ""
        self._usage: dict[str, Any] = {}
        self._model = ""

    def feed(self, payload: str) -> Sequence[Delta]:
        """Takes one payload; see ``exchange.Assembler``."""
        if not payload.strip():
            return _NO_DELTAS
        try:
            event = as_dict(parsed(payload))
        except ValueError as error:
            shown = self._endpoint.clean(payload, longest=80)
            raise self._broken(f"a piece of the stream is no JSON ({shown!r})") from error
        deltas = self._take(event)
        if deltas:
            self.heard = True
        return deltas

    def feed_whole(self, body: str) -> Sequence[Delta]:
        """Takes a reply that was not streamed."""
        try:
            form = as_dict(parsed(body))
        except ValueError as error:
            raise self._broken("the reply is cut or is no JSON") from error
        if form.get("error"):
            raise broken_inside(form["error"], self._endpoint, self._request_id)
        self._start(form)
        self._blocks = [_Block(as_dict(item)) for item in as_list(form.get("content"))]
        self._stop_reason = as_text(form.get("stop_reason"))
        self.done = True
        deltas: list[Delta] = []
        for block in self._blocks:
            deltas += _shown(block.form)
        return deltas

    def reply(self) -> ModelReply:
        """The whole reply.

        Raises:
            BadReplyError: It was cut: no stop reason, or no ``message_stop``.
        """
        if not self._stop_reason:
            raise self._broken("the stream ended without a stop reason, so the reply is cut")
        if not self.done:
            raise self._broken("the stream ended without message_stop, so the reply is cut")
        blocks, is_whole = self._blocks, self._stop_reason in _WHOLE
        used: set[str] = set()
        for block in blocks:
            if block.kind == "tool_use":
                block.form["id"] = own_id(as_text(block.form.get("id")), used)
        calls = tuple(block.call(is_whole=is_whole) for block in blocks if block.kind == "tool_use")
        if any(not call.name for call in calls):
            raise self._broken("the reply has a tool call without a name")
        text = whole_unicode("".join(s for b in blocks if b.kind == "text" for s in b.text))
        return ModelReply(
            message=Message(
                "assistant", text if text or not calls else None, calls, extra=_kept(blocks)
            ),
            finish_reason=FINISH_REASONS.get(self._stop_reason, self._stop_reason),
            usage=self._spent(),
            model=self._model,
            request_id=self._request_id,
        )

    def _take(self, event: dict[str, Any]) -> Sequence[Delta]:
        match event.get("type"):
            case "content_block_delta":
                return self._extend(event)
            case "content_block_start":
                self.heard = True
                return _shown(self._begun(event).form)
            case "message_start":
                self._start(as_dict(event.get("message")))
            case "message_delta":
                self._add_usage(event)
                reason = as_text(as_dict(event.get("delta")).get("stop_reason"))
                self.heard = self.heard or bool(reason)
                self._stop_reason = reason or self._stop_reason
            case "ping":
                self.heard = True
            case "message_stop":
                self.done = True
            case "error":
                raise broken_inside(event.get("error"), self._endpoint, self._request_id)
            case _:  # content_block_stop, and kinds that may come
                if event.get("error"):
                    raise broken_inside(event["error"], self._endpoint, self._request_id)
        return _NO_DELTAS

    def _extend(self, event: dict[str, Any]) -> Sequence[Delta]:
        block = self._block_of(event)
        if block is None:
            raise self._broken("a piece of the stream belongs to no block")
        delta = as_dict(event.get("delta"))
        match delta.get("type"):
            case "text_delta":
                text = as_text(delta.get("text"))
                block.text.append(text)
                text, self._half_pair = without_half_pair(self._half_pair + text)
                return (TextDelta(whole_unicode(text)),) if text else _NO_DELTAS
            case "input_json_delta":
                self._keep(block.arguments, delta.get("partial_json"))
            case "thinking_delta":
                text = as_text(delta.get("thinking"))
                block.thinking.append(text)
                return (ThinkingDelta(whole_unicode(text)),) if text else _NO_DELTAS
            case "signature_delta":
                self._keep(block.signature, delta.get("signature"))
            case "citations_delta":
                citations = as_list(block.form.get("citations"))
                block.form = {**block.form, "citations": [*citations, delta.get("citation")]}
            case _:
                pass
        return _NO_DELTAS

    def _start(self, message: dict[str, Any]) -> None:
        self._model = as_text(message.get("model"))
        self._request_id = self._request_id or as_text(message.get("id")) or None
        self._add_usage(message)

    def _begun(self, event: dict[str, Any]) -> _Block:
        """A new block; some servers leave out the index, or have the same for all."""
        block = _Block(as_dict(event.get("content_block")))
        self._blocks.append(block)
        index = as_count(event.get("index"))
        if index is not None:
            self._by_index[index] = block
        return block

    def _block_of(self, event: dict[str, Any]) -> _Block | None:
        index = as_count(event.get("index"))
        if index is not None and (self._by_index or not self._blocks):
            return self._by_index.get(index)
        return self._blocks[-1] if self._blocks else None

    def _keep(self, pieces: list[str], piece: Any) -> None:
        text = as_text(piece)
        if text:
            self.heard = True
            pieces.append(text)

    def _add_usage(self, event: dict[str, Any]) -> None:
        """Takes numbers that only grow: some servers end with zeros where they know none."""
        for key, value in as_dict(event.get("usage")).items():
            news, known = as_count(value), as_count(self._usage.get(key))
            if news is not None and (known is None or news > known):
                self._usage[key] = value
                self.heard = True

    def _spent(self) -> Usage | None:
        """Tokens; this protocol counts cached ones apart from the other input tokens."""
        used = {key: as_count(value) for key, value in self._usage.items()}
        if used.get("input_tokens") is None and used.get("output_tokens") is None:
            return None
        cached = used.get("cache_read_input_tokens") or 0
        written = used.get("cache_creation_input_tokens") or 0
        return Usage(
            input_tokens=(used.get("input_tokens") or 0) + written + cached,
            output_tokens=used.get("output_tokens") or 0,
            cached_tokens=cached,
        )

    def _broken(self, what: str) -> ModelError:
        error = unreadable(what, self._endpoint, self._spent() if self.done else None)
        error.request_id = self._request_id
        return error


def _shown(form: dict[str, Any]) -> Sequence[Delta]:
    """What a live reader sees of a block's beginning; most begin empty."""
    text, thinking = as_text(form.get("text")), as_text(form.get("thinking"))
    if text and form.get("type") == "text":
        return (TextDelta(whole_unicode(text)),)
    return (ThinkingDelta(whole_unicode(thinking)),) if thinking else _NO_DELTAS


def _kept(blocks: list[_Block]) -> dict[str, Any] | None:
    """The blocks verbatim, where text and calls alone do not tell them all."""
    plain = all(
        block.kind in _PLAIN and not (block.kind == "text" and block.form.get("citations"))
        for block in blocks
    )
    return None if plain else {CONTENT_KEY: [block.whole() for block in blocks]}
