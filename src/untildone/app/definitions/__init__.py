"""Agents as data: read from YAML, JSON or TOML, checked as a whole, built into an ``Agent``."""

from __future__ import annotations

from untildone.app.definitions.building import build_agent
from untildone.app.definitions.editor_schema import definition_schema
from untildone.app.definitions.problems import DefinitionError, Problem
from untildone.app.definitions.reading import load_definition, parse_definition
from untildone.app.definitions.types import (
    AgentDefinition,
    HarnessSettings,
    LoopCriterion,
    LoopSettings,
    ModelBinding,
)
from untildone.app.definitions.writing import dump_definition

__all__ = [
    "AgentDefinition",
    "DefinitionError",
    "HarnessSettings",
    "LoopCriterion",
    "LoopSettings",
    "ModelBinding",
    "Problem",
    "build_agent",
    "definition_schema",
    "dump_definition",
    "load_definition",
    "parse_definition",
]
