"""OpenAI chat completions, the wire: any server that speaks ``POST {base_url}/chat/completions``.

Streaming is the one path. Retries, fallbacks and metering are wrappers around it, not in it; which
base URL and key belong to a provider is ``providers.py``'s.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from untildone.domain.errors import BadReplyError, ConfigError, ModelError
from untildone.domain.messages import Message
from untildone.domain.requests import DeltaSink, ModelReply, ModelRequest
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
from untildone.models.loose_json import encoded
from untildone.models.openai_reply import ReplyAssembler
from untildone.models.schemas import SchemaForms, is_strict, with_schema_hint
from untildone.models.tool_attachments import attachments_of, has_attachments, text_alone

REASONING_KEYS: Final = frozenset(
    {"reasoning", "reasoning_content", "reasoning_details", "anthropic_content"}
)
"""What wires keep of a model's reasoning in ``Message.extra``; sent back only to who wants it."""

_OPENAI_HOST: Final = "api.openai.com"
_ATTACHMENTS: Final = "chat:attachments"
_USERS: Final = b'{"role":"user","content":[%b]}'
_BY_SCHEMA, _BY_JSON_OBJECT, _BY_PROMPT = range(3)


class OpenAIChatModel:
    """A model behind an OpenAI-compatible address.

    Args:
        model: The model's name as the server knows it.
        base_url: The address before ``/chat/completions``, such as ``https://api.openai.com/v1``.
            A query, such as Azure's ``?api-version=…``, stays at the end of what is posted to.
        api_key: Sent as a bearer token; None where the server wants none.
        name: How logs, results and errors name the model; default: ``model``.
        headers: Sent with each request, besides the usual ones.
        timeouts: How long to wait; see ``ModelTimeouts``.
        key_variable: The environment variable the key comes from, for error texts.
        advice: What to check when nothing answers, for error texts.
        max_tokens_field: The field for ``max_tokens``; default: what the address understands.
        usage_option: Whether to ask for usage with ``stream_options``; some servers refuse it.
        sends_back: The fields of a model's reasoning that the server wants back in later requests.
        keeps_call_extras: Whether it wants back what it added to its tool calls.

    Raises:
        ConfigError: A value cannot work.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str,
        api_key: str | None = None,
        name: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeouts: ModelTimeouts = DEFAULT_TIMEOUTS,
        key_variable: str | None = None,
        advice: str = "check the address and that the server is running",
        max_tokens_field: str | None = None,
        usage_option: bool = True,
        sends_back: Sequence[str] = (),
        keeps_call_extras: bool = False,
    ) -> None:
        if not model.strip():
            raise ConfigError(f"OpenAIChatModel.model is {model!r}; give the model's name")
        url = checked_base_url(base_url)
        self._model = model
        self._endpoint = Endpoint(
            model=name or model,
            url=below(url, "/chat/completions"),
            base_url=shown_url(url),
            headers=request_headers(_authorization(api_key, url, key_variable), headers),
            secrets=secrets_of(api_key, headers, url),
            timeouts=timeouts,
            key_variable=key_variable,
            advice=advice,
        )
        self._fields: dict[str, Any] = {"model": model}
        if usage_option:
            self._fields["stream_options"] = {"include_usage": True}
        self._is_openai = urlsplit(url).hostname == _OPENAI_HOST
        self._max_tokens_field = max_tokens_field or (
            "max_completion_tokens" if self._is_openai else "max_tokens"
        )
        self._sends_back = tuple(sends_back)
        self._keeps_call_extras = keeps_call_extras
        self._dropped = REASONING_KEYS.difference(sends_back)
        if not self._is_openai:
            self._dropped |= {"refusal"}
        self._form = f"chat:{','.join(sorted(self._dropped))}:{keeps_call_extras}"
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
        return f"OpenAIChatModel({self._model!r}, base_url={self.base_url!r})"

    async def generate(
        self, request: ModelRequest, on_delta: DeltaSink | None = None
    ) -> ModelReply:
        """Sends one request and reads the whole reply.

        A server that refuses the schema before it answers is asked again with a weaker form of it,
        and last with the schema as text; the form that worked for a schema is used for it from
        then on, and for all schemas where the server has refused two and taken none. Where only
        one reply missed the schema (Groq), nothing is remembered.

        Raises:
            ModelError: What went wrong, by its kind.
            ConfigError: ``extra_params`` or a message cannot be sent.
        """
        schema = request.json_schema
        form = _BY_SCHEMA if schema is None else self._schema_forms.of(schema)
        first_refusal: ModelError | None = None
        is_lasting = True
        while True:
            reply = await self._exchange(request, form, on_delta)
            if isinstance(reply, ModelReply):
                break
            is_lasting = is_lasting and not isinstance(reply, BadReplyError)
            first_refusal = first_refusal or reply
            if form == _BY_PROMPT:
                raise first_refusal
            form += 1
        if schema is not None and first_refusal is not None:
            if is_lasting:
                self._schema_forms.keep(schema, form)
        elif schema is not None and form == _BY_SCHEMA:
            self._schema_forms.note_strongest()
        return reply

    async def _exchange(
        self, request: ModelRequest, form: int, on_delta: DeltaSink | None
    ) -> ModelReply | ModelError:
        """The reply, or the refusal that may be one of the schema and not of the request."""
        endpoint = self._endpoint
        body = self._body(request, form)
        async with post(endpoint, body) as response:
            if not response.is_success:
                said = await response.beginning()
                refusal = refused(response.status, response.headers, said, endpoint)
                if request.json_schema is not None and refuses_schema(response.status, said):
                    return refusal
                raise refusal
            request_id = request_id_of(response.headers, endpoint)
            assembler = ReplyAssembler(endpoint, request_id, self._sends_back)
            await read_reply(response, assembler, endpoint, on_delta)
        return assembler.reply()

    def _body(self, request: ModelRequest, form: int) -> bytes:
        """The request as JSON: bytes that are kept, joined; the history is never encoded anew."""
        try:
            fields, tools = self._fields_of(request, form)
            messages = self._messages(request, form)
            head = encoded(fields)
        except ConfigError:
            raise
        except (TypeError, ValueError, RecursionError) as error:
            raise ConfigError(
                f"{self.name}: the request has no JSON form ({error}); look for values other than"
                " text, numbers, lists and dicts in extra_params and in the messages"
            ) from error
        parts = [head[:-1], b',"messages":[', b",".join(messages), b"]"]
        if tools:
            parts += [b',"tools":', tools]
        parts.append(b"}")
        return b"".join(parts)

    def _fields_of(self, request: ModelRequest, form: int) -> tuple[dict[str, Any], bytes | None]:
        """All fields but the messages; the tools apart, since their encoded form is kept."""
        fields = dict(self._fields)
        if request.temperature is not None:
            fields["temperature"] = request.temperature
        if request.max_tokens is not None:
            fields[self._max_tokens_field] = request.max_tokens
        if request.json_schema is not None:
            if form == _BY_SCHEMA:
                fields["response_format"] = response_format(request)
            elif form == _BY_JSON_OBJECT:
                fields["response_format"] = {"type": "json_object"}
        tools = request.tools.wire_json() if request.tools.specs else None
        if request.extra_params:
            if "messages" in request.extra_params:
                raise ConfigError("extra_params holds 'messages'; give them as messages")
            fields.update(request.extra_params)
            if "tools" in request.extra_params:
                tools = None
            fields = {key: value for key, value in fields.items() if value is not None}
        fields["stream"] = True
        return fields, tools

    def _messages(self, request: ModelRequest, form: int) -> list[bytes]:
        messages = self._encoded(request.messages)
        if request.json_schema is not None and form != _BY_SCHEMA:
            last = request.messages[-1] if request.messages else None
            hinted = with_schema_hint(last, request.json_schema).wire_json()
            if last is not None and last.role == "user":
                messages[-1] = hinted
            else:
                messages.append(hinted)
        return messages

    def _encoded(self, messages: Sequence[Message]) -> list[bytes]:
        name, encode = self._form, self._encode
        if not any(map(has_attachments, messages)):
            return [message.wire_form(name, encode) for message in messages]
        forms: list[bytes] = []
        held: list[bytes] = []
        for message in messages:
            if message.role != "tool" and held:
                forms.append(_USERS % b",".join(held))
                held = []
            forms.append(message.wire_form(name, encode))
            if has_attachments(message):
                held.append(message.wire_form(_ATTACHMENTS, _encode_attachments))
        return [*forms, _USERS % b",".join(held)] if held else forms

    def _encode(self, message: Message) -> bytes:
        """The message as this server takes it: without what only other providers understand."""
        extra = message.extra or {}
        drops_extra = not self._dropped.isdisjoint(extra)
        drops_call_extra = not self._keeps_call_extras and any(
            call.extra for call in message.tool_calls
        )
        lacks_arguments = any(not call.arguments.strip() for call in message.tool_calls)
        is_foreign_role = message.role == "developer" and not self._is_openai
        if has_attachments(message):
            message = text_alone(message)
        if not (drops_extra or drops_call_extra or lacks_arguments or is_foreign_role):
            return message.wire_json()
        form = message.to_dict()
        form.pop("is_error", None)
        if is_foreign_role:
            form["role"] = "system"
        for key in self._dropped:
            form.pop(key, None)
        if drops_call_extra:
            keys = ("id", "type", "function")
            form["tool_calls"] = [{key: call[key] for key in keys} for call in form["tool_calls"]]
        for call in form["tool_calls"] if lacks_arguments else ():
            # A reply that was cut has such calls; servers that read the history refuse them.
            if not call["function"]["arguments"].strip():
                call["function"]["arguments"] = "{}"
        return encoded(form)


def _encode_attachments(message: Message) -> bytes:
    """The parts, as the inside of a JSON array."""
    return b",".join(map(encoded, attachments_of(message)))


def _authorization(api_key: str | None, url: str, key_variable: str | None) -> dict[str, str]:
    if not api_key:
        return {}
    if urlsplit(url).username is not None:
        raise ConfigError(
            "base_url holds a user name and there is an api_key too; use one of the two"
        )
    key = checked_key(api_key, source=key_variable or "api_key")
    return {"Authorization": f"Bearer {key}"}


def response_format(request: ModelRequest) -> dict[str, Any]:
    """The request's JSON Schema as OpenAI takes it."""
    schema = request.json_schema or {}
    name = re.sub(r"[^A-Za-z0-9_-]", "_", request.schema_name)[:64] or "reply"
    return {
        "type": "json_schema",
        "json_schema": {"name": name, "schema": schema, "strict": is_strict(schema)},
    }
