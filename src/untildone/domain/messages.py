"""Messages of a conversation: OpenAI form at the border, typed inside.

A ``Message`` is never changed after it was made, so that its encoded form can be kept: at 1,000
turns, encoding the history anew costs about 6 ms a turn, joining kept bytes 0.08 ms.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, cast

from untildone.domain.errors import ConfigError

Role = Literal["system", "developer", "user", "assistant", "tool"]
ROLES: Final = ("system", "developer", "user", "assistant", "tool")

Content = str | list[dict[str, Any]] | None
"""Text, or a list of content parts (text, images, files) in OpenAI form, or nothing."""


@dataclass(slots=True)
class ToolCall:
    """One call that a model asked for.

    Attributes:
        id: The provider's id of the call; the answer carries the same one. May be empty or doubled
            where a provider is careless; position in the reply is what identifies a call here.
        name: The tool's name.
        arguments: The raw JSON text, verbatim as the model wrote it.
        extra: Further keys of the OpenAI form, kept verbatim: some providers refuse the next
            request when they are missing (Gemini: ``extra_content`` with its thought signature).
    """

    id: str
    name: str
    arguments: str
    extra: Mapping[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        """The call in OpenAI form."""
        form: dict[str, Any] = {
            "id": self.id,
            "type": "function",
            "function": {"name": self.name, "arguments": self.arguments},
        }
        if self.extra:
            form.update(self.extra)
        return form


@dataclass(slots=True)
class Message:
    """One message. Treat it as immutable: ``wire_json`` keeps the encoded form.

    Attributes:
        role: Who speaks.
        content: Text, content parts, or None.
        tool_calls: The calls of an assistant message, in order.
        tool_call_id: The call that a tool message answers.
        is_error: Whether a tool message reports a failure. Ours; never sent to a provider.
        extra: Further keys of the OpenAI form (``name``, ``refusal``, ``reasoning_content`` …),
            kept verbatim so that a round trip loses nothing.
    """

    role: Role
    content: Content = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    is_error: bool = False
    extra: Mapping[str, Any] | None = None
    _wire_json: bytes | None = field(default=None, init=False, repr=False, compare=False)
    _wire_forms: dict[str, bytes] | None = field(
        default=None, init=False, repr=False, compare=False
    )

    @property
    def text(self) -> str:
        """The text of the message: the content, or the text parts joined, or ``""``."""
        content = self.content
        if isinstance(content, str):
            return content
        if content is None:
            return ""
        return "".join(str(part.get("text") or "") for part in content)

    @property
    def is_empty(self) -> bool:
        """Whether nothing in it could be sent: it has no call, and no text but whitespace."""
        if self.tool_calls:
            return False
        if isinstance(self.content, list):
            return all(set(part) <= _TEXT_KEYS for part in self.content) and not self.text.strip()
        return not self.text.strip()

    def to_dict(self) -> dict[str, Any]:
        """The message in OpenAI form, as a fresh dict; ``is_error`` appears only where true."""
        form = self._wire_dict()
        if self.is_error:
            form["is_error"] = True
        return copy.deepcopy(form)

    def wire_json(self) -> bytes:
        """The message as JSON in OpenAI form, encoded once."""
        if self._wire_json is None:
            self._wire_json = json.dumps(
                self._wire_dict(), ensure_ascii=False, separators=(",", ":")
            ).encode("utf-8", "replace")
        return self._wire_json

    def wire_form(self, name: str, encode: Callable[[Message], bytes]) -> bytes:
        """The message as ``encode`` makes it for the protocol ``name``, encoded once."""
        forms = self._wire_forms
        if forms is None:
            forms = self._wire_forms = {}
        form = forms.get(name)
        if form is None:
            form = forms[name] = encode(self)
        return form

    def _wire_dict(self) -> dict[str, Any]:
        form: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.tool_calls:
            form["tool_calls"] = [call.to_dict() for call in self.tool_calls]
        if self.tool_call_id is not None:
            form["tool_call_id"] = self.tool_call_id
        if self.extra:
            form.update(self.extra)
        return form


_TEXT_KEYS: Final = frozenset({"type", "text"})
_KNOWN_CALL_KEYS: Final = frozenset({"id", "type", "function", "index"})
_KNOWN_KEYS: Final = frozenset({"role", "content", "tool_calls", "tool_call_id", "is_error"})


def user_message(text: str) -> Message:
    """A user message with plain text."""
    return Message("user", text)


def tool_message(
    call_id: str,
    text: str,
    *,
    is_error: bool = False,
    attachments: Sequence[dict[str, Any]] = (),
) -> Message:
    """The answer to one tool call; attachments follow the text as content parts."""
    content = [{"type": "text", "text": text}, *attachments] if attachments else text
    return Message("tool", content, (), call_id, is_error)


def message_from_dict(form: Mapping[str, Any], *, where: str = "message") -> Message:
    """Reads one message in OpenAI form; the given dict is copied, never kept or changed.

    Args:
        form: The message, ``{"role": …, "content": …}`` and what else the role needs.
        where: How errors name the place, for example ``messages[2]``.

    Raises:
        ConfigError: The form is no message; the text names the place, the value and what is needed.
    """
    if not isinstance(form, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        msg = (
            f"{where} must be a dict like {{'role': 'user', 'content': '…'}},"
            f" not {type(form).__name__} {form!r:.80}"
        )
        raise ConfigError(msg)
    role = form.get("role")
    if role not in ROLES:
        msg = f"{where} has role {role!r}; use one of {', '.join(ROLES)}"
        raise ConfigError(msg)
    content = form.get("content")
    if not (content is None or isinstance(content, str | list)):
        msg = (
            f"{where} has content of type {type(content).__name__};"
            " use a string, a list of content parts, or None"
        )
        raise ConfigError(msg)
    if isinstance(content, list) and not all(isinstance(part, dict) for part in content):  # pyright: ignore[reportUnknownVariableType]
        raise ConfigError(
            f"{where} has content parts that are no dicts: {content!r:.80};"
            " a part looks like {'type': 'text', 'text': '…'}"
        )
    extra = {key: value for key, value in form.items() if key not in _KNOWN_KEYS}
    return Message(
        role=role,
        content=copy.deepcopy(cast("Content", content)),
        tool_calls=_calls_from(form.get("tool_calls"), where),
        tool_call_id=form.get("tool_call_id"),
        is_error=bool(form.get("is_error")),
        extra=copy.deepcopy(extra) if extra else None,
    )


def messages_from_dicts(forms: Iterable[Mapping[str, Any]]) -> list[Message]:
    """Reads a conversation in OpenAI form; see ``message_from_dict``.

    Raises:
        ConfigError: One of them is no message, or a string was given instead of a list.
    """
    if isinstance(forms, str | Mapping):
        kind = "string" if isinstance(forms, str) else "dict"
        raise ConfigError(
            f"messages must be a list of dicts, not a {kind};"
            " for one question use [{'role': 'user', 'content': '…'}]"
        )
    if not isinstance(forms, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError(
            f"messages must be a list of dicts, not {forms!r:.80};"
            " for one question use [{'role': 'user', 'content': '…'}]"
        )
    return [message_from_dict(form, where=f"messages[{i}]") for i, form in enumerate(forms)]


def _calls_from(value: object, where: str) -> tuple[ToolCall, ...]:
    if not value:
        return ()
    if not isinstance(value, list | tuple):
        msg = f"{where} has tool_calls of type {type(value).__name__}; use a list"
        raise ConfigError(msg)
    items = cast("list[Any]", value)
    return tuple(_call_from(item, f"{where}.tool_calls[{i}]") for i, item in enumerate(items))


def _call_from(item: object, where: str) -> ToolCall:
    function = (
        cast("Mapping[str, Any]", item).get("function") if isinstance(item, Mapping) else None
    )
    if not isinstance(function, Mapping):
        msg = f"{where} must be {{'id': …, 'function': {{'name': …, 'arguments': '{{…}}'}}}}"
        raise ConfigError(msg)
    fields = cast("Mapping[str, Any]", function)
    arguments = fields.get("arguments")
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments if arguments is not None else {})
    form = cast("Mapping[str, Any]", item)
    extra = {key: copy.deepcopy(form[key]) for key in form if key not in _KNOWN_CALL_KEYS}
    return ToolCall(
        str(form.get("id") or ""), str(fields.get("name") or ""), arguments, extra or None
    )
