"""Where a model is served and how long to wait for it. Pure data: nothing here sends anything.

It is also the one place that knows the secrets of a request, so that whatever is shown to people
(errors, ``repr``) goes through ``Endpoint.clean``.
"""

from __future__ import annotations

import html
import json
import math
import re
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final
from urllib.parse import parse_qsl, quote, quote_plus, unquote, urlsplit, urlunsplit

from untildone.domain.errors import ConfigError

_LONGEST_SHOWN: Final = 300
_SHORTEST_SECRET: Final = 6
_SHORTEST_WORD: Final = 3
# What keys look like, also the half-masked ones that providers quote back: sk-proj-ab***yz.
_KEY_SHAPE: Final = re.compile(
    r"\b(?:sk|gsk|xai|tgp|csk|nvapi)[-_][\w*.•…-]{5,}|\bAIza[\w*-]{5,}|\bBearer\s+[^\s\"',]{6,}"
)
_PLACEHOLDERS: Final = frozenset(
    {"ollama", "none", "null", "empty", "dummy", "not-needed", "no-key", "lm-studio", "vllm"}
)
"""What is given as a key to servers that want none; no secret, and words of many messages."""
_SECRET_NAME: Final = re.compile(
    r"auth(?!or)|key|token(?!s)|secret|passw|credential|cookie|session|signature|^sig$|^code$",
    re.IGNORECASE,
)
_PUBLIC_HEADERS: Final = re.compile(
    r"anthropic-(?:beta|version)|openai-(?:beta|organization|project)|content-.*|accept.*"
    r"|user-agent|(?:http-)?referer|origin|x-title|x-request-id|traceparent|tracestate",
    re.IGNORECASE,
)
_AUTH_SCHEME: Final = re.compile(r"(?:bearer|basic|token|digest)\s", re.IGNORECASE)
# Letters and digits in a long run, or very long: keys, whatever their header is called; no version
# such as 2024-12-01-preview.
_TOKEN_LIKE: Final = re.compile(
    r"(?=.*\d)(?=.*[A-Za-z])[\w.~+/=|-]*[A-Za-z0-9]{16}[\w.~+/=|-]*"
    r"|(?=.*\d)(?=.*[a-z])(?=.*[A-Z])[\w.~+/=|-]{32,}"
    r"|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTimeouts:
    """How long the wires wait, in seconds; None waits without end.

    What only keeps a connection alive (comments, empty pieces) does not count as an answer; time in
    which a slow reader of the stream makes the wire wait counts for none of them.

    Attributes:
        connect_s: For a connection, name look-up and TLS included.
        first_token_s: From then to the first piece of the reply.
        between_tokens_s: Between two pieces of it.
        total_s: For the whole reply.

    Raises:
        ConfigError: A value is not a positive number.
    """

    connect_s: float | None = 10.0
    first_token_s: float | None = 120.0
    between_tokens_s: float | None = 60.0
    total_s: float | None = None

    def __post_init__(self) -> None:
        for name in ("connect_s", "first_token_s", "between_tokens_s", "total_s"):
            value = getattr(self, name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
                raise ConfigError(
                    f"ModelTimeouts.{name} is {value!r}; it must be a number of seconds greater"
                    " than 0, or None to wait without end"
                )
            if not math.isfinite(value):
                raise ConfigError(
                    f"ModelTimeouts.{name} is {value!r}; use None to wait without end"
                )


DEFAULT_TIMEOUTS: Final = ModelTimeouts()


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where one model's requests go.

    Attributes:
        model: How errors name the model, for example ``openai/gpt-4o-mini``.
        url: The full address requests are posted to.
        base_url: What the user configured, as shown in errors.
        headers: Sent with each request; may hold a key, so never shown.
        secrets: What must not be shown wherever it turns up.
        timeouts: How long to wait.
        key_variable: The environment variable of the key, where there is one.
        advice: What to check when nothing answers there.
    """

    model: str
    url: str
    base_url: str
    headers: Mapping[str, str] = field(repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)
    timeouts: ModelTimeouts = DEFAULT_TIMEOUTS
    key_variable: str | None = None
    advice: str = "check the address and that the server is running"

    @property
    def sends_no_secret(self) -> bool:
        """Whether nothing that could be a key goes with a request: none is to blame for a 401.

        False where that is not known, as with a library that finds its keys itself.
        """
        return bool(self.url) and not self.secrets

    def clean(self, text: str, *, longest: int = _LONGEST_SHOWN) -> str:
        """Text from outside made fit to be shown: one line, shortened, without any key."""
        text = " ".join(text.split())
        if (pattern := _pattern_of(self.secrets)) is not None:
            text = pattern.sub("[key]", text)
        text = _KEY_SHAPE.sub("[key]", text)
        if len(text) > longest:
            text = text[: longest - 1] + "…"
        if text.isprintable():
            return text
        return "".join(mark if mark.isprintable() else "\ufffd" for mark in text)


@lru_cache(maxsize=256)
def _pattern_of(secrets: tuple[str, ...]) -> re.Pattern[str] | None:
    """What finds the secrets in whatever form servers quote them back; None where there are none.

    The longest first, so that no part of one is left over.
    """
    forms = {form for secret in secrets for form in _forms_of(secret)}
    parts = [
        re.escape(form)
        if len(form) >= _SHORTEST_SECRET
        else rf"(?<!\w){re.escape(form)}(?!\w)"  # not inside of other words
        for form in sorted(forms, key=lambda form: (-len(form), form))
        if len(form) >= _SHORTEST_WORD
    ]
    return re.compile("|".join(parts), re.IGNORECASE) if parts else None


def _forms_of(secret: str) -> set[str]:
    """A secret as it is, and as addresses, JSON, HTML and log-ins hold it."""
    if secret.lower() in _PLACEHOLDERS:
        return set()
    in_json = json.dumps(secret)[1:-1]
    forms = {
        secret,
        quote(secret),
        quote(secret, safe=""),
        quote_plus(secret),
        in_json,
        in_json.replace("/", "\\/"),
        html.escape(secret),
        html.escape(secret, quote=False),
        html.escape(secret, quote=False).replace('"', "&quot;"),
        repr(secret)[1:-1],
    }
    if len(secret) >= _SHORTEST_SECRET:
        forms.add(b64encode(secret.encode("utf-8", "replace")).decode())
    return forms


def request_headers(own: Mapping[str, str], headers: Mapping[str, str] | None) -> dict[str, str]:
    """The headers of a wire's requests.

    Args:
        own: The wire's own, with the key.
        headers: What the user adds or sets otherwise.

    Raises:
        ConfigError: A value cannot be sent.
    """
    sent = {
        "Accept": "text/event-stream, application/json",
        "Accept-Encoding": "identity",  # compressed streams are held back by their buffers
        "Content-Type": "application/json",
        "User-Agent": "untildone",
        **own,
    }
    for name, value in (headers or {}).items():
        sent[name] = checked_key(value, source=f"headers[{name!r}]")
    return sent


def secrets_of(api_key: str | None, headers: Mapping[str, str] | None, url: str) -> tuple[str, ...]:
    """What must not be shown: the key, who logs in by the address, secret headers and queries."""
    found = [api_key]
    for name, value in (headers or {}).items():
        if _is_secret(name, value):
            found += [value, *_AUTH_SCHEME.sub("", value).split()]
    for name, value in parse_qsl(urlsplit(url).query):
        if _is_secret(name, value):
            found.append(value)
    login, has_login, _ = urlsplit(url).netloc.rpartition("@")
    if has_login:
        name, _, password = login.partition(":")
        found += [name, password, unquote(name), unquote(password)]
        for sent in (f"{name}:{password}", f"{unquote(name)}:{unquote(password)}"):
            found.append(b64encode(sent.encode("utf-8", "replace")).decode())
    return tuple(dict.fromkeys(secret.strip() for secret in found if secret and secret.strip()))


def _is_secret(name: str, value: str) -> bool:
    """Whether a header or a field of a query holds what nobody should see."""
    if _PUBLIC_HEADERS.fullmatch(name):
        return False
    looks_secret = _AUTH_SCHEME.match(value) or _TOKEN_LIKE.fullmatch(value.strip())
    return bool(_SECRET_NAME.search(name) or looks_secret)


def below(url: str, path: str) -> str:
    """The address of ``path`` below a base address; a query stays at the end.

    Args:
        url: A checked base address, such as Azure's ``https://host/openai?api-version=…``.
        path: What is added to its path, with a slash first.
    """
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}{path}"))


def shown_url(url: str) -> str:
    """An address without user name, password and query, also one that is none."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return masked_login(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


def masked_login(text: str) -> str:
    """What was meant as an address, with nothing before an ``@`` and no query."""
    before, at, after = text.partition("?")[0].rpartition("@")
    after = after.partition("#")[0]
    if not at:
        return "://…" if after.startswith("://") else after
    scheme, has_scheme, _ = before.partition("://")
    return f"{scheme}://…@{after}" if has_scheme else f"…@{after}"


def checked_base_url(url: str, *, setting: str = "base_url") -> str:
    """The address without a slash at its end; it may have a query, such as ``?api-version=…``.

    Raises:
        ConfigError: It is no http or https address with a host, or has a fragment (``#…``).
    """
    text = url.strip().rstrip("/")
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname)
        _ = parts.port  # raises where it is no number
    except ValueError:
        usable = False
    if not usable or any(mark.isspace() for mark in text):
        raise ConfigError(
            f"{setting} is {masked_login(url)!r:.120}; it must be an address such as"
            " 'https://api.example.com/v1' or 'http://127.0.0.1:8000/v1'"
        )
    if "#" in text:
        raise ConfigError(
            f"{setting} is {masked_login(url)!r:.120} with something after a '#', which no server"
            " gets to see; leave that out, and give a key as api_key= or in headers="
        )
    return below(text, "") if "?" in text else text


def checked_key(key: str, *, source: str) -> str:
    """The key without the blanks that copying brings along; errors never show it.

    Raises:
        ConfigError: It is no text, or holds characters that no HTTP header can carry.
    """
    if not isinstance(key, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError(f"{source} is of type {type(key).__name__}; give it as text (str)")
    key = key.strip()
    if not key.isascii() or not key.isprintable():
        raise ConfigError(
            f"{source} holds characters that no key has (a line break, a quote mark from a text"
            " program?); copy the key again"
        )
    return key
