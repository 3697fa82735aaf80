"""What holds for every run, whatever its model, its tools and its judges do.

Random worlds: a model that replies at random, tools that work, fail or are not there, judges that
refuse, pass, raise or leave early, readers with a queue that fills up. No world is special, so none
of these tests knows how its run will end.
"""

from __future__ import annotations

import asyncio
import copy
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.behaviour.kit import drained, other_tasks
from tests.behaviour.manifest import requirement
from tests.behaviour.refine_kit import result_of, said
from untildone import (
    Agent,
    AgentHooks,
    AgentResult,
    CriterionContext,
    EventType,
    ExitReason,
    LoopConfig,
    LoopConvergedError,
    LoopOutcome,
    RetryPolicy,
    ServerError,
    StuckPolicy,
    Usage,
    Verifier,
    VerifierConfig,
    VerifierFeedback,
    partial_result,
    run_agent,
    stream_agent,
    tool,
)
from untildone.domain.log import RunEnded, ToolStarted
from untildone.domain.messages import Message, ToolCall
from untildone.domain.requests import ModelReply, TextDelta
from untildone.testing import EventLog, FakeClock

ASK = [
    said("system", "Be kind."),
    said("user", "earlier"),
    said("assistant", "well?"),
    said("user", "q"),
]

TOOLS = ["look", "slow", "fails", "sync", "nobody", "garbled"]
BATCHES = st.lists(st.sampled_from(TOOLS), min_size=1, max_size=3).map(tuple)
REPLIES = st.one_of(BATCHES, BATCHES, st.sampled_from(["words", "other words", "", "outage"]))
JUDGEMENTS = st.sampled_from([*["no"] * 8, "yes", "yes", "words", "raises", "early", "nonsense"])


@dataclass(frozen=True)
class World:
    """All that chance decides about a run."""

    replies: tuple[Any, ...]
    judgements: tuple[str, ...]
    scores: tuple[float, ...]
    max_turns: int
    ceiling: int
    loops: bool
    judges: frozenset[str]
    adaptive: bool
    fresh: bool
    raises: bool
    fails: bool
    fails_on_error: bool
    evaluate_final: bool
    confirmations: int
    stuck: str
    retries: int
    denies: bool
    waits: bool


WORLDS = st.builds(
    World,
    replies=st.lists(REPLIES, min_size=1, max_size=12).map(tuple),
    judgements=st.lists(JUDGEMENTS, min_size=1, max_size=12).map(tuple),
    scores=st.lists(st.sampled_from([0.1, 0.5, 0.52, 0.9]), min_size=1, max_size=6).map(tuple),
    max_turns=st.integers(1, 5),
    ceiling=st.integers(1, 4),
    loops=st.sampled_from([True, True, True, False]),
    judges=st.frozensets(st.sampled_from(["stop", "verifier", "function", "first", "second"])),
    adaptive=st.booleans(),
    fresh=st.booleans(),
    raises=st.sampled_from([False, False, True]),
    fails=st.booleans(),
    fails_on_error=st.booleans(),
    evaluate_final=st.booleans(),
    confirmations=st.integers(0, 1),
    stuck=st.sampled_from(["nudge", "stop", "off"]),
    retries=st.integers(0, 2),
    denies=st.booleans(),
    waits=st.sampled_from([False, False, False, True]),
)


class JudgeDownError(Exception):
    """What a judge raises here."""


@dataclass
class Staged:
    """A world with an agent in it, which notes all that anybody does."""

    world: World
    latency: int = 1
    did: list[str] = field(default_factory=list[str])
    spent: Usage = field(default_factory=Usage)
    sent: list[list[dict[str, Any]]] = field(default_factory=list[list[dict[str, Any]]])
    judged: int = 0

    @property
    def name(self) -> str:
        return "chance"

    async def _pass_time(self) -> None:
        for _ in range(self.latency):
            await asyncio.sleep(0)

    async def generate(self, request: Any, on_delta: Any = None) -> ModelReply:
        number = len(self.sent)
        self.did.append(f"model {request.at.iteration}.{request.at.turn}")
        self.sent.append([message.to_dict() for message in request.messages])
        usage = Usage(input_tokens=7 + number, output_tokens=3 + number, cached_tokens=number)
        await self._pass_time()
        line = self.world.replies[number % len(self.world.replies)]
        if line == "outage":
            self.spent += usage
            raise ServerError("outage", status=503, usage=usage)
        text = line if isinstance(line, str) else None
        calls = (
            ()
            if isinstance(line, str)
            else tuple(self._call(n, at, number) for n, at in enumerate(line))
        )
        if on_delta is not None and text:
            await on_delta(TextDelta(text))
        self.spent += usage
        return ModelReply(
            message=Message("assistant", text, calls),
            finish_reason="tool_calls" if calls else "stop",
            usage=usage,
        )

    @staticmethod
    def _call(index: int, name: str, number: int) -> ToolCall:
        call_id = f"call_{number}_{index}"
        if name == "garbled":
            return ToolCall(call_id, "look", '{"key": ')
        return ToolCall(call_id, name, f'{{"key": "k{number % 3}"}}')

    def _judgement(self, who: str) -> Any:
        self.did.append(who)
        self.judged += 1
        word = self.world.judgements[self.judged % len(self.world.judgements)]
        if word == "raises":
            raise JudgeDownError(who)
        if word == "early":
            raise LoopConvergedError
        return word

    def agent(self) -> Agent:
        world = self.world

        @tool
        async def look(key: str) -> str:
            """Looks something up."""
            self.did.append("look")
            await self._pass_time()
            return f"value of {key}"

        @tool
        async def slow(key: str) -> str:
            """Looks longer."""
            self.did.append("slow")
            for _ in range(3):
                await self._pass_time()
            return "found"

        @tool
        async def fails(key: str) -> str:
            """Fails."""
            self.did.append("fails")
            await self._pass_time()
            raise OSError(key)

        @tool
        async def sync(key: str) -> str:
            """Is quick."""
            self.did.append("sync")
            return key

        async def approve(name: str, _args: dict[str, Any]) -> bool | None:
            await self._pass_time()
            if world.waits and name == "slow":
                return None
            return not (world.denies and name == "fails")

        return Agent(
            "chance",
            self,
            system_prompt="Be brief.",
            tools=[look, slow, fails, sync],
            max_turns=world.max_turns,
            on_max_turns="raise" if world.raises else "return",
            stuck=StuckPolicy(action=world.stuck),  # pyright: ignore[reportArgumentType]
            retry_policy=RetryPolicy(max_retries=world.retries, jitter=0)
            if world.retries
            else None,
            hooks=AgentHooks(approve_tool=approve) if world.denies or world.waits else None,
            loop_config=self._loop() if world.loops else None,
        )

    def _loop(self) -> LoopConfig:
        world, judges = self.world, self.world.judges

        async def predicate(result: AgentResult, who: str) -> Any:
            await self._pass_time()
            return self._judgement(who) == "yes"

        async def grade(_query: str, result: AgentResult) -> VerifierFeedback:
            await self._pass_time()
            word = self._judgement("verifier")
            if word == "nonsense":
                return VerifierFeedback(float("nan"))
            score = world.scores[result.loop_iterations % len(world.scores)]
            return VerifierFeedback(score, ["thin"] if word == "words" else [])

        async def criterion(ctx: CriterionContext, who: str) -> Any:
            await self._pass_time()
            word = self._judgement(who)
            return {"yes": True, "words": (False, "words"), "nonsense": None}.get(word, False)

        def outcome(fails: bool) -> LoopOutcome:
            return LoopOutcome.FAIL_RUN if fails else LoopOutcome.RETURN_LAST_RESPONSE

        return LoopConfig(
            max_iterations=world.ceiling,
            stop_condition=(lambda r: predicate(r, "stop")) if "stop" in judges else None,
            convergence_fn=(lambda r: predicate(r, "function")) if "function" in judges else None,
            verifier=Verifier(VerifierConfig(evaluate_fn=grade, confirmations=world.confirmations))
            if "verifier" in judges
            else None,
            criteria=[
                lambda ctx, who=who: criterion(ctx, who)
                for who in ("first", "second")
                if who in judges
            ],
            adaptive=world.adaptive and "verifier" in judges,
            fresh_context=world.fresh,
            on_exhausted=outcome(world.fails and bool(judges - {"stop"})),
            on_criterion_error=outcome(world.fails_on_error),
            evaluate_final=world.evaluate_final,
        )


async def outcome_of(work: Awaitable[AgentResult]) -> tuple[AgentResult, BaseException | None]:
    """A run's result, returned or carried by what it raised."""
    try:
        return await work, None
    except (Exception, asyncio.CancelledError) as error:
        return result_of(error), error


EVERY_WORLD = settings(max_examples=75, deadline=None)


# --- One run of any world -------------------------------------------------------------------------


@requirement("holds.cap-of-turns", "holds.cap-of-iterations")
@EVERY_WORLD
@given(WORLDS)
async def test_a_cap_of_n_never_makes_n_plus_one(world: World):
    staged = Staged(world)
    result, _ = await outcome_of(run_agent(staged.agent(), ASK, clock=FakeClock()))
    places = {did for did in staged.did if did.startswith("model")}  # retries are the same turn
    turns = Counter(place.split()[1].split(".")[0] for place in places)
    assert max(turns.values()) <= world.max_turns
    assert len(turns) <= (world.ceiling if world.loops else 1)
    assert result.turns <= len(places)
    assert result.loop_iterations <= len(turns)
    tries = Counter(did for did in staged.did if did.startswith("model"))
    assert max(tries.values()) <= 1 + world.retries


@requirement("holds.terminal-is-terminal")
@EVERY_WORLD
@given(WORLDS)
async def test_nothing_runs_after_the_exit_is_decided(world: World):
    staged, log = Staged(world), EventLog()
    done_at_the_end: list[int] = []

    class Notes:
        def write(self, event: Any) -> None:
            if isinstance(event, RunEnded):
                done_at_the_end.append(len(staged.did))

    await outcome_of(run_agent(staged.agent(), ASK, log=[log, Notes()], clock=FakeClock()))
    for _ in range(20):
        await asyncio.sleep(0)
    assert done_at_the_end == [len(staged.did)]
    assert isinstance(log[-1], RunEnded)
    assert sum(isinstance(event, RunEnded) for event in log) == 1
    assert other_tasks() == set()
    ran = [did for did in staged.did if did in TOOLS]
    assert len(ran) == sum(isinstance(event, ToolStarted) for event in log)


@requirement("holds.answered-once")
@EVERY_WORLD
@given(WORLDS)
async def test_every_call_is_answered_once_in_order_in_every_request_and_in_the_result(
    world: World,
):
    staged = Staged(world)
    result, _ = await outcome_of(run_agent(staged.agent(), ASK, clock=FakeClock()))
    for messages in staged.sent:
        assert unanswered(messages) == []
    waiting = result.exit_reason is ExitReason.AWAITING_APPROVAL
    assert bool(unanswered(result.messages)) <= waiting
    assert all(each["result"] is not None or waiting for each in result.tool_calls)


def unanswered(messages: list[dict[str, Any]]) -> list[str]:
    """The calls at the end that have no answer yet; anywhere else each is answered in order."""
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            assert message["tool_call_id"] == waiting.pop(0)
            continue
        assert waiting == []
        assert message["content"] or message.get("tool_calls"), "an empty message"
        waiting = [each["id"] for each in message.get("tool_calls") or []]
    return waiting


@requirement("holds.usage-adds-up")
@EVERY_WORLD
@given(WORLDS)
async def test_usage_is_the_sum_over_every_call_that_the_model_was_asked(world: World):
    staged = Staged(world)
    result, _ = await outcome_of(run_agent(staged.agent(), ASK, clock=FakeClock()))
    assert staged.spent == Usage(
        input_tokens=result.input_tokens,
        output_tokens=result.output_tokens,
        cached_tokens=result.cached_tokens,
        unknown_calls=result.unknown_usage_calls,
    )


@requirement("holds.callers-messages")
@EVERY_WORLD
@given(WORLDS)
async def test_the_callers_messages_are_never_changed_nor_shared(world: World):
    staged = Staged(world)
    messages: list[dict[str, Any]] = copy.deepcopy(ASK)
    messages[1]["content"] = [{"type": "text", "text": "earlier", "more": {"deep": [1, 2]}}]
    before = copy.deepcopy(messages)
    result, _ = await outcome_of(run_agent(staged.agent(), messages, clock=FakeClock()))
    assert messages == before
    result.messages[2]["content"][0]["more"]["deep"].append(3)
    result.messages.clear()
    assert messages == before


@requirement("holds.prefix", "refine.prefix-stable")
@EVERY_WORLD
@given(WORLDS)
async def test_each_request_begins_with_the_one_before_or_anew_with_the_question(world: World):
    staged = Staged(world)
    await outcome_of(run_agent(staged.agent(), ASK, clock=FakeClock()))
    base = [said("system", "Be brief."), *ASK]
    earlier: list[dict[str, Any]] = []
    for messages, did in zip(
        staged.sent, (did for did in staged.did if did.startswith("model")), strict=True
    ):
        assert messages[: len(base)] == base
        first_of_iteration = did.endswith(".1")
        if world.fresh and first_of_iteration:
            assert len(messages) <= len(base) + 1
        else:
            assert messages[: len(earlier)] == earlier
        earlier = messages


@requirement("holds.same-streamed")
@settings(max_examples=50, deadline=None)
@given(WORLDS, st.sampled_from([0, 1, 2, 1000]))
async def test_a_run_gives_the_same_whether_it_is_watched_or_not(world: World, size: int):
    alone, error = await outcome_of(run_agent(Staged(world).agent(), ASK, clock=FakeClock()))
    queue: asyncio.Queue[Any] = asyncio.Queue(size)
    run = asyncio.create_task(run_agent(Staged(world).agent(), ASK, queue=queue, clock=FakeClock()))
    shown: list[Any] = []
    while (event := await queue.get()) is not None:
        shown.append(event)
    watched, watched_error = await outcome_of(run)
    assert queue.empty()
    assert type(error) is type(watched_error)
    assert comparable(watched) == comparable(alone)
    last = EventType.DONE if error is None or type(error) is LoopConvergedError else EventType.ERROR
    assert shown[-1].event is last
    assert [e.event for e in shown].count(last) == 1
    assert shown[-1].data["exit_reason"] == watched.exit_reason


def comparable(result: AgentResult) -> dict[str, Any]:
    names = (
        *("text", "turns", "loop_iterations", "best_iteration", "scores", "exit_reason", "error"),
        *("input_tokens", "output_tokens", "messages", "tool_calls", "finish_reason", "confidence"),
    )
    return {name: getattr(result, name) for name in names}


# --- Cancelling at any await ----------------------------------------------------------------------

BUSY = World(
    replies=(("look", "slow", "fails"), "words", ("sync",), ("nobody", "look"), "outage", "words"),
    judgements=("no", "words", "no", "no", "no", "no"),
    scores=(0.5, 0.9, 0.1),
    max_turns=3,
    ceiling=3,
    loops=True,
    judges=frozenset({"stop", "verifier", "function", "first", "second"}),
    adaptive=False,
    fresh=False,
    raises=False,
    fails=False,
    fails_on_error=False,
    evaluate_final=True,
    confirmations=1,
    stuck="nudge",
    retries=2,
    denies=True,
    waits=False,
)


CALLS_THAT_WAIT = replace(
    BUSY,
    replies=(("look", "slow"),),
    max_turns=1,
    ceiling=1,
    judges=frozenset(),
    confirmations=0,
    retries=0,
    denies=False,
    waits=True,
)


async def cancelled_after(
    ticks: int, start: Callable[[], Awaitable[AgentResult]]
) -> tuple[bool, AgentResult | None, BaseException | None]:
    """A run that is cancelled after so many turns of the event loop, and how it ended."""
    task = asyncio.ensure_future(start())
    for _ in range(ticks):
        await asyncio.sleep(0)
    was_over = task.done()
    task.cancel()
    await asyncio.wait([task])
    assert other_tasks() == set(), "a task was left behind"
    if task.cancelled():
        with pytest.raises(asyncio.CancelledError) as raised:
            await task
        return was_over, partial_result(raised.value), raised.value
    error = task.exception()
    return was_over, partial_result(error) if error is not None else task.result(), error


READERS = ["nobody", "an endless queue", "a full queue"]


@requirement("holds.cancel-anywhere", "holds.answered-once", "holds.queue-ends")
@pytest.mark.parametrize("reader", READERS)
async def test_cancelling_at_any_await_leaves_no_task_ends_the_queue_and_keeps_the_result(
    reader: str,
):
    ticks, over = 0, False
    cancelled = 0
    while not over:
        ticks += 1
        staged, log = Staged(BUSY), EventLog()
        queue: asyncio.Queue[Any] | None = None
        if reader != "nobody":
            queue = asyncio.Queue(0 if reader == "an endless queue" else 3)

        def start(staged: Staged = staged, log: EventLog = log, queue: Any = queue) -> Any:
            return run_agent(staged.agent(), ASK, queue=queue, log=log, clock=FakeClock())

        over, result, error = await cancelled_after(ticks, start)
        # A reader who never reads lets the run wait for ever: then every later tick is the same.
        over = over or (reader == "a full queue" and ticks > 30)
        if error is None:
            continue
        cancelled += 1
        assert isinstance(error, asyncio.CancelledError)
        assert result is not None
        assert result.exit_reason is ExitReason.CANCELLED
        assert unanswered(result.messages) == []
        assert isinstance(log[-1], RunEnded)
        assert sum(isinstance(event, RunEnded) for event in log) == 1
        done = len(staged.did)
        for _ in range(5):
            await asyncio.sleep(0)
        assert len(staged.did) == done, "something ran on"
        if queue is not None:
            items = drained(queue)
            assert items[-1] is None
            assert items.count(None) == 1
            assert items[-2].event is EventType.ERROR
            assert items[-2].data["exit_reason"] == "cancelled"
    assert cancelled >= 20


@requirement("holds.cancel-anywhere")
@settings(max_examples=60, deadline=None)
# Cancelled while a call waits for a person and the reader is slow.
@example(world=CALLS_THAT_WAIT, ticks=7, size=5)
@given(WORLDS, st.integers(1, 60), st.sampled_from([0, 1, 2, 5]))
async def test_cancelling_any_world_at_any_time_leaves_nothing_behind(
    world: World, ticks: int, size: int
):
    staged = Staged(world)
    queue: asyncio.Queue[Any] = asyncio.Queue(size)
    over, result, error = await cancelled_after(
        ticks, lambda: run_agent(staged.agent(), ASK, queue=queue, clock=FakeClock())
    )
    assert result is not None
    assert result.exit_reason is not None
    if not over and isinstance(error, asyncio.CancelledError):
        waiting = result.exit_reason is ExitReason.AWAITING_APPROVAL
        assert bool(unanswered(result.messages)) <= waiting
    items = drained(queue)
    assert items[-1] is None
    assert items.count(None) == 1


@requirement("holds.cancel-anywhere", "holds.queue-ends")
@settings(max_examples=60, deadline=None)
@given(WORLDS, st.integers(0, 30))
async def test_leaving_a_stream_at_any_event_lets_nothing_run_on(world: World, events: int):
    staged = Staged(world)
    async with stream_agent(staged.agent(), ASK, clock=FakeClock()) as stream:
        try:
            async for _ in stream:
                events -= 1
                if events < 0:
                    break
        except Exception:  # how it ends is not the point
            assert stream.result is not None
    done = len(staged.did)
    assert other_tasks() == set()
    for _ in range(5):
        await asyncio.sleep(0)
    assert len(staged.did) == done
