"""The exit status of the command for each exit reason. The numbers are fixed: scripts use them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from untildone.domain.exits import ExitReason

USAGE: Final = 2
"""Something in the command or its files has to be changed; nothing was run."""
READER_LEFT: Final = 141
"""Who read the output went away, as with ``| head``."""
TERMINATED: Final = 143
"""The process was asked to end (SIGTERM)."""

STATUS_OF: Final[Mapping[ExitReason, int]] = {
    ExitReason.SATISFIED: 0,
    ExitReason.CONVERGED: 0,
    ExitReason.ERROR: 1,
    ExitReason.MAX_ITERATIONS: 3,
    ExitReason.MAX_TURNS: 4,
    ExitReason.STUCK: 5,
    ExitReason.PLATEAU: 6,
    ExitReason.UNSATISFIED: 7,
    ExitReason.CRITERION_ERROR: 8,
    ExitReason.BUDGET: 9,
    ExitReason.AWAITING_APPROVAL: 10,
    ExitReason.STOP_CONDITION: 11,
    ExitReason.CANCELLED: 130,
}
"""The status by reason; 0 means that the work is done."""


def status_table() -> list[tuple[int, str, str]]:
    """All statuses in order: the number, its name, and what it means."""
    rows = [(status, reason.value, reason.in_words) for reason, status in STATUS_OF.items()]
    rows += [
        (USAGE, "usage", "the command, a file or a setting must be changed; nothing ran"),
        (READER_LEFT, "reader left", "the reader of the output went away"),
        (TERMINATED, "terminated", "the process was asked to end"),
    ]
    return sorted(rows, key=lambda row: row[0])
