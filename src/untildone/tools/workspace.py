"""Tools to list, read, search, write and edit the files of one directory, and of no other.

That nothing leads out of it is ``confined.py``'s doing; here is what a model is told.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from untildone.domain.errors import ToolError
from untildone.tools.confined import MAX_FILE_BYTES, ConfinedDirectory, Entry
from untildone.tools.decorator import tool

MAX_LISTED: Final = 500
"""Most entries that one listing shows."""
MAX_MATCHES: Final = 100
"""Most lines that one search shows."""
MAX_SEARCHED_BYTES: Final = 50_000_000
"""A search gives up after that many bytes."""
MAX_READ_CHARS: Final = 40_000
"""Most characters that one reading shows; below the bound at which results of tools are cut."""

_LONGEST_MATCH: Final = 300


class Workspace:
    """One directory that an agent may work in: give ``workspace.tools`` to the agent.

    Paths are relative to it; absolute ones, ``..``, links and ``.git`` are refused. Files are
    UTF-8 text of at most 10 MB. One object serves any number of runs at once: a file is replaced in
    one step, and changes wait for each other.

    Args:
        root: The directory; it must exist.
        read_only: Leaves out the tools that write.

    Raises:
        ConfigError: It is no directory, or this system cannot keep an agent inside one.
    """

    def __init__(self, root: str | Path, *, read_only: bool = False) -> None:
        self._inside = ConfinedDirectory(root)
        self._changing = threading.Lock()
        self.read_only = read_only

    def __repr__(self) -> str:
        return f"Workspace({str(self.root)!r})"

    @property
    def root(self) -> Path:
        """The directory, with links resolved as they were in the beginning."""
        return self._inside.root

    @property
    def tools(self) -> list[Callable[..., Any]]:
        """The tools for ``Agent.tools``."""
        reading = [self.list_files, self.read_file, self.search_files]
        return reading if self.read_only else [*reading, self.write_file, self.edit_file]

    @tool(idempotent=True)
    def list_files(self, path: str = ".") -> str:
        """Lists what is in a directory and below it, files with their sizes in bytes.

        Args:
            path: The directory.
        """
        lines: list[str] = []
        for entry in self._inside.entries_below(path):
            if len(lines) == MAX_LISTED:
                lines.append(f"[more than {MAX_LISTED} entries; list a directory below]")
                break
            lines.append(_listed(entry))
        return "\n".join(lines) or "(empty)"

    @tool(idempotent=True)
    def read_file(self, path: str, first_line: int = 1, max_lines: int = 1000) -> str:
        """Reads a text file, or some lines of it.

        Args:
            path: The file.
            first_line: Where to begin; 1 is the first line.
            max_lines: How many lines to read at most.
        """
        if first_line < 1 or max_lines < 1:
            raise ToolError("first_line and max_lines must be 1 or more")
        text = self._text(path)
        if not text:
            return "(empty)"
        lines = _lines(text)
        if first_line > len(lines):
            raise ToolError(f"{path} has only {len(lines)} lines")
        if first_line == 1 and len(lines) <= max_lines and len(text) <= MAX_READ_CHARS:
            return text
        return _shown_lines(lines, first_line - 1, max_lines)

    @tool(idempotent=True)
    def search_files(self, text: str, path: str = ".", ignore_case: bool = False) -> str:  # noqa: FBT001, FBT002  a model gives all by name
        """Finds the lines that contain a text, in the text files of a directory and below it.

        Args:
            text: The text to look for, as it is; no patterns.
            path: A directory or a file.
            ignore_case: Whether upper and lower case are the same.
        """
        if not text or "\n" in text:
            raise ToolError("text must be a part of one line, and not empty")
        search = _Search(text, ignore_case=ignore_case)
        start = self._inside.entry(path)
        if not (start.is_file or start.is_directory):
            raise ToolError(f"{path} is {start.kind}; only files and directories are searched")
        entries = self._inside.entries_below(path) if start.is_directory else [start]
        for entry in entries:
            if entry.is_file and not search.add(entry.path, *self._text_or_none(entry)):
                break
        return search.shown()

    @tool(idempotent=True)
    def write_file(self, path: str, content: str) -> str:
        """Writes a whole file: makes it with its directories, or replaces what it held.

        Args:
            path: The file.
            content: All that the file shall hold.
        """
        data = _encoded(content)
        with self._changing:
            is_new = self._inside.replace(path, data)
        return f"{'made' if is_new else 'replaced'} {path}: {_size(content, data)}"

    @tool
    def edit_file(self, path: str, old: str, new: str, replace_all: bool = False) -> str:  # noqa: FBT001, FBT002  a model gives all by name
        """Replaces a text in a file by another one.

        Args:
            path: The file.
            old: The text to replace, exactly as it stands in the file. It must stand there once.
            new: The text to put there instead.
            replace_all: Whether to replace it everywhere, however often it stands there.
        """
        if not old:
            raise ToolError("old is empty; give the text to replace, or use write_file")
        if old == new:
            raise ToolError("old and new are the same; nothing would change")
        with self._changing:
            text = self._text(path)
            old, new = _with_line_ends_of(text, old), _with_line_ends_of(text, new)
            count = text.count(old)
            _check_count(count, path, replace_all=replace_all)
            _check_size(text, count, old, new)
            self._inside.replace(path, _encoded(text.replace(old, new)))
        return f"replaced {count} {'place' if count == 1 else 'places'} in {path}"

    def _text(self, path: str) -> str:
        data, size = self._inside.read(path)
        try:
            if b"\0" in data:
                raise ToolError(f"{path} is binary: {size:,} bytes")
            return data.decode()
        except UnicodeDecodeError as error:
            raise ToolError(
                f"{path} is no UTF-8 text: {len(data):,} bytes, the first odd one at {error.start}"
            ) from error

    def _text_or_none(self, entry: Entry) -> tuple[str | None, int]:
        """A file's text, None where it has none or cannot be read; and how many bytes were read."""
        if entry.size > MAX_FILE_BYTES:
            return None, 0
        try:
            data, _ = self._inside.read(entry.path)
        except ToolError:
            return None, 0
        try:
            return None if b"\0" in data else data.decode(), len(data)
        except UnicodeDecodeError:
            return None, len(data)


class _Search:
    """The lines found so far."""

    def __init__(self, text: str, *, ignore_case: bool) -> None:
        self._text = text.casefold() if ignore_case else text
        self._ignore_case = ignore_case
        self._found: list[str] = []
        self._bytes = 0
        self._unread = 0
        self._end = ""

    def add(self, path: str, text: str | None, read_bytes: int) -> bool:
        """Searches a file; whether to go on with the next one."""
        self._bytes += read_bytes
        if text is None:
            self._unread += 1
        for number, line in enumerate(_lines(text or ""), 1):
            if self._text in (line.casefold() if self._ignore_case else line):
                if len(self._found) == MAX_MATCHES:
                    self._end = f"[more than {MAX_MATCHES} lines; search for more, or below]"
                    return False
                self._found.append(f"{path}:{number}: {line.strip()[:_LONGEST_MATCH]}")
        if self._bytes > MAX_SEARCHED_BYTES:
            self._end = "[there is more than one search reads; search a directory below]"
            return False
        return True

    def shown(self) -> str:
        """What was found, and what was not looked into."""
        notes = [self._end] if self._end else []
        if self._unread:
            notes.append(f"[{self._unread} binary, large or unreadable files were left out]")
        return "\n".join([*(self._found or ["no line has it"]), *notes])


def _listed(entry: Entry) -> str:
    name = entry.path if entry.path.isprintable() else ascii(entry.path)
    if entry.is_directory:
        return f"{name}/"
    return f"{name}  {entry.size}" if entry.is_file else f"{name}  [{entry.kind}]"


def _lines(text: str) -> list[str]:
    """The lines as editors count them: a form feed ends none."""
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def _shown_lines(lines: list[str], start: int, most: int) -> str:
    """Some lines; with a note where they are not all."""
    shown: list[str] = []
    room = MAX_READ_CHARS
    for line in lines[start : start + most]:
        if len(line) >= room:
            break
        shown.append(line)
        room -= len(line) + 1
    if not shown:
        line = lines[start]
        note = f"[line {start + 1} of {len(lines)}: the first {MAX_READ_CHARS:,} of {len(line):,}"
        return f"{note} characters]\n{line[:MAX_READ_CHARS]}"
    text = "".join(f"{line}\n" for line in shown)
    return f"[lines {start + 1} to {start + len(shown)} of {len(lines)}]\n{text}"


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ToolError(f"the text has half a character at {error.start}; send it whole") from error


def _size(text: str, data: bytes) -> str:
    count = len(_lines(text)) if text else 0
    return f"{count} {'line' if count == 1 else 'lines'}, {len(data)} bytes"


def _with_line_ends_of(text: str, part: str) -> str:
    """``part`` as it would stand in a file whose lines all end as on Windows."""
    ends = text.count("\r\n")
    if not ends or ends != text.count("\n"):
        return part
    return part.replace("\r\n", "\n").replace("\n", "\r\n")


def _check_size(text: str, count: int, old: str, new: str) -> None:
    """Refuses an edit that would make the file too large, before its text is made."""
    size = len(text.encode()) + count * (len(_encoded(new)) - len(old.encode()))
    if size > MAX_FILE_BYTES:
        raise ToolError(
            f"the file would have {size:,} bytes; at most {MAX_FILE_BYTES:,}: edit fewer places, or"
            " make it shorter first"
        )


def _check_count(count: int, path: str, *, replace_all: bool) -> None:
    if not count:
        raise ToolError(
            f"old does not stand in {path}; read the file and copy the text exactly, with its"
            " blanks and line breaks"
        )
    if count > 1 and not replace_all:
        raise ToolError(
            f"old stands {count} times in {path}; add lines around it until it is unique, or set"
            " replace_all"
        )
