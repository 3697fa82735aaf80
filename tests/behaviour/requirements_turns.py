"""The turn loop, its events and its exits: one sentence for each line of the contract."""

REQUIREMENTS: dict[str, str] = {
    # ── The turn loop ──
    "turns.conversation-and-tools": (
        "A turn sends the model the conversation so far and the run's tools."
    ),
    "turns.satisfied": "A reply without tool calls ends the turns, and the exit is satisfied.",
    "turns.answer-verbatim": "The text of the result is that reply, never stripped.",
    "turns.s2-keys": "What S2 calls answer, steps and exit are text, turns and exit_reason.",
    "turns.finish-reason": "The provider's finish reason, such as length, is on the result.",
    "turns.empty-answer": "An empty answer is a result, but never sent back as a message.",
    "turns.default-cap": "An agent run has ten turns where nobody says otherwise.",
    "turns.at-most-n": "A cap of n never makes n + 1 turns, and the nth may bring the answer.",
    "turns.last-calls-run": "The tool calls of the last turn are run like all others.",
    "turns.cap-is-a-result": (
        "At the cap there is a result with the last text, the conversation and the usage."
    ),
    "turns.cap-can-raise": "With on_max_turns='raise' the cap is a MaxTurnsError with the result.",
    "turns.retry-same-turn": "A model call that is retried or falls back stays one turn.",
}
