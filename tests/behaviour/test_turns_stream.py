"""``stream_agent``: a run as events, and whoever leaves early stops the work."""

import asyncio
import gc
from typing import Any

import pytest

from tests.behaviour.endings import ENDINGS, RAISED, RETURNED, Ending, each
from tests.behaviour.kit import ask, other_tasks, settle, until, watch
from tests.behaviour.manifest import requirement
from untildone import (
    Agent,
    ConfigError,
    EventType,
    StreamEvent,
    partial_result,
    run_agent,
    stream_agent,
)
from untildone.testing import ScriptedModel, call, reply

pytestmark = pytest.mark.timeout(30)


class Work:
    """An agent whose tool works until it is cancelled, and takes a while to clean up."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.cleaned_up = asyncio.Event()
        self.agent = Agent("ada", ScriptedModel([reply("Hm.", call("toil"))]), tools=[self.toil])

    async def toil(self) -> str:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(5):
                await asyncio.sleep(0)
            self.cleaned_up.set()
        return "never"


async def collected(stream: Any) -> list[StreamEvent]:
    return [event async for event in stream]


@requirement("stream.yields-events")
@each(RETURNED)
async def test_a_stream_gives_the_events_a_queue_would_get_and_then_the_result(ending: Ending):
    stream = stream_agent(ending.agent(), ask())
    events = await collected(stream)
    assert all(isinstance(event, StreamEvent) for event in events)
    assert [event.event for event in events] == (await watch(ending.agent())).kinds
    assert stream.result is not None
    assert (stream.result.exit_reason, stream.result.text) == (ending.reason, ending.text)


@requirement("stream.raises-after-error")
@each({name: ending for name, ending in RAISED.items() if name != "stop_condition"})
async def test_what_a_run_raises_is_raised_after_its_error_event(ending: Ending):
    events: list[StreamEvent] = []
    stream = stream_agent(ending.agent(), ask())
    assert ending.raises is not None

    async def read() -> None:
        async for event in stream:
            events.append(event)  # noqa: PERF401  what came before the exception is looked at

    with pytest.raises(ending.raises) as caught:
        await read()
    assert events[-1].event is EventType.ERROR
    assert stream.result is not None
    assert stream.result is partial_result(caught.value)
    assert stream.result.exit_reason is ending.reason


@requirement("stream.raises-after-error")
async def test_a_stop_condition_ends_a_stream_with_done_and_its_result():
    stream = stream_agent(ENDINGS["stop_condition"].agent(), ask())
    events = await collected(stream)
    assert events[-1].event is EventType.DONE
    assert stream.result is not None
    assert (stream.result.exit_reason, stream.result.text) == ("stop_condition", "Hi.")


@requirement("stream.raises-after-error")
async def test_bad_input_is_raised_by_the_stream_too():
    with pytest.raises(ConfigError, match="robot"):
        await collected(stream_agent(ENDINGS["satisfied"].agent(), [{"role": "robot"}]))


@requirement("stream.yields-events")
async def test_a_stream_that_has_ended_stays_ended():
    stream = stream_agent(ENDINGS["satisfied"].agent(), ask())
    assert await collected(stream)
    assert await collected(stream) == []
    await stream.aclose()
    assert stream.result is not None


@requirement("stream.context-manager")
async def test_inside_a_context_a_stream_is_read_to_its_end():
    async with stream_agent(ENDINGS["satisfied"].agent(), ask()) as stream:
        events = await collected(stream)
    assert events[-1].event is EventType.DONE
    assert stream.result is not None


@requirement("stream.context-manager", "stream.leaving-cancels")
async def test_leaving_the_context_early_cancels_the_work_and_waits_for_it():
    work = Work()
    async with stream_agent(work.agent, ask()) as stream:
        async for _ in stream:
            if work.begun.is_set():
                break
            await asyncio.sleep(0)
    assert work.cleaned_up.is_set()
    assert other_tasks() == set()


@requirement("stream.context-manager", "stream.leaving-cancels")
async def test_so_does_an_exception_in_the_context():
    work = Work()

    async def fail() -> None:
        async with stream_agent(work.agent, ask()):
            await work.begun.wait()
            raise KeyError

    with pytest.raises(KeyError):
        await fail()
    assert work.cleaned_up.is_set()
    assert other_tasks() == set()


@requirement("stream.aclose", "stream.leaving-cancels")
async def test_aclose_cancels_the_work_waits_for_it_and_may_be_called_again():
    work = Work()
    stream = stream_agent(work.agent, ask())
    first = await anext(stream)
    assert first.event is EventType.AGENT_START
    await work.begun.wait()
    await stream.aclose()
    assert work.cleaned_up.is_set()
    assert other_tasks() == set()
    await stream.aclose()
    assert await collected(stream) == []


@requirement("stream.aclose")
async def test_aclose_of_a_stream_that_was_never_read_runs_nothing():
    model = ScriptedModel(["never"])
    stream = stream_agent(Agent("ada", model), ask())
    await stream.aclose()
    assert await collected(stream) == []
    assert model.requests == []
    assert other_tasks() == set()


@requirement("stream.aclose", "stream.leaving-cancels")
async def test_aclose_ends_the_work_though_the_buffer_is_full():
    model = ScriptedModel(lambda seen: reply("Hm.", call("look", where=f"{seen.index} room")))

    async def look(where: str) -> str:
        return "nothing"

    stream = stream_agent(Agent("ada", model, tools=[look], max_turns=10**6), ask())
    await anext(stream)
    calls = -1
    while calls != len(model.requests):  # until nobody reads, so nothing moves
        calls = len(model.requests)
        await settle()
    assert 1 < calls < 10**4
    await stream.aclose()
    assert other_tasks() == set()


@requirement("stream.aclose")
async def test_aclose_ends_the_loop_of_another_reader_without_cancelling_it():
    work = Work()
    stream = stream_agent(work.agent, ask())
    reader = asyncio.create_task(collected(stream))
    await work.begun.wait()
    await stream.aclose()
    kinds = [event.event for event in await reader]
    assert kinds[:3] == [EventType.AGENT_START, EventType.TEXT_DELTA, EventType.TOOL_CALL]
    assert work.cleaned_up.is_set()
    assert other_tasks() == set()


@requirement("stream.leaving-cancels")
async def test_breaking_out_of_the_loop_cancels_the_work():
    work = Work()
    async for _ in stream_agent(work.agent, ask()):
        if work.begun.is_set():
            break
        await asyncio.sleep(0)
    gc.collect()
    await work.cleaned_up.wait()
    await asyncio.gather(*other_tasks(), return_exceptions=True)
    assert other_tasks() == set()


@requirement("stream.leaving-cancels")
async def test_dropping_a_stream_cancels_the_work():
    work = Work()
    stream = stream_agent(work.agent, ask())
    await anext(stream)
    await work.begun.wait()
    del stream
    gc.collect()
    await work.cleaned_up.wait()
    await asyncio.gather(*other_tasks(), return_exceptions=True)


@requirement("stream.leaving-cancels")
async def test_a_cancelled_reader_inside_the_context_takes_the_work_with_it():
    work = Work()

    async def read() -> None:
        async with stream_agent(work.agent, ask()) as stream:
            await collected(stream)

    reader = asyncio.create_task(read())
    await work.begun.wait()
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    assert work.cleaned_up.is_set()
    assert other_tasks() == set()


@requirement("stream.leaving-cancels")
async def test_a_stream_left_after_its_run_failed_leaves_nothing_behind():
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    async with stream_agent(ENDINGS["foreign error"].agent(), ask()) as stream:
        await anext(stream)
        await until(lambda: not other_tasks())
    del stream
    gc.collect()
    await asyncio.sleep(0)
    assert reported == []


@requirement("stream.leaving-cancels", "events.nested-runs")
async def test_a_stream_inside_a_tool_ends_and_leaves_the_outer_run_alone():
    async def delegate() -> str:
        async with stream_agent(ENDINGS["satisfied"].agent(), ask()) as stream:
            kinds = [event.event async for event in stream]
        assert kinds[-1] is EventType.DONE
        assert stream.result is not None
        return stream.result.text

    outer = Agent("outer", ScriptedModel([reply(None, call("delegate")), "Ok."]), tools=[delegate])
    watched = await watch(outer)
    assert watched.result is not None
    assert watched.result.tool_calls[0]["result"] == "Hi."


@requirement("events.same-result")
@each(RETURNED)
async def test_a_streamed_run_costs_what_an_unstreamed_one_costs(ending: Ending):
    stream = stream_agent(ending.agent(), ask())
    await collected(stream)
    plain = await run_agent(ending.agent(), ask())
    streamed = stream.result
    assert streamed is not None
    assert (streamed.input_tokens, streamed.output_tokens, streamed.turns) == (
        plain.input_tokens,
        plain.output_tokens,
        plain.turns,
    )
