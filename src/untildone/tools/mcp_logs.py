"""What the SDK logs about a server of ours goes to our log, at debug and without secrets.

A run tells what went wrong with a server by itself. The SDK's own records are whole tracebacks,
with the address in them, which Python prints to stderr where nothing is set up for logging.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

_log = logging.getLogger("untildone")

_LOGGERS: Final = (
    "mcp.client.session",
    "mcp.client.sse",
    "mcp.client.stdio",
    "mcp.client.streamable_http",
    "mcp.shared.jsonrpc_dispatcher",
)
_clean: ContextVar[Callable[[str], str] | None] = ContextVar("untildone-mcp-log", default=None)


@contextmanager
def sdk_log(clean: Callable[[str], str]) -> Generator[None]:
    """What the SDK does in this block, and in tasks that begin in it, is logged by us.

    Args:
        clean: Takes secrets out of a text.
    """
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_rerouted)  # one that is there is not added again
    token = _clean.set(clean)
    try:
        yield
    finally:
        _clean.reset(token)


def _rerouted(record: logging.LogRecord) -> bool:
    """Whether a record is the SDK's to log: no warning, or of somebody else's use of it."""
    clean = _clean.get()
    if clean is None or record.levelno < logging.WARNING:
        return True
    if _log.isEnabledFor(logging.DEBUG):
        _log.debug("%s: %s", record.name, clean(logging.Formatter().format(record)))
    return False
