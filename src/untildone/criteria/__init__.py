"""Stop criteria for ``LoopConfig.criteria``: each has a ``kind`` and ``evaluate(ctx)``.

They hold no state, so one serves any number of runs at once.
"""

from __future__ import annotations

from untildone.criteria.ai_judge import AiJudge
from untildone.criteria.command import Command
from untildone.criteria.completion_marker import CompletionMarker
from untildone.criteria.json_schema import JsonSchema
from untildone.criteria.regex import Regex

__all__ = ["AiJudge", "Command", "CompletionMarker", "JsonSchema", "Regex"]
