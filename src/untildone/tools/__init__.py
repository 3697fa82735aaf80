"""From functions to tools: what a model is told of them, what it may send, what it gets back.

Not here: running a batch of calls, approvals and events, which are the engine's. The names are
loaded when they are first used: a script that only marks functions needs no schemas yet.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from untildone.policy.cutting import DEFAULT_MAX_RESULT_CHARS, cut_text
    from untildone.tools.collect import as_tool, collect_tools
    from untildone.tools.decorator import tool
    from untildone.tools.function_tool import FunctionTool
    from untildone.tools.options import ToolOptions
    from untildone.tools.results import result_text

_WHERE = {
    "DEFAULT_MAX_RESULT_CHARS": "policy.cutting",
    "FunctionTool": "tools.function_tool",
    "ToolOptions": "tools.options",
    "as_tool": "tools.collect",
    "collect_tools": "tools.collect",
    "cut_text": "policy.cutting",
    "result_text": "tools.results",
    "tool": "tools.decorator",
}

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


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"untildone.{_WHERE[name]}"), name)
    globals()[name] = value
    return value
