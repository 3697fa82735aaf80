"""What is secret in the configuration of an MCP server, kept out of texts that others read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

_PATH: Final = re.compile(r"(?:\.{0,2}|~|[A-Za-z]:)[/\\][^=]*$")
_NAMED: Final = r"[a-z_-]*(?:pass|pw|secret|token|key)[a-z_-]*"
_SECRET_OPTION: Final = re.compile(rf"(?i)--?{_NAMED}")
"""An option whose value, the next word, nobody shall read."""
_SECRET_VARIABLE: Final = re.compile(rf"(?i){_NAMED}")
_USER: Final = re.compile(r"(?<=://)[^\s\"'<>/?#]{1,500}@")
_QUERY: Final = re.compile(r"(://[^\s\"'<>?#]{1,500})[?#][^\s\"'<>]+")
_LEAST: Final = 6
"""Fewest characters of a value that is looked for: shorter ones stand in any text."""
_GONE: Final = "[secret]"


def redacted(text: str) -> str:
    """The text without what looks like a secret."""
    from untildone.tools.redaction import redacted  # compiles its patterns: 25 ms

    return redacted(text)


def shown_address(url: str) -> str:
    """An address without user and query, whatever else is wrong with it."""
    scheme, sign, rest = url.partition("://")
    if not sign:
        return url.partition("?")[0].rpartition("@")[2]
    address = re.split(r"[?#]", rest, maxsplit=1)[0]
    host, slash, path = address.partition("/")
    host = host.rpartition("@")[2]
    name, colon, port = host.rpartition(":")
    if colon and not host.endswith("]") and not port.isdecimal():
        return f"{scheme}://{name}:…"  # what is no port may be the beginning of a password
    return f"{scheme}://{host}{redacted(slash + path)}"


def shown_words(args: Sequence[str]) -> Iterator[str]:
    """The arguments of a command."""
    # A path to a file is long and has no gaps, like a key, but it is what a person looks for.
    for before, word in zip(("", *args), args, strict=False):
        if _SECRET_OPTION.fullmatch(before):
            yield _GONE
        else:
            yield word if _PATH.match(word) else redacted(word)


def secrets_of_address(url: str, headers: Mapping[str, str]) -> set[str]:
    """What errors about an address may repeat of it and of its headers."""
    parts = urlsplit(url)
    user = parts.netloc.rpartition("@")[0]
    found = {parts.query, user, *user.split(":", 1), *(text for _, text in parse_qsl(parts.query))}
    found |= {word for word in parts.path.split("/") if word and redacted(word) != word}
    found |= {word for text in headers.values() for word in (text, text.rpartition(" ")[2])}
    return found | {unquote(text) for text in found}


def secrets_of_command(args: Sequence[str], env: Mapping[str, str]) -> set[str]:
    """What a program may repeat of its options and its environment."""
    options = {word for before, word in pairwise(args) if _SECRET_OPTION.fullmatch(before)}
    for option, _, value in (word.partition("=") for word in args):
        if _SECRET_OPTION.fullmatch(option):
            options.add(value)
    return options | {text for name, text in env.items() if _SECRET_VARIABLE.fullmatch(name)}


def without(text: str, secrets: Iterable[str]) -> str:
    """The text without these values, and with addresses that show no user and no query.

    Args:
        text: An error, or what a server said beside the protocol.
        secrets: The values; those of a few characters are left, except in addresses.
    """
    text = _QUERY.sub(rf"\1?{_GONE}", _USER.sub(f"{_GONE}@", text))
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _LEAST:
            text = text.replace(secret, _GONE)
    return text
