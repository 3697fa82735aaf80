"""Tools told in words: the prompt, the examples and the schema of ``prompted_tools.py``. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle, islice
from typing import Any, Final, cast

from untildone.domain.messages import Message, ToolCall
from untildone.domain.tools import ToolSpec
from untildone.models.tool_attachments import attachments_of, has_attachments

MAX_EXAMPLES: Final = 6
"""Most tools that get an example; each costs about 60 tokens."""

_INSTRUCTIONS: Final = (
    'Reply with the tool to use, as JSON: {"tool": NAME, "arguments": {...}}.'
    ' After its result, reply with {"answer": TEXT}.'
)
_WORDS: Final = ("Anna", "blue", "report", "Lima")
_NUMBERS: Final = (3, 12, 40, 7)
_EXAMPLE_RESULT: Final = "done, 42"
_EXAMPLE_ANSWER: Final = "Done: 42."
_DEEPEST: Final = 4
_TEXT: Final[Mapping[str, Any]] = {"type": "string"}


def prompted(
    messages: Sequence[Message], specs: Sequence[ToolSpec], *, examples: bool
) -> list[Message]:
    """The conversation for a model that knows no tools: all of it in plain messages."""
    return [*_opening(messages, specs, examples=examples), *_told(messages)]


def calls_in_a_row(messages: Sequence[Message]) -> int:
    """The calls since the last user message."""
    count = 0
    for message in reversed(messages):
        if message.role == "user":
            break
        count += len(message.tool_calls)
    return count


def reply_schema(specs: Sequence[ToolSpec], answer: Mapping[str, Any] | None) -> dict[str, Any]:
    """What a reply may be: a call of one of the tools, or an answer.

    Args:
        specs: The tools; none where the reply has to be an answer.
        answer: The schema of the answer; None for a text.
    """
    calls = [
        _object({"tool": {"const": spec.name}, "arguments": spec.parameters}) for spec in specs
    ]
    return _with_definitions([*calls, _object({"answer": answer or _TEXT})])


def _opening(
    messages: Sequence[Message], specs: Sequence[ToolSpec], *, examples: bool
) -> Iterator[Message]:
    """The system message with the tools in it, and the examples."""
    own = [message.text for message in messages if message.role in ("system", "developer")]
    listed = "\n".join(f"- {_signature(spec)}: {_first_line(spec)}" for spec in specs)
    text = "\n\n".join([*own, f"You can use these tools:\n{listed}", _INSTRUCTIONS])
    yield Message("system", text)
    if not examples:
        return
    words, numbers = cycle(_WORDS), cycle(_NUMBERS)
    for spec in islice(specs, MAX_EXAMPLES):
        arguments = _sample(spec.parameters, spec.parameters, words, numbers)
        values = " and ".join(_as_word(value) for value in arguments.values())
        about = _first_line(spec).rstrip(".")
        yield Message("user", f"{about}: {values}." if values else f"{about}.")
        yield Message("assistant", _call_text(spec.name, json.dumps(arguments, ensure_ascii=False)))
        yield Message("user", _result_text(spec.name, _EXAMPLE_RESULT))
        yield Message("assistant", _answer_text(_EXAMPLE_ANSWER))


def _told(messages: Sequence[Message]) -> list[Message]:
    """The conversation with calls and results as texts, never two user messages in a row."""
    told: list[Message] = []
    names: dict[str, str] = {}
    waiting: list[ToolCall] = []
    beside = ""
    for message in messages:
        if message.role in ("system", "developer"):
            continue
        if message.role == "assistant":
            waiting = list(message.tool_calls)
            names |= {call.id: call.name for call in waiting}
            beside = message.text if waiting else ""
            if message.text and not waiting:
                told.append(Message("assistant", _answer_text(message.text)))
            continue
        if message.role == "tool":
            if waiting:
                call = waiting.pop(0)
                text = _call_text(call.name, call.arguments)
                told.append(Message("assistant", f"{beside}\n{text}" if beside else text))
                beside = ""
            name = names.get(message.tool_call_id or "", "the tool")
            _add_user(told, Message("user", _result_text(name, message.text)))
            if has_attachments(message):
                _add_user(told, Message("user", attachments_of(message)))
        else:
            _add_user(told, message)
    return told


def _add_user(told: list[Message], message: Message) -> None:
    last = told[-1] if told else None
    if last is None or last.role != "user":
        told.append(message)
    elif isinstance(last.content, str) and isinstance(message.content, str):
        told[-1] = Message("user", f"{last.content}\n\n{message.content}")
    else:
        told[-1] = Message("user", [*_parts(last), *_parts(message)])


def _parts(message: Message) -> list[dict[str, Any]]:
    content = message.content
    return content if isinstance(content, list) else [{"type": "text", "text": content or ""}]


def _signature(spec: ToolSpec) -> str:
    properties = cast("dict[str, Any]", spec.parameters.get("properties") or {})
    required = spec.parameters.get("required") or ()
    shown = [
        f"{name}{'' if name in required else '?'}: {_type_of(schema)}"
        for name, schema in properties.items()
    ]
    return f"{spec.name}({', '.join(shown)})"


def _type_of(schema: Any) -> str:
    if not isinstance(schema, dict):
        return "any"
    fields = cast("dict[str, Any]", schema)
    if "enum" in fields:
        return " or ".join(json.dumps(value) for value in fields["enum"])
    if "const" in fields:
        return json.dumps(fields["const"])
    if "anyOf" in fields:
        return " or ".join(_type_of(option) for option in fields["anyOf"])
    kind = fields.get("type")
    if kind == "array":
        return f"list of {_type_of(fields.get('items'))}"
    return str(kind or "object")


def _first_line(spec: ToolSpec) -> str:
    return spec.description.strip().partition("\n")[0] or spec.name.replace("_", " ")


def _call_text(name: str, arguments: str) -> str:
    return f'{{"tool": {json.dumps(name)}, "arguments": {arguments or "{}"}}}'


def _answer_text(text: str) -> str:
    return json.dumps({"answer": text}, ensure_ascii=False)


def _result_text(name: str, text: str) -> str:
    return f"Result of {name}: {text}"


def _as_word(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _sample(
    schema: Mapping[str, Any], root: Mapping[str, Any], words: Iterator[str], numbers: Iterator[int]
) -> dict[str, Any]:
    """Arguments for an example: what is required, made up."""
    properties = cast("dict[str, Any]", schema.get("properties") or {})
    required = cast("Sequence[str]", schema.get("required") or ())
    return {
        name: _sample_value(properties[name], root, words, numbers, depth=0)
        for name in required
        if name in properties
    }


def _sample_value(
    schema: Any,
    root: Mapping[str, Any],
    words: Iterator[str],
    numbers: Iterator[int],
    *,
    depth: int,
) -> Any:
    fields = _resolved(schema, root)
    if depth > _DEEPEST:  # a schema may refer to itself
        return None
    if "const" in fields:
        return fields["const"]
    if fields.get("enum"):
        return fields["enum"][0]
    if fields.get("anyOf"):
        return _sample_value(fields["anyOf"][0], root, words, numbers, depth=depth + 1)
    match fields.get("type"):
        case "string":
            return next(words)
        case "integer" | "number":
            return next(numbers)
        case "boolean":
            return True
        case "array":
            return [_sample_value(fields.get("items"), root, words, numbers, depth=depth + 1)]
        case "object":
            properties = cast("dict[str, Any]", fields.get("properties") or {})
            return {
                name: _sample_value(properties.get(name), root, words, numbers, depth=depth + 1)
                for name in fields.get("required") or ()
            }
        case _:
            return None


def _resolved(schema: Any, root: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(schema, dict):
        return {}
    fields = cast("dict[str, Any]", schema)
    reference = fields.get("$ref")
    if not isinstance(reference, str):
        return fields
    definitions = cast("dict[str, dict[str, Any]]", root.get("$defs") or {})
    return definitions.get(reference.rpartition("/")[2]) or {}


# ── The schema ───────────────────────────────────────────────────────────────────────────────────


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _with_definitions(alternatives: list[dict[str, Any]]) -> dict[str, Any]:
    """One schema of several, with the definitions of all where references look: at its root."""
    definitions: dict[str, Any] = {}
    lifted = [
        _lifted(alternative, f"{number}_", definitions)
        for number, alternative in enumerate(alternatives)
    ]
    schema: dict[str, Any] = lifted[0] if len(lifted) == 1 else {"anyOf": lifted}
    return {**schema, "$defs": definitions} if definitions else schema


def _lifted(schema: Any, prefix: str, definitions: dict[str, Any]) -> Any:
    if isinstance(schema, list):
        return [_lifted(item, prefix, definitions) for item in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    kept: dict[str, Any] = {}
    for key, value in cast("dict[str, Any]", schema).items():
        if key == "$defs" and isinstance(value, dict):
            for name, definition in cast("dict[str, Any]", value).items():
                definitions[prefix + name] = _lifted(definition, prefix, definitions)
        elif key == "$ref" and isinstance(value, str) and value.startswith("#/$defs/"):
            kept[key] = f"#/$defs/{prefix}{value.removeprefix('#/$defs/')}"
        else:
            kept[key] = _lifted(value, prefix, definitions)
    return kept
