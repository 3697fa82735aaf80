"""Each failure has its type, names the value and the next step, and never shows a key."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from tests.models.raw_server import answer, chunked, delta, raw_server, sse
from untildone.domain.errors import (
    AuthenticationError,
    BadRequestError,
    ConfigError,
    ModelError,
    ModelTimeoutError,
    RateLimitError,
    ServerError,
)
from untildone.domain.messages import user_message
from untildone.domain.requests import ModelRequest
from untildone.domain.usage import Usage
from untildone.models.anthropic_messages import AnthropicModel
from untildone.models.endpoint import Endpoint
from untildone.models.failures import refused
from untildone.models.openai_chat import OpenAIChatModel
from untildone.models.providers import resolve_model

HELLO = ModelRequest(messages=[user_message("hi")])
KEY = "sk-test-0123456789abcdef"


async def failure(
    status: str, body: bytes, *headers: str, **settings: Any
) -> tuple[ModelError, str]:
    """The error of one answer, and the address it came from."""
    settings = {
        "api_key": KEY,
        "name": "openai/gpt-x",
        "key_variable": "OPENAI_API_KEY",
        **settings,
    }
    async with raw_server(answer(status, body, *headers)) as server:
        model = OpenAIChatModel("gpt-x", base_url=server.url, **settings)
        with pytest.raises(ModelError) as caught:
            await model.generate(HELLO)
        assert KEY not in f"{caught.value} {caught.value!r} {model!r}"
        return caught.value, server.url


def said(text: str) -> bytes:
    return json.dumps({"error": {"message": text, "type": "x", "code": None}}).encode()


@pytest.mark.parametrize(
    ("status", "kind", "step"),
    [
        (
            "401 Unauthorized",
            AuthenticationError,
            "check the key in OPENAI_API_KEY, and that it may use this model",
        ),
        (
            "403 Forbidden",
            AuthenticationError,
            "check the key in OPENAI_API_KEY, and that it may use this model",
        ),
        (
            "404 Not Found",
            BadRequestError,
            "the model name 'gpt-x' may be wrong, or the address lacks a part such as '/v1'",
        ),
        ("400 Bad Request", BadRequestError, "the request must be changed before it is sent again"),
        ("402 Payment Required", BadRequestError, "the account has no credit left for this"),
        ("413 Too Large", BadRequestError, "the request must be changed before it is sent again"),
        (
            "422 Unprocessable",
            BadRequestError,
            "the request must be changed before it is sent again",
        ),
        (
            "408 Request Timeout",
            ModelTimeoutError,
            "try again, with a shorter request if it stays so",
        ),
        (
            "429 Too Many Requests",
            RateLimitError,
            "wait and try again; if it stays so, check the account's limits",
        ),
        (
            "500 Internal Server Error",
            ServerError,
            "the fault is the provider's: try again later",
        ),
        ("502 Bad Gateway", ServerError, "the fault is the provider's: try again later"),
        (
            "503 Service Unavailable",
            ServerError,
            "the fault is the provider's: try again later",
        ),
        ("529 Overloaded", ServerError, "the fault is the provider's: try again later"),
    ],
)
async def test_each_status_has_its_error_and_its_next_step(
    status: str, kind: type[ModelError], step: str
):
    error, url = await failure(status, said("too bad"), "X-Request-Id: req_9")
    assert type(error) is kind
    assert error.status == int(status[:3])
    assert error.request_id == "req_9"
    assert error.usage == Usage()
    assert str(error) == f"openai/gpt-x: too bad (status {status[:3]} from {url}); {step}"


@pytest.mark.parametrize(
    ("settings", "step"),
    [
        (
            {"api_key": None},
            "no key was sent: put it into OPENAI_API_KEY (export OPENAI_API_KEY=…)",
        ),
        ({"api_key": None, "key_variable": None}, "no key was sent: give api_key='…'"),
        ({"key_variable": None}, "check the key that was given, and that it may use this model"),
        (
            {"api_key": None, "headers": {"api-key": "hush-hush"}},
            "check the key in OPENAI_API_KEY, and that it may use this model",
        ),
    ],
)
async def test_a_key_is_blamed_only_where_one_was_sent(settings: dict[str, Any], step: str):
    error, _ = await failure("401 Unauthorized", b"{}", **settings)
    assert str(error).endswith(f"; {step}")


@pytest.mark.parametrize(
    "text",
    [
        f"Incorrect API key provided: {KEY}. Find yours at",
        f"bad header 'Bearer {KEY}'",
        "Incorrect API key provided: sk-proj-abc***********************wxyz. Find",
        "key AIzaSyA-1234567890abcdef is not valid",
        "gsk_0123456789abcdef was revoked",
    ],
)
async def test_keys_that_the_provider_quotes_are_not_shown(text: str):
    error, _ = await failure("401 Unauthorized", said(text))
    assert "[key]" in str(error)
    for part in ("0123456789", "wxyz", "1234567890", "abc*"):
        assert part not in str(error)


ODD_KEY = 'Zq9/xY+7"ab&cd_ef==gh'


@pytest.mark.parametrize(
    "form",
    [
        pytest.param("Zq9%2FxY%2B7%22ab%26cd_ef%3D%3Dgh", id="in an address"),
        pytest.param("Zq9/xY%2B7%22ab%26cd_ef%3D%3Dgh", id="in a path"),
        pytest.param("zq9%2fxy%2b7%22ab%26cd_ef%3d%3dgh", id="in an address, small"),
        pytest.param('Zq9/xY+7\\"ab&cd_ef==gh', id="in JSON"),
        pytest.param('Zq9\\/xY+7\\"ab&cd_ef==gh', id="in the JSON of PHP"),
        pytest.param("Zq9/xY+7&quot;ab&amp;cd_ef==gh", id="in HTML"),
        pytest.param('zq9/xy+7"ab&cd_ef==gh', id="in small letters"),
        pytest.param("WnE5L3hZKzciYWImY2RfZWY9PWdo", id="in base64"),
    ],
)
async def test_a_key_is_hidden_in_every_form_in_which_it_is_quoted(form: str):
    for body in (f"it is: {form}".encode(), said(f"it is: {form}")):
        error, _ = await failure("401 Unauthorized", body, api_key=ODD_KEY)
        assert "it is: [key] (status" in str(error)


async def test_a_request_id_and_a_content_type_show_no_key():
    error, _ = await failure("400 Bad Request", b"x", f"X-Request-Id: r-{KEY}")
    assert error.request_id == "r-[key]"
    odd = answer("200 OK", b"zz", kind=f"text/{KEY}")
    good = chunked(sse(delta(content="a"), delta("stop")))
    good[0] = good[0].replace(b"\r\n\r\n", f"\r\nX-Request-Id: r-{KEY}\r\n\r\n".encode())
    async with raw_server(odd, good) as server:
        model = OpenAIChatModel("m", base_url=server.url, api_key=KEY)
        with pytest.raises(ModelError, match=r"text/\[key\]: 'zz'"):
            await model.generate(HELLO)
        assert (await model.generate(HELLO)).request_id == "r-[key]"


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        ({"anthropic-beta": "files-api-2025-04-14"}, "Unexpected value files-api-2025-04-14"),
        ({"X-Flag": "true"}, "stream must be true"),
        ({"X-Title": "stream"}, "stream must be true"),
        ({"X-Author": "ann"}, "ask ann"),
        ({"X-Version": "2024-12-01-preview"}, "2024-12-01-preview is gone"),
    ],
)
async def test_headers_that_hold_no_secret_are_not_masked(headers: dict[str, str], text: str):
    error, _ = await failure("400 Bad Request", said(text), headers=headers)
    assert text in str(error)


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        ({"X-Whatever": "a1b2c3d4e5f6a7b8c9d0"}, "a1b2c3d4e5f6a7b8c9d0"),
        (
            {"X-Whatever": "3f2504e0-4f89-11d3-9a0c-0305e82c3301"},
            "3f2504e0-4f89-11d3-9a0c-0305e82c3301",
        ),
        ({"X-Whatever": "Bearer open-sesame"}, "open-sesame"),
        ({"X-Auth": "open-sesame"}, "open-sesame"),
        ({"Cookie": "open-sesame"}, "open-sesame"),
    ],
)
async def test_headers_that_look_secret_are_masked(headers: dict[str, str], text: str):
    error, _ = await failure("400 Bad Request", said(f"it is {text}."), headers=headers)
    assert "it is [key]." in str(error)


async def test_what_is_given_to_servers_without_keys_is_a_word_like_others():
    error, _ = await failure("404 X", said("try: ollama pull m"), api_key="ollama")
    assert "try: ollama pull m" in str(error)


async def test_secrets_in_the_query_of_an_address_are_not_shown():
    body = said("no route /v1?api-version=2024-12-01-preview&api-key=hush-hush")
    async with raw_server(answer("404 Not Found", body)) as server:
        address = f"{server.url}?api-version=2024-12-01-preview&api-key=hush-hush"
        model = OpenAIChatModel("m", base_url=address)
        with pytest.raises(ModelError) as caught:
            await model.generate(HELLO)
    assert "/v1?api-version=2024-12-01-preview&api-key=[key] (status" in str(caught.value)
    assert "hush" not in f"{caught.value} {model!r} {model.base_url}"


@pytest.mark.parametrize("wire", [OpenAIChatModel, AnthropicModel])
def test_a_fragment_in_an_address_is_refused_without_being_shown(wire: Any):
    with pytest.raises(ConfigError, match=r"base_url is 'http://host/v1' .*give a key as api_key="):
        wire("m", base_url="http://host/v1?key=hunter2#hunter2")


async def test_what_a_terminal_would_obey_is_not_passed_on():
    error, _ = await failure("400 Bad Request", b"red \x1b[31malert\x07")
    assert "red \ufffd[31malert\ufffd" in str(error)


async def test_headers_of_the_user_are_secrets_too():
    error, _ = await failure(
        "400 Bad Request",
        said("unknown api-key hush-hush-hush"),
        headers={"api-key": "hush-hush-hush"},
    )
    assert "unknown api-key [key]" in str(error)


async def test_a_password_in_the_address_is_not_shown():
    model = OpenAIChatModel("m", base_url="http://ann:open-sesame@127.0.0.1:1/v1")
    with pytest.raises(ModelError) as caught:
        await model.generate(HELLO)
    assert "open-sesame" not in f"{caught.value} {model!r} {model.base_url}"
    assert "http://127.0.0.1:1/v1" in str(caught.value)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"error":{"message":"m1"}}', "m1"),
        (b'{"error":"m2"}', "m2"),
        (b'{"message":"m3"}', "m3"),
        (b'{"detail":"m4"}', "m4"),
        (b'{"detail":[{"msg":"m5","loc":["x"]}]}', "m5"),
        (b'{"message":{"detail":[{"msg":"m6"}]}}', "m6"),
        (b'[{"error":{"message":"m7"}}]', "m7"),
        (b'"m8"', "m8"),
        (b'{"odd":1}', '{"odd":1}'),
        (b"<html><head><style>a{}</style></head><body><h1>502</h1> bad</body></html>", "502 bad"),
        (
            b"<script>if (a<b) c()</script >shown<SCRIPT\nsrc=x>hidden</script><b>too</b>",
            "shown too",
        ),
        (b"cut <style>a{}", "cut"),
        (b"plain\n  text", "plain text"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b"", "no reason given"),
        (b"null", "null"),
        (b"[" * 60_000, "[" * 299 + "…"),
        (b"x" * 100_000, "x" * 299 + "…"),
    ],
)
async def test_what_the_body_says_is_told_in_one_short_line(body: bytes, expected: str):
    error, url = await failure("500 Oops", body)
    assert str(error).startswith(f"openai/gpt-x: {expected} (status 500 from {url});")


@pytest.mark.parametrize("piece", [b"<", b"<script>", b"<script", b"<a <", b"</style>"])
def test_a_page_of_broken_tags_is_read_in_one_go(piece: bytes):
    """Going back for each tag would take hours here."""
    endpoint = Endpoint(model="m", url="u", base_url="u", headers={})
    error = refused(500, {}, piece * (3_000_000 // len(piece)), endpoint)
    assert len(str(error)) < 500


@pytest.mark.parametrize("location", ["http://[::1", f"http://x/{KEY}", f"/{KEY}?k={KEY}", "?"])
async def test_a_redirect_to_anywhere_is_a_typed_error_without_the_key(location: str):
    error, _ = await failure("307 Temporary Redirect", b"", f"Location: {location}")
    assert type(error) is BadRequestError
    assert "it redirects to" in str(error)


@pytest.mark.parametrize(
    "url",
    [
        "htps://user:hunter2@host/v1",
        "https://user:hunter2@host:port/v1",
        "https://user:hunter2@ho st/v1",
        "https://user:hun/ter2@hunter2@[host/v1",
        "https://user:hunter2#x@host/v1",
        "user:hunter2@host",
        "host?api-key=hunter2",
    ],
)
def test_an_address_that_is_none_is_told_without_its_password(
    monkeypatch: pytest.MonkeyPatch, url: str
):
    with pytest.raises(ConfigError, match=r"base_url is '.*ho ?st") as caught:
        OpenAIChatModel("m", base_url=url)
    assert "hunter2" not in str(caught.value)
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.setenv("OPENAI_BASE_URL", url)
    with pytest.raises(ConfigError, match=r"OPENAI_BASE_URL is '.*ho ?st") as caught:
        resolve_model("openai/x")
    assert "hunter2" not in str(caught.value)


def test_the_address_of_ollama_is_told_without_its_password(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OLLAMA_HOST", "user:hunter2@ho st:99")
    with pytest.raises(ConfigError, match=r"OLLAMA_HOST is '.*@ho st:99'") as caught:
        resolve_model("ollama/x")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("login", "quoted"),
    [
        ("token-of-ann", "token-of-ann"),
        ("ann:open%2Dsesame", "open-sesame"),
        ("ann:open%2Dsesame", "YW5uOm9wZW4tc2VzYW1l"),
        ("token-of-ann", "dG9rZW4tb2YtYW5uOg=="),
        ("ann:pw1", "ann pw1"),
    ],
)
async def test_who_logs_in_by_the_address_is_not_shown_in_any_form(login: str, quoted: str):
    async with raw_server(answer("401 Unauthorized", said(f"who is {quoted} in all"))) as server:
        address = server.url.replace("://", f"://{login}@")
        with pytest.raises(AuthenticationError) as caught:
            await OpenAIChatModel("m", base_url=address).generate(HELLO)
    for part in quoted.split():
        assert part not in str(caught.value)
    assert "who is [key]" in str(caught.value)


async def test_short_keys_are_hidden_as_words_and_not_inside_of_others():
    async with raw_server(answer("401 Unauthorized", said("the key 'ab12' is not xab12y"))) as one:
        with pytest.raises(AuthenticationError, match="the key '\\[key\\]' is not xab12y"):
            await OpenAIChatModel("m", base_url=one.url, api_key="ab12").generate(HELLO)


def test_a_header_that_is_no_text_is_refused_without_being_shown():
    with pytest.raises(ConfigError, match="headers\\['X-Key'\\] is of type bytes") as caught:
        OpenAIChatModel("m", base_url="http://host/v1", headers={"X-Key": b"hunter2"})  # type: ignore[dict-item]
    assert "hunter2" not in str(caught.value)


NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)


def http_date(moment: datetime) -> str:
    return format_datetime(moment, usegmt=True)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        (["Retry-After: 7"], 7.0),
        (["Retry-After: 1.5"], 1.5),
        (["retry-after-ms: 250", "Retry-After: 1"], 0.25),
        (
            [f"Date: {http_date(NOW)}", f"Retry-After: {http_date(NOW + timedelta(seconds=90))}"],
            90.0,
        ),
        ([f"Date: {http_date(NOW)}", f"Retry-After: {http_date(NOW - timedelta(seconds=9))}"], 0.0),
        (["Retry-After: -3"], 0.0),
        (["Retry-After: soon"], None),
        (["Retry-After: nan"], None),
        (["Retry-After: inf"], None),
        ([], None),
    ],
)
async def test_how_long_the_provider_asks_to_wait_is_known(
    headers: list[str], expected: float | None
):
    error, _ = await failure("429 Too Many Requests", said("slow"), *headers)
    assert error.retry_after_s == expected


async def test_a_date_without_the_servers_clock_is_measured_by_ours():
    error, _ = await failure(
        "503 X", said("x"), f"Retry-After: {http_date(datetime.now(UTC) + timedelta(hours=1))}"
    )
    assert error.retry_after_s is not None
    assert 3500 < error.retry_after_s <= 3600


async def test_the_anthropic_wire_tells_its_failures_alike():
    body = b'{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}'
    async with raw_server(answer("401 Unauthorized", body, "request-id: req_7")) as server:
        model = AnthropicModel("claude-x", base_url=server.url, api_key="sk-ant-0123456789")
        with pytest.raises(AuthenticationError) as caught:
            await model.generate(HELLO)
        root = server.url.removesuffix("/v1")
        assert str(caught.value) == (
            f"anthropic/claude-x: invalid x-api-key (status 401 from {root}); check the key in"
            " ANTHROPIC_API_KEY, and that it may use this model"
        )
        assert caught.value.request_id == "req_7"
        assert "sk-ant" not in repr(model)
