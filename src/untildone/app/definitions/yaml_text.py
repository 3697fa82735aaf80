"""YAML as data: what JSON can say, written without quotes, and none of YAML's surprises.

The parser's events are read here, not its objects. So ``on``, ``no`` and dates stay the text they
are (YAML 1.2's core schema), nothing is ever constructed by a tag, a key given twice is told, and
aliases, with which ten lines can mean a billion, are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

from untildone.app.definitions.complaints import Complaint
from untildone.app.definitions.frozen_json import DEEPEST
from untildone.app.definitions.parsed import (
    MOST_VALUES,
    TOO_DEEP,
    TOO_LONG,
    TOO_MUCH,
    Parsed,
    Place,
    broken,
)
from untildone.app.definitions.problems import Path
from untildone.domain.errors import ConfigError

_NULL: Final = frozenset({"", "~", "null", "Null", "NULL"})
_BOOL: Final = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INT: Final = re.compile(r"[-+]?[0-9]+")
_OTHER_BASE: Final = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_MOST_DIGITS: Final = 1000
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_ODD_FLOAT: Final = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")


def parse_yaml(text: str) -> Parsed:
    """A YAML text as data, with the place of each part.

    Raises:
        ConfigError: The package for YAML is missing.
    """
    yaml = yaml_library()
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # without libyaml it is 20 times slower
    try:
        return _Builder().build(yaml.parse(text, Loader=loader))
    except _Unreadable as found:
        return broken(found.message, *found.place)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        said = getattr(error, "problem", None) or getattr(error, "reason", None) or "unreadable"
        message = f"this is no YAML: {said}"
        return broken(message) if mark is None else broken(message, mark.line + 1, mark.column + 1)


def plain_value(text: str) -> Any:
    """What an unquoted scalar means: null, true, a number, or the text itself."""
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if _is_too_long(text):
        return None  # no number that can be used; who reads a definition is told so
    if _INT.fullmatch(text):
        return int(text)
    if _OTHER_BASE.fullmatch(text):
        return int(text, 0)
    if _FLOAT.fullmatch(text):
        return float(text)
    if _ODD_FLOAT.fullmatch(text):
        return float(text.replace(".", ""))
    return text


def _is_too_long(text: str) -> bool:
    """Whether an unquoted scalar is a whole number of so many digits that none needs them."""
    is_long = len(text) > _MOST_DIGITS
    return is_long and (_INT.fullmatch(text) or _OTHER_BASE.fullmatch(text)) is not None


def yaml_library() -> Any:
    """PyYAML, imported on first use.

    Raises:
        ConfigError: It is not installed.
    """
    try:
        return import_module("yaml")
    except ModuleNotFoundError as error:
        raise ConfigError(
            "YAML needs the package pyyaml; pip install 'untildone[definitions]',"
            " or write the definition as JSON or TOML"
        ) from error


class _Unreadable(Exception):  # noqa: N818  it never leaves this file
    """What makes the whole text unusable, and where."""

    def __init__(self, message: str, event: Any) -> None:
        super().__init__(message)
        self.message = message
        self.place = _place(event)


@dataclass(slots=True)
class _Open:
    """A mapping or list that is being read.

    Attributes:
        path: Where it stands.
        container: What is in it so far.
        key: In a mapping, the key whose value comes next.
        is_doubled: Whether that key was there before: its value is read and dropped.
    """

    path: Path
    container: dict[str, Any] | list[Any]
    key: str | None = None
    is_doubled: bool = False


class _Builder:
    """Makes data of a parser's events, without recursion."""

    def __init__(self) -> None:
        self._parsed = Parsed()
        self._open: list[_Open] = []
        self._at: Path = ()
        self._documents = 0
        self._values = 0

    def build(self, events: Iterable[Any]) -> Parsed:
        """The data of the one document."""
        for event in events:
            match type(event).__name__:
                case "DocumentStartEvent":
                    self._documents += 1
                    if self._documents > 1:
                        raise _Unreadable("has several documents; keep one", event)
                case "ScalarEvent":
                    self._scalar(event)
                case "AliasEvent":
                    self._value(event, None)
                    self._complain(event, f"*{event.anchor} repeats another part; write it out")
                case "MappingStartEvent":
                    self._begin(event, {})
                case "SequenceStartEvent":
                    self._begin(event, [])
                case "MappingEndEvent" | "SequenceEndEvent":
                    self._open.pop()
                case _:
                    continue
        return self._parsed if self._documents else broken("is empty; begin with 'name:'")

    def _scalar(self, event: Any) -> None:
        if self._expects_key():
            self._key(event)
            return
        is_plain = event.tag is None and not event.style
        self._value(event, plain_value(event.value) if is_plain else event.value)
        if is_plain and _is_too_long(event.value):
            self._complain(event, TOO_LONG)
        self._refuse_tag(event)

    def _expects_key(self) -> bool:
        if not self._open:
            return False
        last = self._open[-1]
        return isinstance(last.container, dict) and last.key is None

    def _key(self, event: Any) -> None:
        """A key is the text that stands there: ``50256`` and ``on`` are keys like any other."""
        last = self._open[-1]
        last.key = event.value
        last.is_doubled = event.value in last.container
        self._parsed.places.setdefault((*last.path, event.value), _place(event))
        if event.tag is not None:
            self._complain_at((*last.path, event.value), _no_tag(event))
        if last.is_doubled:
            self._parsed.places[(*last.path, event.value)] = _place(event)
            self._complain_at((*last.path, event.value), "is given twice; leave one out")

    def _value(self, event: Any, value: Any) -> None:
        """Puts a value where it belongs; ``self._at`` is its path then."""
        if self._expects_key():
            raise _Unreadable("a key must be text", event)
        self._values += 1
        if self._values > MOST_VALUES:
            raise _Unreadable(TOO_MUCH, event)
        if not self._open:
            self._parsed.data, self._at = value, ()
        elif isinstance(container := self._open[-1].container, list):
            self._at = (*self._open[-1].path, len(container))
            container.append(value)
        else:
            last = self._open[-1]
            self._at = (*last.path, last.key or "")
            if not last.is_doubled:
                container[last.key or ""] = value
            last.key = None
        self._parsed.places.setdefault(self._at, _place(event))

    def _begin(self, event: Any, container: dict[str, Any] | list[Any]) -> None:
        self._value(event, container)
        self._refuse_tag(event)
        self._open.append(_Open(self._at, container))
        if len(self._open) > DEEPEST:
            raise _Unreadable(TOO_DEEP, event)

    def _refuse_tag(self, event: Any) -> None:
        if event.tag is not None:
            self._complain(event, _no_tag(event))

    def _complain(self, event: Any, message: str) -> None:
        self._parsed.places.setdefault(self._at, _place(event))
        self._complain_at(self._at, message)

    def _complain_at(self, path: Path, message: str) -> None:
        self._parsed.complaints.append(Complaint(path, message))


def _no_tag(event: Any) -> str:
    return f"the tag {event.tag!r:.60} is not allowed; leave it out"


def _place(event: Any) -> Place:
    mark = event.start_mark
    return Place(mark.line + 1, mark.column + 1)
