"""What the clients made by hand have in common: one way to read a stream, one turn loop."""

import json
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from script import QUESTION, SYSTEM_PROMPT, TOOL_DESCRIPTION, TOOL_NAME

Message = dict[str, Any]
Model = Callable[[list[Message]], Awaitable[Message]]

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
FUNCTION = {"name": TOOL_NAME, "description": TOOL_DESCRIPTION, "parameters": SCHEMA}
TOOLS = [{"type": "function", "function": FUNCTION}]


def body_of(history: list[Message], **more: Any) -> bytes:
    """A request as JSON."""
    request = {"model": "bench", "stream": True, "messages": history, **more}
    return json.dumps(request, separators=(",", ":")).encode()


def start() -> list[Message]:
    """A conversation before its first reply."""
    return [{"role": "system", "content": SYSTEM_PROMPT}, {"role": "user", "content": QUESTION}]


class Reply:
    """A reply as it grows; calls are expected in one piece, which is what the server sends."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.calls: list[Message] = []

    def add(self, lines: Iterable[bytes]) -> None:
        """Take the lines of the event stream that have come so far."""
        for line in lines:
            if not line.startswith(b"data: {"):
                continue
            for choice in json.loads(line[6:])["choices"]:
                delta = choice["delta"]
                if text := delta.get("content"):
                    self.texts.append(text)
                for call in delta.get("tool_calls", ()):
                    self.calls.append({key: call[key] for key in ("id", "type", "function")})

    def message(self) -> Message:
        """The reply as a message."""
        message: Message = {"role": "assistant", "content": "".join(self.texts) or None}
        return message | ({"tool_calls": self.calls} if self.calls else {})


async def look_up(n: int) -> str:
    """The tool."""
    return f"{n * 7}"


async def turn_loop(model: Model) -> str:
    """Call the model, run what it asks for, append, until it asks for nothing."""
    history = start()
    while True:
        reply = await model(history)
        history.append(reply)
        if not reply.get("tool_calls"):
            return reply["content"]
        for call in reply["tool_calls"]:
            result = await look_up(**json.loads(call["function"]["arguments"]))
            history.append({"role": "tool", "tool_call_id": call["id"], "content": result})
