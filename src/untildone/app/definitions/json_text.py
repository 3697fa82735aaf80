"""JSON as data, with the place of each part and the keys that are given twice."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Final

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
    excess_of,
)
from untildone.app.definitions.problems import Path

_PART: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+')


def parse_json(text: str) -> Parsed:
    """A JSON text as data, with the place of each part."""
    try:
        data = json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        return broken(f"this is no JSON: {error.msg}", error.lineno, error.colno)
    except RecursionError:
        return broken(TOO_DEEP)
    except _NoNumberError as error:
        return broken(f"this is no JSON: {error}")
    except ValueError:
        return broken(TOO_LONG)
    parsed = Parsed(data)
    # What stands under a key that is given twice is not in the data any more, but in the text.
    excess = excess_of(data) or _mark_places(text, parsed)
    return parsed if excess is None else broken(excess)


class _NoNumberError(ValueError):
    """A number that only Python's reader knows."""


def _refuse_constant(name: str) -> None:
    raise _NoNumberError(f"{name} is no JSON number")


@dataclass(slots=True)
class _Open:
    """An object or array that is being read; ``index`` is None in an object."""

    path: Path
    index: int | None
    keys: set[str]
    key: str | None = None

    @property
    def below(self) -> Path:
        """The path of the value that comes next."""
        return (*self.path, self.key or "") if self.index is None else (*self.path, self.index)


def _mark_places(text: str, parsed: Parsed) -> str | None:
    """Notes where each part of a text stands that is known to be JSON; or says that it is too much.

    It stops there, and so takes no more time and memory than a definition may.
    """
    opened: list[_Open] = []
    values = 0
    lines = _Lines(text)
    for found in _PART.finditer(text):
        part = found[0]
        last = opened[-1] if opened else None
        if part in "}]":
            opened.pop()
        elif part == ",":
            _next(last)
        elif part == ":":
            continue
        elif last is not None and last.index is None and last.key is None:
            _mark_key(last, json.loads(part), lines.place(found.start()), parsed)
        else:
            values += 1
            if values > MOST_VALUES:
                return TOO_MUCH
            path = () if last is None else last.below
            parsed.places.setdefault(path, lines.place(found.start()))
            if part in "{[":
                opened.append(_Open(path, 0 if part == "[" else None, set()))
                if len(opened) > DEEPEST:
                    return TOO_DEEP
    return None


def _next(last: _Open | None) -> None:
    if last is None:
        return
    last.key = None
    if last.index is not None:
        last.index += 1


def _mark_key(last: _Open, key: str, place: Place, parsed: Parsed) -> None:
    path = (*last.path, key)
    parsed.places.setdefault(path, place)
    if key in last.keys:
        parsed.places[path] = place
        parsed.complaints.append(Complaint(path, "is given twice; leave one out"))
    last.keys.add(key)
    last.key = key


class _Lines:
    """Lines and columns of positions that only grow."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._line = 1
        self._start = 0

    def place(self, position: int) -> Place:
        """The line and column of a position."""
        while (end := self._text.find("\n", self._start, position)) >= 0:
            self._line += 1
            self._start = end + 1
        return Place(self._line, position - self._start + 1)
