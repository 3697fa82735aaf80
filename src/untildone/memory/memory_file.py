"""The file of a ``FileMemoryProvider``: read whole, written whole, and never lost."""

from __future__ import annotations

import json
import logging
import os
import re
import secrets
import stat
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from untildone.memory.notebook import Notebook

_log = logging.getLogger("untildone")


class MemoryFile:
    """One JSON object, key → text, in the order in which the entries were stored.

    Blocking. Whoever writes, or keeps a file aside, holds the lock of the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._raw = b""
        self._drafts_are_gone = False
        self.notebook = Notebook()

    def read(self) -> bool:
        """Brings the notebook up to what the file holds now; False where it cannot be read.

        Raises:
            OSError: The file is there and cannot be opened, or is a folder, a device or a pipe.
        """
        try:
            if not stat.S_ISREG(self._path.stat().st_mode):  # reading a pipe would never end
                raise OSError("it is no regular file")
            raw = self._path.read_bytes()
        except FileNotFoundError:
            raw = b""
        if raw != self._raw:
            entries = _entries_in(raw)
            if entries is None:
                return False
            self.notebook.become(entries)
            self._raw = raw
        return True

    def read_or_keep_aside(self) -> None:
        """Reads the file; one that cannot be read is kept under another name and reported.

        Raises:
            OSError: The file is there and cannot be opened or renamed.
        """
        if self.read():
            return
        now = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
        aside = self._path.with_name(f"{self._path.name}.corrupt-{now}-{secrets.token_hex(4)}")
        self._path.rename(aside)
        self.forget()
        _log.warning(
            "the memory file %r cannot be read: it is no JSON object of texts. It was kept as %r,"
            " and a new one is begun; mend it and move it back to have its memories again",
            str(self._path),
            str(aside),
        )

    def write(self) -> None:
        """Puts the notebook into the file, which is the old one or the new one at any moment.

        Raises:
            OSError: It cannot be written; then the file is as it was.
        """
        raw = _as_json(self.notebook.entries)
        self._remove_old_drafts()
        beside = self._path.with_name(f"{self._path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
        try:
            with beside.open("xb") as file:
                file.write(raw)
                file.flush()
                os.fsync(file.fileno())
            with suppress(FileNotFoundError):
                beside.chmod(self._path.stat().st_mode & 0o777)
            beside.replace(self._path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
        self._raw = raw

    def _remove_old_drafts(self) -> None:
        """Removes what killed writers left: who writes holds the lock, so none is at work.

        Once is enough: a file that came later is found by the next process.
        """
        if self._drafts_are_gone:
            return
        draft = re.compile(re.escape(self._path.name) + r"\.[0-9]+-[0-9a-f]{8}\.tmp")
        for path in list(self._path.parent.iterdir()):
            if draft.fullmatch(path.name):
                with suppress(OSError):
                    path.unlink()
        self._drafts_are_gone = True

    def forget(self) -> None:
        """Believes nothing but the file from here on: the notebook has what could not be kept."""
        self._raw = b""
        self.notebook = Notebook()


def _entries_in(raw: bytes) -> dict[str, str] | None:
    """The entries, or None where the bytes are no JSON object of texts; an empty file has none."""
    if not raw.strip():
        return {}
    try:
        text = raw.decode("utf-8", "surrogatepass").removeprefix("\ufeff")
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    entries = cast("dict[str, Any]", value)
    return entries if all(isinstance(text, str) for text in entries.values()) else None


def _as_json(entries: dict[str, str]) -> bytes:
    """One entry a line, so that people can read it and compare two of them."""
    encode = json.JSONEncoder(ensure_ascii=False).encode
    lines = ",\n".join(f"{encode(key)}: {encode(value)}" for key, value in entries.items())
    return f"{{\n{lines}\n}}\n".encode("utf-8", "surrogatepass")
