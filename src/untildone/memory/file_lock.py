"""A lock between processes, held on a file of its own beside the one it guards."""

from __future__ import annotations

import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

from untildone.domain.errors import MemoryProviderError

WAIT_S = 30.0
"""How long a lock is waited for, in seconds."""

_FIRST_PAUSE_S: Final = 0.0005
_LONGEST_PAUSE_S: Final = 0.01


@contextmanager
def locked(path: Path) -> Generator[None]:
    """Holds the lock file ``path``, which is made where it is missing and stays there.

    Asking again and again instead of waiting inside the system: a thread that waits there for ever
    would keep its process from ending.

    Raises:
        MemoryProviderError: Somebody else held it all the time.
    """
    with path.open("ab") as file:
        _acquire(file, path)
        try:
            yield
        finally:
            _unlock(file)


def _acquire(file: IO[bytes], path: Path) -> None:
    give_up_at = time.monotonic() + WAIT_S
    pause_s = _FIRST_PAUSE_S
    while not _try_lock(file):
        if time.monotonic() >= give_up_at:
            raise MemoryProviderError(
                f"another process has held {str(path)!r} for {WAIT_S:g} s;"
                " end it if it hangs, or give each process a memory file of its own"
            )
        time.sleep(pause_s)
        pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)


if os.name == "nt":  # pragma: no cover
    import msvcrt

    _windows: Any = msvcrt

    def _try_lock(file: IO[bytes]) -> bool:
        file.seek(0)
        try:
            _windows.locking(file.fileno(), _windows.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _unlock(file: IO[bytes]) -> None:
        file.seek(0)
        _windows.locking(file.fileno(), _windows.LK_UNLCK, 1)

else:
    import fcntl

    def _try_lock(file: IO[bytes]) -> bool:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _unlock(file: IO[bytes]) -> None:
        fcntl.flock(file, fcntl.LOCK_UN)
