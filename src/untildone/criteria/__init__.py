"""Stop criteria for ``LoopConfig.criteria``: each has a ``kind`` and ``evaluate(ctx)``.

They hold no state, so one serves any number of runs at once. The names are loaded when they are
first used: a run that waits for a marker needs no subprocesses and no judge.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from untildone.lazy import lazy_names

if TYPE_CHECKING:
    from untildone.criteria.ai_judge import AiJudge
    from untildone.criteria.background import BackgroundTaskCompletion
    from untildone.criteria.command import Command
    from untildone.criteria.completion_marker import CompletionMarker
    from untildone.criteria.composition import all_of, any_of, not_
    from untildone.criteria.json_schema import JsonSchema
    from untildone.criteria.min_score import MinScore
    from untildone.criteria.regex import Regex
    from untildone.criteria.registry import CriterionRegistry
    from untildone.criteria.todo import TodoCompletion

_WHERE = {
    "AiJudge": "ai_judge",
    "BackgroundTaskCompletion": "background",
    "Command": "command",
    "CompletionMarker": "completion_marker",
    "CriterionRegistry": "registry",
    "JsonSchema": "json_schema",
    "MinScore": "min_score",
    "Regex": "regex",
    "TodoCompletion": "todo",
    "all_of": "composition",
    "any_of": "composition",
    "not_": "composition",
}

__all__ = [
    "AiJudge",
    "BackgroundTaskCompletion",
    "Command",
    "CompletionMarker",
    "CriterionRegistry",
    "JsonSchema",
    "MinScore",
    "Regex",
    "TodoCompletion",
    "all_of",
    "any_of",
    "not_",
]

__getattr__, __dir__ = lazy_names(__name__, _WHERE)
