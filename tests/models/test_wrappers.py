"""Retries, fallbacks and the limit on one try, around any model."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from untildone.agent import RetryPolicy
from untildone.domain.errors import (
    AuthenticationError,
    BadReplyError,
    BadRequestError,
    ConfigError,
    ConnectionFailedError,
    ModelTimeoutError,
    RateLimitError,
    ServerError,
)
from untildone.domain.messages import Message, user_message
from untildone.domain.requests import (
    Delta,
    DeltaSink,
    FallbackTriggered,
    ModelReply,
    ModelRequest,
    RetryAttempt,
    TextDelta,
    ThinkingDelta,
)
from untildone.models.fallback import FallbackModel
from untildone.models.retrying import RetryingModel
from untildone.models.timeout import TimeoutModel
from untildone.ports import Model
from untildone.testing import FakeClock


class Wait:
    """Without end."""


HELLO = ModelRequest(messages=[user_message("hi")])
Step = Delta | BaseException | Wait
"""What a try does: show something, fail, or wait."""


class Tries:
    """A model whose try k does the steps k and, where none fails, replies with its name."""

    def __init__(self, *tries: Sequence[Step], name: str = "m") -> None:
        self.name = name
        self.tries = tries
        self.made = 0
        self.begun = asyncio.Event()

    async def generate(
        self, request: ModelRequest, on_delta: DeltaSink | None = None
    ) -> ModelReply:
        steps = self.tries[min(self.made, len(self.tries) - 1)]
        self.made += 1
        self.begun.set()
        for step in steps:
            if isinstance(step, BaseException):
                raise step
            if isinstance(step, Wait):
                await asyncio.Event().wait()
            elif on_delta is not None:
                await on_delta(step)
        return ModelReply(message=Message("assistant", self.name), finish_reason="stop")


BUSY = RateLimitError("busy", status=429)


def retrying(
    inner: Model, clock: FakeClock | None = None, dice: float = 0.0, **policy: Any
) -> RetryingModel:
    return RetryingModel(inner, RetryPolicy(**policy), clock or FakeClock(), dice=lambda: dice)


async def shown(model: Model) -> tuple[str, list[Delta]]:
    seen: list[Delta] = []

    async def sink(piece: Delta) -> None:
        seen.append(piece)

    reply = await model.generate(HELLO, sink)
    return reply.message.text, seen


@pytest.mark.parametrize(
    "error",
    [
        RateLimitError("x"),
        ServerError("x"),
        ConnectionFailedError("x"),
        ModelTimeoutError("x"),
        BadReplyError("x"),
    ],
)
async def test_what_another_try_can_help_is_tried_again(error: Exception):
    model = Tries([error], [])
    assert (await retrying(model).generate(HELLO)).message.text == "m"
    assert model.made == 2


@pytest.mark.parametrize("error", [AuthenticationError("x"), BadRequestError("x")])
async def test_refused_keys_and_requests_are_never_tried_again(error: Exception):
    model = Tries([error], [])
    with pytest.raises(type(error)):
        await retrying(model, retry_on=(Exception,)).generate(HELLO)
    assert model.made == 1


async def test_what_the_policy_does_not_name_is_not_tried_again():
    model = Tries([ServerError("x")], [])
    with pytest.raises(ServerError):
        await retrying(model, retry_on=(RateLimitError,)).generate(HELLO)
    model = Tries([LookupError("x")], [])
    with pytest.raises(LookupError):
        await retrying(model).generate(HELLO)
    assert model.made == 1


async def test_other_exceptions_are_tried_again_where_the_policy_names_them():
    model = Tries([LookupError("x")], [])
    await retrying(model, retry_on=(LookupError,)).generate(HELLO)
    assert model.made == 2


@pytest.mark.parametrize("retries", [0, 1, 3])
async def test_after_the_last_retry_the_last_failure_is_raised(retries: int):
    errors = [[RateLimitError(f"busy {n}")] for n in range(5)]
    model = Tries(*errors)
    with pytest.raises(RateLimitError, match=f"busy {retries}") as caught:
        await retrying(model, max_retries=retries).generate(HELLO)
    assert model.made == retries + 1
    notes = [f"tried {retries + 1} times"] if retries else []
    assert getattr(caught.value, "__notes__", []) == notes


async def test_an_error_that_is_raised_again_and_again_is_noted_once():
    failed = RateLimitError("busy")
    for _ in range(2):
        with pytest.raises(RateLimitError):
            await retrying(Tries([failed], [failed]), max_retries=1).generate(HELLO)
    assert failed.__notes__ == ["tried 2 times"]


async def test_waits_double_up_to_the_longest():
    clock = FakeClock()
    with pytest.raises(RateLimitError):
        await retrying(
            Tries([BUSY]), clock, max_retries=5, backoff_seconds=1, max_backoff_seconds=6
        ).generate(HELLO)
    assert clock.slept == [1, 2, 4, 6, 6]


async def test_waits_stay_the_same_without_exponential():
    clock = FakeClock()
    with pytest.raises(RateLimitError):
        await retrying(Tries([BUSY]), clock, backoff_seconds=2, exponential=False).generate(HELLO)
    assert clock.slept == [2, 2, 2]


async def test_chance_shortens_a_wait_by_at_most_the_jitter():
    clock = FakeClock()
    model = retrying(Tries([BUSY], []), clock, dice=0.5, backoff_seconds=10, jitter=0.2)
    await model.generate(HELLO)
    assert clock.slept == [9.0]


@pytest.mark.parametrize(
    ("asked", "dice", "waited"),
    [(5.0, 0.0, 5.0), (0.5, 0.0, 1.0), (100.0, 0.0, 60.0), (0.0, 0.0, 1.0), (10.0, 0.5, 10.5)],
)
async def test_a_longer_wait_that_the_provider_asks_for_wins(
    asked: float, dice: float, waited: float
):
    clock = FakeClock()
    model = Tries([RateLimitError("busy", retry_after_s=asked)], [])
    await retrying(model, clock, dice, jitter=0.1).generate(HELLO)
    assert clock.slept == [pytest.approx(waited)]


async def test_thousands_of_retries_are_no_arithmetic_problem():
    clock = FakeClock()
    with pytest.raises(RateLimitError):
        await retrying(Tries([BUSY]), clock, max_retries=2000).generate(HELLO)
    assert clock.slept[-1] == 60


async def test_a_retry_tells_a_live_reader_what_is_void():
    model = Tries(
        [TextDelta("Hel"), ThinkingDelta("hm"), TextDelta("lo"), BUSY],
        [BUSY],
        [TextDelta("Hello")],
    )
    assert await shown(retrying(model)) == (
        "m",
        [
            TextDelta("Hel"),
            ThinkingDelta("hm"),
            TextDelta("lo"),
            RetryAttempt(1, "m", 1.0, 5, "RateLimitError: busy"),
            RetryAttempt(2, "m", 2.0, 0, "RateLimitError: busy"),
            TextDelta("Hello"),
        ],
    )


async def test_a_reader_that_raises_is_no_failure_of_the_model():
    async def sink(_piece: Delta) -> None:
        raise ServerError("reader")

    first, second = Tries([TextDelta("x")]), Tries([])
    with pytest.raises(ServerError, match="reader"):
        await FallbackModel([retrying(first), second]).generate(HELLO, sink)
    assert (first.made, second.made) == (1, 0)


async def test_cancelling_ends_a_try_and_a_wait_at_once():
    class NeverWakes(FakeClock):
        async def sleep(self, seconds: float) -> None:
            await asyncio.Event().wait()

    for inner in (Tries([Wait()]), Tries([BUSY])):
        model = FallbackModel(
            [
                RetryingModel(inner, RetryPolicy(retry_on=(BaseException,)), NeverWakes()),
                Tries([]),
            ]
        )
        call = asyncio.create_task(model.generate(HELLO))
        await inner.begun.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert inner.made == 1


@pytest.mark.parametrize(
    "error", [AuthenticationError("no"), BadRequestError("no"), BUSY, LookupError("no")]
)
async def test_the_next_model_takes_over_whatever_failed(error: Exception):
    model = FallbackModel([Tries([error], name="a"), Tries([], name="b"), Tries([], name="c")])
    assert model.name == "a"
    assert (await model.generate(HELLO)).message.text == "b"


async def test_a_fallback_tells_a_live_reader_what_is_void():
    first = retrying(
        Tries([TextDelta("abc"), BUSY], [TextDelta("ab"), BUSY], name="a"), max_retries=1
    )
    second = Tries([TextDelta("x"), AuthenticationError("no key")], name="b")
    third = Tries([TextDelta("yes")], name="c")
    assert await shown(FallbackModel([first, second, third])) == (
        "c",
        [
            TextDelta("abc"),
            RetryAttempt(1, "a", 1.0, 3, "RateLimitError: busy"),
            TextDelta("ab"),
            FallbackTriggered("a", "b", 2, "RateLimitError: busy"),
            TextDelta("x"),
            FallbackTriggered("b", "c", 1, "AuthenticationError: no key"),
            TextDelta("yes"),
        ],
    )


async def test_the_last_models_failure_is_raised_and_knows_the_others():
    model = FallbackModel([Tries([BUSY], name="a"), Tries([BadRequestError("no")], name="b")])
    with pytest.raises(BadRequestError, match="no") as caught:
        await model.generate(HELLO)
    assert caught.value.__notes__ == ["before it failed: RateLimitError: busy"]


async def test_one_model_is_a_chain_too_and_none_is_not():
    assert (await FallbackModel([Tries([])]).generate(HELLO)).message.text == "m"
    with pytest.raises(ConfigError, match="at least one model"):
        FallbackModel([])


async def test_a_try_that_takes_too_long_ends():
    with pytest.raises(ModelTimeoutError) as caught:
        await TimeoutModel(Tries([Wait()]), 0.02).generate(HELLO)
    assert str(caught.value) == (
        "m: no whole reply within 0.02 s; where the model needs longer, raise timeout_s"
        " (Agent.timeout_s)"
    )
    assert caught.value.usage is None


async def test_a_time_out_inside_is_not_taken_for_the_limit():
    with pytest.raises(TimeoutError, match="inner") as caught:
        await TimeoutModel(Tries([TimeoutError("inner")]), 60).generate(HELLO)
    assert type(caught.value) is TimeoutError


async def test_each_try_has_the_whole_limit_and_a_time_out_is_tried_again():
    model = Tries([Wait()], [])
    assert (await retrying(TimeoutModel(model, 0.02)).generate(HELLO)).message.text == "m"
    assert model.made == 2


async def test_a_slow_reader_does_not_use_up_the_limit():
    async def sink(_piece: Delta) -> None:
        await asyncio.sleep(0.15)

    model = TimeoutModel(Tries([TextDelta("a"), TextDelta("b")]), 0.2)
    assert (await model.generate(HELLO, sink)).message.text == "m"


async def test_the_limit_runs_on_after_a_slow_reader():
    async def sink(_piece: Delta) -> None:
        await asyncio.sleep(0.03)

    with pytest.raises(ModelTimeoutError):
        await TimeoutModel(Tries([TextDelta("a"), Wait()]), 0.02).generate(HELLO, sink)


async def test_one_wrapper_serves_many_calls_at_once():
    class Flaky:
        name = "flaky"

        def __init__(self) -> None:
            self.failed: set[int] = set()

        async def generate(
            self, request: ModelRequest, on_delta: DeltaSink | None = None
        ) -> ModelReply:
            await asyncio.sleep(0)
            if id(request) not in self.failed:
                self.failed.add(id(request))
                raise BUSY
            return ModelReply(message=request.messages[0], finish_reason="stop")

    model = retrying(Flaky(), max_retries=1)
    requests = [ModelRequest(messages=[user_message(str(n))]) for n in range(200)]
    replies = await asyncio.gather(*(model.generate(request) for request in requests))
    assert [reply.message.text for reply in replies] == [str(n) for n in range(200)]
