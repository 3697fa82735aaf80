"""The command ``untildone``. Nothing but the standard library is imported until it is called."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from importlib.util import find_spec
from typing import Final

_NEEDED: Final = ("click", "rich")


def main() -> None:
    """Runs the command line and leaves the process with its exit status."""
    _show_what_can_be_shown()
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        sys.stderr.write(
            f"untildone: the command line needs {' and '.join(missing)};"
            " pip install 'untildone[cli]'\n"
        )
        sys.exit(1)
    from untildone.cli.commands import cli

    try:
        cli.main(_arguments(), prog_name="untildone")
    except SystemExit as leaving:
        _leave(leaving.code)
        raise


def _show_what_can_be_shown() -> None:
    """A terminal that cannot show a character shows a question mark; nothing fails over it."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")


def _arguments() -> list[str]:
    """What was typed, read as UTF-8 also where the locale (``LANG=C``) says otherwise."""
    given = sys.argv[1:]
    if os.name != "posix":
        return given
    return [
        word if word.isascii() else os.fsencode(word).decode("utf-8", "surrogateescape")
        for word in given
    ]


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
