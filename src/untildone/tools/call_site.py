"""What a tool can learn of the call that it answers.

A tool whose state is the conversation reads it off the messages, so that it holds nothing between
calls: one object serves any number of runs and candidates, and a resumed run has what it had.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextvars import copy_context
from typing import Any

from untildone.domain.call_site import CALL_SITE, CallSite
from untildone.domain.messages import Message, ToolCall


def call_site(name: str, arguments: dict[str, Any]) -> CallSite | None:
    """The call that is being run; None outside a run.

    Args:
        name: The tool's name.
        arguments: The call's arguments.
    """
    return CALL_SITE.get() or _found_in_run(name, arguments)


def answered_calls(messages: Sequence[Message]) -> Iterator[tuple[ToolCall, Message]]:
    """The calls in a conversation with their answers, in call order."""
    waiting: list[ToolCall] = []
    for message in messages:
        if message.tool_calls:
            waiting = list(message.tool_calls)
        elif message.role == "tool" and waiting:
            yield waiting.pop(0), message


def _found_in_run(name: str, arguments: dict[str, Any]) -> CallSite | None:
    """The call as the running run's state shows it, as long as the engine does not set it.

    Of two equal calls in one batch either may be found; they do the same.
    """
    scope: Any = next(
        (value for var, value in copy_context().items() if var.name == "untildone_scope"), None
    )
    run: Any = getattr(scope, "run", None)
    if run is None:
        return None
    running = [
        (not _same(call.arguments, arguments), order, index, agent_run)
        for order, agent_run in enumerate(run.state.runs)
        for index, call in enumerate(agent_run.calls)
        if call.name == name and index in agent_run.begun and agent_run.answers[index] is None
    ]
    if not running:
        return None
    _, _, index, agent_run = min(running, key=lambda found: found[:3])
    given = len(run.state.base)
    return CallSite(run.run_id, agent_run.conversation, given, agent_run.calls, index)


def _same(text: str, arguments: dict[str, Any]) -> bool:
    try:
        return json.loads(text or "{}") == arguments
    except (ValueError, RecursionError):
        return False
