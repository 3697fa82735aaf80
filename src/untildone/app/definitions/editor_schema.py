"""The JSON Schema of definitions, for editors and forms."""

from __future__ import annotations

from typing import Any, Final

from untildone.app.definitions.kinds import KINDS
from untildone.app.definitions.types import AgentDefinition, LoopCriterion
from untildone.criteria.registry import BUILT_IN_KINDS

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def definition_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a definition in S3's spelling.

    Looser than reading in one way: a kind that it does not know may be a registered one. Stricter
    in another: kinds and keys have one spelling, so that editors can offer them.
    """
    schema = AgentDefinition.model_json_schema(by_alias=True)
    criterion = schema["$defs"]["LoopCriterion"]
    criterion["properties"]["kind"] = {
        "title": "Kind",
        "description": "What has to hold; a kind that was registered in code has its own name.",
        "anyOf": [{"enum": list(BUILT_IN_KINDS)}, {"type": "string", "minLength": 1}],
    }
    criterion["allOf"] = [_needs(kind, criterion) for kind in BUILT_IN_KINDS]
    servers = schema["properties"]["mcpServers"]
    servers.update({"maxItems": 0, "description": "Not supported yet."})
    return {"$schema": _DIALECT, "title": "untildone agent definition", **schema}


def _needs(kind: str, criterion: dict[str, Any]) -> dict[str, Any]:
    """What a kind has to have, and what it cannot have."""
    takes = KINDS[kind]
    spelled = {name: info.alias or name for name, info in LoopCriterion.model_fields.items()}
    known = {spelled[name] for name in (*takes.required, *takes.optional)}
    others = sorted(set(criterion["properties"]) - known - {"kind"})
    return {
        "if": {"properties": {"kind": {"const": kind}}, "required": ["kind"]},
        "then": {
            "required": [spelled[name] for name in takes.required],
            "properties": {name: {"type": "null"} for name in others},
        },
    }
