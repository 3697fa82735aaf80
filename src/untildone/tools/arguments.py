"""Reads the arguments a model sent, or tells it what is wrong and what would fit.

Values must have the type that the schema says, at every depth: ``"5"`` is no integer and ``1`` no
boolean. A refused call costs a turn, one that runs with a guess may cost more. What JSON has no type
for is made from its usual text: dates, enum members, paths, models.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn, cast

from untildone.domain.errors import ToolError

_MAX_PROBLEMS: Final = 3
_MAX_ECHO: Final = 60
_MAX_MESSAGE: Final = 200
_MAX_SHAPE: Final = 300
_MAX_NAME: Final = 60
_MAX_CHOICES: Final = 8


class Arguments:
    """Reads the arguments of one function. Shared by all runs, holds no state.

    Args:
        validator: pydantic's, of a typed dict of all parameters.
        json_schema: The schema of the same.
        always_check: Whether the validator fills arguments in, so that their number says nothing.
        var_keyword: The name of a ``**`` parameter.
    """

    __slots__ = ("_empty", "_plain", "_schema", "_validate", "_var_keyword")

    def __init__(
        self,
        validator: Any,
        json_schema: dict[str, Any],
        *,
        always_check: bool = False,
        var_keyword: str | None = None,
    ) -> None:
        properties: dict[str, Any] = json_schema["properties"]
        self._validate = validator.validate_json
        self._schema = json_schema
        self._empty = not properties
        self._plain = not always_check and all(map(_is_scalar, properties.values()))
        self._var_keyword = var_keyword

    def parse(self, text: str) -> dict[str, Any]:
        """The arguments as the function takes them.

        An empty text stands for ``{}`` where there are no parameters, since some providers send it
        so, and nowhere else: it may as well be a reply that was cut before its first character.

        Raises:
            ToolError: The text is no JSON object, or does not fit.
        """
        try:
            values: dict[str, Any] = self._validate(text, strict=True)
        except Exception as error:  # noqa: BLE001  validators may be a user's own code
            if self._empty and not text.strip():
                return {}
            raise ToolError(self._refusal(text, error)) from error
        # Every key has a colon. With as many keys as colons none is doubled and nothing is nested.
        if not self._plain or text.count(":") != len(values):
            self._check_json(text)
        if self._var_keyword is not None:
            self._check_var_keyword(values)
        return values

    def _check_json(self, text: str) -> None:
        """Refuses what the validator's parser lets pass and JSON does not, or not clearly."""
        try:
            _strict_json(text)
        except (ValueError, RecursionError) as error:
            raise ToolError(self._invalid(str(error))) from error

    def _check_var_keyword(self, values: Mapping[str, Any]) -> None:
        name = self._var_keyword or ""
        doubled = [key for key in values.get(name, ()) if key in self._schema["properties"]]
        if doubled:
            raise ToolError(
                self._with_shape(f"{_quoted(doubled[0])} stands in `{name}`, give it by its name")
            )

    # ── What the model reads ─────────────────────────────────────────────────────────────────────

    def _refusal(self, text: str, error: Exception) -> str:
        if not text.strip():
            return self._with_shape("There are no arguments")
        problems = _problems(error)
        kind = problems[0]["type"] if problems else ""
        if kind == "json_invalid":
            return self._invalid(problems[0]["msg"].removeprefix("Invalid JSON: "))
        if kind == "string_unicode":
            return self._invalid("it is not valid Unicode")
        try:
            sent = json.loads(text)
        except (ValueError, RecursionError) as reason:
            return self._invalid(str(reason))
        if not isinstance(sent, dict):
            return self._with_shape(f"The arguments must be a JSON object, not {_json_kind(sent)}")
        if not problems:
            return self._with_shape(f"The arguments do not fit: {_cut(str(error), _MAX_MESSAGE)}")
        return self._with_shape(f"The arguments do not fit: {_sentences(problems, sent)}")

    def _invalid(self, reason: str) -> str:
        if reason.startswith("EOF"):
            reason = f"the text ends too early, {reason}"
        return self._with_shape(f"The arguments are not valid JSON: {_cut(reason, _MAX_MESSAGE)}")

    def _with_shape(self, problem: str) -> str:
        return f"{problem}. Expected: {_cut(_shape(self._schema), _MAX_SHAPE)}"


# ── JSON, strictly ───────────────────────────────────────────────────────────────────────────────


def _strict_json(text: str) -> Any:
    return _decode(text)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keyed = dict(pairs)
    if len(keyed) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"the key {_quoted(key)} stands there twice")
            seen.add(key)
    return keyed


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {_cut(text, _MAX_ECHO)} is too large")
    return number


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


_decode: Final = json.JSONDecoder(
    object_pairs_hook=_unique, parse_float=_finite, parse_constant=_no_constant
).decode


# ── Problems in words ────────────────────────────────────────────────────────────────────────────


def _problems(error: Exception) -> list[dict[str, Any]]:
    """The single errors of a pydantic ``ValidationError``; none for anything else."""
    listed = getattr(error, "errors", None)
    if not callable(listed):
        return []
    return cast("list[dict[str, Any]]", listed(include_url=False, include_context=False))


def _sentences(problems: Sequence[Mapping[str, Any]], sent: Any) -> str:
    by_path: dict[str, list[Mapping[str, Any]]] = {}
    for problem in problems:
        by_path.setdefault(_path(problem, sent), []).append(problem)
    told = [_sentence(path, group) for path, group in list(by_path.items())[:_MAX_PROBLEMS]]
    if len(by_path) > _MAX_PROBLEMS:
        told.append(f"and {len(by_path) - _MAX_PROBLEMS} more")
    return "; ".join(told)


def _path(problem: Mapping[str, Any], sent: Any) -> str:
    """Where in the arguments a problem is, without pydantic's names for branches of a union."""
    path = ""
    location = cast("tuple[str | int, ...]", problem["loc"])
    for position, part in enumerate(location):
        is_last = position == len(location) - 1
        if isinstance(sent, dict) and part in sent:
            sent = cast("dict[Any, Any]", sent)[part]
        elif (
            isinstance(sent, list) and isinstance(part, int) and part < len(cast("list[Any]", sent))
        ):
            sent = cast("list[Any]", sent)[part]
        elif not (is_last and problem["type"] in _ABOUT_WHAT_IS_NOT_THERE):
            continue
        path += f"[{part}]" if isinstance(part, int) else f".{_cut(part, _MAX_NAME)}"
    return f"`{path.removeprefix('.')}`" if path else "the object"


_ABOUT_WHAT_IS_NOT_THERE: Final = ("missing", "missing_argument")


def _sentence(path: str, group: Sequence[Mapping[str, Any]]) -> str:
    problem = group[0]
    if problem["type"] == "missing":
        return f"{path} is missing"
    if problem["type"] == "extra_forbidden":
        return f"{path} is unknown"
    wanted = list(dict.fromkeys(_wanted(one["msg"]) for one in group))
    more = [text.removeprefix("must be ") for text in wanted[1:_MAX_PROBLEMS]]
    wording = " or ".join([wanted[0], *more])
    return f"{path} {_cut(wording, _MAX_MESSAGE)}, not {_echo(problem['input'])}"


def _wanted(message: str) -> str:
    """pydantic's "Input should be a valid integer" as the end of a sentence."""
    subject, should, rest = message.partition(" should ")
    if should and subject in _SUBJECTS:
        return "must " + rest.replace("None", "null")
    message = message.removeprefix("Value error, ").removeprefix("Assertion failed, ")
    return f"is not accepted: {message}"


_SUBJECTS: Final = frozenset(
    {
        "Input",
        "String",
        "List",
        "Tuple",
        "Set",
        "Frozenset",
        "Dictionary",
        "Object",
        "Value",
        "Data",
        "Bytes",
        "Decimal input",
        "Date",
        "Datetime",
        "URL",
        "UUID",
    }
)


def _echo(value: object) -> str:
    try:
        return _cut(json.dumps(value, ensure_ascii=False, default=str), _MAX_ECHO)
    except (TypeError, ValueError, RecursionError):
        return f"a {type(value).__name__}"


def _json_kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case list():
            return "an array"
        case str():
            return "a string"
        case bool():
            return "a boolean"
        case _:
            return "a number"


def _quoted(name: str) -> str:
    return f"`{_cut(name, _MAX_NAME)}`"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


# ── Schemas in words ─────────────────────────────────────────────────────────────────────────────

_SCALARS: Final = ("string", "integer", "number", "boolean", "null")


def _is_scalar(schema: Mapping[str, Any]) -> bool:
    """Whether only a text, number, boolean or null fits, so that nothing can be nested."""
    choices = schema.get("anyOf")
    if choices is not None:
        return all(map(_is_scalar, choices))
    return schema.get("type") in _SCALARS


def _shape(schema: Mapping[str, Any]) -> str:
    """An object schema in short: ``{"query": string, "limit"?: integer}``."""
    required = schema.get("required", ())
    defs = schema.get("$defs", {})
    parts = [
        f'"{name}"{"" if name in required else "?"}: {_kind(part, defs)}'
        for name, part in schema["properties"].items()
    ]
    return "{" + ", ".join(parts) + "}"


def _kind(schema: Mapping[str, Any], defs: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return _kind_of_definition(defs.get(schema["$ref"].rpartition("/")[2], {}), defs)
    if "const" in schema:
        return _echo(schema["const"])
    if "enum" in schema:
        choices = [_echo(choice) for choice in schema["enum"][:_MAX_CHOICES]]
        return " | ".join(choices + ["…"] * (len(schema["enum"]) > _MAX_CHOICES))
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return " | ".join(dict.fromkeys(_kind(part, defs) for part in schema[key]))
    if schema.get("type") == "array" and isinstance(schema.get("items"), dict):
        return f"array of {_kind(schema['items'], defs)}"
    return str(schema.get("format") or schema.get("type") or "any")


def _kind_of_definition(schema: Mapping[str, Any], defs: Mapping[str, Any]) -> str:
    """A definition may contain itself, so an object is only named as one, with its keys."""
    if "properties" in schema:
        required = schema.get("required", ())
        names = [f"{name}{'' if name in required else '?'}" for name in schema["properties"]]
        return f"object with {', '.join(names)}" if names else "object"
    return _kind(schema, {}) if "$ref" not in schema else "any"
