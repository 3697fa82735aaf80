"""Log events as JSON-ready dicts and back, losing nothing.

The form is the dataclass's fields with ``"type"`` for the event's name; unknown fields of a newer
version are refused rather than dropped, since a fold without them could go wrong silently.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, Final, cast, get_args

from untildone.domain.errors import ConfigError
from untildone.domain.exits import ExitReason
from untildone.domain.log import (
    AgentRunEnded,
    At,
    CriterionJudged,
    LogEvent,
    NestedRunEnded,
    RunEnded,
)
from untildone.domain.messages import Message, message_from_dict
from untildone.domain.usage import Usage

_EVENTS: Final[dict[str, type[Any]]] = {kind.__name__: kind for kind in get_args(LogEvent)}


def event_to_dict(event: LogEvent) -> dict[str, Any]:
    """One event as JSON-ready data."""
    form: dict[str, Any] = {"type": type(event).__name__}
    for field in fields(event):
        form[field.name] = _encode(getattr(event, field.name))
    return form


def event_from_dict(form: dict[str, Any]) -> LogEvent:
    """One event from what ``event_to_dict`` made, also after a trip through JSON.

    Raises:
        ConfigError: The type or a field is unknown, or a field is missing.
    """
    kind = _EVENTS.get(form.get("type", ""))
    if kind is None:
        raise ConfigError(
            f"the log has an event of unknown type {form.get('type')!r};"
            " was it made by a newer version?"
        )
    values = {name: _decode(kind, name, value) for name, value in form.items() if name != "type"}
    try:
        return cast("LogEvent", kind(**values))
    except TypeError as error:
        msg = f"the log has a {kind.__name__} that does not fit this version: {error}"
        raise ConfigError(msg) from error


def _encode(value: object) -> Any:
    if isinstance(value, Message):
        return value.to_dict()
    if isinstance(value, At | Usage):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, ExitReason):
        return value.value
    if isinstance(value, tuple | list):
        return [_encode(item) for item in cast("tuple[object, ...]", value)]
    return value


def _decode(kind: type[Any], name: str, value: Any) -> Any:
    decoder = None if value is None else _DECODERS.get((kind, name), _DECODERS.get(name))
    return value if decoder is None else decoder(value)


def _messages(forms: list[dict[str, Any]]) -> tuple[Message, ...]:
    return tuple(message_from_dict(form) for form in forms)


_DECODERS: Final[dict[Any, Callable[[Any], Any]]] = {
    "at": lambda value: At(**value),
    "usage": lambda value: Usage(**value),
    "message": message_from_dict,
    "merged": message_from_dict,
    "messages": _messages,
    "issues": tuple,
    "attachments": tuple,
    "exit": ExitReason,
    "agent_exit": ExitReason,
    (CriterionJudged, "messages"): tuple,
    (AgentRunEnded, "reason"): ExitReason,
    (NestedRunEnded, "reason"): ExitReason,
    (RunEnded, "reason"): ExitReason,
}
"""How a field is read back, by its name; by event and name where one name means two things."""
