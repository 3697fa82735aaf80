"""What went wrong, in one or two lines for the person at the terminal; never a traceback."""

from __future__ import annotations

import os
import traceback
from typing import IO, Any, Final

import click

from untildone.cli.exit_status import STATUS_OF, USAGE
from untildone.domain.errors import (
    BadReplyError,
    ConfigError,
    ConnectionFailedError,
    ModelTimeoutError,
    RateLimitError,
    ServerError,
    UntildoneError,
    describe,
)
from untildone.domain.exits import ExitReason

DEBUG_VARIABLE: Final = "UNTILDONE_DEBUG"
_LONGEST: Final = 2000
_PASSING: Final = (
    BadReplyError,
    ConnectionFailedError,
    ModelTimeoutError,
    RateLimitError,
    ServerError,
)


class Failure(click.ClickException):
    """Ends the command with a message and an exit status."""

    def __init__(self, message: str, status: int = USAGE) -> None:
        super().__init__(message)
        self.exit_code = status  # pyright: ignore[reportAttributeAccessIssue]  click reads it so

    def show(self, file: IO[Any] | None = None) -> None:
        """Writes the message to stderr."""
        click.echo(f"error: {self.message}", file=file, err=True)


def failure_of(error: BaseException) -> Failure:
    """An exception as what its reader can act on."""
    show_trace(error)
    status = USAGE if isinstance(error, ConfigError) else STATUS_OF[ExitReason.ERROR]
    return Failure(in_words(error), status)


def show_trace(error: BaseException) -> None:
    """Writes the traceback, where it was asked for."""
    if os.environ.get(DEBUG_VARIABLE):
        click.echo("".join(traceback.format_exception(error)), err=True)


def in_words(error: BaseException) -> str:
    """The text of an exception on one line: of ours the text alone, of others with the type.

    Where trying again may help, it says how often that was done and what else there is.
    """
    if isinstance(error, UntildoneError) and str(error):
        text = str(error)
        if isinstance(error, _PASSING):
            notes: list[str] = getattr(error, "__notes__", [])
            text = f"{text} ({', '.join([*notes, '--model takes another model'])})"
    else:
        text = f"{describe(error)} (set {DEBUG_VARIABLE}=1 to see where)"
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
