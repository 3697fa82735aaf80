"""``image()`` and ``pdf()``: from what people have to a content part, and over both wires."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models.raw_server import answer, raw_server
from untildone.content import MAX_IMAGE_BYTES, MAX_PDF_BYTES, image, pdf
from untildone.domain.errors import ConfigError, ServerError
from untildone.domain.messages import message_from_dict
from untildone.domain.requests import ModelRequest
from untildone.models import http
from untildone.models.anthropic_messages import AnthropicModel
from untildone.models.openai_chat import OpenAIChatModel

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(64))
JPEG = b"\xff\xd8\xff\xe0\x00\x10JFIF"
GIF = b"GIF89a\x01\x00\x01\x00"
WEBP = b"RIFF\x0a\x00\x00\x00WEBPVP8 "
PDF = b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n"


def data_url(media_type: str, data: bytes) -> str:
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"


def url_of(part: dict[str, Any]) -> str:
    return part["image_url"]["url"]


@pytest.mark.parametrize(
    ("data", "media_type"),
    [(PNG, "image/png"), (JPEG, "image/jpeg"), (GIF, "image/gif"), (WEBP, "image/webp")],
)
def test_the_first_bytes_say_what_an_image_is(data: bytes, media_type: str, tmp_path: Path):
    expected = {"type": "image_url", "image_url": {"url": data_url(media_type, data)}}
    path = tmp_path / "wrongly named.bmp"
    path.write_bytes(data)
    claimed = data_url("image/bmp;charset=x", data)
    for source in (data, bytearray(data), memoryview(data), path, str(path), claimed):
        assert image(source) == expected


def test_an_address_is_left_to_the_provider_to_fetch():
    address = "HTTPS://x.example/a.png?size=2"
    assert image(address, detail="low") == {
        "type": "image_url",
        "image_url": {"url": address, "detail": "low"},
    }
    assert pdf("https://x.example/d/annual%20report.pdf?page=1") == {
        "type": "file",
        "file": {
            "filename": "annual report.pdf",
            "file_data": "https://x.example/d/annual%20report.pdf?page=1",
        },
    }


def test_a_pdf_is_called_as_its_file_or_as_told(tmp_path: Path):
    path = tmp_path / "bill.pdf"
    path.write_bytes(b"\xef\xbb\xbf" + PDF)
    part = pdf(path)
    assert part["type"] == "file"
    assert part["file"]["filename"] == "bill.pdf"
    assert part["file"]["file_data"] == data_url("application/pdf", b"\xef\xbb\xbf" + PDF)
    assert pdf(str(path), name="may.pdf")["file"]["filename"] == "may.pdf"
    for source in (PDF, data_url("application/pdf", PDF)):
        assert pdf(source)["file"] == {
            "filename": "document.pdf",
            "file_data": data_url("application/pdf", PDF),
        }
    assert pdf("https://x.example/")["file"]["filename"] == "document.pdf"


def test_data_urls_of_every_spelling_are_read():
    text = base64.b64encode(PNG).decode()
    wrapped = f"DATA:;BASE64,{text[:20]}\r\n {text[20:]}"
    escaped = "data:image/png;base64," + text.replace("/", "%2F").replace("=", "%3D")
    plain = "data:image/gif,GIF89a%01%00%01%00"
    assert url_of(image(wrapped)) == url_of(image(escaped)) == data_url("image/png", PNG)
    assert url_of(image(plain)) == data_url("image/gif", GIF)


@given(st.binary(max_size=200))
def test_what_is_given_is_what_is_sent(tail: bytes):
    sent = url_of(image(PNG + tail))
    assert base64.b64decode(sent.partition(",")[2]) == PNG + tail
    assert url_of(image(sent)) == sent


@given(st.one_of(st.text(max_size=300), st.binary(max_size=50)))
def test_anything_is_a_part_or_a_config_error(source: str | bytes):
    for make in (image, pdf):
        try:
            part = make(source)
        except ConfigError as error:
            said = str(error)
        else:
            said = f"{make.__name__}: {part['type']}; "
        assert said.startswith(f"{make.__name__}: ")
        assert "; " in said


SVG = b"<svg xmlns='http://www.w3.org/2000/svg'/>"


@pytest.mark.parametrize(
    ("make", "source", "said"),
    [
        (image, SVG, r"given as bytes is no PNG, .* b.<svg xmlns=.*; convert it to PNG"),
        (image, b"", "it is empty; convert"),
        (image, PDF, "is no PNG, JPEG, GIF or WebP"),
        (image, "data:image/png;base64,AAA", r"data:image/png;base64,AAA'… cannot be decoded"),
        (image, "data:image/png;base64,A~AA", "cannot be decoded .*; give the bytes themselves"),
        (image, "data:image/png", "there is no file 'data:image/png'"),
        (image, "s3://bucket/a.png", r"'s3://bucket/a.png' is an address .* download it"),
        (image, "file:///a.png", "give an https:// URL, a path"),
        (image, "no-such.png", r"there is no file 'no-such.png' in /.*; give a path"),
        (image, "a\0b", r"'a\\x00b' cannot be read"),
        (image, "x" * 5000, r"'x{60}'… \(5,000 characters\) cannot be read"),
        (image, ".", r"'.' is not a file; give the path of one"),
        (image, None, "the source is a NoneType; give a path"),
        (pdf, PNG, "is no PDF: .*; give plain text as text"),
        (pdf, os.devnull, "is not a file"),
    ],
)
def test_what_cannot_work_is_named_with_the_next_step(make: Any, source: Any, said: str):
    with pytest.raises(ConfigError, match=said) as caught:
        make(source)
    assert len(str(caught.value)) < 500


def test_a_detail_that_is_none_is_refused():
    fine: Any = "fine"
    with pytest.raises(ConfigError, match="detail is 'fine'; use one of auto, low, high"):
        image(PNG, detail=fine)


@pytest.mark.parametrize(("make", "limit"), [(image, MAX_IMAGE_BYTES), (pdf, MAX_PDF_BYTES)])
def test_what_is_too_large_is_refused_before_it_is_read(make: Any, limit: int, tmp_path: Path):
    path = tmp_path / "huge"
    with path.open("wb") as file:
        file.truncate(limit * 100)  # sparse: takes no room
    with pytest.raises(ConfigError, match=rf"huge' has {limit * 100:,} bytes, more than .*; \w"):
        make(path)
    with pytest.raises(ConfigError, match=rf"given as bytes .* more than the limit of {limit:,}; "):
        make(bytes(limit + 1))
    start = PNG if make is image else PDF
    assert make(start + bytes(limit - len(start)))


async def sent(model: Any, server: Any, *parts: dict[str, Any]) -> Any:
    message = message_from_dict({"role": "user", "content": list(parts)})
    with pytest.raises(ServerError):
        await model.generate(ModelRequest(messages=[message]))
    await http.aclose()
    return server.body()["messages"][0]["content"]


async def test_openai_gets_the_parts_as_they_are():
    parts = [image(PNG, detail="high"), image("https://x.example/a.png"), pdf(PDF, name="a.pdf")]
    async with raw_server(answer("500 Oh", b"{}")) as server:
        model = OpenAIChatModel("m", base_url=server.url)
        assert await sent(model, server, *parts) == parts


async def test_anthropic_gets_them_as_its_blocks():
    parts = [
        image(PNG, detail="high"),
        image("https://x.example/a.png"),
        pdf(PDF),
        pdf("https://x.example/a.pdf"),
    ]
    encoded_png, encoded_pdf = base64.b64encode(PNG).decode(), base64.b64encode(PDF).decode()
    async with raw_server(answer("500 Oh", b"{}")) as server:
        model = AnthropicModel("m", base_url=server.url.removesuffix("/v1"), api_key="k")
        blocks = await sent(model, server, *parts)
    for block in blocks:
        block.pop("cache_control", None)
    assert blocks == [
        {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": encoded_png},
        },
        {"type": "image", "source": {"type": "url", "url": "https://x.example/a.png"}},
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": encoded_pdf},
            "title": "document.pdf",
        },
        {
            "type": "document",
            "source": {"type": "url", "url": "https://x.example/a.pdf"},
            "title": "a.pdf",
        },
    ]
