"""Answers that are no reply: from status, headers and body to a typed error. Pure, both wires.

Every text names the model, what the provider said, and the next step; none holds a key.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any, Final

from untildone.domain.errors import (
    AuthenticationError,
    BadReplyError,
    BadRequestError,
    ModelError,
    ModelTimeoutError,
    RateLimitError,
    ServerError,
)
from untildone.domain.usage import Usage
from untildone.models.endpoint import Endpoint, shown_url
from untildone.models.loose_json import as_dict, as_list, as_text, parsed

NOTHING_SPENT: Final = Usage()

# Errors inside a stream come with status 200 and say what they are in words.
_STATUS_OF_WORDS: Final[tuple[tuple[str, int], ...]] = (
    ("authentication", 401),
    ("api_key", 401),
    ("permission", 403),
    ("rate_limit", 429),
    ("quota", 429),
    ("overloaded", 529),
    ("not_found", 404),
    ("context_length", 400),
    ("invalid_request", 400),
    ("timeout", 504),
)
_MESSAGE_KEYS: Final = ("error", "message", "detail", "msg", "error_message")
_DEEPEST_MESSAGE: Final = 4
_TAG: Final = re.compile(r"(<[^<>]*>)")
_HIDDEN: Final = ("style", "script")
_SCHEMA_STATUSES: Final = (400, 422)
_OF_THE_SCHEMA: Final = re.compile(
    r"response.?format|output_config|output_format|json_schema|json.?(?:object|mode)"
    r"|structured|guided|grammar"
)
_OF_THE_LENGTH: Final = re.compile(
    r"context.?(?:length|window)|maximum context|too many tokens"
    r"|(?:prompt|input|request|messages?) (?:is|are) too (?:long|large)"
)
_ONE_MISS: Final = re.compile(
    rb"json_validate_failed|generated json does not match|failed to (?:generate|validate) json",
    re.IGNORECASE,
)
"""Groq's words for a reply that missed the schema or was no JSON, told as status 400."""
_OF_THE_TOOLS: Final = re.compile(r"\btools?\b|function|input_schema")
_LONGEST_ID: Final = 200
_REDIRECTS: Final = range(300, 400)
_ERRORS: Final = range(400, 600)


def refused(status: int, headers: Mapping[str, str], body: bytes, endpoint: Endpoint) -> ModelError:
    """The error that an HTTP status other than 2xx means."""
    said = endpoint.clean(_words_of(body)) or "no reason given"
    location = headers.get("location")
    if status in _REDIRECTS and location:
        said = f"it redirects to {endpoint.clean(shown_url(location), longest=120)}"
    if status in _SCHEMA_STATUSES and _ONE_MISS.search(body):
        return BadReplyError(
            f"{endpoint.model}: {said} (status {status} from {endpoint.base_url}); one reply was"
            " not what was asked for: try again",
            status=status,
            request_id=request_id_of(headers, endpoint),
        )
    return error_of(
        status,
        said,
        endpoint,
        request_id=request_id_of(headers, endpoint),
        retry_after_s=retry_after_s(headers),
        usage=NOTHING_SPENT,
    )


def refuses_schema(status: int, body: bytes) -> bool:
    """Whether an error answer says that the reply's schema cannot be had, not the request as such.

    Args:
        status: The HTTP status.
        body: The answer, or its beginning.
    """
    if status not in _SCHEMA_STATUSES:
        return False
    said = body.decode("utf-8", "replace").lower()
    if _OF_THE_LENGTH.search(said):
        return False
    if _OF_THE_SCHEMA.search(said):
        return True
    return "schema" in said and not _OF_THE_TOOLS.search(said)


def broken_inside(error: Any, endpoint: Endpoint, request_id: str | None) -> ModelError:
    """The error that an error object inside a stream of status 200 means."""
    fields = as_dict(error)
    words = f"{as_text(fields.get('type'))} {as_text(fields.get('code'))}".lower()
    said = endpoint.clean(_message_in(error) or words) or "no reason given"
    status = _status_in(fields) or next(
        (status for word, status in _STATUS_OF_WORDS if word in words), 500
    )
    return error_of(status, said, endpoint, request_id=request_id)


def unreadable(what: str, endpoint: Endpoint, usage: Usage | None = None) -> BadReplyError:
    """The error of a reply that is cut or is not what the protocol says."""
    return BadReplyError(
        f"{endpoint.model}: {what}, from {endpoint.base_url}; try again, and if it stays so, check"
        " that the address serves this protocol",
        usage=usage,
    )


def error_of(
    status: int,
    said: str,
    endpoint: Endpoint,
    *,
    request_id: str | None = None,
    retry_after_s: float | None = None,
    usage: Usage | None = None,
) -> ModelError:
    """The error of a status, with what the provider said and what to do next."""
    kind, step = _kind_and_step(status, endpoint)
    return kind(
        f"{endpoint.model}: {said} (status {status} from {endpoint.base_url}); {step}",
        status=status,
        request_id=request_id,
        retry_after_s=retry_after_s,
        usage=usage,
    )


def _kind_and_step(status: int, endpoint: Endpoint) -> tuple[type[ModelError], str]:
    """Which error a status is, and what its reader should do."""
    name = endpoint.model.partition("/")[2] or endpoint.model
    match status:
        case HTTPStatus.UNAUTHORIZED | HTTPStatus.FORBIDDEN:
            return AuthenticationError, _about_the_key(endpoint)
        case HTTPStatus.NOT_FOUND:
            return BadRequestError, (
                f"the model name {name!r} may be wrong, or the address lacks a part such as '/v1'"
            )
        case HTTPStatus.PAYMENT_REQUIRED:
            return BadRequestError, "the account has no credit left for this"
        case HTTPStatus.REQUEST_TIMEOUT:
            return ModelTimeoutError, "try again, with a shorter request if it stays so"
        case HTTPStatus.TOO_MANY_REQUESTS:
            return RateLimitError, (
                "wait and try again; if it stays so, check the account's limits"
            )
        case _ if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return ServerError, "the fault is the provider's: try again later"
        case _ if status in _REDIRECTS:
            return BadRequestError, "redirects are not followed: give the address it leads to"
        case _:
            return BadRequestError, "the request must be changed before it is sent again"


def _about_the_key(endpoint: Endpoint) -> str:
    """What to do where the provider wants another key, or any."""
    variable = endpoint.key_variable
    if endpoint.sends_no_secret:
        how = f"put it into {variable} (export {variable}=…)" if variable else "give api_key='…'"
        return f"no key was sent: {how}"
    if variable:
        return f"check the key in {variable}, and that it may use this model"
    return "check the key that was given, and that it may use this model"


def request_id_of(headers: Mapping[str, str], endpoint: Endpoint) -> str | None:
    """The provider's id of the request, where the headers have one; fit to be shown."""
    found = headers.get("x-request-id") or headers.get("request-id")
    return endpoint.clean(found, longest=_LONGEST_ID) if found else None


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """How long the provider asks to wait, in seconds, 0 or more."""
    value = headers.get("retry-after-ms")
    if value is not None and (milliseconds := _number(value)) is not None:
        return max(0.0, milliseconds / 1000)
    value = headers.get("retry-after")
    if value is None:
        return None
    seconds = _number(value)
    if seconds is None:
        seconds = _seconds_until(value, headers.get("date"))
    return None if seconds is None else max(0.0, seconds)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _seconds_until(when: str, now: str | None) -> float | None:
    """The time until an HTTP date; by the server's clock where it tells its time."""
    try:
        moment = parsedate_to_datetime(when).timestamp()
    except ValueError:
        return None
    try:
        return moment - parsedate_to_datetime(now or "").timestamp()
    except ValueError:
        return moment - time.time()


def _words_of(body: bytes) -> str:
    """What an error body says: the message of a JSON one, else its text without tags."""
    text = body.decode("utf-8", "replace").removeprefix("\ufeff")
    try:
        form = parsed(text)
    except ValueError:
        return _without_tags(text)
    if isinstance(form, list):
        form = next(iter(as_list(form)), None)
    return _message_in(form) or text


def _without_tags(text: str) -> str:
    """The text of a page without its tags, styles and scripts."""
    kept: list[str] = []
    hidden = ""
    for index, part in enumerate(_TAG.split(text)):
        if index % 2 == 0:
            if not hidden:
                kept.append(part)
            continue
        name = next(iter(part[1:-1].lower().split()), "")
        if name in _HIDDEN and not hidden:
            hidden = name
        elif name == f"/{hidden}":
            hidden = ""
    return " ".join(kept)


def _message_in(form: Any, depth: int = 0) -> str:
    """The message of an error in any of the forms that are about."""
    if isinstance(form, str):
        return form
    fields = as_dict(form)
    for key in _MESSAGE_KEYS:
        inner = fields.get(key)
        if isinstance(inner, list):
            inner = next(iter(as_list(inner)), None)
        if inner is not None and depth < _DEEPEST_MESSAGE:
            found = _message_in(inner, depth + 1)
            if found:
                return found
    return ""


def _status_in(fields: dict[str, Any]) -> int | None:
    for key in ("code", "status", "status_code"):
        value = fields.get(key)
        if isinstance(value, str) and value.isdecimal():
            value = int(value[:4])
        if isinstance(value, int) and value in _ERRORS:
            return value
    return None
