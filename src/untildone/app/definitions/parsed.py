"""What came out of a text: data, where each part of it stands, and what was wrong on the way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, cast

from untildone.app.definitions.complaints import Complaint
from untildone.app.definitions.frozen_json import DEEPEST
from untildone.app.definitions.problems import Path, Problem


class Place(NamedTuple):
    """A place in a text, from 1."""

    line: int
    column: int


@dataclass(slots=True)
class Parsed:
    """A text as data.

    Attributes:
        data: The data; None where it could not be read at all.
        places: Where each part stands, as far as the format tells.
        complaints: What can be told of a part: a key given twice, a tag.
        broken: What is wrong with the text as a whole, which then gave no data.
    """

    data: Any = None
    places: dict[Path, Place] = field(default_factory=dict[Path, Place])
    complaints: list[Complaint] = field(default_factory=list[Complaint])
    broken: Problem | None = None

    def place_of(self, path: Path) -> Place | None:
        """Where a part stands; of a missing one, where it would belong."""
        for length in range(len(path), -1, -1):
            place = self.places.get(path[:length])
            if place is not None:
                return place
        return None


def broken(message: str, line: int | None = None, column: int | None = None) -> Parsed:
    """A text that gave no data."""
    return Parsed(broken=Problem("", message, line, column))


def excess_of(data: object) -> str | None:
    """Why data is more than a definition can be: too deep, as cycles are, or too much."""
    level, values = [data], 1
    for _ in range(DEEPEST + 1):
        below: list[object] = []
        for value in level:
            if isinstance(value, Mapping):
                below.extend(cast("Mapping[Any, Any]", value).values())
            elif isinstance(value, list | tuple):
                below.extend(cast("list[Any]", value))
            if len(below) + values > MOST_VALUES:
                return TOO_MUCH
        level, values = below, values + len(below)
        if not level:
            return None
    return TOO_DEEP


MOST_VALUES: Final = 10_000
"""How many values a definition may have, those of lists and mappings included."""
TOO_MUCH: Final = f"has more than {MOST_VALUES:,} values, which no definition needs"
TOO_LONG: Final = "has a whole number of thousands of digits; the largest have 64 bits"
TOO_DEEP: Final = f"is nested more than {DEEPEST} levels deep"
