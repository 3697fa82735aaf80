"""``command``: done when a command exits with status 0; the end of its output is the feedback."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import signal
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import unquote

from untildone.domain.bounds import check_count, check_number
from untildone.domain.errors import ConfigError, GradingError
from untildone.domain.grading import CriterionContext, CriterionVerdict

_GROUPS: Final = os.name == "posix"
_LATE_OUTPUT_S: Final = 0.5
_REAPING_S: Final = 5.0
_SHORTEST_SECRET: Final = 8
_LONGEST_SHOWN: Final = 200
# Not PATH, PWD, OLDPWD, SSH_ASKPASS: where something is, is no secret.
_SECRET_NAME: Final = re.compile(
    r"(?i)(?:KEYS?|KEY_ID|TOKENS?|SECRETS?|CREDENTIALS?|(?<!ASK)PASS|(?!^)(?<!^OLD)PWD)$"
    r"|(?:^|_)(?:TOKEN|SECRET|PASS|PAT|DSN)(?:_|$)|PASSWORD|PASSWD|PASSPHRASE|_PWD_"
)
_URL_PASSWORD: Final = re.compile(r"://[^\s/:@]*:([^\s/@]+)@")
# What a shell says of a program that it cannot run, or that is not there.
_NOT_RUN: Final = (126, 127)
# Colours, cursor movements, titles: noise to a model, and no text of a check may steer a terminal.
_ESCAPES: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)")


class Command:
    """Done when a command exits with status 0.

    Everything the command has started ends with it: its whole process group is killed when it is
    done, when time is up, and when the run is cancelled. A process that leaves the group, as with
    ``setsid`` or as a daemon, survives. Its input is empty. A command that times out asks for
    another iteration, since what it waits for may be the agent's fault. One that was stopped, ended
    by a signal or could not be run (126, 127) has not decided anything: ``not_`` keeps asking too.

    Args:
        command: A line for the shell, or a list of the program and its arguments.
        cwd: Where it runs; default: where the process is.
        timeout_s: Most seconds it may take, greater than 0.
        env: Its environment; default: the process's own.
        max_feedback_chars: How much of the end of its output is kept; 1 or more. Values of
            environment variables that hold secrets by their name, such as ``…_KEY``, ``…_TOKEN``,
            ``…PASSWORD…``, ``DB_PASS``, ``GH_PAT``, or as URLs with a password, are left out.

    Raises:
        ConfigError: There is no command, or a value is out of bounds.
    """

    kind: Final = "command"

    __slots__ = ("command", "cwd", "env", "max_feedback_chars", "timeout_s")

    def __init__(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | Path | None = None,
        timeout_s: float = 300.0,
        env: Mapping[str, str] | None = None,
        max_feedback_chars: int = 4000,
    ) -> None:
        check_number("Command.timeout_s", timeout_s, least=0, above=True)
        check_count("Command.max_feedback_chars", max_feedback_chars)
        self.command = _checked(command)
        self.cwd = cwd
        self.timeout_s = timeout_s
        self.env = None if env is None else dict(env)
        self.max_feedback_chars = max_feedback_chars

    def __repr__(self) -> str:
        return f"Command({self.shown!r})"

    @property
    def shown(self) -> str:
        """The command as one line, shortened."""
        command = self.command
        line = " ".join((command if isinstance(command, str) else shlex.join(command)).split())
        return line if len(line) <= _LONGEST_SHOWN else f"{line[:_LONGEST_SHOWN]}…"

    async def evaluate(self, _ctx: CriterionContext) -> CriterionVerdict:
        """Runs the command.

        Raises:
            GradingError: It could not be started.
        """
        # Four bytes are the most that one character takes; masking needs some more before.
        watch = _Watch(keep=4 * self.max_feedback_chars + 4096)
        try:
            await _to_its_end(self._start(watch))
            status = await watch.status(self.timeout_s)
        finally:
            await watch.end()
        if status == 0:
            return CriterionVerdict(satisfied=True)
        undecided = status is None or status < 0 or status in _NOT_RUN
        return CriterionVerdict(False, self._feedback(status, watch.output), undecided=undecided)

    async def _start(self, watch: _Watch) -> None:
        loop = asyncio.get_running_loop()
        settings: dict[str, Any] = {
            "stdin": asyncio.subprocess.DEVNULL,
            "stdout": asyncio.subprocess.PIPE,
            "stderr": asyncio.subprocess.STDOUT,
            "cwd": self.cwd,
            "env": self.env,
            "start_new_session": _GROUPS,
        }
        command = self.command
        try:
            if isinstance(command, str):
                await loop.subprocess_shell(lambda: watch, command, **settings)
            else:
                await loop.subprocess_exec(lambda: watch, *command, **settings)
        except (OSError, ValueError) as error:
            where = "" if self.cwd is None else f" in {str(self.cwd)!r}"
            raise GradingError(
                f"the command {self.shown!r} could not be started{where}: {error};"
                " check its name and the directory"
            ) from error

    def _feedback(self, status: int | None, output: str) -> str:
        if status is None:
            head = (
                f"The check `{self.shown}` was stopped: it took longer than {self.timeout_s:g} s."
            )
        elif status < 0:
            head = f"The check `{self.shown}` was ended by signal {_signal_name(-status)}."
        else:
            head = f"The check `{self.shown}` failed with exit status {status}."
        text = _readable(output, self.env)
        if not text:
            return f"{head} It printed nothing."
        if len(text) > self.max_feedback_chars:
            text = f"…{text[-self.max_feedback_chars :]}"
        return f"{head} The end of its output:\n{text}"


class _Watch(asyncio.SubprocessProtocol):
    """One running command: how it ended, and the end of what it printed.

    Exit and output are watched apart, so that a process left in the background, which holds the
    pipe open, cannot make a finished command look unfinished.
    """

    def __init__(self, keep: int) -> None:
        loop = asyncio.get_running_loop()
        self._keep = keep
        self._kept = bytearray()
        self._exited: asyncio.Future[None] = loop.create_future()
        self._closed: asyncio.Future[None] = loop.create_future()
        self._transport: asyncio.SubprocessTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The process runs."""
        if isinstance(transport, asyncio.SubprocessTransport):
            self._transport = transport

    def pipe_data_received(self, fd: int, data: bytes) -> None:  # noqa: ARG002
        """It printed something."""
        self._kept += data
        if len(self._kept) > 2 * self._keep:
            del self._kept[: -self._keep]

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002
        """Nobody can print any more."""
        _resolve(self._closed)

    def process_exited(self) -> None:
        """The process itself has ended."""
        _resolve(self._exited)

    @property
    def output(self) -> str:
        """The end of what it printed."""
        return self._kept.decode("utf-8", "replace")

    async def status(self, timeout_s: float) -> int | None:
        """The exit status, negative for a signal; None where time was up before."""
        done, _ = await asyncio.wait([self._exited], timeout=timeout_s)
        if not done or self._transport is None:
            return None
        await asyncio.wait([self._closed], timeout=_LATE_OUTPUT_S)
        return self._transport.get_returncode()

    async def end(self) -> None:
        """Kills what is left of it and waits until the process is gone."""
        transport = self._transport
        if transport is None:
            return
        if _GROUPS:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(transport.get_pid(), signal.SIGKILL)
        elif not self._exited.done():
            with suppress(ProcessLookupError):
                transport.kill()
        try:
            await asyncio.wait([self._exited], timeout=_REAPING_S)
        finally:
            transport.close()


async def _to_its_end(starting: Coroutine[Any, Any, None]) -> None:
    """Starts a command whole, also where the run is cancelled meanwhile.

    A start that is cut short leaves what the command has started behind, and asyncio then waits
    for it: it holds the pipe.
    """
    task = asyncio.ensure_future(starting)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # the run is over, and nobody else asks for it
        raise


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _checked(command: object) -> str | tuple[str, ...]:
    if isinstance(command, str) and command.strip() and "\0" not in command:
        return command
    if isinstance(command, list | tuple) and command:
        parts = tuple(cast("Sequence[Any]", command))
        if all(isinstance(part, str) and "\0" not in part for part in parts) and parts[0]:
            return parts
    raise ConfigError(
        f"Command.command is {command!r:.80}; give a shell line such as 'pytest -q', or a list of"
        " the program and its arguments"
    )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


def _readable(output: str, env: Mapping[str, str] | None) -> str:
    """The output as a model should get it: without terminal codes and without secrets."""
    text = _ESCAPES.sub("", output).replace("\r\n", "\n").replace("\0", "")
    for secret, name in _secrets(os.environ if env is None else env):
        text = text.replace(secret, f"[{name}]")
    return text.strip()


def _secrets(env: Mapping[str, str]) -> list[tuple[str, str]]:
    """Values that nobody else may see, with their names; one that holds another comes first."""
    secrets: list[tuple[str, str]] = []
    for name, value in env.items():
        passwords: list[str] = _URL_PASSWORD.findall(value)
        if passwords or _SECRET_NAME.search(name):
            hidden = (value, *passwords, *(unquote(password) for password in passwords))
            secrets += [(each, name) for each in hidden if len(each) >= _SHORTEST_SECRET]
    return sorted(secrets, key=lambda secret: len(secret[0]), reverse=True)
