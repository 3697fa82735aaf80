"""Reads the arguments a model sent, or tells it what is wrong and what would fit.

Values must have the type that the schema says, at every depth: ``"5"`` is no integer and ``1`` no
boolean. A refused call costs a turn; one that runs on a guess may cost more. What JSON has no type
for is made from its usual text: dates, enum members, paths, models.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, NoReturn, cast

from untildone.domain.errors import ToolError
from untildone.tools.results import text_of

_MAX_PROBLEMS: Final = 3
_MAX_ECHO: Final = 60
_MAX_NAME: Final = 60
_MAX_PATH: Final = 80
_MAX_WORDING: Final = 200
_MAX_SHAPE: Final = 300
_MAX_CHOICES: Final = 8
_MAX_LISTED: Final = 1_000


class Arguments:
    """Reads the arguments of one function. Shared by all runs, holds no state.

    Args:
        validator: pydantic's, of a typed dict of all parameters.
        json_schema: The schema of the same.
        fills_in: Whether the validator adds what was not sent.
        var_keyword: The name of a ``**`` parameter, if there is one.
        fixed: Names that may not be sent in it.
    """

    __slots__ = ("_fixed", "_flat", "_schema", "_validate", "_var_keyword")

    def __init__(
        self,
        validator: Any,
        json_schema: dict[str, Any],
        *,
        fills_in: bool = False,
        var_keyword: str | None = None,
        fixed: Collection[str] = (),
    ) -> None:
        self._validate = validator.validate_json
        self._schema = json_schema
        self._flat = not fills_in and all(map(_is_scalar, json_schema["properties"].values()))
        self._var_keyword = var_keyword
        self._fixed = fixed

    def parse(self, text: str) -> dict[str, Any]:
        """The arguments as the function takes them.

        An empty text stands for ``{}`` where there are no parameters, since some providers send it
        so, and nowhere else: it may as well be a reply that was cut before its first character.

        Raises:
            ToolError: The text is no JSON object, or does not fit.
        """
        try:
            values: dict[str, Any] = self._validate(text, strict=True)
        except Exception as error:
            values = self._second_reading(text, error)
        # Every key has a colon. With as many keys as colons, none is doubled and nothing is nested.
        if not self._flat or text.count(":") != len(values):
            self._check_json(text)
        if self._var_keyword is not None:
            self._check_var_keyword(values)
        return values

    def _second_reading(self, text: str, error: Exception) -> dict[str, Any]:
        """Takes the two things that are right and that the validator refuses."""
        if not text.strip() and not self._schema["properties"]:
            return {}
        if _may_be_whole_numbers(text, error):
            try:
                return self._validate(_with_whole_numbers(text), strict=True)
            except Exception as second:
                error = second if _count(second) else error
        raise ToolError(self._refusal(text, error)) from error

    def _check_json(self, text: str) -> None:
        """Refuses what the validator's parser lets pass and JSON does not, or not clearly."""
        try:
            _decode(text)
        except (ValueError, RecursionError) as error:
            raise ToolError(self._invalid(str(error))) from error

    def _check_var_keyword(self, values: Mapping[str, Any]) -> None:
        name = self._var_keyword or ""
        for key in values.get(name, ()):
            if key in self._schema["properties"]:
                raise ToolError(self._with_shape(f"{_name(key)} has a place beside `{name}`"))
            if key in self._fixed:
                raise ToolError(
                    self._with_shape(f"{_name(key)} is fixed, leave it out of `{name}`")
                )

    # ── What the model reads ─────────────────────────────────────────────────────────────────────

    def _refusal(self, text: str, error: Exception) -> str:
        if not text.strip():
            return self._with_shape("There are no arguments")
        count = _count(error)
        if count > _MAX_LISTED:  # to list them all takes seconds, in the event loop
            return self._with_shape(f"The arguments do not fit in {count:,} places")
        problems = _problems(error)
        whole = problems[0] if problems and not problems[0]["loc"] else {"type": "", "msg": ""}
        if whole["type"] == "json_invalid":
            return self._invalid(whole["msg"].removeprefix("Invalid JSON: "))
        if whole["type"] == "string_unicode":
            return self._invalid("the text is not valid Unicode")
        try:
            sent = json.loads(text)
        except (ValueError, RecursionError) as reason:
            return self._invalid(str(reason))
        if not isinstance(sent, dict):
            return self._with_shape(f"The arguments must be a JSON object, not {_json_kind(sent)}")
        if not problems:
            return self._with_shape(f"The arguments do not fit: {_cut(text_of(error))}")
        told = _sentences(problems, cast("object", sent))
        return self._with_shape(f"The arguments do not fit: {told}")

    def _invalid(self, reason: str) -> str:
        if reason.startswith("EOF"):
            reason = f"the text ends too early, {reason}"
        return self._with_shape(f"The arguments are not valid JSON: {_cut(reason)}")

    def _with_shape(self, problem: str) -> str:
        return f"{problem}. Expected: {_cut(_shape(self._schema), _MAX_SHAPE)}"


# ── JSON, strictly ───────────────────────────────────────────────────────────────────────────────


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keyed = dict(pairs)
    if len(keyed) == len(pairs):
        return keyed
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise ValueError(f"the key {_name(key)} is there twice")
        seen.add(key)
    return keyed


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {_cut(text, _MAX_ECHO)} is too large")
    return number


def _whole(text: str) -> int | float:
    number = _finite(text)
    exact = Decimal(text)  # a float has no place for all digits of a large whole number
    return int(exact) if exact == exact.to_integral_value() else number


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


_decode: Final = json.JSONDecoder(
    object_pairs_hook=_unique, parse_float=_finite, parse_constant=_no_constant
).decode
_FRACTION: Final = re.compile(r"[0-9][.eE]")
_decode_whole: Final = json.JSONDecoder(parse_float=_whole, parse_constant=_no_constant).decode


def _may_be_whole_numbers(text: str, error: Exception) -> bool:
    if _count(error) > _MAX_LISTED:
        return _FRACTION.search(text) is not None
    return any(map(_is_whole_number, _problems(error)))


def _is_whole_number(problem: Mapping[str, Any]) -> bool:
    """Whether it is ``5.0`` where an integer is wanted, which JSON Schema takes for one."""
    sent = problem["input"]
    return problem["type"] == "int_type" and isinstance(sent, float) and sent.is_integer()


def _with_whole_numbers(text: str) -> str:
    return json.dumps(_decode_whole(text))


# ── Problems in words ────────────────────────────────────────────────────────────────────────────


def _count(error: Exception) -> int:
    """How many single errors a pydantic ``ValidationError`` has; 0 for anything else."""
    from pydantic_core import ValidationError  # loaded before, with the validator

    return error.error_count() if isinstance(error, ValidationError) else 0


def _problems(error: Exception) -> Sequence[Mapping[str, Any]]:
    """The single errors of a pydantic ``ValidationError``; none for anything else."""
    from pydantic_core import ValidationError  # loaded before, with the validator

    if not isinstance(error, ValidationError):
        return ()
    return cast("Any", error.errors(include_url=False, include_context=False))


def _sentences(problems: Sequence[Mapping[str, Any]], sent: object) -> str:
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
    for part in cast("tuple[str | int, ...]", problem["loc"]):
        if not _has(sent, part):
            continue
        sent = sent[part]
        path += f"[{part}]" if isinstance(part, int) else f".{part}"
    if problem["type"] == "missing":
        last = problem["loc"][-1]
        path += f"[{last}]" if isinstance(last, int) else f".{last}"
    return f"`{_cut(path.removeprefix('.'), _MAX_PATH)}`" if path else "the object"


def _has(sent: Any, part: str | int) -> bool:
    if isinstance(sent, list):
        return isinstance(part, int) and part < len(cast("list[Any]", sent))
    return isinstance(sent, dict) and part in sent


def _sentence(path: str, group: Sequence[Mapping[str, Any]]) -> str:
    problem = group[0]
    if problem["type"] == "missing":
        return f"{path} is missing"
    if problem["type"] == "extra_forbidden":
        return f"{path} is unknown"
    wanted = list(dict.fromkeys(_wanted(one["msg"]) for one in group))
    more = [text.removeprefix("must be ") for text in wanted[1:_MAX_PROBLEMS]]
    sentence = f"{path} {_cut(' or '.join([wanted[0], *more]))}"
    return sentence if ", not " in sentence else f"{sentence}, not {_echo(problem['input'])}"


def _wanted(message: str) -> str:
    """What pydantic says, "Input should be a valid integer", as the end of a sentence."""
    message = message.partition("\n    For further information")[0]
    for prefix in ("Value error, ", "Assertion failed, "):
        if message.startswith(prefix):
            return f"does not fit ({message.removeprefix(prefix)})"
    _, should, rest = message.partition(" should ")
    if not should:
        return f"does not fit ({message})"
    return "must be null" if rest == "be None" else f"must {rest}"


def _echo(value: object) -> str:
    try:
        return _cut(json.dumps(value, ensure_ascii=False, default=text_of), _MAX_ECHO)
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


def _name(key: str) -> str:
    return f"`{_cut(key, _MAX_NAME)}`"


def _cut(text: str, most: int = _MAX_WORDING) -> str:
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
        return _kind_of_definition(defs.get(schema["$ref"].rpartition("/")[2], {}))
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


def _kind_of_definition(schema: Mapping[str, Any]) -> str:
    """A definition may contain itself, so an object is only named as one, with its keys."""
    if "properties" not in schema:
        return _kind(schema, {})
    required = schema.get("required", ())
    names = [f"{name}{'' if name in required else '?'}" for name in schema["properties"]]
    return f"object with {', '.join(names)}" if names else "object"
