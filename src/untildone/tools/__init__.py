"""From functions to tools: what a model is told of them, what it may send, what it gets back.

Not here: running a batch of calls, approvals and events, which are the engine's. The names are
loaded when they are first used: a script that only marks functions needs no schemas yet.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from untildone.tools.collect import as_tool, collect_tools
    from untildone.tools.decorator import tool
    from untildone.tools.function_tool import FunctionTool
    from untildone.tools.options import DEFAULT_MAX_RESULT_CHARS, ToolOptions
    from untildone.tools.results import cut_text, result_text

_WHERE = {
    "DEFAULT_MAX_RESULT_CHARS": "options",
    "FunctionTool": "function_tool",
    "ToolOptions": "options",
    "as_tool": "collect",
    "collect_tools": "collect",
    "cut_text": "results",
    "result_text": "results",
    "tool": "decorator",
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
    value = getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
    globals()[name] = value
    return value
