"""What the commands that run an agent have in common: where the task comes from, and the view."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from untildone.cli.view import View


def chosen_view(*, as_json: bool, quiet: bool) -> View:
    """The view that the options ask for."""
    if as_json and quiet:
        raise click.UsageError("--json and --quiet exclude each other; leave one out")
    from untildone.cli.terminal import TerminalView
    from untildone.cli.view import JsonView, QuietView

    if as_json:
        return JsonView()
    return QuietView() if quiet else TerminalView()


def read_task(given: str | None) -> str:
    """The task: the argument, or stdin where it is ``-`` or left out."""
    if given is None and sys.stdin.isatty():
        raise click.UsageError("no TASK; write it in quotes, or pipe it in")
    is_piped = given is None or given == "-"
    text = _stdin() if is_piped else str(given)
    if not text.strip():
        what = "nothing came through the pipe" if is_piped else "TASK is empty"
        raise click.UsageError(f"{what}; write TASK in quotes, or pipe it in")
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _stdin() -> str:
    data = sys.stdin.buffer.read()
    return data.decode("utf-8", "replace").removeprefix("\ufeff")
