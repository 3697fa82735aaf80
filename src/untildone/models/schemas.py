"""JSON Schemas as providers take them, and as text for those that take none. Pure."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any, Final

from untildone.domain.messages import Message
from untildone.models.loose_json import as_dict, as_list, encoded

_MOST_FORMS: Final = 256
_NAMED: Final = ("properties", "$defs", "definitions")
_NESTED: Final = ("items", "anyOf", "allOf", "oneOf")
# What Anthropic refuses in output_config; told to the model in words instead.
_UNSUPPORTED: Final = (
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "maxItems",
    "uniqueItems",
)


class SchemaForms:
    """In which weaker form a server took a schema that it had refused; the latest 256 schemas.

    By schema: one refused schema says nothing about another. A server that has refused two and
    taken none is one that knows no schemas: what it took last is where all others begin.
    """

    __slots__ = ("_forms", "_of_all", "_takes_some")

    def __init__(self) -> None:
        self._forms: dict[bytes, int] = {}
        self._of_all = 0
        self._takes_some = False

    def of(self, schema: dict[str, Any]) -> int:
        """The form to begin with; 0, the strongest, where nothing is known."""
        if not self._forms:
            return 0
        try:
            return self._forms.get(_key_of(schema), self._of_all)
        except (TypeError, ValueError, RecursionError):
            return 0  # it has no JSON form, which the request will tell

    def keep(self, schema: dict[str, Any], form: int) -> None:
        """The form worked after stronger ones were refused."""
        self._forms[_key_of(schema)] = form
        if len(self._forms) > 1 and not self._takes_some:
            self._of_all = form
        if len(self._forms) > _MOST_FORMS:
            del self._forms[next(iter(self._forms))]

    def note_strongest(self) -> None:
        """A schema was taken as it is: refusals are of schemas and not of all of them."""
        self._takes_some = True
        self._of_all = 0


def _key_of(schema: dict[str, Any]) -> bytes:
    """The same for one schema, in whatever order its keys are."""
    form = json.dumps(json.loads(encoded(schema)), sort_keys=True)  # now all keys are text
    return sha256(form.encode()).digest()


def is_strict(schema: Any) -> bool:
    """Whether OpenAI takes the schema with ``strict``: each object closed, each field required."""
    if isinstance(schema, list):
        return all(map(is_strict, as_list(schema)))
    if not isinstance(schema, dict):
        return True
    fields = as_dict(schema)
    properties = as_dict(fields.get("properties"))
    if properties or fields.get("type") == "object":
        closed = fields.get("additionalProperties") is False
        if not closed or set(as_list(fields.get("required"))) != set(properties):
            return False
    named = [list(as_dict(fields.get(key)).values()) for key in _NAMED]
    return all(map(is_strict, [*named, *(fields.get(key) for key in _NESTED)]))


def closed(schema: Any) -> Any:
    """The schema as Anthropic takes it: objects closed, limits on values told in words."""
    if isinstance(schema, list):
        return [closed(item) for item in as_list(schema)]
    if not isinstance(schema, dict):
        return schema
    fields = dict(as_dict(schema))
    limits = [f"{key}: {fields.pop(key)}" for key in _UNSUPPORTED if key in fields]
    if limits:
        told = [str(fields["description"])] if fields.get("description") else []
        fields["description"] = " ".join([*told, f"({', '.join(limits)})"])
    for key in _NAMED:
        if key in fields:
            fields[key] = {name: closed(item) for name, item in as_dict(fields[key]).items()}
    for key in _NESTED:
        if key in fields:
            fields[key] = closed(fields[key])
    if fields.get("type") == "object":
        fields["additionalProperties"] = False
    return fields


def schema_hint(schema: dict[str, Any]) -> str:
    """What a model is told that cannot be held to a schema."""
    return (
        "Reply with one JSON object and nothing else, no code fence."
        f" It must fit this JSON Schema:\n{encoded(schema).decode()}"
    )


def with_schema_hint(last: Message | None, schema: dict[str, Any]) -> Message:
    """The hint as a user message; put into the last message where that is the user's.

    Two user messages in a row are refused by some chat templates.
    """
    hint = schema_hint(schema)
    if last is None or last.role != "user":
        return Message("user", hint)
    content = last.content
    if isinstance(content, list):
        return Message("user", [*content, {"type": "text", "text": hint}], extra=last.extra)
    return Message("user", f"{content}\n\n{hint}" if content else hint, extra=last.extra)
