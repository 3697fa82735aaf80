"""What an attack on the finished loops found, kept so that it stays mended."""

from __future__ import annotations

REQUIREMENTS: dict[str, str] = {
    "attacks.swallowed-cancellation": (
        "A cancellation that a predicate, hook, grader or model keeps to itself still ends the run."
    ),
    "attacks.doubled-ids": "A decision about one of two waiting calls with one id is refused.",
    "attacks.mixed-logs": "A log that holds events of two runs is not resumed.",
    "attacks.stale-reply": "A judge's reply of one iteration never grades another iteration.",
    "attacks.long-errors": "A tool's error and a reviewer's issue are cut like a result.",
    "attacks.explicit-synthesizer": "A synthesizer with a model of its own is metered too.",
    "attacks.fallback-for-judges": "The fallback chain serves judges and merges as well.",
    "attacks.failed-merge": "A merge that fails costs no answer: the first candidate goes forward.",
    "attacks.best-candidate": "Before a candidate is selected, the best one is the partial result.",
    "attacks.endless-whitespace": "A reply of endless whitespace is read in linear time.",
    "attacks.empty-merge": "An empty merge is never sent back.",
    "attacks.exiting-tool": "A tool that exits the interpreter has failed like any other.",
    "attacks.bad-doors": "What is no queue, no sink, no log is refused by name.",
}
