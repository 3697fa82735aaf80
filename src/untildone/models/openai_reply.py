"""OpenAI chat completions, the answer: from chunks to one reply. Pure: no I/O.

Providers differ in nearly everything here. What holds for all of them: text, reasoning and calls
come in order; a reply is whole only with a finish reason; two calls are never merged into one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from untildone.domain.errors import ModelError
from untildone.domain.messages import Message, ToolCall
from untildone.domain.requests import Delta, ModelReply, TextDelta, ThinkingDelta
from untildone.domain.usage import Usage
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
from untildone.models.openai_calls import CallAssembler

_NO_DELTAS: Final[tuple[Delta, ...]] = ()
_FIRST: Final = (None, 0, "0", "")
_CUT_REASONS: Final = frozenset(
    {
        "model_length",
        "max_tokens",
        "max_output_tokens",
        "model_context_window_exceeded",
        "insufficient_system_resource",
    }
)
"""What providers write for a reply that ended before the model was done; told as ``length``."""


class ReplyAssembler:
    """Puts one streamed reply together.

    Args:
        endpoint: For error texts.
        request_id: The provider's id of the request.
        keeps: The reasoning fields that the provider wants back with the next request; they are
            kept in ``message.extra``.

    Attributes:
        done: Whether the end mark was seen.
        heard: See ``exchange.Assembler``.
    """

    def __init__(
        self, endpoint: Endpoint, request_id: str | None = None, keeps: Sequence[str] = ()
    ) -> None:
        self.done = False
        self.heard = False
        self._endpoint = endpoint
        self._request_id = request_id
        self._keeps = keeps
        self._text: list[str] = []
        self._refusal: list[str] = []
        self._reasoning: list[str] = []
        self._details = _Details() if "reasoning_details" in keeps else None
        self._calls = CallAssembler()
        self._finish_reason: str | None = None
        self._usage: Usage | None = None
        self._model = ""
        self._saw_choice = False
        self._saw_delta = False
        self._half_pair = ""

    def feed(self, payload: str) -> Sequence[Delta]:
        """Takes one payload; see ``exchange.Assembler``."""
        if payload == "[DONE]":
            self.done = True
            return _NO_DELTAS
        try:
            chunk = parsed(payload)
        except ValueError as error:
            if payload.strip() == "[DONE]":
                self.done = True
                return _NO_DELTAS
            if not payload.strip():
                return _NO_DELTAS
            shown = self._endpoint.clean(payload, longest=80)
            raise self._broken(f"a piece of the stream is no JSON ({shown!r})") from error
        return self.take(chunk)

    def feed_whole(self, body: str) -> Sequence[Delta]:
        """Takes a reply that was not streamed."""
        try:
            form = parsed(body)
        except ValueError as error:
            raise self._broken("the reply is cut or is no JSON") from error
        deltas = self.take(form)
        self.done = True
        return deltas

    def reply(self) -> ModelReply:
        """The whole reply.

        Raises:
            BadReplyError: It has no choice, no finish reason, or a call without a name.
        """
        if not self._saw_choice:
            raise self._broken("the reply holds no choice, only empty chunks")
        if self._finish_reason is None:
            raise self._broken("the stream ended without a finish reason, so the reply is cut")
        calls = self._calls.calls()
        if any(not call.name for call in calls):
            raise self._broken("the reply has a tool call without a name")
        text = whole_unicode("".join(self._text))
        return ModelReply(
            message=Message(
                "assistant", text if text or not calls else None, calls, extra=self._extra(calls)
            ),
            finish_reason=self._finish_reason,
            usage=self._usage,
            model=self._model,
            request_id=self._request_id,
        )

    def take(self, chunk: Any) -> Sequence[Delta]:
        """Takes one chunk, or a whole reply, as a value."""
        if not isinstance(chunk, dict):
            if isinstance(chunk, list) and as_dict(next(iter(as_list(chunk)), None)).get("error"):
                raise self._error_in(as_dict(as_list(chunk)[0])["error"])
            raise self._broken("a piece of the stream is no JSON object")
        fields = as_dict(chunk)
        error = fields.get("error")
        if error:
            raise self._error_in(error)
        if not self._model:
            self._model = as_text(fields.get("model"))
        usage = fields.get("usage") or as_dict(fields.get("x_groq")).get("usage")
        if usage:
            self._take_usage(usage)
        choices = as_list(fields.get("choices"))
        if not choices and _is_bare_error(fields):
            raise self._error_in(fields)
        deltas: list[Delta] = []
        for item in choices:
            choice = as_dict(item)
            if choice.get("index") in _FIRST:  # further choices are asked for by nobody
                self._take_choice(choice, deltas)
        if deltas:
            self.heard = True
        return deltas

    def _take_choice(self, choice: dict[str, Any], deltas: list[Delta]) -> None:
        if choice.get("error"):
            raise self._error_in(choice["error"])
        self._saw_choice = True
        delta = as_dict(choice.get("delta"))
        if delta:
            self._saw_delta = True
        else:
            delta = as_dict(choice.get("message"))
            if self._saw_delta and delta:
                delta = self._news_in(delta)
        reasoning = delta.get("reasoning_content") or delta.get("reasoning")
        if reasoning:
            self._take_reasoning(reasoning, deltas)
        content = delta.get("content")
        if content:
            self._take_content(content, deltas)
        if not content or len(delta) > 1:
            self._take_rarities(delta, deltas)
        reason = choice.get("finish_reason")
        if reason:
            self.heard = self.heard or self._finish_reason is None
            self._finish_reason = _finish_reason(as_text(reason))
            if self._finish_reason == "error":
                raise self._error_in(choice.get("error") or "the provider failed while it answered")
        usage = choice.get("usage")
        if usage:
            self._take_usage(usage)

    def _news_in(self, message: dict[str, Any]) -> dict[str, Any]:
        """What a whole message after its pieces, as MiniMax ends with, adds to them."""
        news = dict(message)
        if self._text:
            content, so_far = as_text(news.get("content")), "".join(self._text)
            news["content"] = content[len(so_far) :] if content.startswith(so_far) else None
        if self._refusal:
            news.pop("refusal", None)
        if self._reasoning or (self._details and self._details.list):
            for key in ("reasoning_content", "reasoning", "reasoning_details"):
                news.pop(key, None)
        if self._calls.has_any:
            for key in ("tool_calls", "function_call"):
                news.pop(key, None)
        return news

    def _take_rarities(self, delta: dict[str, Any], deltas: list[Delta]) -> None:
        refusal = delta.get("refusal")
        if isinstance(refusal, str) and refusal:
            self._refusal.append(refusal)
            self._add_text(refusal, deltas)
        for detail in as_list(delta.get("reasoning_details")):
            self.heard = self.heard or bool(detail)
            if self._details is not None:
                self._details.add(as_dict(detail))
        calls = as_list(delta.get("tool_calls"))
        if calls:
            self.heard = self._calls.feed(calls) or self.heard
        function = delta.get("function_call")
        if isinstance(function, dict):
            self.heard = self._calls.feed([{"index": 0, "function": function}]) or self.heard

    def _take_content(self, content: Any, deltas: list[Delta]) -> None:
        if isinstance(content, str):
            self._add_text(content, deltas)
            return
        for item in as_list(content):
            part = as_dict(item)
            if part.get("type") == "thinking":
                self._take_reasoning(part.get("thinking"), deltas)
            else:
                self._add_text(as_text(part.get("text")), deltas)

    def _take_reasoning(self, reasoning: Any, deltas: list[Delta]) -> None:
        if not isinstance(reasoning, str):
            reasoning = "".join(as_text(as_dict(part).get("text")) for part in as_list(reasoning))
        if reasoning:
            self._reasoning.append(reasoning)
            deltas.append(ThinkingDelta(whole_unicode(reasoning)))

    def _add_text(self, text: str, deltas: list[Delta]) -> None:
        if not text:
            return
        self._text.append(text)
        if text.isascii() and not self._half_pair:
            deltas.append(TextDelta(text))
            return
        text, self._half_pair = without_half_pair(self._half_pair + text)
        if text:
            deltas.append(TextDelta(whole_unicode(text)))

    def _take_usage(self, form: Any) -> None:
        usage = usage_from(as_dict(form))
        # Some providers send a running sum, some a last chunk of zeros: the largest is the call's.
        if usage is not None and (
            self._usage is None or usage.total_tokens >= self._usage.total_tokens
        ):
            self.heard = self.heard or usage != self._usage
            self._usage = usage

    def _extra(self, calls: tuple[ToolCall, ...]) -> dict[str, Any] | None:
        extra: dict[str, Any] = {}
        if self._refusal:
            extra["refusal"] = whole_unicode("".join(self._refusal))
        if self._details is not None and self._details.list:
            extra["reasoning_details"] = self._details.joined()
        for key in ("reasoning_content", "reasoning"):
            # DeepSeek refuses a later request where a reply with calls lacks it, even if empty.
            if key in self._keeps and (self._reasoning or calls):
                extra[key] = whole_unicode("".join(self._reasoning))
        return extra or None

    def _broken(self, what: str) -> ModelError:
        error = unreadable(what, self._endpoint, self._usage)
        error.request_id = self._request_id
        return error

    def _error_in(self, error: Any) -> ModelError:
        return broken_inside(error, self._endpoint, self._request_id)


def _finish_reason(reason: str) -> str:
    return "length" if reason.lower() in _CUT_REASONS else reason


def _is_bare_error(fields: dict[str, Any]) -> bool:
    """Whether a chunk is an error without the usual ``error`` around it."""
    if fields.get("object") == "error":
        return True
    return "choices" not in fields and ("message" in fields or "detail" in fields)


class _Details:
    """OpenRouter's reasoning details: consecutive pieces of one text are one detail.

    The pieces are joined once, at the end.
    """

    def __init__(self) -> None:
        self.list: list[dict[str, Any]] = []
        self._texts: list[list[str]] = []

    def add(self, piece: dict[str, Any]) -> None:
        """Takes a piece."""
        last = self.list[-1] if self.list else {}
        if piece.get("type") == "reasoning.text" == last.get("type") and (
            piece.get("index") == last.get("index")
        ):
            last.update({key: value for key, value in piece.items() if value is not None})
            self._texts[-1].append(as_text(piece.get("text")))
        elif piece:
            self.list.append(dict(piece))
            self._texts.append([as_text(piece.get("text"))])

    def joined(self) -> list[dict[str, Any]]:
        """The details, whole."""
        return [
            {**detail, "text": "".join(texts)} if len(texts) > 1 else detail
            for detail, texts in zip(self.list, self._texts, strict=True)
        ]


def usage_from(form: dict[str, Any]) -> Usage | None:
    """Tokens in any of the shapes that OpenAI-compatible providers send; None where there are none.

    Where the total is more than prompt and completion, the rest is reasoning that the provider
    (xAI, Gemini) left out of the completion.
    """
    prompt = _count(form, "prompt_tokens", "input_tokens")
    completion = _count(form, "completion_tokens", "output_tokens")
    total = _count(form, "total_tokens")
    if prompt is None and completion is None:
        return None if total is None else Usage(input_tokens=total)
    prompt = (prompt or 0) + _counted_apart(form)
    completion = max(completion or 0, (total or 0) - prompt)
    details = as_dict(form.get("prompt_tokens_details") or form.get("input_tokens_details"))
    cached = _count(details, "cached_tokens")
    if cached is None:
        cached = _count(form, "prompt_cache_hit_tokens", "cached_tokens", "cache_read_input_tokens")
    return Usage(
        input_tokens=prompt, output_tokens=completion, cached_tokens=min(cached or 0, prompt)
    )


def _counted_apart(form: dict[str, Any]) -> int:
    """Cached input tokens that are no part of the others: so in Anthropic's own form of usage."""
    if "prompt_tokens" in form or "input_tokens_details" in form:
        return 0
    read = _count(form, "cache_read_input_tokens") or 0
    return read + (_count(form, "cache_creation_input_tokens") or 0)


def _count(form: dict[str, Any], *keys: str) -> int | None:
    for key in keys:
        count = as_count(form.get(key))
        if count is not None:
            return count
    return None
