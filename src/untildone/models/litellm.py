"""``litellm/…``: the providers that litellm knows, behind the extra ``untildone[litellm]``.

litellm is large and slow to import, so it is loaded by the first call only, and told not to fetch
its price list from the network when it is. Its chunks have OpenAI's form: they go through the same
assembler as those of the OpenAI wire. What it does not tell (that a stream was cut) stays unknown.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, AsyncIterator
from importlib import import_module
from typing import Any, Final, Literal, cast

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
from untildone.models.openai_chat import REASONING_KEYS, response_format
from untildone.models.openai_reply import ReplyAssembler
from untildone.models.tool_attachments import attachments_apart

_DROPPED: Final = REASONING_KEYS | {"is_error", "refusal"}
_FAILED: Final = 500


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
        assembler = ReplyAssembler(self._endpoint)
        chunks: Any = None
        try:
            async with self._limit("first", usage=NOTHING_SPENT):
                chunks = await self._library.acompletion(**self._arguments(request))
            await self._read(aiter(chunks), assembler, on_delta)
        finally:
            close = getattr(chunks, "aclose", None)
            if close is not None:
                with contextlib.suppress(Exception):
                    await close()
        return assembler.reply()

    async def _read(
        self, chunks: AsyncIterator[Any], assembler: ReplyAssembler, on_delta: DeltaSink | None
    ) -> None:
        which: Literal["first", "next"] = "first"
        while True:
            async with self._limit(which, usage=None):
                chunk = await anext(chunks, None)
            if chunk is None:
                return
            which = "next"
            for delta in assembler.take(chunk.model_dump(exclude_none=True)):
                if on_delta is not None:
                    await on_delta(delta)

    @contextlib.asynccontextmanager
    async def _limit(
        self, which: Literal["first", "next"], *, usage: Usage | None
    ) -> AsyncGenerator[None]:
        """One wait for litellm: in time, and with its failures as ours, which cost ``usage``."""
        timeouts = self._endpoint.timeouts
        limit_s = timeouts.first_token_s if which == "first" else timeouts.between_tokens_s
        limit = asyncio.timeout(limit_s)
        try:
            async with limit:
                yield
        except Exception as error:
            if limit.expired():
                raise ModelTimeoutError(
                    f"{self.name}: no {which} token within {limit_s:g} s; where the model needs"
                    " longer, give LiteLLMModel other timeouts"
                ) from error
            raise self._failure(error, usage) from error

    def _failure(self, error: Exception, usage: Usage | None) -> ModelError:
        """Litellm's error as ours, by its status."""
        said = self._endpoint.clean(str(error)) or type(error).__name__
        kind = type(error).__name__
        if kind == "APIConnectionError":
            return ConnectionFailedError(
                f"{self.name}: {said}; check the network and the model's name", usage=usage
            )
        status = getattr(error, "status_code", None)
        headers: Any = getattr(getattr(error, "response", None), "headers", None)
        return error_of(
            status if isinstance(status, int) else _FAILED,
            said,
            self._endpoint,
            retry_after_s=retry_after_s(headers) if headers else None,
            usage=usage if kind != "Timeout" else None,
        )

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
