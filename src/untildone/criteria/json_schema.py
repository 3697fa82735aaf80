"""``jsonSchema``: done when the agent's answer is JSON that fits a schema."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

from untildone.domain.errors import ConfigError, GradingError
from untildone.domain.grading import CriterionContext, CriterionVerdict

_FENCE: Final = re.compile(r"```[\w-]*[ \t]*\r?\n(.*?)```", re.DOTALL)
_MOST_PROBLEMS: Final = 5
_LONGEST_PROBLEM: Final = 300


class JsonSchema:
    """Done when the latest answer is JSON that fits ``schema``.

    The answer is the JSON itself, or holds it in one fenced block. What a schema refers to must
    stand in it: nothing is ever fetched. Formats such as ``date`` are checked.

    Args:
        schema: A JSON Schema, or a pydantic model. The draft is the one ``$schema`` names, else
            the newest.

    Raises:
        ConfigError: It is no JSON Schema, or the package ``jsonschema`` is missing.
    """

    kind: Final = "jsonSchema"

    __slots__ = ("_validator", "schema")

    def __init__(self, schema: Mapping[str, Any] | bool | type[Any]) -> None:  # noqa: FBT001
        made = getattr(schema, "model_json_schema", None)
        self.schema: Any = made() if callable(made) else schema
        self._validator = self._made_validator()

    def __repr__(self) -> str:
        return f"JsonSchema({self.schema!r:.80})"

    def evaluate(self, ctx: CriterionContext) -> CriterionVerdict:
        """Reads and checks the answer.

        Raises:
            GradingError: The schema refers to something that does not stand in it.
        """
        try:
            value = _json_in(ctx.result.text)
        except ValueError as error:
            return _refused([str(error)])
        try:
            problems = self._problems(value)
        except OverflowError:
            # The answer's fault, not the schema's: nobody can tell whether it fits.
            return _refused(["it has a number that is too large to be checked"], undecided=True)
        except Exception as error:
            raise GradingError(f"the schema cannot be applied: {error}") from error
        return _refused(problems) if problems else CriterionVerdict(satisfied=True)

    def _made_validator(self) -> Any:
        schema = self.schema
        if not isinstance(schema, Mapping | bool):
            raise ConfigError(f"JsonSchema.schema is {schema!r:.80}; give a JSON Schema, a dict")
        validators = _library("jsonschema.validators")
        kind = validators.validator_for(self.schema, default=validators.Draft202012Validator)
        try:
            self._check_schema(kind)
        except _library("jsonschema.exceptions").SchemaError as error:
            raise ConfigError(
                f"JsonSchema.schema is no valid JSON Schema: at {error.json_path}:"
                f" {_short(error.message)}"
            ) from error
        # A registry of its own: the default one fetches what a schema refers to.
        registry = _library("referencing").Registry()
        return kind(self.schema, registry=registry, format_checker=kind.FORMAT_CHECKER)

    def _check_schema(self, kind: Any) -> None:
        kind.check_schema(self.schema)

    def _problems(self, value: object) -> list[str]:
        best_match = _library("jsonschema.exceptions").best_match
        problems: list[str] = []
        for error in self._validator.iter_errors(value):
            if len(problems) == _MOST_PROBLEMS:
                problems.append("… and more")
                break
            # Of an anyOf, what is wrong with the alternative that came nearest.
            nearest = best_match(iter([error])) or error
            problems.append(f"{nearest.json_path}: {_short(nearest.message)}")
        return problems


def _library(name: str) -> Any:
    """A module of the validator, imported on first use: it takes 70 ms."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"JsonSchema needs the package {error.name}; pip install 'untildone[cli]'"
        ) from error


def _json_in(text: str) -> object:
    """The value an answer is or holds.

    Raises:
        ValueError: There is none; the text says where reading failed.
    """
    try:
        return _parsed(text)
    except ValueError as error:
        blocks: list[str] = _FENCE.findall(text)
        if len(blocks) == 1:
            return _parsed(blocks[0])
        if len(blocks) > 1:
            raise ValueError(f"there are {len(blocks)} fenced blocks; give one") from error
        raise


def _parsed(text: str) -> object:
    text = text.strip().removeprefix("\ufeff")
    if not text:
        raise ValueError("it is empty")
    try:
        return json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except json.JSONDecodeError as error:
        near = text[max(0, error.pos - 20) : error.pos + 20]
        raise ValueError(
            f"it is not JSON: {error.msg} at line {error.lineno}, column {error.colno},"
            f" near {near!r}"
        ) from error
    except RecursionError as error:
        raise ValueError("it is not JSON that can be read: it is nested too deeply") from error


def _refuse_constant(name: str) -> None:
    raise ValueError(f"it is not JSON: {name} is no JSON number")


def _finite(number: str) -> float:
    value = float(number)
    if math.isinf(value):
        raise ValueError(f"it has the number {number:.20}, which is too large")
    return value


def _refused(problems: list[str], *, undecided: bool = False) -> CriterionVerdict:
    listed = "\n".join(f"- {problem}" for problem in problems)
    return CriterionVerdict(
        satisfied=False,
        feedback="The answer must be JSON that fits the schema, and nothing else. What is wrong:\n"
        f"{listed}",
        undecided=undecided,
    )


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_PROBLEM else f"{text[:_LONGEST_PROBLEM]}…"
