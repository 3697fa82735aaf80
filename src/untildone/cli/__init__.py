"""The command ``untildone``. Nothing but the standard library is imported until it is called."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from typing import Final

_NEEDED: Final = ("click", "rich")


def main() -> None:
    """Runs the command line and leaves the process with its exit status."""
    _show_what_can_be_shown()
    try:
        from untildone.cli.commands import cli
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _NEEDED:
            raise
        sys.stderr.write(
            f"untildone: the command line needs {missing}; pip install 'untildone[cli]'\n"
        )
        sys.exit(1)
    try:
        cli.main(prog_name="untildone")
    except SystemExit as leaving:
        _leave(leaving.code)
        raise


def _show_what_can_be_shown() -> None:
    """A terminal that cannot show a character shows a question mark; nothing fails over it."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")


def _leave(status: object) -> None:
    """Ends the process at once where a blocking tool still runs: Python would wait for it."""
    if not any(thread.name.startswith("untildone-tool") for thread in threading.enumerate()):
        return
    atexit._run_exitfuncs()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            continue
    os._exit(status if isinstance(status, int) else 1)
