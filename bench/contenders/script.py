"""What the model says to every contender: one call of one tool a turn, with new arguments."""

from typing import Any

SYSTEM_PROMPT = "You are a careful assistant. Look every number up before you answer."
QUESTION = "What is the sum of the numbers?"
CLOSING_TEXT = "The sum is 42."
TOOL_NAME = "look_up"
TOOL_DESCRIPTION = "Look up the number at a position."


def arguments(turn: int) -> str:
    """The arguments of the call of this turn, as the wire has them."""
    return f'{{"n": {turn}}}'


def tool_call(turn: int) -> dict[str, Any]:
    """The call of this turn in OpenAI form; turns count from 1."""
    return {
        "id": f"call_{turn}",
        "type": "function",
        "function": {"name": TOOL_NAME, "arguments": arguments(turn)},
    }


def draft(iteration: int) -> str:
    """The answer of an iteration which nobody accepts."""
    return f"Draft {iteration}: the sum is not known yet."
