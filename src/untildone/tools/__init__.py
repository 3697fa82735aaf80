"""From functions to tools: what a model is told of them, what it may send, what it gets back.

Not here: running a batch of calls, approvals and events, which are the engine's.
"""

from __future__ import annotations

from untildone.tools.collect import as_tool, collect_tools
from untildone.tools.function_tool import FunctionTool, tool
from untildone.tools.options import ToolOptions
from untildone.tools.results import DEFAULT_MAX_RESULT_CHARS, cut_text, result_text

__all__ = [
    "DEFAULT_MAX_RESULT_CHARS",
    "FunctionTool",
    "ToolOptions",
    "as_tool",
    "collect_tools",
    "cut_text",
    "result_text",
    "tool",
]
