"""``--until KIND:REST``: a stop criterion out of one argument of the command line."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from untildone.agent import criterion_name
from untildone.criteria import AiJudge, Command, CompletionMarker, JsonSchema, Regex
from untildone.criteria.linear_regex import LinearRegex
from untildone.domain.errors import ConfigError
from untildone.domain.grading import CriterionContext, CriterionVerdict

FORMS: Final = "marker:TEXT, command:CMD, schema:FILE, judge:TEXT or regex:PATTERN"


@dataclass(frozen=True, slots=True, kw_only=True)
class Until:
    """One condition.

    Attributes:
        criterion: What judges.
        told: What the agent is told of it before it begins.
        shown: How progress names it, where the criterion itself does not tell.
    """

    criterion: Any
    told: str
    shown: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What conditions need to know beside their text.

    Attributes:
        cwd: Where commands run.
        judge_model: Who judges; None: the agent's own model.
    """

    cwd: Path | None = None
    judge_model: str | None = None


def read_until(text: str, around: Surroundings) -> Until:
    """The condition that an argument of ``--until`` means.

    Raises:
        ConfigError: Its kind is unknown, or what follows cannot work.
    """
    kind, colon, rest = text.partition(":")
    read = _READERS.get(kind.strip().lower())
    if not colon or read is None:
        raise ConfigError(f"--until {text!r} is none of {FORMS}")
    if not rest.strip():
        raise ConfigError(f"--until {text!r} ends after the colon; write {FORMS}")
    return read(rest, around)


def shown_condition(criterion: Any) -> str:
    """How progress names a criterion, also one of an agent's or a definition's own loop."""
    match criterion:
        case CompletionMarker():
            return f"marker {criterion.marker!r}"
        case Command():
            return f"command `{criterion.shown}`"
        case AiJudge():
            return f"judge {'; '.join(criterion.criteria)!r}"
        case Regex():
            return f"regex `{criterion.pattern.pattern}`"
        case LinearRegex():
            return f"regex `{criterion.pattern}`"
        case _:
            return criterion_name(criterion)


def check_program(until: Until) -> None:
    """Refuses a command whose program is nowhere: it would fail after each iteration, unread.

    Only a plain first word is looked at. A path may be what the agent is to write.

    Raises:
        ConfigError: Neither the PATH nor the shell knows the program.
    """
    words = _words(until)
    if not words or not _is_plain(words[0]) or shutil.which(words[0]) or _shell_knows(words[0]):
        return
    raise ConfigError(
        f"--until command: {words[0]!r} is not on the PATH, so the check could never pass; install"
        " it, or correct the command"
    )


def missing_module(until: Until) -> tuple[str, str] | None:
    """The Python and the module of ``python -m MODULE``, where that Python has no such module.

    That is no fault: it may be what the agent is to write.
    """
    match _words(until):
        case [python, "-m", module, *_] if python.startswith("python"):
            pass
        case _:
            return None
    name = module.partition(".")[0]
    look = f"import importlib.util as u, sys; sys.exit(7 * (u.find_spec({name!r}) is None))"
    return (python, name) if _status([python, "-c", look], until.criterion.cwd) == _ABSENT else None


_ABSENT: Final = 7
_LOOKING_S: Final = 10.0


def _words(until: Until) -> list[str]:
    criterion = until.criterion
    if not isinstance(criterion, Command) or not isinstance(criterion.command, str):
        return []
    try:
        return shlex.split(criterion.command)
    except ValueError:
        return []


def _is_plain(word: str) -> bool:
    return word.replace("-", "").replace("_", "").replace(".", "").replace("+", "").isalnum()


def _shell_knows(word: str) -> bool:
    """Whether it is a word of the shell's own, such as ``cd``; where nobody can tell, it may be."""
    look = ["/bin/sh", "-c", f"command -v -- {word}"]
    return os.name == "posix" and _status(look, None) in (0, None)


def _status(command: list[str], cwd: str | Path | None) -> int | None:
    """The exit status; None where it could not be run to its end."""
    try:
        done = subprocess.run(  # noqa: S603  no shell, and words that were looked at
            command,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=_LOOKING_S,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.returncode


class _Marker(CompletionMarker):
    """A marker that does not count where the answer only repeats what we have told of it."""

    __slots__ = ()

    def evaluate(self, ctx: CriterionContext) -> CriterionVerdict:
        """Looks for the marker outside of our own sentences."""
        text = ctx.result.text
        refused = super().evaluate(_with_text(ctx, ""))
        ours = [_marker_told(self.marker), refused.feedback or ""]
        for sentence in (part for each in ours for part in each.split(". ")):
            text = text.replace(sentence.removesuffix("."), "")
        return super().evaluate(_with_text(ctx, text))


def _with_text(ctx: CriterionContext, text: str) -> CriterionContext:
    return replace(ctx, result=replace(ctx.result, text=text))


def _marker_told(marker: str) -> str:
    return (
        f"Your answer must contain {marker!r}: write it once all of the task is done, not before."
    )


def _marker(text: str, _around: Surroundings) -> Until:
    return Until(
        criterion=_Marker(text),
        told=_marker_told(text),
    )


def _command(text: str, around: Surroundings) -> Until:
    criterion = Command(text, cwd=around.cwd)
    return Until(
        criterion=criterion,
        told=f"The command `{text}` must exit with status 0. It is run for you.",
    )


def _schema(text: str, _around: Surroundings) -> Until:
    path = Path(text)
    try:
        schema: Any = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(
            f"--until schema:{text}: {error.strerror or error}; give a file with a JSON Schema"
        ) from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"--until schema:{text}: the file is no JSON: {error}") from error
    try:
        criterion = JsonSchema(schema)
    except ConfigError as error:
        said = str(error).replace("JsonSchema.schema is", "the file is")
        raise ConfigError(f"--until schema:{text}: {said}") from error
    told = "Your answer must be JSON, and nothing else, that fits this JSON Schema:\n"
    return Until(
        criterion=criterion,
        told=told + json.dumps(schema, ensure_ascii=False),
        shown=f"schema {path.name}",
    )


def _judge(text: str, around: Surroundings) -> Until:
    return Until(
        criterion=AiJudge(text, model=around.judge_model),
        told=f"A judge must find that this holds: {text}",
    )


def _regex(text: str, _around: Surroundings) -> Until:
    try:
        re.compile(text)
    except (re.error, RecursionError) as error:
        raise ConfigError(f"--until regex:{text}: no regular expression: {error}") from error
    return Until(
        criterion=Regex(text),
        told=f"Your answer must match the regular expression `{text}`.",
    )


_READERS: Final[Mapping[str, Callable[[str, Surroundings], Until]]] = {
    "marker": _marker,
    "command": _command,
    "schema": _schema,
    "judge": _judge,
    "regex": _regex,
}
