"""Tools for models without native tool calls: told in the prompt, called by a JSON reply.

Each reply is constrained to one JSON object, ``{"tool": …, "arguments": {…}}`` or
``{"answer": …}``; the loop sees a tool call or a text, as from any other model. A reply calls one
tool at most.

What is in the prompt was chosen by measurement on SmolLM2-135M: an example call for each tool, made
from its schema, took it from 7 to 11 right calls of 12, arguments included; the answer has to come
after a result in the examples, or it is chosen at once; and after a result this model repeats its
call rather than answer, which ``most_calls=1`` rules out. On 12 other tasks with four other tools
(``examples/prompted_tools.py``) it calls the right tool in 11, with the right arguments in 8, and
answers from the result in 7: enough to show a loop, not to rely on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, cast

from untildone.domain.bounds import check_count
from untildone.domain.errors import ConfigError
from untildone.domain.messages import Message, ToolCall
from untildone.domain.requests import Delta, DeltaSink, ModelReply, ModelRequest, TextDelta
from untildone.domain.tools import NO_TOOLS, ToolSpec
from untildone.models.call_ids import own_id
from untildone.models.loose_json import whole_unicode
from untildone.models.tool_prompts import calls_in_a_row, prompted, reply_schema
from untildone.policy.json_reply import json_candidates
from untildone.ports import Model

_LONGEST_ESCAPE: Final = len("\\u00e4\\u00e4")
_CUT_CALL: Final = re.compile(
    r'\s*\{\s*"tool"\s*:\s*"([^"]*)"\s*(?:,\s*"arguments"\s*:\s*(.*))?', re.DOTALL
)
_CUT_ANSWER: Final = re.compile(r'\s*\{\s*"answer"\s*:\s*(".*)', re.DOTALL)


class PromptedToolsModel:
    """A model that can use tools although its server takes none.

    Args:
        model: The model; requests without tools reach it as they are.
        most_calls: Most calls in a row, counted from the last user message; then the reply has to
            be an answer. None leaves it to the model, and to the turn loop's own bounds.
        examples: Whether the prompt has an example call for each of the first six tools.

    Raises:
        ConfigError: It is no model, or the bound is none.
    """

    __slots__ = ("_examples", "_inner", "_most_calls")

    def __init__(
        self, model: Model, *, most_calls: int | None = None, examples: bool = True
    ) -> None:
        if not callable(getattr(model, "generate", None)):
            raise ConfigError(
                f"PromptedToolsModel.model is {model!r:.80}; give a model object, such as"
                " OpenAIChatModel('NAME', base_url='http://127.0.0.1:8080/v1')"
            )
        if most_calls is not None:
            check_count("PromptedToolsModel.most_calls", most_calls)
        self._inner = model
        self._most_calls = most_calls
        self._examples = examples

    @property
    def name(self) -> str:
        """The inner model's name."""
        return self._inner.name

    def __repr__(self) -> str:
        return f"PromptedToolsModel({self._inner!r})"

    async def generate(
        self, request: ModelRequest, on_delta: DeltaSink | None = None
    ) -> ModelReply:
        """Asks the inner model and reads its reply as a call or an answer.

        Live readers get an answer's text once it is whole: half of a JSON object is no text.

        Raises:
            ModelError: As the inner model.
        """
        specs = request.tools.specs
        if not specs:
            return await self._inner.generate(request, on_delta)
        in_words = replace(
            request,
            messages=prompted(request.messages, specs, examples=self._examples),
            tools=NO_TOOLS,
            json_schema=self._schema(request, specs),
            schema_name="reply",
        )
        reply = await self._inner.generate(in_words, _without_text(on_delta))
        message = _read(reply)
        if on_delta is not None and message.text:
            await on_delta(TextDelta(message.text))
        called = message.tool_calls and reply.finish_reason == "stop"
        return replace(
            reply,
            message=message,
            finish_reason="tool_calls" if called else reply.finish_reason,
        )

    def _schema(self, request: ModelRequest, specs: Sequence[ToolSpec]) -> dict[str, Any]:
        most = self._most_calls
        has_to_answer = most is not None and calls_in_a_row(request.messages) >= most
        return reply_schema(() if has_to_answer else specs, request.json_schema)


def _without_text(on_delta: DeltaSink | None) -> DeltaSink | None:
    if on_delta is None:
        return None

    async def pass_on(delta: Delta) -> None:
        if not isinstance(delta, TextDelta):
            await on_delta(delta)

    return pass_on


def _read(reply: ModelReply) -> Message:
    """The reply as a call or an answer; what is neither is an answer as it stands."""
    message = reply.message
    text = message.text
    for candidate in json_candidates(text):
        try:
            fields: Any = json.loads(candidate, object_pairs_hook=_as_written)
        except (ValueError, RecursionError):
            continue
        read = _read_fields(cast("dict[str, Any]", fields)) if isinstance(fields, dict) else None
        if read is not None:
            return replace(read, extra=message.extra)
    if reply.finish_reason == "length":
        return replace(_read_cut(text), extra=message.extra)
    return message


def _read_fields(fields: dict[str, Any]) -> Message | None:
    """A call or an answer; None for what is neither, or says so twice.

    Arguments go on as they were written: the tool's own reader refuses what is no object, as it
    does with native calls, and an object that is not there is not made up.
    """
    if isinstance(fields, _Doubled):
        return None
    name = fields.get("tool")
    if isinstance(name, str):
        given = "arguments" in fields
        arguments = json.dumps(fields["arguments"], ensure_ascii=False) if given else ""
        return _call(name, whole_unicode(arguments))
    if "answer" in fields:
        answer = fields["answer"]
        text = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
        return Message("assistant", whole_unicode(text))
    return None


class _Doubled(dict[str, Any]):
    """An object with a key that is there twice, encoded as it was written."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self._pairs = pairs

    def items(self) -> Any:
        """All pairs: what ``json.dumps`` writes."""
        return self._pairs


def _as_written(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    return fields if len(fields) == len(pairs) else _Doubled(pairs)


def _read_cut(text: str) -> Message:
    """A reply that the token limit has cut: what there is of the answer, or the call as it is."""
    answer = _CUT_ANSWER.fullmatch(text)
    if answer is not None:
        return Message("assistant", _cut_text(answer[1]))
    call = _CUT_CALL.fullmatch(text)
    return Message("assistant", text) if call is None else _call(call[1], call[2] or "")


def _call(name: str, arguments: str) -> Message:
    return Message("assistant", None, (ToolCall(own_id("", set()), name, arguments),))


def _cut_text(begun: str) -> str:
    """What there is of a JSON text without its end, which may be inside of an escape."""
    for left_out in range(_LONGEST_ESCAPE):
        try:
            text: str = json.loads(begun[: len(begun) - left_out] + '"')
        except ValueError:
            continue
        return text.encode("utf-8", "ignore").decode()  # without half of a pair at its end
    return begun
