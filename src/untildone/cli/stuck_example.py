"""The demo's second half: a turn loop that gets stuck, is nudged, and finds another way.

The model is a script, so that it happens each time; the loop, the tool and the stuck detector are
the real ones. The script repeats itself until it reads the nudge, as models do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from untildone.agent import Agent
from untildone.domain.requests import ModelReply
from untildone.testing import ScriptedModel, SeenRequest, call, reply

TASK: Final = "On which shelf is the blue paint?"

_STOCK: Final[Mapping[str, str]] = {
    "paint, blue, 1 l": "shelf 7",
    "paint, red, 1 l": "shelf 9",
    "brush, flat": "shelf 2",
}


def search_stock(words: str) -> str:
    """Finds articles whose name contains the words.

    Args:
        words: What to look for.
    """
    found = [f"{name}: {place}" for name, place in _STOCK.items() if words in name]
    return "; ".join(found) or f"no article has {words!r} in its name"


def stuck_agent() -> Agent:
    """The agent; each has a script of its own."""
    return Agent("storekeeper", ScriptedModel(_next_line), tools=[search_stock])


def _next_line(seen: SeenRequest) -> ModelReply:
    messages = seen.messages
    last = messages[-1]
    if last["role"] == "tool" and "shelf" in last["content"]:
        return reply("The blue paint is on shelf 7.")
    was_nudged = sum(message["role"] == "user" for message in messages) > 1
    return reply(None, call("search_stock", words="paint" if was_nudged else "blue paint"))
