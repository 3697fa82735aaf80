"""The files of one directory, with no way out of it. What models are told of them is elsewhere.

The directory is opened once, and every path is walked from there one name at a time with
``O_NOFOLLOW``: no link is ever followed, so neither a link nor ``..`` nor a directory that is
swapped in the middle of a call can lead out. Only regular files are opened, and without blocking.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
import unicodedata
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from untildone.domain.errors import ConfigError, ToolError

MAX_FILE_BYTES: Final = 10_000_000
"""Larger files are neither read nor written."""
MAX_ENTRIES: Final = 20_000
"""Most entries that are looked at in one walk."""

_MAX_DEPTH: Final = 32
_MAX_NAMES: Final = 64
_SUPPORTED: Final = os.open in os.supports_dir_fd and hasattr(os, "O_NOFOLLOW")
_FLAGS: Final = {
    name: getattr(os, name, 0)
    for name in ("O_DIRECTORY", "O_NOFOLLOW", "O_CLOEXEC", "O_NONBLOCK", "O_NOCTTY")
}
_INSIDE: Final = _FLAGS["O_NOFOLLOW"] | _FLAGS["O_CLOEXEC"]
_OPEN_DIRECTORY: Final = os.O_RDONLY | _FLAGS["O_DIRECTORY"] | _INSIDE
_OPEN_FILE: Final = os.O_RDONLY | _FLAGS["O_NONBLOCK"] | _FLAGS["O_NOCTTY"] | _INSIDE
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _INSIDE
_READ_FIRST: Final = 1 << 13
_READ_AT_ONCE: Final = 1 << 20
_SECOND_NS: Final = 1_000_000_000

# Who can write there has git run commands with the rights of the person who uses it.
_NEVER: Final = ".git"
# Listed but not entered: there are many of them, and they are nobody's work.
_NOISE: Final = frozenset(
    {"__pycache__", "node_modules", ".venv", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".tox"}
)


@dataclass(frozen=True, slots=True)
class Entry:
    """Something in a directory.

    Attributes:
        path: Relative to the confined directory.
        mode: The kind and the rights, as in ``stat``.
        size: In bytes.
    """

    path: str
    mode: int
    size: int

    @property
    def is_file(self) -> bool:
        """Whether it is a regular file."""
        return stat.S_ISREG(self.mode)

    @property
    def is_directory(self) -> bool:
        """Whether it is a directory."""
        return stat.S_ISDIR(self.mode)

    @property
    def kind(self) -> str:
        """What it is, in words."""
        return kind_in_words(self.mode)


class ConfinedDirectory:
    """One directory. Safe to use from several threads at once.

    Args:
        root: The directory; it must exist.

    Raises:
        ConfigError: It is no directory, or this system cannot confine anything to one.
    """

    def __init__(self, root: str | Path) -> None:
        if not _SUPPORTED:
            raise ConfigError(
                "a workspace needs a system that opens files relative to a directory, such as"
                " Linux or macOS; leave it out here"
            )
        try:
            # The one place where links count: who chose the directory chose them.
            self.root = Path(root).resolve(strict=True)
            self._root = os.open(self.root, os.O_RDONLY | _FLAGS["O_DIRECTORY"])
        except (OSError, ValueError, RuntimeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ConfigError(
                f"the workspace {str(root)!r} cannot be used: {reason}; give a directory that is"
                " there"
            ) from error

    def __del__(self) -> None:
        descriptor = getattr(self, "_root", None)
        if descriptor is not None:
            with suppress(OSError):
                os.close(descriptor)

    def read(self, path: str) -> tuple[bytes, int]:
        """The content of a regular file, and its size in bytes.

        Of a binary file only the beginning, up to some place behind its first NUL.

        Raises:
            ToolError: There is none, it is something else, or it is too large.
        """
        parts = names_in(path, wants_file=True)
        with self._directory(parts[:-1]) as directory, _told(path):
            return _content(parts[-1], directory, path)

    def replace(self, path: str, data: bytes) -> bool:
        """Puts a file in place in one step, with the directories it needs.

        Returns:
            Whether there was none before.

        Raises:
            ToolError: Something else is there, it is read-only, or it cannot be written.
        """
        parts = names_in(path, wants_file=True)
        if len(data) > MAX_FILE_BYTES:
            raise ToolError(f"{len(data):,} bytes are too many; at most {MAX_FILE_BYTES:,}")
        with self._directory(parts[:-1], make=True) as directory, _told(path):
            before = _status(parts[-1], directory)
            if before is not None and not stat.S_ISREG(before.st_mode):
                raise ToolError(f"{path} is {kind_in_words(before.st_mode)}, not a file")
            if before is not None and not _may_write(parts[-1], directory):
                raise ToolError(f"{path} is read-only; leave it as it is, or write another file")
            _put(parts[-1], directory, data, before)
        return before is None

    def entry(self, path: str) -> Entry:
        """What is at a path.

        Raises:
            ToolError: Nothing is.
        """
        parts = names_in(path)
        if not parts:
            return Entry("", stat.S_IFDIR, 0)
        with self._directory(parts[:-1]) as directory, _told(path):
            status = _status(parts[-1], directory)
        if status is None:
            raise ToolError(f"{path} does not exist")
        return Entry("/".join(parts), status.st_mode, status.st_size)

    def entries_below(self, path: str) -> Iterator[Entry]:
        """All entries of a directory and of those below it, each directory's in a row.

        Raises:
            ToolError: It is no directory.
        """
        start = names_in(path)
        waiting = [(start, 0)]
        seen = 0
        while waiting:
            parts, depth = waiting.pop()
            try:
                entries = self._entries(parts)
            except ToolError:
                if depth == 0:
                    raise
                continue  # it has gone, or it is not for us to read
            yield from entries
            seen += len(entries)
            if seen >= MAX_ENTRIES:
                return
            if depth < _MAX_DEPTH:
                inner = [entry.path.split("/") for entry in entries if _is_entered(entry)]
                waiting += [(names, depth + 1) for names in reversed(inner)]

    def _entries(self, parts: list[str]) -> list[Entry]:
        prefix = "".join(f"{name}/" for name in parts)
        found: list[Entry] = []
        with (
            self._directory(parts) as directory,
            _told(prefix or "."),
            os.scandir(directory) as listing,
        ):
            for item in islice(listing, MAX_ENTRIES):
                if _is_never(item.name):
                    continue
                with suppress(OSError):  # it has gone meanwhile
                    status = item.stat(follow_symlinks=False)
                    found.append(Entry(prefix + item.name, status.st_mode, status.st_size))
        return sorted(found, key=lambda entry: entry.path)

    @contextmanager
    def _directory(self, parts: list[str], *, make: bool = False) -> Generator[int]:
        """A descriptor of a directory, walked to name by name."""
        current = os.dup(self._root)
        try:
            for index, name in enumerate(parts):
                shown = "/".join(parts[: index + 1])
                with _told(shown):
                    inner = _step(name, current, shown, make=make)
                os.close(current)
                current = inner
            yield current
        finally:
            os.close(current)


def names_in(path: str, *, wants_file: bool = False) -> list[str]:
    """A path's names from the confined directory on.

    Raises:
        ToolError: It leads out, or is none.
    """
    problem = _problem_with(path)
    if problem:
        raise ToolError(f"{path!r:.200} cannot be used: {problem}")
    names = [name for name in path.split("/") if name not in ("", ".")]
    if ".." in names:
        raise ToolError(f"{path!r:.200} cannot be used: '..' could lead out of the workspace")
    if any(map(_is_never, names)):
        raise ToolError(f"{path!r:.200} cannot be used: {_NEVER} is no part of the workspace")
    if len(names) > _MAX_NAMES:
        raise ToolError(f"{path!r:.200} cannot be used: it has more than {_MAX_NAMES} names")
    if wants_file and not names:
        raise ToolError(f"{path!r} is the workspace itself; name a file in it")
    return names


def kind_in_words(mode: int) -> str:
    """What a ``stat`` mode says of a thing."""
    if stat.S_ISREG(mode):
        return "a file"
    if stat.S_ISDIR(mode):
        return "a directory"
    if stat.S_ISLNK(mode):
        return "a link (links are not followed)"
    if stat.S_ISFIFO(mode):
        return "a pipe"
    return "a socket" if stat.S_ISSOCK(mode) else "a device"


def _problem_with(path: str) -> str:
    if path.startswith("/"):
        return "paths are relative to the workspace, such as 'src/main.py'"
    if "\\" in path:
        return "use / between directories"
    if any(unicodedata.category(mark) in ("Cc", "Cs") for mark in path):
        return "it has a character that no file name should have"
    return ""


def _is_never(name: str) -> bool:
    """Whether a file system could take the name for ``.git``: some ignore case and marks."""
    plain = "".join(mark for mark in name if unicodedata.category(mark) != "Cf")
    return plain.casefold().rstrip(". ") in (_NEVER, "git~1")


def _is_entered(entry: Entry) -> bool:
    return entry.is_directory and entry.path.rpartition("/")[2] not in _NOISE


def _step(name: str, directory: int, shown: str, *, make: bool) -> int:
    """Opens a directory inside a directory."""
    try:
        return os.open(name, _OPEN_DIRECTORY, dir_fd=directory)
    except FileNotFoundError:
        if not make:
            raise
    except OSError as error:
        status = _status(name, directory)
        if status is not None and not stat.S_ISDIR(status.st_mode):
            raise ToolError(
                f"{shown} is {kind_in_words(status.st_mode)}, not a directory"
            ) from error
        raise
    with suppress(FileExistsError):
        os.mkdir(name, dir_fd=directory)
    return os.open(name, _OPEN_DIRECTORY, dir_fd=directory)


def _status(name: str, directory: int) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _may_write(name: str, directory: int) -> bool:
    """Whether the file itself could be written: to put another one in its place needs less."""
    as_who_opens = os.access in os.supports_effective_ids
    return os.access(name, os.W_OK, dir_fd=directory, effective_ids=as_who_opens)


def _content(name: str, directory: int, path: str) -> tuple[bytes, int]:
    # Looked at first, since opening a device may already do something; and again once it is open,
    # since it may have been swapped in between.
    _check_readable(os.stat(name, dir_fd=directory, follow_symlinks=False), path)
    descriptor = os.open(name, _OPEN_FILE, dir_fd=directory)
    try:
        status = os.fstat(descriptor)
        _check_readable(status, path)
        data = bytearray()
        while piece := os.read(descriptor, _READ_AT_ONCE if data else _READ_FIRST):
            data += piece
            if len(data) > MAX_FILE_BYTES:
                raise _too_large(path, len(data))
            if b"\0" in piece:
                break
        return bytes(data), max(status.st_size, len(data))
    finally:
        os.close(descriptor)


def _check_readable(status: os.stat_result, path: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise ToolError(f"{path} is {kind_in_words(status.st_mode)}, not a file")
    if status.st_size > MAX_FILE_BYTES:
        raise _too_large(path, status.st_size)


def _too_large(path: str, size: int) -> ToolError:
    return ToolError(
        f"{path} has {size:,} bytes; files of more than {MAX_FILE_BYTES:,} are not read"
    )


def _put(name: str, directory: int, data: bytes, before: os.stat_result | None) -> None:
    """Writes beside the file, then takes its place: nobody ever sees half of it."""
    aside = f".untildone-{secrets.token_hex(8)}.tmp"
    descriptor = os.open(aside, _CREATE, 0o666, dir_fd=directory)
    try:
        try:
            _write_all(descriptor, data)
            if before is not None:
                _like_before(descriptor, before, len(data))
        finally:
            os.close(descriptor)
        os.replace(aside, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        with suppress(OSError):
            os.unlink(aside, dir_fd=directory)
        raise


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _like_before(descriptor: int, before: os.stat_result, size: int) -> None:
    os.fchmod(descriptor, stat.S_IMODE(before.st_mode))
    with suppress(OSError):
        os.fchown(descriptor, before.st_uid, before.st_gid)
    now = os.fstat(descriptor)
    if size == before.st_size and int(now.st_mtime) <= int(before.st_mtime):
        # Python takes a file of the same size and the same second for the one it has compiled, and
        # would go on running the old code.
        later = (int(before.st_mtime) + 1) * _SECOND_NS
        os.utime(descriptor, ns=(now.st_atime_ns, later))


@contextmanager
def _told(path: str) -> Generator[None]:
    """What the system refuses, as something the model can act on."""
    try:
        yield
    except FileNotFoundError as error:
        raise ToolError(f"{path} does not exist") from error
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise ToolError(f"{path} is a link; links are not followed") from error
        raise ToolError(f"{path}: {error.strerror or error}") from error
