"""A memory in one file that several processes may share."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from untildone.domain.errors import ConfigError, MemoryProviderError
from untildone.memory.file_lock import locked
from untildone.memory.memory_file import MemoryFile
from untildone.memory.provider import Entries, EntriesProvider

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Job:
    work: Callable[[Entries], Any]
    writes: bool
    future: Future[Any]


class FileMemoryProvider(EntriesProvider):
    """Keeps memories in one JSON file, key → text (S1).

    Processes, threads and event loops may share the file: it is locked (by ``<path>.lock`` beside
    it) while somebody reads and writes, and replaced as a whole, so it is never half written. A
    file that cannot be read is kept as ``<path>.corrupt-…``, reported and never wiped. The whole
    file is read and written, so it suits thousands of entries, not millions.

    Args:
        path: The file; it and its folder are made when something is stored.

    Raises:
        ConfigError: ``path`` is no path.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        if not isinstance(path, str | os.PathLike) or not os.fspath(path):  # pyright: ignore[reportUnnecessaryIsInstance]
            msg = f"FileMemoryProvider takes a path like 'memory.json', not {path!r:.80}"
            raise ConfigError(msg)
        self._path = Path(os.path.realpath(path))
        self._lock_path = self._path.with_name(f"{self._path.name}.lock")
        self._file = MemoryFile(self._path)
        self._guard = threading.Lock()
        self._jobs: list[_Job] = []
        self._at_work = False
        self._executor: ThreadPoolExecutor | None = None

    def __repr__(self) -> str:
        return f"FileMemoryProvider({str(self._path)!r})"

    async def aclose(self) -> None:
        """Lets the provider's thread end; a later call begins a new one."""
        with self._guard:
            executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=False)

    async def _with_entries(self, work: Callable[[Entries], T], *, writes: bool) -> T:
        job = _Job(work, writes, Future())
        with self._guard:
            self._jobs.append(job)
            if not self._at_work:
                self._at_work = True
                if self._executor is None:
                    self._executor = ThreadPoolExecutor(1, thread_name_prefix="untildone-memory")
                self._executor.submit(self._do_jobs)
        return await asyncio.wrap_future(job.future)

    def _do_jobs(self) -> None:
        """Does what is waiting, all of it under one lock and with one write: the more, the cheaper.

        Runs in the provider's thread. Nobody is told of a success before the file has it.
        """
        while True:
            with self._guard:
                jobs, self._jobs = self._jobs, []
                if not jobs:
                    self._at_work = False
                    return
            jobs = [job for job in jobs if job.future.set_running_or_notify_cancel()]
            try:
                done = self._done(jobs)
            except Exception as error:
                self._file.forget()
                for job in jobs:
                    job.future.set_exception(self._failure(error))
                continue
            for job, (value, error) in zip(jobs, done, strict=True):
                if error is None:
                    job.future.set_result(value)
                else:
                    job.future.set_exception(error)

    def _done(self, jobs: list[_Job]) -> list[tuple[Any, BaseException | None]]:
        if not any(job.writes for job in jobs) and self._file.read():
            return [_outcome(job, self._file.notebook) for job in jobs]
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with locked(self._lock_path):
            self._file.read_or_keep_aside()
            before = dict(self._file.notebook.entries)
            done = [_outcome(job, self._file.notebook) for job in jobs]
            if _differ(before, self._file.notebook.entries):
                self._file.write()
        return done

    def _failure(self, error: Exception) -> Exception:
        if isinstance(error, MemoryProviderError):
            return error
        failure = MemoryProviderError(
            f"the memory file {str(self._path)!r} cannot be used: {error}; it must be a file, in a"
            " folder that this process may write to"
        )
        failure.__cause__ = error
        return failure


def _outcome(job: _Job, entries: Entries) -> tuple[Any, BaseException | None]:
    try:
        return job.work(entries), None
    except BaseException as error:  # a caller's ``change`` may even exit; that is its caller's
        return None, error


def _differ(before: dict[str, str], after: dict[str, str]) -> bool:
    """Whether entries or their order differ."""
    return before != after or list(before) != list(after)
