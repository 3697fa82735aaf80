"""``litellm/…``: the providers that litellm knows, behind the extra ``untildone[litellm]``.

litellm is large and slow to import, so it is loaded by the first call only, and told not to fetch
its price list from the network when it is. Its chunks have OpenAI's form: they go through the same
assembler as those of the OpenAI wire. What it does not tell (that a stream was cut) stays unknown.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import AsyncIterator, Awaitable, Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any, Final, cast

from untildone.domain.errors import (
    ConfigError,
    ConnectionFailedError,
    ModelError,
    ModelTimeoutError,
)
from untildone.domain.messages import Message
from untildone.domain.requests import DeltaSink, ModelReply, ModelRequest
from untildone.domain.usage import Usage
from untildone.models.endpoint import DEFAULT_TIMEOUTS, Endpoint, ModelTimeouts
from untildone.models.failures import NOTHING_SPENT, error_of, retry_after_s
from untildone.models.loose_json import as_dict
from untildone.models.openai_chat import REASONING_KEYS, response_format
from untildone.models.openai_reply import ReplyAssembler
from untildone.models.tool_attachments import attachments_apart

_DROPPED: Final = REASONING_KEYS | {"is_error", "refusal"}
_FAILED: Final = 500
_SHORTEST_SECRET: Final = 8
_SECRET_NAME: Final = re.compile(r"key|token|secret|password|credential", re.IGNORECASE)


class LiteLLMModel:
    """Any model that litellm can call.

    Args:
        model: The name as litellm knows it, such as ``bedrock/…`` or ``vertex_ai/…``; litellm reads
            the provider's keys from the environment itself.
        timeouts: How long to wait; ``connect_s`` is litellm's own affair.
    """

    __slots__ = ("_endpoint", "_library", "_model")

    def __init__(self, model: str, *, timeouts: ModelTimeouts = DEFAULT_TIMEOUTS) -> None:
        self._model = model
        self._library: Any = None
        self._endpoint = Endpoint(
            model=f"litellm/{model}",
            url="",
            base_url="litellm",
            headers={},
            timeouts=timeouts,
            key_variable="the environment variable that litellm reads for this provider",
        )

    @property
    def name(self) -> str:
        """How logs and results name the model."""
        return self._endpoint.model

    def __repr__(self) -> str:
        return f"LiteLLMModel({self._model!r})"

    async def generate(
        self, request: ModelRequest, on_delta: DeltaSink | None = None
    ) -> ModelReply:
        """Sends one request through litellm and reads the whole reply.

        Raises:
            ConfigError: litellm is not installed.
            ModelError: What went wrong, by its kind.
        """
        if self._library is None:
            self._library = await asyncio.to_thread(_litellm)
        endpoint = replace(self._endpoint, secrets=_secrets_of(request.extra_params))
        assembler = ReplyAssembler(endpoint)
        waits = _Waits(endpoint)
        chunks: Any = None
        try:
            opened = self._library.acompletion(**self._arguments(request))
            chunks = await waits.on(opened, usage=NOTHING_SPENT)
            await _read(aiter(chunks), assembler, waits, on_delta)
        finally:
            close = getattr(chunks, "aclose", None)
            if close is not None:
                with contextlib.suppress(Exception):
                    await close()
        return assembler.reply()

    def _arguments(self, request: ModelRequest) -> dict[str, Any]:
        arguments: dict[str, Any] = {
            "model": self._model,
            "messages": [_form(message) for message in attachments_apart(request.messages)],
            "stream_options": {"include_usage": True},
            "num_retries": 0,  # retries are counted, so they are ours
            "max_retries": 0,
            "temperature": request.temperature,
            "max_tokens": request.max_tokens,
            "tools": [spec.to_dict() for spec in request.tools.specs] or None,
            "response_format": response_format(request) if request.json_schema else None,
        }
        arguments.update(request.extra_params)
        arguments = {key: value for key, value in arguments.items() if value is not None}
        return {**arguments, "stream": True}


class _Waits:
    """The waits of one request: each in time, and with litellm's failures as ours."""

    def __init__(self, endpoint: Endpoint) -> None:
        timeouts = endpoint.timeouts
        self._endpoint = endpoint
        self._loop = asyncio.get_running_loop()
        self._given_at = self._loop.time()
        self._end = _after(self._given_at, timeouts.total_s)
        self._deadline = _after(self._given_at, timeouts.first_token_s)
        self._limit = ("no first token", timeouts.first_token_s)

    async def on(self, waited_for: Awaitable[Any], *, usage: Usage | None = None) -> Any:
        """Waits for litellm; its failures cost ``usage``."""
        now = self._loop.time()
        if self._end is not None:
            self._end += now - self._given_at  # a slow reader's time is not the model's
        limits = [at for at in (self._deadline, self._end) if at is not None]
        limit = asyncio.timeout_at(min(limits, default=None))
        try:
            async with limit:
                given = await waited_for
        except Exception as error:
            failure = (
                self._too_late() if limit.expired() else _failure(error, self._endpoint, usage)
            )
        else:
            self._given_at = self._loop.time()
            return given
        raise failure  # out here it has no cause: litellm's errors hold the request's headers

    def heard(self) -> None:
        """Something of the reply came: the wait for the next piece begins."""
        between_s = self._endpoint.timeouts.between_tokens_s
        self._deadline = _after(self._loop.time(), between_s)
        self._limit = ("no next token", between_s)

    def _too_late(self) -> ModelTimeoutError:
        what, limit_s = self._limit
        if self._end is not None and (self._deadline is None or self._end <= self._deadline):
            what, limit_s = "no whole reply", self._endpoint.timeouts.total_s
        return ModelTimeoutError(
            f"{self._endpoint.model}: {what} within {limit_s or 0:g} s; where the model needs"
            " longer, give LiteLLMModel other timeouts"
        )


async def _read(
    chunks: AsyncIterator[Any],
    assembler: ReplyAssembler,
    waits: _Waits,
    on_delta: DeltaSink | None,
) -> None:
    while (chunk := await waits.on(anext(chunks, None))) is not None:
        for delta in assembler.take(chunk.model_dump(exclude_none=True)):
            if on_delta is not None:
                await on_delta(delta)
        if assembler.heard:
            assembler.heard = False
            waits.heard()


def _after(start: float, seconds: float | None) -> float | None:
    return None if seconds is None else start + seconds


def _secrets_of(extra_params: Mapping[str, Any]) -> tuple[str, ...]:
    """What must not be shown: litellm finds its keys itself, so all that are about count.

    Those of the environment go by their names; what a request brings along goes by its names too,
    and its headers as a whole.
    """
    found: list[Any] = [
        value
        for name, value in os.environ.items()
        if len(value) >= _SHORTEST_SECRET and _SECRET_NAME.search(name)
    ]
    for name, value in extra_params.items():
        if "header" in name.lower():
            found += as_dict(value).values()
        elif _SECRET_NAME.search(name):
            found.append(value)
    return tuple({value.strip() for value in found if isinstance(value, str) and value.strip()})


def _failure(error: Exception, endpoint: Endpoint, usage: Usage | None) -> ModelError:
    """Litellm's error as ours, by its status."""
    said = endpoint.clean(str(error)) or type(error).__name__
    kind = type(error).__name__
    if kind == "APIConnectionError":
        return ConnectionFailedError(
            f"{endpoint.model}: {said}; check the network and the model's name", usage=usage
        )
    status = getattr(error, "status_code", None)
    headers: Any = getattr(getattr(error, "response", None), "headers", None)
    return error_of(
        status if isinstance(status, int) else _FAILED,
        said,
        endpoint,
        retry_after_s=retry_after_s(headers) if headers else None,
        usage=usage if kind != "Timeout" else None,
    )


def _form(message: Message) -> dict[str, Any]:
    return {key: value for key, value in message.to_dict().items() if key not in _DROPPED}


def _litellm() -> Any:
    """The library, loaded without a look at the network."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    try:
        library = cast("Any", import_module("litellm"))
    except ImportError as error:
        raise ConfigError(
            "litellm/… models need litellm: pip install 'untildone[litellm]'"
            f" (the import failed: {error})"
        ) from error
    library.suppress_debug_info = True
    return library
