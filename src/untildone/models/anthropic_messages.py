"""Anthropic messages, the wire: ``POST {base_url}/v1/messages``, streamed.

Like ``openai_chat`` it sends one request and reads one reply; retries, fallbacks and metering are
wrappers around it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from untildone.domain.errors import BadReplyError, ConfigError, ModelError
from untildone.domain.requests import DeltaSink, ModelReply, ModelRequest
from untildone.models.anthropic_reply import MessageAssembler
from untildone.models.anthropic_request import has_cache_marks, system_and_messages, tools_of
from untildone.models.endpoint import (
    DEFAULT_TIMEOUTS,
    Endpoint,
    ModelTimeouts,
    below,
    checked_base_url,
    checked_key,
    request_headers,
    secrets_of,
    shown_url,
)
from untildone.models.exchange import read_reply
from untildone.models.failures import refused, refuses_schema, request_id_of
from untildone.models.http import post
from untildone.models.loose_json import as_dict, encoded
from untildone.models.schemas import SchemaForms, closed, with_schema_hint

_VERSION: Final = "2023-06-01"
_BASE_URL: Final = "https://api.anthropic.com"
_MAX_TOKENS: Final = 16_384
_MAX_TOKENS_CLAUDE_3: Final = 4096
_BY_SCHEMA, _BY_PROMPT = range(2)
_OWN_FIELDS: Final = ("messages", "system")
_TOOL_CHOICES: Final = {"auto": "auto", "required": "any", "none": "none"}


class AnthropicModel:
    """A model behind the Anthropic messages API, or a server that speaks it.

    Args:
        model: The model's name as the server knows it.
        base_url: The address before ``/v1/messages``.
        api_key: Sent as ``x-api-key``; None where the server wants none.
        name: How logs, results and errors name the model; default: ``anthropic/`` and the model.
        headers: Sent with each request, besides the usual ones (``anthropic-beta`` …).
        timeouts: How long to wait; see ``ModelTimeouts``.
        cache: Whether to mark system prompt, tools and the end of the conversation for the
            provider's prompt cache. A loop sends the same prefix again and again. A request in
            which a message has a ``cache_control`` of its own gets no other marks.
        key_variable: The environment variable the key comes from, for error texts.

    Raises:
        ConfigError: A value cannot work.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str = _BASE_URL,
        api_key: str | None = None,
        name: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeouts: ModelTimeouts = DEFAULT_TIMEOUTS,
        cache: bool = True,
        key_variable: str | None = "ANTHROPIC_API_KEY",
    ) -> None:
        if not model.strip():
            raise ConfigError(f"AnthropicModel.model is {model!r}; give the model's name")
        url = _without_version(checked_base_url(base_url))
        own = {"anthropic-version": _VERSION}
        if api_key:
            own["x-api-key"] = checked_key(api_key, source=key_variable or "api_key")
        self._model = model
        self._cache = cache
        self._endpoint = Endpoint(
            model=name or f"anthropic/{model}",
            url=below(url, "/v1/messages"),
            base_url=shown_url(url),
            headers=request_headers(own, headers),
            secrets=secrets_of(api_key, headers, url),
            timeouts=timeouts,
            key_variable=key_variable,
            advice="check the network (a proxy? a firewall?) and ANTHROPIC_BASE_URL, if it is set",
        )
        is_claude_3 = "claude-3" in model
        self._max_tokens = _MAX_TOKENS_CLAUDE_3 if is_claude_3 else _MAX_TOKENS
        self._schema_forms = SchemaForms()

    @property
    def name(self) -> str:
        """How logs and results name the model."""
        return self._endpoint.model

    @property
    def base_url(self) -> str:
        """The address, without user name and password."""
        return self._endpoint.base_url

    def __repr__(self) -> str:
        return f"AnthropicModel({self._model!r}, base_url={self.base_url!r})"

    async def generate(
        self, request: ModelRequest, on_delta: DeltaSink | None = None
    ) -> ModelReply:
        """Sends one request and reads the whole reply.

        A model that refuses the schema before it answers is asked again with it as text; what
        worked for a schema is used for it from then on, and for all where two were refused and none
        was taken. Without ``max_tokens`` up to 16,384 tokens
        are asked for (4,096 of Claude 3 models), since the protocol wants a number.

        Raises:
            ModelError: What went wrong, by its kind.
            ConfigError: ``extra_params`` or a message cannot be sent.
        """
        schema = request.json_schema
        as_text = schema is not None and self._schema_forms.of(schema) == _BY_PROMPT
        reply = await self._exchange(request, on_delta, schema_as_text=as_text)
        if isinstance(reply, ModelReply):
            if schema is not None and not as_text:
                self._schema_forms.note_strongest()
            return reply
        if schema is None or as_text:
            raise reply
        second = await self._exchange(request, on_delta, schema_as_text=True)
        if not isinstance(second, ModelReply):
            raise reply
        if not isinstance(reply, BadReplyError):
            self._schema_forms.keep(schema, _BY_PROMPT)
        return second

    async def _exchange(
        self, request: ModelRequest, on_delta: DeltaSink | None, *, schema_as_text: bool
    ) -> ModelReply | ModelError:
        """The reply, or the refusal that may be one of the schema and not of the request."""
        endpoint = self._endpoint
        body = self._body(request, schema_as_text=schema_as_text)
        async with post(endpoint, body) as response:
            if not response.is_success:
                said = await response.beginning()
                refusal = refused(response.status, response.headers, said, endpoint)
                if request.json_schema is not None and refuses_schema(response.status, said):
                    return refusal
                raise refusal
            assembler = MessageAssembler(endpoint, request_id_of(response.headers, endpoint))
            await read_reply(response, assembler, endpoint, on_delta)
        return assembler.reply()

    def _body(self, request: ModelRequest, *, schema_as_text: bool) -> bytes:
        messages = request.messages
        if request.json_schema is not None and schema_as_text:
            last = messages[-1] if messages else None
            kept = messages[:-1] if last is not None and last.role == "user" else messages
            messages = [*kept, with_schema_hint(last, request.json_schema)]
        try:
            head = encoded(self._fields(request, schema_as_text=schema_as_text))
            cache = self._cache and not has_cache_marks(messages)
            system, turns = system_and_messages(messages, cache=cache)
            tools = b""
            if request.tools.specs and "tools" not in request.extra_params:
                tools = tools_of(request.tools, cache=cache)
        except ConfigError:
            raise
        except (TypeError, ValueError, RecursionError) as error:
            raise ConfigError(
                f"{self.name}: the request has no JSON form ({error}); look for values other than"
                " text, numbers, lists and dicts in extra_params and in the messages"
            ) from error
        parts = [head[:-1]]
        if tools:
            parts += [b',"tools":[', tools, b"]"]
        if system:
            parts += [b',"system":[', system, b"]"]
        parts += [b',"messages":[', turns, b"]}"]
        return b"".join(parts)

    def _fields(self, request: ModelRequest, *, schema_as_text: bool) -> dict[str, Any]:
        """All fields but tools, system prompt and messages, whose encoded forms are kept."""
        fields: dict[str, Any] = {"model": self._model, "max_tokens": self._max_tokens}
        if request.max_tokens is not None:
            fields["max_tokens"] = request.max_tokens
        if request.temperature is not None:
            fields["temperature"] = request.temperature
        if request.json_schema is not None and not schema_as_text:
            form = {"type": "json_schema", "schema": closed(request.json_schema)}
            fields["output_config"] = {"format": form}
        for key, value in request.extra_params.items():
            if key in _OWN_FIELDS:
                raise ConfigError(f"extra_params holds {key!r}; give it as messages")
            # `effort` may stand beside the `format` of a schema.
            beside = fields.get(key) if key == "output_config" else None
            fields[key] = {**beside, **as_dict(value)} if beside else value
        choice = fields.get("tool_choice")
        if isinstance(choice, str):
            fields["tool_choice"] = {"type": _TOOL_CHOICES.get(choice, choice)}
        fields = {key: value for key, value in fields.items() if value is not None}
        fields["stream"] = True
        return fields


def _without_version(url: str) -> str:
    """The base address without a ``/v1`` at the end of its path."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path=parts.path.removesuffix("/v1")))
