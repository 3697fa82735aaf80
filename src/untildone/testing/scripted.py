"""A model that replies from a script."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from untildone.domain.errors import ConfigError
from untildone.domain.messages import Message, ToolCall
from untildone.domain.requests import DeltaSink, ModelReply, ModelRequest, TextDelta
from untildone.domain.usage import Usage

Line = str | ModelReply | BaseException | Callable[["SeenRequest"], Any]
"""One line of a script: a text, a reply, an exception to raise, or a function giving one."""


@dataclass(slots=True)
class SeenRequest:
    """A request that a ``ScriptedModel`` was given, as it was at that moment.

    Attributes:
        request: What the model was asked; its list of messages goes on growing.
        length: How many messages it had then.
        index: Which request it was, from 0.
    """

    request: ModelRequest
    length: int
    index: int

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages in OpenAI form, made when asked for."""
        return [message.to_dict() for message in self.request.messages[: self.length]]

    @property
    def tool_names(self) -> list[str]:
        """The tools the model was offered."""
        return [spec.name for spec in self.request.tools.specs]


class ScriptedModel:
    """Replies from a script, one line a call; free of I/O and safe to share between runs.

    Args:
        script: The lines, in order. A function as the whole script answers every call.
        name: The model's name.
        usage: What each reply costs where its line does not say; default: 10 in, 5 out.
        latency_s: Real seconds before each reply; 0 replies without waiting.
        then: What comes after the last line: ``"fail"`` raises, ``"repeat"`` gives the last one.

    Attributes:
        requests: What it was asked, in order.

    Raises:
        ConfigError: The script is one text; a list of lines is meant.
    """

    def __init__(
        self,
        script: Iterable[Line] | Callable[[SeenRequest], Any],
        *,
        name: str = "scripted",
        usage: Usage | None = None,
        latency_s: float = 0.0,
        then: str = "fail",
    ) -> None:
        if isinstance(script, str):
            raise ConfigError(
                f"ScriptedModel's script is the text {script!r:.80}; give a list of lines:"
                f" ScriptedModel([{script!r:.80}])"
            )
        if callable(script):
            self._lines: list[Line] = [script]
            then = "repeat"
        else:
            self._lines = list(script)
        self._name = name
        self._usage = usage or Usage(input_tokens=10, output_tokens=5)
        self._latency_s = latency_s
        self._then = then
        self.requests: list[SeenRequest] = []

    @property
    def name(self) -> str:
        """The model's name."""
        return self._name

    async def generate(
        self, request: ModelRequest, on_delta: DeltaSink | None = None
    ) -> ModelReply:
        """Gives the next line of the script."""
        index = len(self.requests)
        seen = SeenRequest(request, len(request.messages), index)
        self.requests.append(seen)
        if self._latency_s:
            await asyncio.sleep(self._latency_s)
        answer = self._line(index)
        if callable(answer):
            answer = answer(seen)
            if hasattr(answer, "__await__"):
                answer = await answer
        if isinstance(answer, BaseException):
            raise answer
        if not isinstance(answer, ModelReply):
            answer = reply(str(answer), usage=self._usage)
        text = answer.message.text
        if on_delta is not None and text:
            await on_delta(TextDelta(text))
        return answer

    def _line(self, index: int) -> Line:
        if index < len(self._lines):
            return self._lines[index]
        if self._then == "repeat" and self._lines:
            return self._lines[-1]
        count = len(self._lines)
        msg = (
            f"the script of {self._name!r} has {count} line{'' if count == 1 else 's'}, but the"
            " model was called"
            f" {index + 1} times; add a line, or use then='repeat'"
        )
        raise AssertionError(msg)


_ids = itertools.count(1)


def call(
    name: str, /, _id: str | None = None, _raw: str | None = None, **arguments: Any
) -> ToolCall:
    """A tool call for ``reply``: ``call("search", query="x")``.

    Args:
        name: The tool's name.
        _id: The call's id; default: a new one.
        _raw: The arguments as raw text, for what is no JSON.
        **arguments: The arguments.
    """
    return ToolCall(
        f"call_{next(_ids)}" if _id is None else _id,
        name,
        json.dumps(arguments) if _raw is None else _raw,
    )


def reply(
    text: str | None = None,
    calls: Sequence[ToolCall] | ToolCall = (),
    *,
    finish_reason: str | None = None,
    usage: Usage | None = None,
    model: str = "",
    extra: Mapping[str, Any] | None = None,
) -> ModelReply:
    """A line for a script: a text, tool calls, or both.

    Args:
        text: The reply's text.
        calls: The tools it asks for.
        finish_reason: Default: ``"tool_calls"`` with calls, else ``"stop"``.
        usage: Its tokens; default: 10 in, 5 out.
        model: The model's name as reported.
        extra: Further keys of the message.
    """
    listed = (calls,) if isinstance(calls, ToolCall) else tuple(calls)
    return ModelReply(
        message=Message("assistant", text, listed, extra=extra),
        finish_reason=finish_reason or ("tool_calls" if listed else "stop"),
        usage=usage or Usage(input_tokens=10, output_tokens=5),
        model=model,
    )
