"""``regex`` for definitions: a pattern from outside can be wrong, but it cannot hang us.

Python's own engine backtracks: ``(a+)+$`` takes for ever on thirty characters. The one that comes
with pydantic (Rust's ``regex``) takes time that grows with pattern and text only, and knows no
look-around and no back-references. Counted repeats still multiply a pattern, so its work is bounded
too: measured, a step takes up to 130 ns, so the most an evaluation can take is about a second.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

from untildone.domain.errors import ConfigError, GradingError
from untildone.domain.grading import CriterionContext, CriterionVerdict

LONGEST_PATTERN: Final = 1000
_MOST_STATES: Final = 2000
_CLASS_SIZE: Final = 25  # what makes a pattern of this size compile in about 50 ms, classes or not
_MOST_STEPS: Final = 10_000_000

_VERBOSE: Final = re.compile(r"\(\?[a-zA-Z-]*x")
_UNICODE: Final = re.compile(r"\\[pPwWdDsSbB]|\[\^|\[.*\\[pPwWdDsS]", re.DOTALL)
_PART: Final = re.compile(
    r"\\[pPxuU]\{[^}]*\}|\\."  # an escape
    r"|\[(?:\\.|\[:\^?\w+:\]|[^\]\\])*\]"  # a class
    r"|\{[\d,\s]*\}"  # a count
    r"|.",
    re.DOTALL,
)


class LinearRegex:
    """Done when a regular expression is found in the latest answer, in bounded time.

    Args:
        pattern: Rust's syntax; found anywhere, so anchor it where needed. At most 1,000 characters.
        feedback: What the agent is told where it is not found; default: the pattern.

    Raises:
        ConfigError: It is no such pattern, or searching with it could take too long.
    """

    kind: Final = "regex"

    __slots__ = ("_search", "_states", "feedback", "pattern")

    def __init__(self, pattern: str, *, feedback: str | None = None) -> None:
        self._states = _states_of(pattern)
        self._search = _compiled(pattern)
        self.pattern = pattern
        self.feedback = feedback

    def __repr__(self) -> str:
        return f"LinearRegex({self.pattern!r})"

    def evaluate(self, ctx: CriterionContext) -> CriterionVerdict:
        """Searches the answer.

        Raises:
            GradingError: The answer is so long that the search could take more than a second.
        """
        if self.found_in(ctx.result.text):
            return CriterionVerdict(satisfied=True)
        feedback = self.feedback or (
            f"The answer must match the regular expression `{self.pattern}`, and does not."
        )
        return CriterionVerdict(satisfied=False, feedback=feedback)

    def steps_for(self, text: str) -> int:
        """The most steps that searching ``text`` takes."""
        return self._states * len(text)

    def found_in(self, text: str) -> bool:
        """Whether the pattern is found.

        Raises:
            GradingError: The text is too long for it.
        """
        if self.steps_for(text) > _MOST_STEPS:
            raise GradingError(
                f"the pattern {self.pattern!r:.80} cannot search {len(text):,} characters in"
                " bounded time; use fewer or smaller counted repeats such as {1,100}"
            )
        return self._search.isinstance_python(text)


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> Any:
    from pydantic_core import SchemaError, SchemaValidator, core_schema

    if any("\ud800" <= mark <= "\udfff" for mark in pattern):
        raise ConfigError(f"the pattern {pattern!r:.80} has half a character; write it whole")
    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
    except SchemaError as error:
        said = " ".join(str(error).rpartition("error:")[2].split()) or "it cannot be read"
        raise ConfigError(
            f"the pattern {pattern!r:.80} is no regular expression in Rust's syntax: {said}"
        ) from error


def _states_of(pattern: object) -> int:
    """About how many states the pattern has, its counted repeats written out.

    Raises:
        ConfigError: It is no text, or there are too many.
    """
    if not isinstance(pattern, str) or not pattern:
        raise ConfigError(f"the pattern is {pattern!r:.80}; give a regular expression as text")
    if len(pattern) > LONGEST_PATTERN:
        raise ConfigError(
            f"the pattern has {len(pattern):,} characters; the most is {LONGEST_PATTERN:,}"
        )
    if _VERBOSE.search(pattern):
        raise ConfigError(f"the pattern {pattern!r:.80} sets the flag x; write it without")
    size = _written_out(pattern, of_class=_CLASS_SIZE)
    if size > _MOST_STATES:
        raise ConfigError(
            f"the pattern {pattern!r:.80} is too large once its counted repeats are written out"
            f" (a size of {size:,}, at most {_MOST_STATES:,}); use smaller counts"
        )
    return _written_out(pattern, of_class=1)


def _written_out(pattern: str, *, of_class: int) -> int:
    """The parts of a pattern; a repeat ``{n,m}`` counts what it repeats m times.

    A class of letters or digits counts as ``of_class`` parts: it has hundreds of ranges.
    A pattern that cannot be parsed gets some number, and is refused when it is compiled.
    """
    groups, last = [0], 0
    for part in _PART.findall(pattern):
        if part == "(":
            groups.append(0)
            last = 0
        elif part == ")" and len(groups) > 1:
            last = max(1, groups.pop())
            groups[-1] += last
        elif part[0] == "{" and len(part) > 1:
            most = max((int(number) for number in re.findall(r"\d+", part)), default=1)
            groups[-1] += last * max(0, most - 1)
            last *= max(1, most)
        elif part not in ("*", "+", "?"):
            last = of_class if _UNICODE.match(part) else 1
            groups[-1] += last
    return max(1, sum(groups))
