"""Where in a run a tool is called: for the few tools whose state is the conversation itself.

What such a tool knows is read off the messages, so that it holds nothing between calls: one object
serves any number of runs and candidates, and a resumed run has what it had.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from typing import Any, Final

from untildone.domain.messages import Message, ToolCall


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSite:
    """One call, as its tool may see it.

    Attributes:
        run_id: The run's id.
        own: The run's own messages up to and with the reply that asks for the call; not those
            that the caller gave.
        batch: The calls of that reply.
        index: Which of them this one is.
    """

    run_id: str
    own: Sequence[Message]
    batch: Sequence[ToolCall]
    index: int


CALL_SITE: Final[ContextVar[CallSite | None]] = ContextVar("untildone_call_site", default=None)
"""Set around each call by what runs the tools."""


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
    """The call as the running run's state shows it, until the engine sets ``CALL_SITE`` itself.

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
    own = agent_run.conversation[len(run.state.base) :]
    return CallSite(run_id=run.run_id, own=own, batch=agent_run.calls, index=index)


def _same(text: str, arguments: dict[str, Any]) -> bool:
    try:
        return json.loads(text or "{}") == arguments
    except (ValueError, RecursionError):
        return False
