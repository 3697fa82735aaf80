"""From pydantic's errors to problems: our own words, and paths as the definition spells them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, Literal, cast, get_args

from pydantic import BaseModel, ValidationError

from untildone.app.definitions.problems import Path, Problem, path_text, shown
from untildone.app.definitions.values import OURS

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

MOST_PROBLEMS: Final = 200
"""How many problems are told at once."""

Spelling = Literal["snake", "camel"]
"""How keys are written that are not there: as in Python, or as in files."""


@dataclass(frozen=True, slots=True)
class Complaint:
    """A problem before its path is written out."""

    path: Path
    message: str

    def as_problem(self) -> Problem:
        """The problem, without a place in a file."""
        return Problem(path_text(self.path), self.message)


def complaints_of(
    error: ValidationError, model: type[BaseModel], data: object, spelling: Spelling
) -> list[Complaint]:
    """What an error of pydantic says, in the order of the model's fields.

    More than ``MOST_PROBLEMS`` are not looked at.

    Args:
        error: The error.
        model: What was validated.
        data: What it was validated from.
        spelling: How to write keys that are missing.
    """
    complaints: dict[Complaint, None] = {}
    for details in error.errors(include_url=False)[: MOST_PROBLEMS + 1]:
        path = _spelled(details["loc"], model, data, spelling)
        message = _in_words(details, model, spelling)
        complaints[Complaint(path, message if spelling == "snake" else _as_json(message))] = None
    return list(complaints)


def model_at(model: type[BaseModel], path: Path) -> type[BaseModel] | None:
    """The model that describes what stands at a path; None where none does."""
    found: type[BaseModel] | None = model
    for part in path:
        if found is None:
            return None
        if isinstance(part, str):
            found = _nested(_field_types(found).get(_snake(found, part)))
    return found


def _field_types(model: type[BaseModel]) -> Mapping[str, Any]:
    return {name: info.annotation for name, info in model.model_fields.items()}


def _nested(annotation: Any) -> type[BaseModel] | None:
    """The one model inside of an annotation such as ``tuple[Model, ...] | None``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    found = (_nested(argument) for argument in get_args(annotation))
    return next((each for each in found if each is not None), None)


def _snake(model: type[BaseModel], key: str) -> str:
    by_alias = {info.alias: name for name, info in model.model_fields.items()}
    return by_alias.get(key, key)


def _camel(model: type[BaseModel], key: str) -> str:
    info = model.model_fields.get(key)
    return key if info is None else info.alias or key


def _spelled(path: Path, model: type[BaseModel], data: object, spelling: Spelling) -> Path:
    """The path with each key as the definition has it; a missing one as it would be written."""
    spelled: list[str | int] = []
    for depth, part in enumerate(path):
        here = model_at(model, path[:depth])
        if isinstance(part, str) and here is not None:
            snake, camel = _snake(here, part), _camel(here, _snake(here, part))
            wanted = snake if spelling == "snake" else camel
            present = [key for key in (part, snake, camel) if _has(data, key)]
            part = present[0] if present else wanted  # noqa: PLW2901
        spelled.append(part)
        data = _below(data, part)
    return tuple(spelled)


def _has(data: object, key: str) -> bool:
    return isinstance(data, Mapping) and key in cast("Mapping[Any, Any]", data)


def _below(data: object, part: str | int) -> object:
    if isinstance(data, Mapping):
        return cast("Mapping[Any, Any]", data).get(part)
    if isinstance(data, list | tuple) and isinstance(part, int):
        items = cast("Sequence[Any]", data)
        return items[part] if part < len(items) else None
    return None


def _in_words(details: ErrorDetails, model: type[BaseModel], spelling: Spelling) -> str:
    kind, value = details["type"], details["input"]
    if kind == OURS:
        return details["msg"]
    if kind == "missing":
        return "required"
    if kind == "extra_forbidden":
        return _unknown_key(details["loc"], model, spelling)
    if kind == "string_too_short":
        return "is blank; write something"
    wanted = _WANTED.get(kind)
    if wanted is None:
        return details["msg"]
    if kind == "float_type" and isinstance(value, int) and not isinstance(value, bool):
        return f"is {shown(value)}; must be a smaller number"
    text = f"is {shown(value)}; must be {wanted.format(**details.get('ctx', {}))}"
    if kind == "string_type" and isinstance(value, bool | int | float):
        return f"{text}; put it in quotes"
    return text + _with_keys(details["loc"], model) if kind in _MAPPINGS else text


def _as_json(message: str) -> str:
    """A message about a file, in which nothing is ``None`` or ``True``."""
    for python, written in (("None", "null"), ("True", "true"), ("False", "false")):
        if message.startswith(f"is {python};"):
            return f"is {written};{message.removeprefix(f'is {python};')}"
    return message


_WANTED: Final = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "float_parsing": "a number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "greater_than_equal": "{ge} or more",
    "greater_than": "greater than {gt}",
    "less_than_equal": "{le} or less",
    "less_than": "less than {lt}",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "dict_type": "a mapping",
}
_MAPPINGS: Final = ("model_type", "model_attributes_type", "dict_type")


def _unknown_key(path: Path, model: type[BaseModel], spelling: Spelling) -> str:
    here = model_at(model, path[:-1])
    if here is None:
        return "unknown key; leave it out"
    known = _keys(here, spelling)
    if path[-1] in (*here.model_fields, *_keys(here, "camel")):
        return "is given twice, in both spellings; leave one out"
    near = get_close_matches(str(path[-1]), known, n=1)
    if near:
        return f"unknown key; did you mean {near[0]!r}?"
    return f"unknown key; known here: {', '.join(known)}"


def _with_keys(path: Path, model: type[BaseModel]) -> str:
    here = model_at(model, path)
    return "" if here is None else f" with the keys {', '.join(_keys(here, 'camel'))}"


def _keys(model: type[BaseModel], spelling: Spelling) -> list[str]:
    if spelling == "snake":
        return list(model.model_fields)
    return [info.alias or name for name, info in model.model_fields.items()]
