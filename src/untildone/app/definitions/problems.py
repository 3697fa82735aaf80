"""What is wrong with a definition: all of it at once, each with its place and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from untildone.domain.errors import ConfigError

Path = tuple[str | int, ...]
"""Where in a definition: keys and indexes, from the outside in."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong.

    Attributes:
        path: Where, such as ``harness.loop.criteria[1].marker``; empty for the whole.
        message: What is wrong and what would do.
        line: The line of the file, from 1, where it is known.
        column: The column, from 1.
    """

    path: str
    message: str
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message

    def in_line(self, source: str | None = None) -> str:
        """The problem as the one line that errors and ``untildone check`` write.

        ``agent.yaml:3:5: model.provider: …``, in which is left out what is not known.

        Args:
            source: The file.
        """
        known = (source, self.line, self.column)
        place = ":".join(str(part) for part in known if part is not None)
        return f"{place}: {self}" if place else str(self)


class DefinitionError(ConfigError):
    """A definition cannot be used; ``problems`` has everything that is wrong with it.

    Attributes:
        problems: At least one, in the order of the definition.
        source: The file it came from, or the type that was made; None for other data.
    """

    def __init__(self, problems: Sequence[Problem], source: str | None = None) -> None:
        self.problems = tuple(problems)
        self.source = source
        super().__init__(_in_words(self.problems, source))

    def __reduce__(self) -> tuple[type[DefinitionError], tuple[Sequence[Problem], str | None]]:
        return type(self), (self.problems, self.source)


def path_text(path: Path) -> str:
    """A path as people write it: ``criteria[1].marker``; odd keys in brackets."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif part.isidentifier():
            text += f".{part}" if text else part
        else:
            text += f"[{shown(part)}]"
    return text


def shown(value: object, most: int = 80) -> str:
    """A value for an error text, also where it is huge or cannot show itself."""
    if isinstance(value, str):
        value = value[: most + 1]
    try:
        text = repr(value)
    except Exception:  # a whole number of 5,000 digits refuses to be shown
        if isinstance(value, int):
            return "a whole number of thousands of digits"
        return f"a {type(value).__name__}"
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _in_words(problems: Sequence[Problem], source: str | None) -> str:
    name = source or "the definition"
    if len(problems) == 1:
        return problems[0].in_line(name)
    lines = (f"  {problem.in_line(source)}" for problem in problems)
    return "\n".join([f"{name} has {len(problems)} problems:", *lines])
