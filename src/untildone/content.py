"""Images and PDFs as content parts of a message, in OpenAI form.

The wires translate: Anthropic's takes the same parts. What a file is, its first bytes say; its name
and what a data URL claims do not count.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import unquote, unquote_to_bytes, urlsplit

from untildone.domain.errors import ConfigError

Source = str | os.PathLike[str] | bytes | bytearray | memoryview
"""A path, an ``https://`` or ``http://`` URL, a ``data:`` URL, or the bytes themselves."""

MAX_IMAGE_BYTES: Final = 20_000_000
MAX_PDF_BYTES: Final = 32_000_000

_IMAGES: Final = (
    ("image/png", re.compile(rb"\x89PNG\r\n\x1a\n")),
    ("image/jpeg", re.compile(rb"\xff\xd8\xff")),
    ("image/gif", re.compile(rb"GIF8[79]a")),
    ("image/webp", re.compile(rb"RIFF.{4}WEBP", re.DOTALL)),
)
_DETAILS: Final = ("auto", "low", "high", "original")
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_DATA_URL: Final = re.compile(r"data:([^,]*),(.*)", re.DOTALL | re.IGNORECASE)
_PDF_MARK: Final = b"%PDF-"
_PDF_MARK_WITHIN: Final = 1024  # readers allow this much before the mark


def image(
    source: Source, *, detail: Literal["auto", "low", "high", "original"] | None = None
) -> dict[str, Any]:
    """An image as a content part: ``{"type": "image_url", …}``.

    Files, bytes and data URLs are sent with the message; the provider fetches an ``https://`` URL
    itself, and nothing is read here. A file is read at once, so in a coroutine call it by way of
    ``asyncio.to_thread`` where the disk is slow.

    Args:
        source: A path, an ``https://`` URL, a ``data:`` URL, or bytes: PNG, JPEG, GIF or WebP, at
            most 20 MB. Many providers take less.
        detail: How closely OpenAI looks: ``"auto"``, ``"low"``, ``"high"`` or ``"original"``;
            other providers pass over it.

    Raises:
        ConfigError: There is no such file, it is too large, or it is no such image.
    """
    if detail is not None and detail not in _DETAILS:
        raise ConfigError(f"image: detail is {detail!r}; use one of {', '.join(_DETAILS)}")
    url = _url(source, "image", MAX_IMAGE_BYTES, _image_type)
    return {"type": "image_url", "image_url": {"url": url} | ({"detail": detail} if detail else {})}


def pdf(source: Source, *, name: str | None = None) -> dict[str, Any]:
    """A PDF as a content part: ``{"type": "file", …}``.

    Files, bytes and data URLs are sent with the message. An ``https://`` URL is for the provider to
    fetch: Anthropic and OpenRouter do, OpenAI's chat completions want the document itself.

    Args:
        source: A path, an ``https://`` URL, a ``data:`` URL, or bytes: at most 32 MB.
        name: What the model is told it is called; default: the name in the path or the URL, or
            ``document.pdf``.

    Raises:
        ConfigError: There is no such file, it is too large, or it is no PDF.
    """
    url = _url(source, "pdf", MAX_PDF_BYTES, _pdf_type)
    return {"type": "file", "file": {"filename": name or _name_of(source), "file_data": url}}


def _url(source: Source, what: str, limit: int, type_of: Callable[[bytes], str | None]) -> str:
    """The source as a URL: an address as it is, everything else as a data URL."""
    if _is_address(source):
        return str(source)
    data = _bytes_of(source, what, limit)
    if len(data) > limit:
        raise _too_large(what, source, len(data), limit)
    media_type = type_of(data)
    if media_type is None:
        found = f"it begins with {data[:12]!r}" if data else "it is empty"
        wanted, advice = {
            "image": ("PNG, JPEG, GIF or WebP", "convert it to PNG"),
            "pdf": ("PDF", "give plain text as text, and save other documents as PDF"),
        }[what]
        raise ConfigError(f"{what}: {_shown(source)} is no {wanted}: {found}; {advice}")
    return f"data:{media_type};base64,{base64.b64encode(data).decode('ascii')}"


def _is_address(source: Source) -> bool:
    return isinstance(source, str) and source[:8].lower().startswith(("http://", "https://"))


def _bytes_of(source: Source, what: str, limit: int) -> bytes:
    if isinstance(source, bytes | bytearray | memoryview):
        return bytes(source)
    if isinstance(source, str):
        inline = _DATA_URL.fullmatch(source)
        if inline is not None:
            return _decoded(inline[1], inline[2], source, what)
        scheme = _SCHEME.match(source)
        if scheme is not None:
            raise ConfigError(
                f"{what}: {_shown(source)} is an address that no provider fetches; give an"
                " https:// URL, a path, or download it and give the bytes"
            )
    elif not isinstance(source, os.PathLike):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError(
            f"{what}: the source is a {type(source).__name__};"
            " give a path, an https:// URL, a data: URL, or bytes"
        )
    return _read(source, what, limit)


def _decoded(head: str, payload: str, source: str, what: str) -> bytes:
    if not head.lower().endswith(";base64"):
        return unquote_to_bytes(payload)
    try:
        return base64.b64decode(re.sub(r"\s+", "", unquote(payload)), validate=True)
    except (binascii.Error, ValueError) as error:
        raise ConfigError(
            f"{what}: {_shown(source)} cannot be decoded ({error}); give the bytes themselves"
        ) from None


def _read(source: str | os.PathLike[str], what: str, limit: int) -> bytes:
    try:
        path = Path(source)
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise ConfigError(f"{what}: {_shown(source)} is not a file; give the path of one")
        if status.st_size > limit:
            raise _too_large(what, source, status.st_size, limit)
        with path.open("rb") as file:
            return file.read(limit + 1)
    except FileNotFoundError:
        raise ConfigError(
            f"{what}: there is no file {_shown(source)} in {Path.cwd()};"
            " give a path, an https:// URL, a data: URL, or bytes"
        ) from None
    except ConfigError:
        raise
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"{what}: {_shown(source)} cannot be read ({reason});"
            " give a path, an https:// URL, a data: URL, or bytes"
        ) from error


def _too_large(what: str, source: Source, size: int, limit: int) -> ConfigError:
    advice = {"image": "scale it down", "pdf": "split it, or give the pages that matter"}[what]
    return ConfigError(
        f"{what}: {_shown(source)} has {size:,} bytes, more than the limit of {limit:,}; {advice}"
    )


def _image_type(data: bytes) -> str | None:
    return next((name for name, mark in _IMAGES if mark.match(data)), None)


def _pdf_type(data: bytes) -> str | None:
    return "application/pdf" if _PDF_MARK in data[:_PDF_MARK_WITHIN] else None


def _name_of(source: Source) -> str:
    name = ""
    if _is_address(source):
        name = unquote(urlsplit(str(source)).path).rpartition("/")[2]
    elif isinstance(source, str | os.PathLike) and not _DATA_URL.match(os.fspath(source)):
        name = Path(source).name
    return name or "document.pdf"


def _shown(source: Source) -> str:
    """The source as errors show it: never a whole document."""
    if isinstance(source, str | os.PathLike):
        text = os.fspath(source)
        if _DATA_URL.match(text):
            return f"the data URL {text[:30]!r}…"
        return repr(text) if len(text) <= 200 else f"{text[:60]!r}… ({len(text):,} characters)"  # noqa: PLR2004
    return "what was given as bytes"
