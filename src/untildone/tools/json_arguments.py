"""Arguments of a tool that says in JSON Schema what it takes: an MCP server's, or a skill's."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib import import_module
from itertools import islice
from typing import Any, Final, cast

from untildone.tools.arguments import Arguments

_MOST_PROBLEMS: Final = 3

Check = Callable[[dict[str, Any]], list[str]]


class JsonArguments:
    """Reads a call's arguments and holds them against a schema.

    What a schema refers to is looked for inside it and never fetched. A schema that cannot be
    applied refuses nothing: then the tool itself has to judge. Without the package ``jsonschema``
    only names are checked.

    Args:
        schema: JSON Schema of an object.
    """

    __slots__ = ("_arguments", "_check", "_schema", "_shown")

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema
        self._check: Check | None = None
        # `fills_in`: whether a key is there twice is seen in the text alone, so it is always read.
        self._shown = _shown(schema)
        self._arguments = Arguments(self, self._shown, fills_in=True)

    def parse(self, text: str) -> dict[str, Any]:
        """The arguments as a dict.

        Raises:
            ToolError: They are no JSON object or do not fit; the text tells the model what would.
        """
        if not text.strip() and not self._shown["properties"]:
            return {}  # some providers send it so
        return self._arguments.parse(text)

    def validate_json(self, text: str, *, strict: bool) -> dict[str, Any]:  # noqa: ARG002
        """One reading, in the form that ``Arguments`` asks of a validator.

        Raises:
            ValueError: The text is no JSON object, or does not fit.
        """
        values = json.loads(text)
        if not isinstance(values, dict):
            raise ValueError("no object")  # noqa: TRY004  what `Arguments` takes for a refusal
        if self._check is None:
            self._check = _check_of(self._schema)
        arguments = cast("dict[str, Any]", values)
        problems = self._check(arguments)
        if problems:
            raise ValueError("; ".join(problems))
        return arguments


def _check_of(schema: Mapping[str, Any]) -> Check:
    try:
        validators = import_module("jsonschema.validators")
        registry = import_module("referencing").Registry()
    except ModuleNotFoundError:
        return partial(_wrong_names, schema)
    kind = validators.validator_for(schema, default=validators.Draft202012Validator)
    return partial(_problems, kind(schema, registry=registry))


def _problems(validator: Any, arguments: dict[str, Any]) -> list[str]:
    try:
        errors: Iterator[Any] = islice(validator.iter_errors(arguments), _MOST_PROBLEMS)
        return [_sentence(error) for error in errors]
    except Exception:  # the schema is broken, or refers to something that is not in it
        return []


def _sentence(error: Any) -> str:
    path = error.json_path.removeprefix("$").removeprefix(".")
    return f"`{path}`: {error.message}" if path else str(error.message)


def _wrong_names(schema: Mapping[str, Any], arguments: dict[str, Any]) -> list[str]:
    properties = _shown(schema)["properties"]
    missing = [name for name in schema.get("required") or () if name not in arguments]
    problems = [f"`{name}` is missing" for name in missing]
    if schema.get("additionalProperties") is False:
        problems += [f"`{name}` is unknown" for name in arguments if name not in properties]
    return problems[:_MOST_PROBLEMS]


def _shown(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema as far as a refusal shows it: properties that are themselves schemas."""
    properties: Any = schema.get("properties")
    known = cast("dict[str, Any]", properties) if isinstance(properties, dict) else {}
    shown: dict[str, Any] = {
        name: part if isinstance(part, dict) else {} for name, part in known.items()
    }
    return {**schema, "properties": shown}
