"""From functions to tools: what a model is told of them, what it may send, what it gets back.

Not here: running a batch of calls, approvals and events, which are the engine's. The names are
loaded when they are first used: a script that only marks functions needs no schemas yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from untildone.lazy import lazy_names

if TYPE_CHECKING:
    from untildone.tools.collect import as_tool, collect_tools
    from untildone.tools.decorator import tool
    from untildone.tools.function_tool import FunctionTool
    from untildone.tools.options import ToolOptions
    from untildone.tools.results import result_text

_WHERE = {
    "FunctionTool": "function_tool",
    "ToolOptions": "options",
    "as_tool": "collect",
    "collect_tools": "collect",
    "result_text": "results",
    "tool": "decorator",
}

__all__ = [
    "FunctionTool",
    "ToolOptions",
    "as_tool",
    "collect_tools",
    "result_text",
    "tool",
]

__getattr__, __dir__ = lazy_names(__name__, _WHERE)
