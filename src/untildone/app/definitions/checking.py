"""One look at data: everything that is wrong with it at once, in our words and with its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar, cast

from pydantic import BaseModel, ValidationError

from untildone.app.definitions.complaints import (
    MOST_PROBLEMS,
    Complaint,
    Spelling,
    complaints_of,
)
from untildone.app.definitions.frozen_json import HALF_A_CHARACTER
from untildone.app.definitions.json_text import parse_json
from untildone.app.definitions.parsed import Parsed, excess_of
from untildone.app.definitions.problems import Path, Problem, path_text, shown

M = TypeVar("M", bound=BaseModel)

LARGEST: Final = 2**20
"""How many bytes a definition may have."""

_TOO_LARGE: Final = "is larger than 1 MiB, which no definition needs"


@dataclass(frozen=True, slots=True)
class Checked(Generic[M]):
    """What came of looking at data: the value, or what is wrong."""

    value: M | None
    problems: tuple[Problem, ...] = ()


def unusable(message: str, line: int | None = None) -> Checked[Any]:
    """What is wrong as a whole."""
    return Checked(None, (Problem("", message, line),))


def check_data(
    model: type[M], data: object, *, as_strings: bool = False, **options: Any
) -> Checked[M]:
    """Looks at plain data, or at an object of the model.

    Args:
        model: What it should be.
        data: The data.
        as_strings: Whether numbers and switches in it are texts, as in a form.
        **options: What pydantic takes, such as ``context``.
    """
    excess = None if isinstance(data, BaseModel) else excess_of(data)
    if excess is not None:
        return unusable(excess)
    spelling: Spelling = "snake" if isinstance(data, BaseModel) else "camel"
    return check_parsed(model, Parsed(data), spelling, as_strings=as_strings, **options)


def check_fields(model: type[M], fields: Mapping[str, Any], made: M) -> Checked[M]:
    """Looks at the fields of an object that is being made, and fills it.

    Args:
        model: What it is.
        fields: Its fields, in Python's spelling or S3's.
        made: The object.
    """
    excess = excess_of(fields)
    if excess is not None:
        return unusable(excess)
    return check_parsed(model, Parsed(fields), "snake", self_instance=made)


def check_json(model: type[M], text: object, **options: Any) -> Checked[M]:
    """Looks at a JSON text; see ``check_data``."""
    if not isinstance(text, str):
        if not isinstance(text, bytes | bytearray):
            return unusable(f"is {shown(text)}; give a JSON text")
        decoded = check_bytes(bytes(text))
        if isinstance(decoded, Checked):
            return decoded
        text = decoded
    found = check_text(text)
    if found is not None:
        return found
    return check_parsed(model, parse_json(text.removeprefix("\ufeff")), "camel", **options)


def check_bytes(content: bytes) -> str | Checked[Any]:
    """The text that bytes are, or why they are none."""
    if len(content) > LARGEST:
        return unusable(_TOO_LARGE)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        return unusable("is no UTF-8 text; save it as UTF-8", line)


def check_text(text: str) -> Checked[Any] | None:
    """Why a text cannot be a definition, whatever its format; None where it can."""
    if len(text) > LARGEST:
        return unusable(_TOO_LARGE)
    try:
        text.encode()
    except UnicodeEncodeError:
        return unusable(HALF_A_CHARACTER)
    return None


def check_parsed(
    model: type[M],
    parsed: Parsed,
    spelling: Spelling,
    *,
    as_strings: bool = False,
    **options: Any,
) -> Checked[M]:
    """Looks at what came out of a text.

    Args:
        model: What it should be.
        parsed: The data, and where its parts stand.
        spelling: How to write keys that are missing.
        as_strings: See ``check_data``.
        **options: What pydantic takes, such as ``context``.
    """
    if parsed.broken is not None:
        return Checked(None, (parsed.broken,))
    value: M | None = None
    complaints = list(dict.fromkeys(parsed.complaints))
    data = _readable(parsed.data, (), complaints)
    validator = model.__pydantic_validator__
    validate = validator.validate_strings if as_strings else validator.validate_python
    try:
        value = validate(data, **options)
    except ValidationError as error:
        unread = {complaint.path for complaint in parsed.complaints}
        found = complaints_of(error, model, data, spelling)
        complaints += [each for each in found if not _is_inside(each.path, unread)]
    if not complaints:
        return Checked(value)
    problems = [_placed(complaint, parsed) for complaint in complaints[:MOST_PROBLEMS]]
    problems.sort(key=lambda each: (each.line or 0, each.column or 0))
    if len(complaints) > MOST_PROBLEMS:
        problems.append(Problem("", "has more problems than these"))
    return Checked(None, tuple(problems))


def _readable(value: object, path: Path, complaints: list[Complaint]) -> Any:
    """Data in dicts and lists, without what stands under a key that no text can be.

    Pydantic says nothing of the rest where it meets such a key, and takes no other mappings.
    """
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        return {
            key: _readable(item, (*path, key), complaints)
            for key, item in items
            if _is_text(key, path, complaints)
        }
    if isinstance(value, list | tuple):
        listed = cast("Sequence[object]", value)
        return [_readable(item, (*path, at), complaints) for at, item in enumerate(listed)]
    return value


def _is_text(key: object, path: Path, complaints: list[Complaint]) -> bool:
    if not isinstance(key, str):
        complaints.append(
            Complaint(path, f"has the key {shown(key)}, which is no text; put it in quotes")
        )
        return False
    if check_text(key) is None:
        return True
    complaints.append(Complaint((*path, key), HALF_A_CHARACTER))
    return False


def _is_inside(path: Path, unread: AbstractSet[Path]) -> bool:
    """Whether it is about a part that could not be read properly in the first place."""
    return bool(unread) and any(path[:length] in unread for length in range(len(path) + 1))


def _placed(complaint: Complaint, parsed: Parsed) -> Problem:
    place = parsed.place_of(complaint.path)
    path = path_text(complaint.path)
    if place is None:
        return Problem(path, complaint.message)
    return Problem(path, complaint.message, place.line, place.column)
