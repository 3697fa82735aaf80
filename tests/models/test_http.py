"""Connections and waiting: nothing leaks, nothing hangs, no time-out is blamed on the wrong one."""

from __future__ import annotations

import asyncio
import gc
import socket
import subprocess
import sys
import threading
import traceback
import warnings
from typing import Any

import pytest

from tests.models.raw_server import (
    RawServer,
    answer,
    chunked,
    delta,
    hang_up,
    head,
    raw_server,
    sse,
    stall,
)
from untildone import Agent, run_agent
from untildone.domain.errors import (
    BadReplyError,
    ConfigError,
    ConnectionFailedError,
    ModelError,
    ModelTimeoutError,
)
from untildone.domain.messages import user_message
from untildone.domain.requests import Delta, ModelRequest
from untildone.domain.usage import Usage
from untildone.engine.context import Run
from untildone.models import http
from untildone.models.anthropic_messages import AnthropicModel
from untildone.models.endpoint import ModelTimeouts
from untildone.models.openai_chat import OpenAIChatModel
from untildone.models.timeout import TimeoutModel

HELLO = ModelRequest(messages=[user_message("hi")])
GOOD = sse(delta(content="yes"), delta("stop"), "[DONE]")
SHORT = 0.05
KEY = "mykey-0123456789abcdef"


def model_at(server: RawServer, **timeouts: Any) -> OpenAIChatModel:
    return OpenAIChatModel("m", base_url=server.url, timeouts=ModelTimeouts(**timeouts))


async def test_a_reply_read_to_its_end_leaves_its_connection_for_the_next():
    async with raw_server(chunked(GOOD)) as server:
        model = model_at(server)
        for _ in range(5):
            assert (await model.generate(HELLO)).message.text == "yes"
        assert server.connections == 1


async def test_a_last_http_chunk_that_comes_late_still_leaves_the_connection():
    async def later(_writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.005)

    start, *pieces, last = chunked(GOOD)
    async with raw_server([start, *pieces, later, last]) as server:
        model = model_at(server)
        for _ in range(3):
            await model.generate(HELLO)
        assert server.connections == 1


async def test_a_server_that_goes_on_after_the_end_mark_holds_nobody_up():
    async with raw_server([*chunked(GOOD, whole=False), stall]) as server:
        reply = await model_at(server).generate(HELLO)
        assert reply.message.text == "yes"


@pytest.mark.parametrize("status", ["400 Bad Request", "500 Internal Server Error"])
async def test_an_error_answer_leaves_its_connection_too(status: str):
    async with raw_server(answer(status, b'{"error":"x"}')) as server:
        model = model_at(server)
        for _ in range(3):
            with pytest.raises(ModelError):
                await model.generate(HELLO)
        assert server.connections == 1


async def test_an_idle_connection_that_the_server_closed_is_replaced_unseen():
    """Also where the event loop could not see it close, as when a tool has blocked the loop."""
    server = ServerOfOneEach(answer("200 OK", GOOD, kind="text/event-stream")[0])
    model = OpenAIChatModel("m", base_url=server.url)
    try:
        for number in (1, 2, 3):
            assert (await model.generate(HELLO)).message.text == "yes"
            server.wait_until_closed(number)  # blocks the loop
    finally:
        server.close()
    assert server.requests == 3


class ServerOfOneEach:
    """Answers one request of each connection and closes it; in a thread, so that it is not us."""

    def __init__(self, reply: bytes) -> None:
        self.requests = 0
        self._reply = reply
        self._closed = [threading.Event() for _ in range(3)]
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}/v1"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        for closed in self._closed:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            with connection, connection.makefile("rb") as reader:
                lines = iter(reader.readline, b"\r\n")
                heads = dict(line.lower().split(b":", 1) for line in lines if b":" in line)
                reader.read(int(heads[b"content-length"]))
                self.requests += 1
                connection.sendall(self._reply)
            closed.set()

    def wait_until_closed(self, number: int) -> None:
        assert self._closed[number - 1].wait(10)

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join()


async def test_an_answer_that_nobody_asked_for_is_nobodys():
    """Where the event loop has read it, it is in the client and no longer in the socket."""
    sent = asyncio.Event()
    stray = answer("200 OK", sse(delta(content="stray"), delta("stop")), kind="text/event-stream")

    async def later(writer: asyncio.StreamWriter) -> None:
        async def send() -> None:
            await asyncio.sleep(SHORT)
            writer.write(b"".join(stray))
            await writer.drain()
            await asyncio.sleep(SHORT)
            sent.set()

        tasks.append(asyncio.create_task(send()))

    tasks: list[asyncio.Task[None]] = []
    async with raw_server([*chunked(GOOD), later], chunked(GOOD)) as server:
        model = model_at(server)
        await model.generate(HELLO)
        await sent.wait()
        assert (await model.generate(HELLO)).message.text == "yes"
        assert server.connections == 2


async def test_a_request_that_was_read_is_never_sent_again_unasked():
    async with raw_server(chunked(GOOD), [hang_up], chunked(GOOD)) as server:
        model = model_at(server)
        await model.generate(HELLO)
        with pytest.raises(ConnectionFailedError, match="closed the connection before it answered"):
            await model.generate(HELLO)
        assert (len(server.requests), server.connections) == (2, 1)
        assert (await model.generate(HELLO)).message.text == "yes"


async def test_connections_that_llama_cpp_closes_untold_are_not_used_again():
    async def think(_writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(SHORT)

    begin = head("200 OK", "Transfer-Encoding: chunked", "Server: llama.cpp")
    async with raw_server([begin, think, *chunked(GOOD)[1:]]) as server:
        for _ in range(2):
            await model_at(server).generate(HELLO)
        assert server.connections == 2


async def test_a_new_connection_that_is_closed_without_an_answer_is_an_error():
    async with raw_server([hang_up]) as server:
        with pytest.raises(ConnectionFailedError, match="closed the connection before it answered"):
            await model_at(server).generate(HELLO)
        assert len(server.requests) == 1


@pytest.mark.parametrize("acts", [[stall], [head() + sse(delta(content="a")), stall]])
async def test_a_cancelled_call_closes_its_connection(acts: list[Any]):
    async with raw_server(acts) as server:
        call = asyncio.create_task(model_at(server).generate(HELLO))
        await server.asked.wait()
        await asyncio.sleep(0.005)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        server.scripts = [[hang_up]]
        pool = http._pools[asyncio.get_running_loop()]
        assert pool.session.connector is not None
        assert not pool.session.connector._conns


async def test_a_reader_that_raises_closes_the_connection():
    async def sink(_piece: Delta) -> None:
        raise LookupError("reader")

    async with raw_server([*chunked(sse(delta(content="a")), whole=False), stall]) as server:
        with pytest.raises(LookupError, match="reader"):
            await model_at(server).generate(HELLO, sink)


@pytest.mark.parametrize(
    ("acts", "timeouts", "said"),
    [
        ([stall], {"first_token_s": SHORT}, "no first token within 0.05 s"),
        ([head(), stall], {"first_token_s": SHORT}, "no first token within 0.05 s"),
        ([stall], {"total_s": SHORT}, "no whole reply within 0.05 s"),
        ([head(), stall], {"total_s": SHORT}, "no whole reply within 0.05 s"),
        (
            [head() + b": still here\n\n", stall],
            {"first_token_s": SHORT},
            "no first token within 0.05 s",
        ),
        (
            [head() + sse(delta(content="a")), stall],
            {"between_tokens_s": SHORT},
            "no next token within 0.05 s",
        ),
        (
            [head() + sse(delta(content="a")), stall],
            {"total_s": SHORT},
            "no whole reply within 0.05 s",
        ),
    ],
)
async def test_a_stall_ends_with_a_time_out_that_names_its_limit(
    acts: list[Any], timeouts: dict[str, float], said: str
):
    async with raw_server(acts) as server:
        with pytest.raises(ModelTimeoutError, match=said) as caught:
            await model_at(server, **timeouts).generate(HELLO)
    assert f"raise ModelTimeouts.{next(iter(timeouts))}" in str(caught.value)
    assert caught.value.usage is None


@pytest.mark.parametrize("late", ["before the head", "before the first token"])
async def test_a_late_first_token_does_not_lengthen_the_waits_after_it(late: str):
    async def later(_writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(2.5 * SHORT)

    first = sse(delta(content="a"))
    acts = [later, head() + first] if late == "before the head" else [head(), later, first]
    async with raw_server([*acts, stall]) as server:
        model = model_at(server, first_token_s=30, between_tokens_s=SHORT)
        async with asyncio.timeout(5):
            with pytest.raises(ModelTimeoutError, match="no next token"):
                await model.generate(HELLO)


async def test_comments_that_keep_the_connection_alive_are_no_tokens():
    async def ping_on(writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(b": ping\n\n")
            await writer.drain()
            await asyncio.sleep(0.005)

    for start in (head(), head() + sse(delta(content="a"))):
        async with raw_server([start, ping_on]) as server:
            model = model_at(server, first_token_s=SHORT, between_tokens_s=SHORT)
            with pytest.raises(ModelTimeoutError):
                await model.generate(HELLO)


def http_chunk(body: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(body), body)


BEGUN = sse(
    {"type": "message_start", "message": {"usage": {"input_tokens": 1, "output_tokens": 1}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "a"}},
)
SAME_USAGE = {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}


@pytest.mark.parametrize(
    ("kind", "begin", "again"),
    [
        pytest.param(OpenAIChatModel, b"", sse({"choices": []}), id="no choices"),
        pytest.param(OpenAIChatModel, b"", sse(delta()), id="empty deltas"),
        pytest.param(OpenAIChatModel, b"", sse(delta(role="assistant", content="")), id="no text"),
        pytest.param(OpenAIChatModel, b"", b"data: \n\n", id="blank data"),
        pytest.param(OpenAIChatModel, b"", sse(SAME_USAGE), id="usage that stays the same"),
        pytest.param(
            OpenAIChatModel,
            b"",
            sse(delta(tool_calls=[{"index": 0, "id": "1", "function": {"name": "f"}}])),
            id="a call that goes on with nothing",
        ),
        pytest.param(OpenAIChatModel, b"{", b" ", id="JSON, then blanks"),
        pytest.param(AnthropicModel, BEGUN, b"data: \n\n", id="Anthropic: blank data"),
        pytest.param(
            AnthropicModel,
            BEGUN,
            sse(
                {
                    "type": "content_block_delta",
                    "index": 0,
                    "delta": {"type": "text_delta", "text": ""},
                }
            ),
            id="Anthropic: empty deltas",
        ),
    ],
)
async def test_what_holds_nothing_of_the_reply_is_no_token(kind: Any, begin: bytes, again: bytes):
    async def go_on(writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(http_chunk(again))
            await writer.drain()
            await asyncio.sleep(SHORT / 5)

    start = head("200 OK", "Transfer-Encoding: chunked") + (http_chunk(begin) if begin else b"")
    timeouts = ModelTimeouts(first_token_s=SHORT, between_tokens_s=SHORT)
    async with raw_server([start, go_on]) as server:
        model = kind("m", base_url=server.url, timeouts=timeouts)
        with pytest.raises(ModelTimeoutError, match=r"no (first|next) token"):
            async with asyncio.timeout(10):
                await model.generate(HELLO)


async def test_pings_of_anthropic_are_signs_of_life():
    async def think(writer: asyncio.StreamWriter) -> None:
        for _ in range(15):  # together longer than the time-out
            writer.write(http_chunk(sse({"type": "ping"})))
            await writer.drain()
            await asyncio.sleep(SHORT)

    end = sse(
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, {"type": "message_stop"}
    )
    start = head("200 OK", "Transfer-Encoding: chunked") + http_chunk(BEGUN)
    timeouts = ModelTimeouts(between_tokens_s=SHORT * 10)
    async with raw_server([start, think, http_chunk(end) + http_chunk(b"")]) as server:
        model = AnthropicModel("m", base_url=server.url, timeouts=timeouts)
        assert (await model.generate(HELLO)).message.text == "a"


async def test_a_slow_reader_is_not_taken_for_a_slow_model():
    async def sink(_piece: Delta) -> None:
        await asyncio.sleep(0.25)

    stream = sse(delta(content="a"), delta("stop"), "[DONE]")
    limits = {"first_token_s": 0.2, "between_tokens_s": 0.2, "total_s": 0.2}
    async with raw_server(chunked(stream)) as server:
        reply = await model_at(server, **limits).generate(HELLO, sink)
    assert reply.message.text == "a"


async def test_waiting_for_a_connection_is_no_waiting_for_the_model(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(http, "_MOST_CONNECTIONS", 0)
    monkeypatch.setattr(http, "_connection_limit", lambda: 1)

    async def slowly(_writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.06)

    async with raw_server([slowly, *chunked(GOOD)]) as server:
        model = model_at(server, first_token_s=0.3)
        replies = await asyncio.gather(*(model.generate(HELLO) for _ in range(6)))
        assert [reply.message.text for reply in replies] == ["yes"] * 6
        assert server.connections == 1


async def test_a_connection_that_does_not_come_is_a_time_out_that_cost_nothing(
    monkeypatch: pytest.MonkeyPatch,
):
    found = asyncio.Event()

    async def slow_look_up(*_args: object, **_kwargs: object) -> list[Any]:
        await found.wait()
        return []

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", slow_look_up)
    model = OpenAIChatModel(
        "m",
        base_url="http://models.invalid/v1",
        timeouts=ModelTimeouts(connect_s=SHORT),
        advice="is the network up?",
    )
    with pytest.raises(ModelTimeoutError) as caught:
        await model.generate(HELLO)
    assert str(caught.value) == (
        "m: no connection to http://models.invalid/v1 within 0.05 s; is the network up?"
    )
    assert caught.value.usage == Usage()
    found.set()
    # The client lets a look-up that began come to its end.
    await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()})


async def test_a_refused_connection_costs_nothing_and_says_what_to_check():
    model = OpenAIChatModel("m", base_url="http://127.0.0.1:1/v1", advice="is it running?")
    with pytest.raises(ConnectionFailedError) as caught:
        await model.generate(HELLO)
    assert str(caught.value) == (
        "m: cannot connect to http://127.0.0.1:1/v1 (Connection refused); is it running?"
    )
    assert caught.value.usage == Usage()
    assert caught.value.status is None


async def test_a_host_that_does_not_exist_is_a_failed_connection():
    model = OpenAIChatModel("m", base_url="http://nowhere.invalid/v1")
    with pytest.raises(
        ConnectionFailedError, match=r"cannot connect to http://nowhere\.invalid/v1"
    ):
        await model.generate(HELLO)


async def test_what_does_not_speak_http_is_an_error():
    async with raw_server([b"SSH-2.0-OpenSSH_9.7\r\n", hang_up]) as server:
        with pytest.raises(BadReplyError, match="does not speak HTTP"):
            await model_at(server).generate(HELLO)


async def test_a_redirect_is_not_followed():
    moved = answer("302 Found", b"", "Location: https://elsewhere.example/v1?key=abc")
    async with raw_server(moved) as server:
        with pytest.raises(
            ModelError, match=r"redirects to https://elsewhere\.example/v1 "
        ) as caught:
            await model_at(server).generate(HELLO)
        assert len(server.requests) == 1
    assert "give the address it leads to" in str(caught.value)


async def test_a_large_request_is_sent_whole_and_without_a_warning():
    request = ModelRequest(messages=[user_message("x" * 3_000_000)])
    async with raw_server(chunked(GOOD)) as server:
        await model_at(server).generate(request)
        assert len(server.body()["messages"][0]["content"]) == 3_000_000


async def test_loopback_is_never_reached_through_a_proxy(monkeypatch: pytest.MonkeyPatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    async with raw_server(chunked(GOOD)) as server:
        assert (await model_at(server).generate(HELLO)).message.text == "yes"


async def test_other_hosts_are_reached_through_the_proxy_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
):
    for name in ("NO_PROXY", "no_proxy", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    async with raw_server(chunked(GOOD)) as proxy:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
        model = OpenAIChatModel("m", base_url="http://models.invalid/v1")
        assert (await model.generate(HELLO)).message.text == "yes"
        first_line = proxy.requests[0].partition(b"\r\n")[0]
        assert first_line == b"POST http://models.invalid/v1/chat/completions HTTP/1.1"


async def test_a_proxy_of_another_kind_is_told(monkeypatch: pytest.MonkeyPatch):
    for name in ("NO_PROXY", "no_proxy", "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", "socks5://user:secret@127.0.0.1:1")
    model = OpenAIChatModel("m", base_url="http://models.invalid/v1")
    with pytest.raises(ConnectionFailedError, match=r"socks5://…@127\.0\.0\.1:1") as caught:
        await model.generate(HELLO)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "proxy",
    [
        "user:hunter2@proxy:3128",
        "http://user:hunter2@proxy:port",
        "http://user:hunter2@no such:1",
        "socks5://user:hunter2@proxy:1",
        "http://user:hunter2@",
        "://hunter2",
    ],
)
async def test_a_proxy_that_is_none_is_told_without_its_password(
    monkeypatch: pytest.MonkeyPatch, proxy: str
):
    for name in ("NO_PROXY", "no_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", proxy)
    model = OpenAIChatModel("m", base_url="http://models.invalid/v1")
    with pytest.raises(ConnectionFailedError, match="set HTTPS_PROXY to one") as caught:
        await model.generate(HELLO)
    assert "hunter2" not in everything_about(caught.value)
    assert caught.value.usage == Usage()


async def test_a_proxy_that_refuses_does_not_show_its_password(monkeypatch: pytest.MonkeyPatch):
    for name in ("NO_PROXY", "no_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    async with raw_server(answer("407 Proxy Authentication Required", b"")) as proxy:
        monkeypatch.setenv("https_proxy", f"http://user:hunter2@127.0.0.1:{proxy.port}")
        model = OpenAIChatModel("m", base_url="https://models.invalid/v1", api_key=KEY)
        with pytest.raises(ConnectionFailedError, match="Proxy Authentication Required") as caught:
            await model.generate(HELLO)
    assert "hunter2" not in everything_about(caught.value)


def everything_about(error: BaseException) -> str:
    """What any logger could print of an error: texts, causes, contexts, local variables."""
    told: list[str] = []
    at: BaseException | None = error
    while at is not None:
        told += [repr(at), repr(at.args), repr(vars(at))]
        at = at.__cause__ or at.__context__
    own = error.__traceback__
    assert own is not None  # the test's own frame knows the key
    frames = traceback.TracebackException(type(error), error, own.tb_next, capture_locals=True)
    return "\n".join([*told, *frames.format()])


@pytest.mark.parametrize(
    ("acts", "kind"),
    [
        pytest.param([b"garbage\r\n\r\n", hang_up], BadReplyError, id="no HTTP"),
        pytest.param([b"HTTP/1.1 200 OK\r\nbad header\r\n\r\n"], BadReplyError, id="header"),
        pytest.param(answer("200 OK", b"x", "Content-Encoding: br"), ModelError, id="encoding"),
        pytest.param([hang_up], ConnectionFailedError, id="closed"),
        pytest.param(chunked(sse(delta(content="a")), whole=False), ModelTimeoutError, id="stall"),
        pytest.param([stall], ModelTimeoutError, id="no answer"),
        pytest.param(
            [*chunked(sse(delta(content="a")), whole=False), hang_up],
            ConnectionFailedError,
            id="broken in the middle",
        ),
    ],
)
async def test_no_error_leads_to_the_request_with_its_key(acts: list[Any], kind: type[ModelError]):
    timeouts = ModelTimeouts(first_token_s=0.2, between_tokens_s=0.2)
    async with raw_server(acts) as server:
        model = OpenAIChatModel("m", base_url=server.url, api_key=KEY, timeouts=timeouts)
        with pytest.raises(kind) as caught:
            await model.generate(HELLO)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert KEY not in everything_about(caught.value)


async def test_a_time_out_of_the_agent_does_not_lead_to_the_request_either():
    async with raw_server([stall]) as server:
        model = OpenAIChatModel("m", base_url=server.url, api_key=KEY)
        with pytest.raises(ModelTimeoutError, match="raise timeout_s") as caught:
            await TimeoutModel(model, 0.2).generate(HELLO)
    assert (caught.value.__cause__, caught.value.__context__) == (None, None)
    assert KEY not in everything_about(caught.value)


@pytest.mark.parametrize("before", [0, 60, 75, 80, 85, 90, 95, 100, 110, 115])
async def test_a_key_in_a_broken_answer_is_hidden_before_it_is_cut(before: int):
    line = b"HTTP/1.1 200 OK\r\n" + b"x" * before + b" " + KEY.encode() + b"\r\n\r\n"
    async with raw_server([line, hang_up]) as server:
        with pytest.raises(BadReplyError) as caught:
            await OpenAIChatModel("m", base_url=server.url, api_key=KEY).generate(HELLO)
    assert KEY[:6] not in str(caught.value)


async def test_closing_is_harmless_at_any_time_and_the_next_call_opens_anew():
    await http.aclose()
    async with raw_server(chunked(GOOD)) as server:
        model = model_at(server)
        await model.generate(HELLO)
        await http.aclose()
        await http.aclose()
        assert asyncio.get_running_loop() not in http._pools
        await model.generate(HELLO)
        assert server.connections == 2


async def test_closing_ends_the_calls_in_flight_and_those_that_wait(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(http, "_connection_limit", lambda: 2)
    begun = asyncio.Event()

    async def sink(_delta: Delta) -> None:
        begun.set()

    await http.aclose()
    asked = asyncio.Event()

    async def says_nothing(writer: asyncio.StreamWriter) -> None:
        asked.set()
        await stall(writer)

    streams = [*chunked(sse(delta(content="a")), whole=False), stall]
    async with raw_server(streams, [says_nothing], chunked(GOOD)) as server:
        model = model_at(server, first_token_s=5, between_tokens_s=5)
        calls = [asyncio.create_task(model.generate(HELLO, sink))]
        await begun.wait()  # in the middle of its reply
        calls += [asyncio.create_task(model.generate(HELLO)) for _ in range(3)]
        await asked.wait()  # one without an answer yet, two without a connection
        await http.aclose()
        ends = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(end) for end in ends] == [ConnectionFailedError] * 4
        assert all("the connections were closed" in str(end) for end in ends)
        assert [end.usage for end in ends if isinstance(end, ModelError)] == [
            None,
            None,
            Usage(),
            Usage(),
        ]
        assert not any(call.cancelling() for call in calls)
        assert (await model.generate(HELLO)).message.text == "yes"


async def test_a_reader_that_closes_the_connections_ends_its_own_call():
    async def sink(_delta: Delta) -> None:
        await http.aclose()

    async with raw_server([*chunked(sse(delta(content="a")), whole=False), stall]) as server:
        with pytest.raises(ConnectionFailedError, match="the connections were closed"):
            await model_at(server, between_tokens_s=5).generate(HELLO, sink)


def test_each_event_loop_has_connections_of_its_own_that_end_with_it():
    async def once() -> int:
        async with raw_server(chunked(GOOD)) as server:
            await model_at(server).generate(HELLO)
            await model_at(server).generate(HELLO)
            return server.connections

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        before = dict(http._pools)
        assert [asyncio.run(once()) for _ in range(3)] == [1, 1, 1]
        assert http._pools == before
        gc.collect()


def test_a_loop_that_is_closed_by_hand_leaves_no_complaints():
    script = """
import asyncio, gc, logging, sys
from tests.models.raw_server import chunked, delta, raw_server, sse
from untildone.domain.messages import user_message
from untildone.domain.requests import ModelRequest
from untildone.models.openai_chat import OpenAIChatModel
logging.basicConfig()

async def once():
    async with raw_server(chunked(sse(delta(content="yes"), delta("stop"), "[DONE]"))) as server:
        model = OpenAIChatModel("m", base_url=server.url)
        return await model.generate(ModelRequest(messages=[user_message("hi")]))

for _ in range(3):
    loop = asyncio.new_event_loop()
    loop.run_until_complete(once())
    loop.close()
    gc.collect()
asyncio.run(once())
loop = asyncio.new_event_loop()
loop.run_until_complete(once())
loop.close()
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr == ""


def test_importing_the_package_and_resolving_a_model_loads_no_http_client():
    code = """
import sys
import untildone
from untildone.models.providers import resolve_model
resolve_model("ollama/x")
heavy = {"aiohttp", "pydantic", "httpx", "click", "litellm", "email.mime"} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("value", [0, -1, True, "10", float("nan"), float("inf")])
def test_a_time_out_that_is_no_positive_number_is_refused(value: Any):
    with pytest.raises(ConfigError, match=r"ModelTimeouts\.connect_s") as caught:
        ModelTimeouts(connect_s=value)
    assert "None to wait without end" in str(caught.value)


async def test_a_kept_connection_does_not_keep_the_run_that_opened_it():
    async with raw_server(chunked(sse(delta(content="x"), delta("stop"), "[DONE]"))) as server:
        agent = Agent("a", OpenAIChatModel("m", base_url=server.url))
        question = "q" * 100_000
        await run_agent(agent, [{"role": "user", "content": question}])
        gc.collect()
        kept = [each for each in gc.get_objects() if isinstance(each, Run)]
        assert not [run for run in kept if run.query == question]
        assert len(http._pools[asyncio.get_running_loop()].session.connector._conns) == 1  # type: ignore[union-attr]
