"""The calls and what they returned: as the stuck detector hears of them and remembers them.

Kept per distinct call are at most 2,000 characters of its last result and 16 bytes for each
different one. What counts as equal is said in ``stuck_compare``; the rules and the verdict
are in ``stuck``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, cast

from untildone.domain.tools import ToolTraits
from untildone.policy.stuck_compare import (
    canonical,
    has_optional_escape,
    letters,
    shape_of,
)


class AskedCall(Protocol):
    """A tool call as the detector needs it; ``arguments`` is the raw JSON text."""

    @property
    def id(self) -> str:
        """The provider's id, which may be empty or doubled; only ``observe`` uses it."""
        ...

    @property
    def name(self) -> str:
        """The tool's name."""
        ...

    @property
    def arguments(self) -> str:
        """The arguments as the model wrote them."""
        ...


# ── What is remembered of calls ──────────────────────────────────────────────────────────────────

_MAX_ARGUMENTS: Final = 2_000
"""Longer arguments are remembered by their hash."""
_MAX_RESULT: Final = 2_000
"""Of a longer result, head and tail are kept, and a hash of what is between them."""
_MAX_SHOWN: Final = 120


class KnownCall:
    """One distinct call, a tool with canonical arguments, and the results it gave.

    ``last`` is the last result, ``key`` the hash of it masked, ``seen`` all such hashes; the latter
    two are made when a second, different result comes: masking costs more than all the rest.
    """

    __slots__ = ("count", "epoch", "key", "last", "reply", "seen")

    def __init__(self) -> None:
        self.last: str | None = None
        self.key = b""
        self.seen: set[bytes] | None = None
        self.count = 0
        self.epoch = 0
        self.reply = 0

    def compare(self, kept: str) -> tuple[bool, bool]:
        """Whether a further result is the same as the last one, and whether it is novel."""
        if self.last is None or kept == self.last:
            return True, False
        from untildone.policy.stuck_masks import masked_hash

        seen = self.seen
        if seen is None:
            self.key = masked_hash(self.last)
            seen = self.seen = {self.key}
        key = masked_hash(kept)
        same, novel = key == self.key, key not in seen
        seen.add(key)
        self.key = key
        self.last = kept
        return same, novel


class KnownTool:
    """A tool and its distinct calls, by arguments as they were written and by ``shape_of``.

    A shape maps to the one text that has it, so far, or to the calls by canonical text. So the
    usual new call costs no parsing; canonical text is made where two different texts may be equal.
    """

    __slots__ = ("calls", "name", "shapes", "traits")

    def __init__(self, name: str, traits: ToolTraits) -> None:
        self.name = name
        self.traits = traits
        self.calls: dict[str, KnownCall] = {}
        self.shapes: dict[str, str | dict[str, KnownCall]] = {}

    def find(self, arguments: str) -> KnownCall:
        """The call with these arguments, which were not yet met in this very form."""
        short = len(arguments) <= _MAX_ARGUMENTS
        if short and not self.traits.volatile and not has_optional_escape(arguments):
            return self._find_plain(arguments)
        text = canonical(arguments, self.traits.volatile)
        if len(text) > _MAX_ARGUMENTS:
            text = letters(text)
        call = self.calls.get(text)
        if call is None:
            call = self._find_plain(text)
        if short:
            self.calls[arguments] = call
        return call

    def _find_plain(self, arguments: str) -> KnownCall:
        shape = shape_of(arguments)
        alike = self.shapes.get(shape)
        if alike is None:
            self.shapes[shape] = arguments
            call = KnownCall()
        else:
            if isinstance(alike, str):
                alike = self.shapes[shape] = {canonical(alike): self.calls[alike]}
            call = alike.setdefault(canonical(arguments), KnownCall())
        self.calls[arguments] = call
        return call


class WaitingCall(NamedTuple):
    """A call that waits for its answer."""

    id: str
    tool: KnownTool
    call: KnownCall
    arguments: str

    def __str__(self) -> str:
        return f"{shortened(self.tool.name)}({shortened(self.arguments)})"


def kept_of(text: str) -> str:
    """All that is kept of a result: the text, or head, hash and tail of a long one."""
    if len(text) <= _MAX_RESULT:
        return text
    half = _MAX_RESULT // 2
    return f"{text[:half]}\n{letters(text[half:-half])}\n{text[-half:]}"


def shortened(text: str) -> str:
    """The beginning of a text on one line, for evidence."""
    text = " ".join(text[: _MAX_SHOWN * 2].split())
    return text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 1] + "…"


# ── Recorded messages, which may be odd ──────────────────────────────────────────────────────────


class RecordedCall(NamedTuple):
    """A tool call read from a message in OpenAI form: an ``AskedCall``."""

    id: str
    name: str
    arguments: str


def recorded_call(call: object) -> RecordedCall:
    """The call as text, whatever it was recorded as; what is missing is empty."""
    function = field_of(call, "function") or call
    arguments = field_of(function, "arguments")
    if not isinstance(arguments, str):
        arguments = "" if arguments is None else _dumped(arguments)
    return RecordedCall(
        str(field_of(call, "id") or ""), str(field_of(function, "name") or ""), arguments
    )


def field_of(holder: object, name: str) -> Any:
    """``holder[name]`` or ``holder.name``; None where there is neither."""
    if isinstance(holder, Mapping):
        return cast("Mapping[str, Any]", holder).get(name)
    return getattr(holder, name, None)


def calls_of(message: object) -> Sequence[Any]:
    """The tool calls of a message, as recorded; none where they are no list."""
    calls = field_of(message, "tool_calls")
    return cast("Sequence[Any]", calls) if isinstance(calls, list | tuple) else ()


def text_of(message: object) -> str:
    """The content as text. Parts that are no text count too: another picture is another result."""
    content = field_of(message, "content")
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        return _dumped(content)
    return "".join(map(_part_text, cast("list[object]", content)))


def _part_text(part: object) -> str:
    text = part if isinstance(part, str) else field_of(part, "text")
    return text if isinstance(text, str) else _dumped(part)


def _dumped(value: object) -> str:
    try:
        return json.dumps(value, sort_keys=True, default=repr)
    except (TypeError, ValueError, RecursionError):
        return repr(value)


def error_mark(message: Mapping[str, Any]) -> bool | None:
    """Whether a tool message says of itself that it is an error; None where it does not say."""
    for name in ("is_error", "isError"):
        mark = field_of(message, name)
        if isinstance(mark, bool):
            return mark
    status = field_of(message, "status")
    return status == "error" if status in ("error", "success") else None
