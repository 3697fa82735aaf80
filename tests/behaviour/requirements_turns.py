"""The turn loop, its events and its exits: one sentence for each line of the contract."""

REQUIREMENTS: dict[str, str] = {
    "turns.answer-verbatim": "The reply without tool calls is the answer, character for character.",
}
