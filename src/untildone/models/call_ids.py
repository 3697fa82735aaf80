"""Ids of tool calls, so that each call of a reply has one of its own."""

from __future__ import annotations

import uuid


def own_id(call_id: str, used: set[str]) -> str:
    """The id where it is the call's own, else a fresh one.

    Args:
        call_id: As the provider sent it.
        used: The ids that earlier calls of the reply have; the returned one is added.
    """
    if not call_id or call_id in used:
        call_id = f"call_{uuid.uuid4().hex[:24]}"
    used.add(call_id)
    return call_id
