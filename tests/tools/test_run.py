"""A tool call from arguments to text."""

import asyncio
import contextvars
import functools
import math
import threading
from typing import Any

import pytest

from untildone.domain.errors import ToolError
from untildone.domain.tools import output_text
from untildone.policy.cutting import DEFAULT_MAX_RESULT_CHARS
from untildone.policy.stuck import StuckDetector
from untildone.tools import as_tool, tool
from untildone.tools.results import MAX_ITERATED

WHERE = contextvars.ContextVar("WHERE", default="nowhere")


class InThreads:
    """An offload that counts."""

    def __init__(self) -> None:
        self.calls = 0

    async def __call__(self, function) -> Any:
        self.calls += 1
        return await asyncio.to_thread(function)


@pytest.fixture
def offload() -> InThreads:
    return InThreads()


async def call(function, arguments: str, offload) -> str:
    made = as_tool(function)
    return output_text(await made.run(made.parse(arguments), offload))


async def test_an_async_function_runs_in_the_loop(offload):
    async def where(number: int) -> str:
        return f"{number} {threading.current_thread() is threading.main_thread()}"

    assert await call(where, '{"number": 1}', offload) == "1 True"
    assert offload.calls == 0


async def test_a_sync_function_runs_where_the_offload_puts_it_with_its_context(offload):
    def where(number: int) -> str:
        return f"{number} {threading.current_thread() is threading.main_thread()} {WHERE.get()}"

    WHERE.set("here")
    assert await call(where, '{"number": 1}', offload) == "1 False here"
    assert offload.calls == 1


async def test_bound_methods_callable_objects_partials_and_lambdas(offload):
    class Shop:
        def __init__(self, name: str) -> None:
            self.name = name

        def price(self, item: str) -> str:
            return f"{item} at {self.name}"

        async def order(self, item: str) -> str:
            return f"{item} from {self.name}"

        async def __call__(self, item: str) -> str:
            return f"{item} by {self.name}"

        @classmethod
        def kind(cls, item: str) -> str:
            return f"{item} of {cls.__name__}"

        @staticmethod
        def tax(item: str) -> str:
            return f"{item} taxed"

    def join(left: str, right: str) -> str:
        return left + right

    shop = Shop("Ann's")
    results = [
        await call(one, '{"item": "tea"}', offload)
        for one in (
            shop.price,
            shop.order,
            shop,
            Shop.kind,
            shop.tax,
            Shop.__dict__["tax"],
            tool(name="shout")(lambda item: item.upper()),
        )
    ]
    assert results == [
        "tea at Ann's",
        "tea from Ann's",
        "tea by Ann's",
        "tea of Shop",
        "tea taxed",
        "tea taxed",
        "TEA",
    ]
    assert await call(math.sqrt, '{"x": 9}', offload) == "3.0"
    assert await call(functools.partial(join, "a"), '{"right": "b"}', offload) == "ab"
    assert await call(functools.partial(join, right="b"), '{"left": "a"}', offload) == "ab"
    assert await call(functools.partial(shop.order, "tea"), "{}", offload) == "tea from Ann's"


async def test_an_async_callable_object_is_not_offloaded(offload):
    class Caller:
        async def __call__(self) -> str:
            return "called"

    assert await call(Caller(), "", offload) == "called"
    assert await call(functools.partial(Caller()), "", offload) == "called"
    assert offload.calls == 0


async def test_an_awaitable_that_a_sync_function_returns_is_awaited(offload):
    async def inner(number: int) -> int:
        await asyncio.sleep(0)
        return number + 1

    def outer(number: int):
        return inner(number)

    assert await call(outer, '{"number": 1}', offload) == "2"


async def test_what_dispatches_on_its_first_argument_is_given_it_by_place(offload):
    @functools.singledispatch
    def show(value: int | str, times: int = 2) -> str:
        return f"other {value} {times}"

    @show.register
    def _(value: int, times: int = 2) -> str:
        return f"number {value} {times}"

    assert await call(show, '{"value": 1}', offload) == "number 1 2"
    assert await call(show, '{"value": "a", "times": 3}', offload) == "other a 3"
    assert await call(functools.partial(show, times=4), '{"value": 1}', offload) == "number 1 4"


async def test_signatures_with_a_slash_and_stars(offload):
    def positional(a: int, b: int = 2, /, c: int = 3) -> str:
        return f"{a} {b} {c}"

    def starred(a: int, b: int = 2, *rest: int, d: int = 4, **extra: int) -> str:
        return f"{a} {b} {rest} {d} {extra}"

    assert await call(positional, '{"a": 1}', offload) == "1 2 3"
    assert await call(positional, '{"a": 1, "c": 5}', offload) == "1 2 5"
    assert await call(starred, '{"a": 1}', offload) == "1 2 () 4 {}"
    sent = '{"a": 1, "rest": [8, 9], "d": 5, "extra": {"x": 7}}'
    assert await call(starred, sent, offload) == "1 2 (8, 9) 5 {'x': 7}"


async def test_parameters_may_have_any_name(offload):
    def odd(self: int, arguments: int, function: int, offload: int) -> str:
        return f"{self} {arguments} {function} {offload}"

    sent = '{"self": 1, "arguments": 2, "function": 3, "offload": 4}'
    assert await call(odd, sent, offload) == "1 2 3 4"


async def test_running_does_not_change_the_arguments(offload):
    def starred(*rest: int, **extra: int) -> int:
        extra["y"] = 1
        return len(rest)

    arguments = {"rest": [1], "extra": {"x": 1}}
    assert await as_tool(starred).run(arguments, offload) == "1"
    assert arguments == {"rest": [1], "extra": {"x": 1}}


async def test_the_functions_own_defaults_apply(offload):
    marker = object()

    def run(value: Any = marker) -> bool:
        return value is marker

    assert await call(run, "{}", offload) == "true"


async def test_results_of_other_types_are_json(offload):
    async def find() -> dict[str, list[int]]:
        return {"hits": [1]}

    async def nothing() -> None: ...

    assert await call(find, "{}", offload) == '{"hits":[1]}'
    assert await call(nothing, "{}", offload) == "null"


async def test_what_a_function_yields_is_collected(offload):
    def count(most: int):
        yield from range(most)

    async def count_async(most: int):
        for number in range(most):
            yield number

    assert await call(count, '{"most": 3}', offload) == "[0,1,2]"
    assert await call(count_async, '{"most": 3}', offload) == "[0,1,2]"


async def test_an_endless_async_generator_is_cut_and_closed(offload):
    closed = []

    async def count():
        number = 0
        try:
            while True:
                yield number
                number += 1
        finally:
            closed.append(number)

    text = await call(tool(max_result_chars=1_000_000)(count), "{}", offload)
    assert text.endswith(f'"… only the first {MAX_ITERATED:,} items are shown"]')
    assert closed == [MAX_ITERATED]


async def test_an_error_while_yielding_is_the_tools_error(offload):
    def broken():
        yield 1
        raise ValueError("halfway")

    with pytest.raises(ValueError, match="halfway"):
        await call(broken, "{}", offload)


async def test_what_a_function_raises_comes_out(offload):
    def fails() -> None:
        raise KeyError("x")

    async def refuses() -> None:
        raise ToolError("ask for less")

    with pytest.raises(KeyError):
        await call(fails, "{}", offload)
    with pytest.raises(ToolError, match="ask for less"):
        await call(refuses, "{}", offload)


async def test_stop_iteration_in_a_thread_is_an_error_and_no_hang(offload):
    def first(items: list[int]) -> int:
        return next(iter(items))

    with pytest.raises(RuntimeError, match="first raised StopIteration"):
        await call(first, '{"items": []}', offload)


async def test_long_results_are_cut(offload):
    async def read() -> str:
        return "x" * 5_000_000

    assert len(await call(read, "{}", offload)) == DEFAULT_MAX_RESULT_CHARS
    assert len(await call(tool(max_result_chars=300)(read), "{}", offload)) <= 300


async def test_an_async_function_that_takes_too_long_is_cancelled(offload):
    ends = []

    @tool(timeout_s=0.01)
    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise

    with pytest.raises(ToolError, match=r"timed out: wait gave no result within 0\.01 s") as caught:
        await call(wait, "{}", offload)
    assert ends == ["cancelled"]
    assert last_rule([str(caught.value)] * 6) == "transient_errors"


def last_rule(errors: list[str]) -> str | None:
    """What the stuck detector makes of these errors of different calls."""
    detector, signal = StuckDetector(), None
    for number, text in enumerate(errors):
        function = {"name": "wait", "arguments": f'{{"n": "{chr(97 + number) * 9}"}}'}
        calls = [{"id": str(number), "function": function}]
        detector.observe({"role": "assistant", "tool_calls": calls})
        answer = {"role": "tool", "tool_call_id": str(number), "content": text, "is_error": True}
        signal = detector.observe(answer)
    return signal.rule if signal else None


async def test_a_sync_function_that_takes_too_long_is_left_behind(offload):
    release = threading.Event()

    @tool(timeout_s=0.01)
    def wait() -> None:
        release.wait(10)

    try:
        with pytest.raises(ToolError, match="whether it had an effect is not known"):
            await call(wait, "{}", offload)
    finally:
        release.set()


async def test_a_functions_own_timeout_stays_its_own(offload):
    @tool(timeout_s=10)
    async def wait() -> None:
        raise TimeoutError("of the database")

    with pytest.raises(TimeoutError, match="of the database"):
        await call(wait, "{}", offload)


async def test_a_function_in_time_gives_its_result(offload):
    @tool(timeout_s=10)
    async def quick() -> str:
        return "done"

    assert await call(quick, "{}", offload) == "done"


async def test_cancelling_a_call_is_no_timeout(offload):
    started = asyncio.Event()

    @tool(timeout_s=10)
    async def wait() -> None:
        started.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(call(wait, "{}", offload))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
