"""Asking a model for something that can be read: sent back once where it cannot.

Verifiers, judges and memories ask in this way. What makes a reply readable is theirs to say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from untildone.domain.errors import GradingError
from untildone.domain.log import Purpose
from untildone.domain.messages import Message, user_message
from untildone.domain.requests import ModelRequest
from untildone.ports import Model

T = TypeVar("T")


def reached(own: str | Model | None, given: Any) -> Model | None:
    """The asker's own model, inside a run by the run's metered path; else the given one.

    Args:
        own: The model that somebody configured, if any.
        given: The run's path to models, a model, a model string, or None.
    """
    using = getattr(given, "using", None)
    if own is not None and callable(using):
        return using(own)  # pyright: ignore[reportReturnType]
    chosen = own if own is not None else given
    if not isinstance(chosen, str):
        return chosen
    from untildone.models.providers import resolve_model

    return resolve_model(chosen)


async def ask_twice(
    model: Model,
    messages: Sequence[Message],
    read: Callable[[str], T],
    *,
    schema: dict[str, Any],
    schema_name: str,
    purpose: Purpose,
    complaint: str = "That cannot be used",
) -> tuple[T | None, str]:
    """What a reply, or the repair of it, comes to; or (None, why neither can be read).

    Args:
        model: Who is asked.
        messages: The question.
        read: Makes sense of a reply, or raises ``GradingError`` saying what is wrong with it.
        schema: The JSON Schema of the reply.
        schema_name: Its name.
        purpose: What the first call is for; the second is a ``repair``.
        complaint: How the model is told of an unreadable reply; what is wrong follows.

    Raises:
        ModelError: The model could not be reached.
    """
    said = list(messages)
    problem = ""
    purposes: tuple[Purpose, Purpose] = (purpose, "repair")
    for each in purposes:
        request = ModelRequest(
            messages=said, json_schema=schema, schema_name=schema_name, purpose=each
        )
        reply = await model.generate(request)
        text = reply.message.text
        try:
            return read(text), ""
        except GradingError as error:
            problem = str(error)
        # Also where there are calls of tools that nobody offered: an empty message is refused.
        unread = [Message("assistant", text)] if text.strip() else []
        again = f"{complaint}: {problem}. Reply again with the JSON object only."
        said = [*said, *unread, user_message(again)]
    return None, problem
