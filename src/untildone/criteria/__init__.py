"""Stop criteria for ``LoopConfig.criteria``: each has a ``kind`` and ``evaluate(ctx)``.

They hold no state, so one serves any number of runs at once. The names are loaded when they are
first used: a run that waits for a marker needs no subprocesses and no judge.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from untildone.criteria.ai_judge import AiJudge
    from untildone.criteria.command import Command
    from untildone.criteria.completion_marker import CompletionMarker
    from untildone.criteria.json_schema import JsonSchema
    from untildone.criteria.regex import Regex

_WHERE = {
    "AiJudge": "ai_judge",
    "Command": "command",
    "CompletionMarker": "completion_marker",
    "JsonSchema": "json_schema",
    "Regex": "regex",
}

__all__ = ["AiJudge", "Command", "CompletionMarker", "JsonSchema", "Regex"]


def __getattr__(name: str) -> Any:
    module = _WHERE.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{module}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
