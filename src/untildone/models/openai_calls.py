"""OpenAI chat completions, the tool calls of an answer: from pieces to calls. Pure: no I/O.

Providers send pieces with and without index, id and name, and with ones that mean nothing. Two
calls are never merged into one, one is never split in two.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, NamedTuple

from untildone.domain.messages import ToolCall
from untildone.models.call_ids import own_id
from untildone.models.loose_json import as_count, as_dict, as_text, whole_unicode

_STRUCTURE: Final = re.compile(r'\\.?|["{}\[\]]', re.DOTALL)
_KNOWN_CALL_KEYS: Final = frozenset({"id", "type", "function", "index"})
_LONGEST_INDEX: Final = 10


class _Call:
    """A call while its pieces come in."""

    __slots__ = (
        "_depth",
        "_escaped",
        "_in_text",
        "_last_sign",
        "_looked_at",
        "announced_again",
        "arguments",
        "extra",
        "id",
        "name",
    )

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.arguments: list[str] = []
        self.extra: dict[str, Any] = {}
        self.announced_again = False
        self._last_sign = ""
        self._looked_at = 0
        self._depth = 0
        self._in_text = self._escaped = False

    @property
    def is_whole(self) -> bool:
        """Whether the arguments are a complete JSON object: more can only be another call's.

        Each piece is looked at once, however often this is asked.
        """
        for piece in self.arguments[self._looked_at :]:
            self._look_at(piece)
        self._looked_at = len(self.arguments)
        is_closed = self._depth == 0 and not self._in_text
        return is_closed and self._last_sign == "}"

    def _look_at(self, piece: str) -> None:
        """Follows quotes and brackets; a backslash may be the last character of a piece."""
        self._last_sign = piece.rstrip()[-1:] or self._last_sign
        start, self._escaped = int(self._escaped), False
        for mark in _STRUCTURE.finditer(piece, start):
            sign = mark[0]
            if sign == '"':
                self._in_text = not self._in_text
            elif sign[0] == "\\":
                self._escaped = len(sign) == 1
            elif not self._in_text:
                self._depth += 1 if sign in "{[" else -1


class CallAssembler:
    """Puts the tool calls of one reply together, with and without an index on their pieces."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._by_id: dict[str, _Call] = {}

    @property
    def has_any(self) -> bool:
        """Whether a call has begun."""
        return bool(self._calls)

    def feed(self, pieces: list[Any]) -> bool:
        """Takes the ``tool_calls`` of one delta; tells whether there was anything new in them."""
        is_new = False
        for position, item in enumerate(pieces):
            piece = as_dict(item)
            function = as_dict(piece.get("function"))
            call_id, name = as_text(piece.get("id")), as_text(function.get("name"))
            news = _news(call_id, name, function.get("arguments"))
            if news == _NOTHING and piece.keys() <= _KNOWN_CALL_KEYS:
                continue
            index = _index_of(piece)
            if index is not None:
                call = self._indexed(index, news)
            else:
                call = self._unindexed(position, len(pieces), news)
            call = self._again(call, news, index)
            is_new = _extend(call, piece, function) or is_new
            if call_id:
                self._by_id[call_id] = call
        return is_new

    def calls(self) -> tuple[ToolCall, ...]:
        """The calls in the order in which they began, each with an id of its own.

        Arguments are as they came, also where they are empty: whether that is a call without any
        or what is left of a cut one, the tool's own schema has to tell.
        """
        used: set[str] = set()
        return tuple(_finished(call, used) for call in self._calls)

    def _indexed(self, index: int, news: _News) -> _Call:
        call = self._by_index.get(index)
        if call is None and self._calls and _only_goes_on(self._calls[-1], news):
            call = self._by_index[index] = self._calls[-1]
        elif call is None or _is_another(call, news, has_index=True):
            call = self._by_index[index] = self._begun()
        return call

    def _unindexed(self, position: int, count: int, news: _News) -> _Call:
        calls = self._calls
        known = self._by_id.get(news.call_id)
        if known is None and not calls:
            return self._begun()
        in_step = count > 1 and count == len(calls)  # each delta holds a piece of each call
        if known is None and news.name and position > 0 and not in_step:
            return self._begun()
        call = known or (calls[position] if in_step else calls[-1])
        if news.name or known is not None:
            return self._begun() if _is_another(call, news, has_index=False) else call
        if news.call_id and calls[-1].id and not news.is_blank:
            is_rest = news.is_told and not calls[-1].is_whole
            return calls[-1] if is_rest else self._begun()
        return calls[-1] if news.call_id else call

    def _again(self, call: _Call, news: _News, index: int | None) -> _Call:
        """The call, or a second one to the same tool whose name was told before its arguments."""
        if call.announced_again and news.is_told and not news.name:
            again = self._begun()
            again.name, call.announced_again = call.name, False
            if index is not None:
                self._by_index[index] = again
            return again
        if news.name and not news.is_told and news.name == call.name and call.is_whole:
            call.announced_again = True  # or only repeated: what follows tells
        return call

    def _begun(self) -> _Call:
        call = _Call()
        self._calls.append(call)
        return call


class _News(NamedTuple):
    """What a piece tells of the call it belongs to.

    Attributes:
        call_id: ``""`` where it has none.
        name: ``""`` where it has none.
        is_told: Whether it has a part of the arguments that means something: blanks do not.
        is_blank: Whether it has a part of the arguments, of blanks only.
        is_inside: Whether that part cannot be the beginning of an object.
    """

    call_id: str
    name: str
    is_told: bool = False
    is_blank: bool = False
    is_inside: bool = False


_NOTHING: Final = _News("", "")


def _news(call_id: str, name: str, arguments: Any) -> _News:
    if not isinstance(arguments, str):
        return _News(call_id, name, is_told=arguments is not None)
    text = arguments.lstrip()
    is_blank = bool(arguments) and not text
    is_inside = bool(arguments) and not text.startswith("{")
    return _News(call_id, name, bool(text), is_blank, is_inside)


def _index_of(piece: dict[str, Any]) -> int | None:
    index = piece.get("index")
    if isinstance(index, str) and index.isdecimal() and len(index) < _LONGEST_INDEX:
        return int(index)
    return as_count(index)


def _only_goes_on(last: _Call, news: _News) -> bool:
    """Whether a piece with an index of its own can only be more of the last call.

    Some servers count pieces and not calls; a call without a name is none.
    """
    is_anonymous = not news.name and not news.call_id
    return is_anonymous and not (news.is_told and last.is_whole)


def _finished(call: _Call, used: set[str]) -> ToolCall:
    arguments = whole_unicode("".join(call.arguments))
    return ToolCall(own_id(call.id, used), call.name, arguments, call.extra or None)


def _is_another(call: _Call, news: _News, *, has_index: bool) -> bool:
    """Whether a piece begins a call of its own."""
    if news.call_id and call.id and news.call_id != call.id:
        # With an index, an id may be one that some servers make anew for each piece.
        if not has_index:
            return True
        if news.name:
            is_rest = news.name == call.name and news.is_inside and bool(call.arguments)
            return not is_rest or (news.is_told and call.is_whole)
        return news.is_told and call.is_whole
    if not news.name or not call.name:
        return False
    if news.name != call.name:
        # With an index and one id, a second name may be the rest of the first one.
        is_rest = bool(call.id) and news.call_id in ("", call.id)
        return not (has_index and is_rest and not call.arguments)
    # The same name again: some providers repeat it on each piece, some mean a second call.
    return news.is_told and call.is_whole


def _extend(call: _Call, piece: dict[str, Any], function: dict[str, Any]) -> bool:
    """Adds a piece to its call; tells whether there was anything new in it."""
    before = (call.id, call.name, len(call.arguments))
    call.id = call.id or as_text(piece.get("id"))
    name = as_text(function.get("name"))
    if name != call.name:
        call.name += name
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        if arguments:
            call.arguments.append(arguments)
    elif arguments is not None:
        call.arguments.append(json.dumps(arguments, ensure_ascii=False))
    if not piece.keys() <= _KNOWN_CALL_KEYS:
        call.extra.update({k: v for k, v in piece.items() if k not in _KNOWN_CALL_KEYS})
    return before != (call.id, call.name, len(call.arguments))
