"""From a file, a text or plain data to a checked definition."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Final, Literal

from pydantic import BaseModel, ValidationError

from untildone.app.definitions.complaints import (
    MOST_PROBLEMS,
    Complaint,
    Spelling,
    complaints_of,
)
from untildone.app.definitions.json_text import parse_json
from untildone.app.definitions.parsed import Parsed, excess_of
from untildone.app.definitions.problems import DefinitionError, Path, Problem, path_text
from untildone.app.definitions.surroundings import Surroundings
from untildone.app.definitions.toml_text import parse_toml
from untildone.app.definitions.types import AgentDefinition
from untildone.app.definitions.yaml_text import parse_yaml
from untildone.domain.errors import ConfigError

Format = Literal["yaml", "json", "toml"]
"""How a definition is written down."""

LARGEST: Final = 2**20
"""How many bytes a definition may have."""

FORMATS: Final[Mapping[str, Format]] = {
    ".yaml": "yaml",
    ".yml": "yaml",
    ".json": "json",
    ".toml": "toml",
}
"""The format by the end of a file's name."""


def load_definition(path: str | FilePath) -> AgentDefinition:
    """Reads a definition from a YAML, JSON or TOML file, by the end of its name.

    Args:
        path: The file; at most 1 MiB.

    Raises:
        DefinitionError: It cannot be read or used; the error has every problem at once.
        ConfigError: YAML is read and the package for it is missing.
    """
    return _definition_or_raise(check_file(FilePath(path), None), str(path))


def parse_definition(text: str, format: Format = "yaml") -> AgentDefinition:  # noqa: A002
    """Reads a definition from a text.

    Args:
        text: The text; at most 1 MiB.
        format: How it is written.

    Raises:
        DefinitionError: It cannot be used; the error has every problem at once.
        ConfigError: The format is unknown, or the package for YAML is missing.
    """
    return _definition_or_raise(check_text(text, format, None), None)


@dataclass(frozen=True, slots=True)
class Checked:
    """What came of looking at a definition: it, or what is wrong with it."""

    definition: AgentDefinition | None
    problems: tuple[Problem, ...] = ()


def check_file(path: FilePath, around: Surroundings | None) -> Checked:
    """Looks at a file; with ``around``, also whether an agent could be built there."""
    written = FORMATS.get(path.suffix.lower())
    if written is None:
        known = ", ".join(FORMATS)
        return _unusable(f"its name ends in {path.suffix!r}; a definition ends in {known}")
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
    except OSError as error:
        return _unusable(f"cannot be read: {error.strerror or error}")
    except ValueError as error:  # a name with a null byte
        return _unusable(f"cannot be read: {error}")
    if len(content) > LARGEST:
        return _unusable(_TOO_LARGE)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        return Checked(None, (Problem("", "is no UTF-8 text; save it as UTF-8", line),))
    return check_text(text, written, around)


def check_text(text: str, written: Format, around: Surroundings | None) -> Checked:
    """Looks at a text; see ``check_file``.

    Raises:
        ConfigError: The format is unknown, or the package for YAML is missing.
    """
    parse = _PARSERS.get(written)
    if parse is None:
        raise ConfigError(f"format is {written!r}; use one of {', '.join(_PARSERS)}")
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError(f"text must be a string, not a {type(text).__name__}")
    if len(text) > LARGEST:
        return _unusable(_TOO_LARGE)
    if not _is_encodable(text):
        return _unusable("has half a character (a lone surrogate); write it whole")
    parsed = parse(text.removeprefix("\ufeff"))
    if parsed.broken is not None:
        return Checked(None, (parsed.broken,))
    return _check_parsed(parsed, around, "camel")


def check_data(data: object, around: Surroundings | None) -> Checked:
    """Looks at plain data, or at a definition; see ``check_file``."""
    excess = None if isinstance(data, BaseModel) else excess_of(data)
    if excess is not None:
        return _unusable(excess)
    return _check_parsed(Parsed(data), around, "snake" if isinstance(data, BaseModel) else "camel")


def _check_parsed(parsed: Parsed, around: Surroundings | None, spelling: Spelling) -> Checked:
    definition: AgentDefinition | None = None
    complaints = list(parsed.complaints)
    try:
        definition = AgentDefinition.model_validate(parsed.data, context=around)
    except ValidationError as error:
        unread = {complaint.path for complaint in parsed.complaints}
        found = complaints_of(error, AgentDefinition, parsed.data, spelling)
        complaints += [each for each in found if not _is_inside(each.path, unread)]
    if not complaints:
        return Checked(definition)
    problems = [_placed(complaint, parsed) for complaint in complaints[:MOST_PROBLEMS]]
    problems.sort(key=lambda each: (each.line or 0, each.column or 0))
    if len(complaints) > MOST_PROBLEMS:
        problems.append(Problem("", "has more problems than these"))
    return Checked(None, tuple(problems))


def _is_inside(path: Path, unread: AbstractSet[Path]) -> bool:
    """Whether it is about a part that could not be read properly in the first place."""
    return bool(unread) and any(path[:length] in unread for length in range(len(path) + 1))


def _placed(complaint: Complaint, parsed: Parsed) -> Problem:
    place = parsed.place_of(complaint.path)
    path = path_text(complaint.path)
    if place is None:
        return Problem(path, complaint.message)
    return Problem(path, complaint.message, place.line, place.column)


def _definition_or_raise(checked: Checked, source: str | None) -> AgentDefinition:
    if checked.definition is None:
        raise DefinitionError(checked.problems, source)
    return checked.definition


def _unusable(message: str) -> Checked:
    return Checked(None, (Problem("", message),))


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


_PARSERS: Final = {"yaml": parse_yaml, "json": parse_json, "toml": parse_toml}
_TOO_LARGE: Final = "is larger than 1 MiB, which no definition needs"
