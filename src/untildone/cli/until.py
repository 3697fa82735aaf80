"""``--until KIND:REST``: a stop criterion out of one argument of the command line."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from untildone.agent import criterion_name
from untildone.criteria import AiJudge, Command, CompletionMarker, JsonSchema, Regex
from untildone.criteria.linear_regex import LinearRegex
from untildone.domain.errors import ConfigError

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
            return f"regex {criterion.pattern.pattern!r}"
        case LinearRegex():
            return f"regex {criterion.pattern!r}"
        case _:
            return criterion_name(criterion)


def unknown_program(until: Until) -> str | None:
    """The name of the program of a plain command that is nowhere to be found."""
    criterion = until.criterion
    if not isinstance(criterion, Command) or not isinstance(criterion.command, str):
        return None
    try:
        word = shlex.split(criterion.command)[0]
    except (ValueError, IndexError):
        return None
    is_plain = word.replace("-", "").replace("_", "").replace(".", "").isalnum()
    if not is_plain or word in _SHELL_WORDS or shutil.which(word):
        return None
    return word


_SHELL_WORDS: Final = frozenset(
    "alias bg case cd command eval exec exit export for function if set source test trap type "  # noqa: SIM905  a list would be 26 lines
    "ulimit umask unset until while . : true false".split()
)


def _marker(text: str, _around: Surroundings) -> Until:
    return Until(
        criterion=CompletionMarker(text),
        told=f"Your answer must contain {text!r}: write it once all of the task is done, not"
        " before.",
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
        told=f"Your answer must match the regular expression {text!r}.",
    )


_READERS: Final[Mapping[str, Callable[[str, Surroundings], Until]]] = {
    "marker": _marker,
    "command": _command,
    "schema": _schema,
    "judge": _judge,
    "regex": _regex,
}
