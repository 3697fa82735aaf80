"""A person's callbacks: one that fails is reported and changes nothing."""

from __future__ import annotations

import asyncio
import inspect
import logging
from typing import Any

from untildone.cancellation import is_being_cancelled, stop_if_cancelled
from untildone.engine.context import Run

_log = logging.getLogger("untildone")


async def call_hook(run: Run, name: str, *arguments: Any) -> None:
    """Calls a hook of the agent, where it is set."""
    hooks = run.agent.hooks
    hook = None if hooks is None else getattr(hooks, name)
    if hook is None:
        return
    try:
        answer = hook(*arguments)
        if inspect.isawaitable(answer):
            await answer
    except (Exception, asyncio.CancelledError):
        if not is_being_cancelled():
            _log.warning("hook %s of agent %r raised", name, run.agent.name, exc_info=True)
    stop_if_cancelled()
