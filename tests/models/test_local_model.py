"""``local/…`` as a model; the server behind it has tests of its own."""

from __future__ import annotations

import pytest

from tests.models.raw_server import chunked, delta, raw_server, sse
from untildone.domain.errors import ConfigError, ConnectionFailedError
from untildone.domain.messages import user_message
from untildone.domain.requests import ModelRequest
from untildone.models import local
from untildone.models.local_model import LocalModel

HELLO = ModelRequest(messages=[user_message("hi")])
GOOD = chunked(sse(delta(content="yes"), delta("stop"), "[DONE]"))


async def test_each_call_asks_where_the_server_is(monkeypatch: pytest.MonkeyPatch):
    asked: list[str] = []
    async with raw_server(GOOD) as first, raw_server(GOOD) as second:
        places = iter([first.url, first.url, second.url])

        async def base_url(name: str) -> str:
            asked.append(name)
            return next(places)

        monkeypatch.setattr(local, "local_base_url", base_url)
        model = LocalModel("smollm2")
        for _ in range(3):
            assert (await model.generate(HELLO)).message.text == "yes"
        assert (len(first.requests), len(second.requests)) == (2, 1)
    assert asked == ["smollm2"] * 3
    assert (model.name, repr(model)) == ("local/smollm2", "LocalModel('smollm2')")


async def test_a_server_that_died_is_a_failed_connection(monkeypatch: pytest.MonkeyPatch):
    async def base_url(_name: str) -> str:
        return "http://127.0.0.1:1/v1"

    monkeypatch.setattr(local, "local_base_url", base_url)
    with pytest.raises(ConnectionFailedError, match="the next call starts it again"):
        await LocalModel("smollm2").generate(HELLO)


async def test_an_unknown_embedded_model_is_a_config_error():
    with pytest.raises(ConfigError, match="nonesuch"):
        await LocalModel("nonesuch").generate(HELLO)
