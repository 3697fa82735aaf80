"""What each built-in kind of criterion takes, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from untildone.criteria.registry import BUILT_IN_KINDS, folded


@dataclass(frozen=True, slots=True)
class Takes:
    """The fields of ``LoopCriterion`` that mean something to a kind."""

    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()


KINDS: Final[Mapping[str, Takes]] = {
    "completionMarker": Takes(("marker",)),
    "aiJudge": Takes(("judge_criteria",), ("judge_instructions", "judge_model")),
    "todoCompletion": Takes((), ("modes",)),
    "backgroundTaskCompletion": Takes((), ("wait_seconds",)),
    "minScore": Takes(("min_score",), ("rubric", "confirmations", "judge_model")),
    "jsonSchema": Takes(("json_schema",)),
    "regex": Takes(("pattern",), ("feedback",)),
    "command": Takes(("command",), ("working_directory", "timeout_seconds")),
    "allOf": Takes(("criteria",)),
    "anyOf": Takes(("criteria",)),
    "not": Takes(("criteria",), ("feedback",)),
}

_CANONICAL: Final = {folded(kind): kind for kind in BUILT_IN_KINDS}


def built_in(kind: str) -> str | None:
    """A built-in kind in its canonical spelling, however it is written; None where it is none."""
    return _CANONICAL.get(folded(kind.strip()))


def unknown_kind(kind: str, registered: tuple[str, ...], advice: str) -> str:
    """What to say of a kind that nobody knows; ``advice`` is how one is made known."""
    known = (*BUILT_IN_KINDS, *registered)
    spelled = {name.casefold(): name for name in known}
    near = get_close_matches(kind.casefold().replace("_", ""), spelled, n=1)
    guess = f" Did you mean {spelled[near[0]]!r}?" if near else ""
    return (
        f"unknown kind {kind!r:.80}.{guess} Known are {', '.join(known)}. For one of your own:"
        f" {advice}"
    )
