"""The kinds of values that definitions are made of, as annotations for pydantic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn, TypeVar, cast

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, WithJsonSchema
from pydantic_core import InitErrorDetails, PydanticCustomError, ValidationError

from untildone.app.definitions.frozen_json import frozen, thawed
from untildone.app.definitions.problems import Path, shown
from untildone.criteria.registry import folded
from untildone.domain.grading import LoopOutcome

T = TypeVar("T")

OURS: Final = "definition"
"""The type of the errors that our own checks raise; their message is the whole text."""


def wrong(text: str) -> PydanticCustomError:
    """A problem with a value, as pydantic collects them."""
    return PydanticCustomError(OURS, "{text}", {"text": text})


def all_wrong(problems: Mapping[Path, str]) -> NoReturn:
    """Several problems inside of one value, each at its own place below it."""
    details = [
        InitErrorDetails(type=wrong(text), loc=path, input=None) for path, text in problems.items()
    ]
    raise ValidationError.from_exception_data("definition", details)


def _frozen(value: object) -> Any:
    try:
        return frozen(value)
    except ValueError as error:
        raise wrong(str(error)) from None


def _json_object(value: object) -> Any:
    if isinstance(value, Mapping):
        return _frozen(cast("Mapping[str, Any]", value))
    raise wrong(f"is {shown(value)}; must be a mapping")


def _tuple_of_list(value: object) -> Any:
    if isinstance(value, list | tuple):
        return tuple(cast("list[Any]", value))
    raise wrong(f"is {shown(value)}; must be a list, also with a single entry: [...]")


def _text(value: str) -> str:
    _frozen(value)
    return value


def _words(value: str) -> str:
    if value.strip():
        return value
    raise wrong("is blank; write something")


def _outcome(value: object) -> object:
    """However it is spelled: ``failRun``, ``FailRun``, ``FAIL_RUN``."""
    if isinstance(value, str):
        spelled = folded(value.replace("_", ""))
        for outcome in LoopOutcome:
            if folded(outcome) == spelled:
                return outcome
    names = " or ".join(repr(outcome.value) for outcome in LoopOutcome)
    raise wrong(f"is {shown(value)}; must be {names}")


def _command(value: Any) -> Any:
    if isinstance(value, str) and value.strip():
        return _frozen(value)
    if isinstance(value, list | tuple) and value:
        parts = cast("list[Any]", value)
        if all(isinstance(part, str) for part in parts) and parts[0].strip():
            return _frozen(parts)
    raise wrong(
        f"is {shown(cast('object', value))}; must be a line for the shell, or a list of a program"
        " and its arguments"
    )


Text = Annotated[str, AfterValidator(_text)]
"""Any text."""

Words = Annotated[
    str,
    AfterValidator(_text),
    AfterValidator(_words),
    Field(min_length=1, json_schema_extra={"pattern": r"\S"}),
]
"""Text that is not blank."""

Count = Annotated[int, Field(ge=1, lt=2**63)]
"""A whole number of 1 or more."""

if TYPE_CHECKING:
    Listed = Sequence
else:
    Listed = Annotated[tuple[T, ...], BeforeValidator(_tuple_of_list)]
    """A list, kept as a tuple."""

JsonObject = Annotated[
    Any,
    BeforeValidator(_json_object),
    PlainSerializer(thawed),
    WithJsonSchema({"type": "object"}),
]
"""A mapping of JSON values, kept as a ``FrozenMapping``."""

Outcome = Annotated[
    LoopOutcome,
    BeforeValidator(_outcome),
    WithJsonSchema({"enum": [outcome.value for outcome in LoopOutcome]}),
]
"""A ``LoopOutcome``."""

CommandLine = Annotated[
    Any,
    BeforeValidator(_command),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "minLength": 1},
                {"type": "array", "items": {"type": "string"}, "minItems": 1},
            ]
        }
    ),
]
"""A line for the shell, or a program and its arguments."""
