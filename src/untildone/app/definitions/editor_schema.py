"""The JSON Schema of definitions, for editors and forms."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any, Final

from untildone.app.definitions.kinds import KINDS
from untildone.app.definitions.types import (
    AgentDefinition,
    HarnessSettings,
    LoopCriterion,
    LoopSettings,
    ModelBinding,
)
from untildone.criteria.registry import BUILT_IN_KINDS

if TYPE_CHECKING:
    from pydantic import BaseModel

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_LISTS: Final = ("judgeCriteria", "modes", "criteria")
_ATTRIBUTE: Final = re.compile(r"^    (\w+): (.+(?:\n        .+)*)", re.MULTILINE)


def definition_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a definition in S3's spelling.

    Looser than reading in one way: a kind that it does not know may be a registered one. Stricter
    in another: kinds and keys have one spelling, so that editors can offer them.
    """
    schema = AgentDefinition.model_json_schema(by_alias=True)
    inner = schema["$defs"]
    _describe(AgentDefinition, schema)
    for model in (HarnessSettings, LoopSettings, LoopCriterion, ModelBinding):
        _describe(model, inner[model.__name__])
    inner["LoopSettings"]["properties"]["criteria"]["minItems"] = 1
    _allow_null(schema["properties"], "harness")
    criterion = inner["LoopCriterion"]
    kind = criterion["properties"]["kind"]
    words = {name: kind.pop(name) for name in ("type", "minLength", "pattern")}
    kind["anyOf"] = [{"enum": list(BUILT_IN_KINDS)}, words]
    criterion["allOf"] = [_needs(name, criterion) for name in BUILT_IN_KINDS]
    return {"$schema": _DIALECT, **schema}


def _allow_null(fields: dict[str, Any], name: str) -> None:
    """Lets a field be null where reading takes that for its default."""
    field = fields[name]
    said = {key: field.pop(key) for key in ("description", "default") if key in field}
    fields[name] = {"anyOf": [field, {"type": "null"}], **said}


def _describe(model: type[BaseModel], schema: dict[str, Any]) -> None:
    """Puts what the docstring says of each field where editors show it."""
    text = inspect.cleandoc(model.__doc__ or "")
    head, _, attributes = text.partition("\n\nAttributes:\n")
    schema["description"] = _plain(head)
    said = dict(_ATTRIBUTE.findall(attributes))
    for name, info in model.model_fields.items():
        field = schema["properties"][info.alias or name]
        field.pop("title", None)
        field["description"] = _plain(said[name])


def _plain(text: str) -> str:
    return " ".join(text.split()).replace("``", "`")


def _needs(kind: str, criterion: dict[str, Any]) -> dict[str, Any]:
    """What a kind has to have, and what it cannot have."""
    takes = KINDS[kind]
    spelled = {name: info.alias or name for name, info in LoopCriterion.model_fields.items()}
    known = {spelled[name] for name in (*takes.required, *takes.optional)}
    required = [spelled[name] for name in takes.required]
    properties = {name: {"type": "null"} for name in set(criterion["properties"]) - known}
    del properties["kind"]
    for name in sorted(known):
        bounds: dict[str, Any] = {} if name not in required else {"not": {"type": "null"}}
        if name in _LISTS:
            bounds["minItems"] = 1
        if (kind, name) == ("not", "criteria"):
            bounds["maxItems"] = 1
        if bounds:
            properties[name] = bounds
    return {
        "if": {"properties": {"kind": {"const": kind}}, "required": ["kind"]},
        "then": {"required": required, "properties": dict(sorted(properties.items()))},
    }
