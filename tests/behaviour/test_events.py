"""What a live reader sees: which events, in which order, and an end on every path."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.behaviour.endings import ENDINGS, RAISED, RETURNED, Ending, each
from tests.behaviour.kit import ask, drained, ended, settle, until, watch
from tests.behaviour.manifest import requirement
from untildone import (
    Agent,
    AgentHooks,
    AgentResult,
    ConfigError,
    CriterionVerdict,
    EventType,
    FallbackChain,
    LoopConfig,
    LoopOutcome,
    RetryPolicy,
    ServerError,
    StreamEvent,
    Verifier,
    VerifierConfig,
    VerifierFeedback,
    resume_agent,
    run_agent,
)
from untildone.testing import EventLog, FakeClock, ScriptedModel, call, reply

Queue = asyncio.Queue[StreamEvent | None]


async def look(where: str) -> str:
    return f"There is nothing in the {where}."


def looking_once() -> Agent:
    script = [reply("Hm.", call("look", where="attic")), "Not there."]
    return Agent("ada", ScriptedModel(script), tools=[look])


def spinning(**settings: Any) -> Agent:
    """An agent that works for ever, showing four events a turn."""
    model = ScriptedModel(lambda seen: reply("Hm.", call("look", where=f"{seen.index} room")))
    return Agent("ada", model, tools=[look], max_turns=10**6, **settings)


async def s1s_consumer(queue: Queue) -> list[EventType]:
    """The loop of S1's page."""
    kinds: list[EventType] = []
    while True:
        event = await queue.get()
        if event is None:
            break
        kinds.append(event.event)
    return kinds


# ── The end mark ─────────────────────────────────────────────────────────────────────────────────


@requirement("events.end-mark", "events.done-or-error")
@each(ENDINGS)
async def test_on_every_path_the_queue_ends_and_so_does_s1s_consumer(ending: Ending):
    queue: Queue = asyncio.Queue()
    consumer = asyncio.create_task(s1s_consumer(queue))
    run = asyncio.create_task(run_agent(ending.agent(), ask(), queue=queue))
    await asyncio.wait([run])
    kinds = await consumer
    assert run.cancelled() or (run.exception() is None) == (ending.raises is None)
    assert queue.empty()
    done = ending.raises is None or ending is ENDINGS["stop_condition"]
    assert kinds[-1] is (EventType.DONE if done else EventType.ERROR)
    assert EventType.DONE not in kinds[:-1]
    assert EventType.ERROR not in kinds[:-1]


@requirement("events.end-mark")
@pytest.mark.parametrize(
    ("settings", "messages", "options"),
    [
        pytest.param({}, "hello", {}, id="messages are a string"),
        pytest.param({}, [{"role": "robot"}], {}, id="an unknown role"),
        pytest.param({"model": "nobody/nothing"}, ask(), {}, id="an unknown provider"),
        pytest.param({"tools": [look, look]}, ask(), {}, id="two tools of one name"),
        pytest.param({"tools": [42]}, ask(), {}, id="a tool that is none"),
        pytest.param({}, ask(), {"tool_defs": [{"name": "x"}]}, id="tool_defs that are none"),
        pytest.param({}, ask(), {"max_sync_tools": 0}, id="a pool without threads"),
    ],
)
async def test_what_is_wrong_before_the_run_ends_the_queue_too(settings, messages, options):
    queue: Queue = asyncio.Queue()
    agent = Agent("ada", **{"model": ScriptedModel(["never"]), **settings})
    with pytest.raises(ConfigError):
        await run_agent(agent, messages, queue=queue, **options)
    (event,) = ended(drained(queue))
    assert event.event is EventType.ERROR
    assert event.data["exit_reason"] == "error"


@requirement("events.end-mark")
async def test_a_resumed_run_ends_its_queue_also_where_the_log_cannot_be_resumed():
    log = EventLog()
    agent = looking_once()
    await run_agent(agent, ask(), log=log)
    for cut in (0, 3, len(log)):
        queue: Queue = asyncio.Queue()
        try:
            await resume_agent(looking_once(), log[:cut], queue=queue)
        except ConfigError:
            assert cut == 0
        assert ended(drained(queue))[-1].event in (EventType.DONE, EventType.ERROR)


@requirement("events.cancel-full-queue", "events.end-mark")
@pytest.mark.parametrize("maxsize", [1, 2, 3, 7])
@pytest.mark.parametrize("taken", [0, 1, 2, 3, 4, 5, 6])
async def test_cancelling_ends_a_full_queue_whose_reader_has_left(maxsize: int, taken: int):
    queue: Queue = asyncio.Queue(maxsize)
    run = asyncio.create_task(run_agent(spinning(), ask(), queue=queue))
    for _ in range(taken):
        assert await queue.get() is not None
    await until(queue.full)
    await settle()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    left = drained(queue)
    assert len(left) <= maxsize
    events = ended(left)
    if maxsize > 1:
        assert events[-1].event is EventType.ERROR
        assert events[-1].data["exit_reason"] == "cancelled"


@requirement("events.cancel-full-queue")
async def test_cancelling_a_run_whose_queue_has_room_loses_no_event():
    seen = asyncio.Event()

    async def wait() -> str:
        seen.set()
        await asyncio.Event().wait()
        return "never"

    agent = Agent("ada", ScriptedModel([reply("Hm.", call("wait"))]), tools=[wait])
    queue: Queue = asyncio.Queue(100)
    run = asyncio.create_task(run_agent(agent, ask(), queue=queue))
    await seen.wait()
    run.cancel()
    await asyncio.wait([run])
    kinds = [event.event for event in ended(drained(queue))]
    assert kinds == ["agent_start", "text_delta", "tool_call", "error"]


@requirement("events.bounded-loses-nothing")
@pytest.mark.parametrize("maxsize", [1, 2, 5])
@each(ENDINGS)
async def test_a_bounded_queue_slows_the_run_and_loses_nothing(ending: Ending, maxsize: int):
    if ending is ENDINGS["cancelled"]:
        return  # its end takes the place of the oldest
    expected = [(e.event, e.data) for e in (await watch(ending.agent())).events]
    queue: Queue = asyncio.Queue(maxsize)
    run = asyncio.create_task(run_agent(ending.agent(), ask(), queue=queue))
    seen: list[tuple[EventType, dict[str, Any]]] = []
    while (event := await queue.get()) is not None:
        seen.append((event.event, event.data))
        for _ in range(10):
            await asyncio.sleep(0)
    await asyncio.wait([run])
    run.exception()
    assert comparable(seen) == comparable(expected)


def comparable(events: list[tuple[EventType, dict[str, Any]]]) -> list[tuple[EventType, Any]]:
    """Without the ids of calls, which differ from run to run."""
    return [(kind, {k: v for k, v in data.items() if k != "call_id"}) for kind, data in events]


@requirement("events.bounded-loses-nothing")
async def test_a_full_queue_holds_the_run_until_there_is_room():
    model = ScriptedModel(lambda seen: reply("Hm.", call("look", where=f"{seen.index} room")))
    agent = Agent("ada", model, tools=[look], max_turns=10**6)
    queue: Queue = asyncio.Queue(2)
    run = asyncio.create_task(run_agent(agent, ask(), queue=queue))
    await settle()
    # AGENT_START and the first TEXT_DELTA are in, TOOL_CALL waits: the first turn goes no further.
    assert len(model.requests) == 1
    run.cancel()
    await asyncio.wait([run])


@requirement("events.one-queue-many-runs")
async def test_runs_one_after_the_other_end_one_queue_each():
    queue: Queue = asyncio.Queue()
    for _ in range(3):
        await run_agent(Agent("ada", ScriptedModel(["Hi."])), ask(), queue=queue)
    items = drained(queue)
    assert [None if item is None else item.event for item in items] == [
        EventType.AGENT_START,
        EventType.TEXT_DELTA,
        EventType.AGENT_DONE,
        EventType.DONE,
        None,
    ] * 3


# ── Runs inside runs ─────────────────────────────────────────────────────────────────────────────


def around(nest: Callable[[], Any], place: str, queue: Queue) -> Agent:
    """An agent in whose tool, hook or judge another run is made."""

    async def delegate() -> str:
        return str(await nest())

    async def judge(_: Any) -> bool:
        await nest()
        return True

    async def grade(query: str, result: AgentResult) -> VerifierFeedback:
        await nest()
        return VerifierFeedback(1.0)

    async def hook() -> None:
        await nest()

    async def task() -> str:
        return str(await asyncio.create_task(nest()))

    settings: dict[str, dict[str, Any]] = {
        "tool": {"tools": [delegate]},
        "task in a tool": {"tools": [task]},
        "two tools": {"tools": [delegate, task]},
        "hook": {"hooks": AgentHooks(on_agent_start=hook)},
        "criterion": {"loop_config": LoopConfig(criteria=[judge])},
        "convergence_fn": {"loop_config": LoopConfig(convergence_fn=judge)},
        "verifier": {
            "loop_config": LoopConfig(verifier=Verifier(VerifierConfig(evaluate_fn=grade)))
        },
    }
    names = {
        "tool": ["delegate"],
        "task in a tool": ["task"],
        "two tools": ["delegate", "task"],
    }.get(place, [])
    calls = [reply(None, [call(name) for name in names])] if names else []
    return Agent("outer", ScriptedModel([*calls, "Outer."]), **settings[place])


PLACES = ["tool", "task in a tool", "two tools", "hook", "criterion", "convergence_fn", "verifier"]


@requirement("events.nested-runs")
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("inner", ["satisfied", "error of ours", "stop_condition"])
async def test_a_run_inside_a_run_does_not_end_the_queue_of_the_outer_one(place: str, inner: str):
    queue: Queue = asyncio.Queue()

    async def nest() -> str:
        try:
            return (await run_agent(ENDINGS[inner].agent(), ask(), queue=queue)).text
        except Exception as error:
            return str(error)

    result = await run_agent(around(nest, place, queue), ask(), queue=queue)
    assert result.text == "Outer."
    events = ended(drained(queue))
    assert {event.agent_id for event in events} == {"outer", "ada"}
    assert [event.event for event in events].count(EventType.DONE) == 1
    assert EventType.ERROR not in [event.event for event in events]
    assert (events[-1].event, events[-1].agent_id) == (EventType.DONE, "outer")


@requirement("events.nested-runs")
async def test_nor_does_a_run_inside_a_run_inside_a_run():
    queue: Queue = asyncio.Queue()

    async def innermost() -> str:
        return (await run_agent(Agent("c", ScriptedModel(["C."])), ask(), queue=queue)).text

    async def middle() -> str:
        agent = Agent("b", ScriptedModel([reply(None, call("innermost")), "B."]), tools=[innermost])
        return (await run_agent(agent, ask())).text  # without a queue of its own

    agent = Agent("a", ScriptedModel([reply(None, call("middle")), "A."]), tools=[middle])
    await run_agent(agent, ask(), queue=queue)
    events = ended(drained(queue))
    assert {event.agent_id for event in events} == {"a", "c"}
    assert events[-1].agent_id == "a"


@requirement("events.nested-runs")
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("inner", ["satisfied", "error of ours", "stop_condition"])
async def test_a_run_inside_a_run_with_a_queue_of_its_own_ends_that(place: str, inner: str):
    outer: Queue = asyncio.Queue()
    own: list[list[Any]] = []

    async def nest() -> str:
        queue: Queue = asyncio.Queue()
        try:
            await run_agent(ENDINGS[inner].agent(), ask(), queue=queue)
        except Exception as error:
            return str(error)
        finally:
            own.append(drained(queue))
        return "ok"

    await run_agent(around(nest, place, outer), ask(), queue=outer)
    assert len(own) == (2 if place == "two tools" else 1)
    for items in own:
        assert {event.agent_id for event in ended(items)} == {"ada"}
    assert {event.agent_id for event in ended(drained(outer))} == {"outer"}


@requirement("events.nested-runs")
async def test_after_an_inner_run_the_outer_one_is_top_level_again():
    queue: Queue = asyncio.Queue()

    async def nest() -> str:
        return (await run_agent(Agent("inner", ScriptedModel(["I."])), ask(), queue=queue)).text

    await run_agent(around(nest, "tool", queue), ask(), queue=queue)
    await run_agent(Agent("later", ScriptedModel(["L."])), ask(), queue=queue)
    items = drained(queue)
    assert items.count(None) == 2
    assert items[-1] is None


# ── Which events, in which order ─────────────────────────────────────────────────────────────────


@requirement("events.order", "events.payload-keys")
async def test_a_turn_loop_is_seen_as_it_happens():
    watched = await watch(looking_once())
    assert watched.kinds == [
        EventType.AGENT_START,
        EventType.TEXT_DELTA,
        EventType.TOOL_CALL,
        EventType.TOOL_RESULT,
        EventType.TEXT_DELTA,
        EventType.AGENT_DONE,
        EventType.DONE,
    ]
    texts = [data["chunk"] for data in watched.data(EventType.TEXT_DELTA)]
    assert texts == ["Hm.", "Not there."]
    (asked,) = watched.data(EventType.TOOL_CALL)
    assert (asked["tool"], asked["args"]) == ("look", {"where": "attic"})
    (answered,) = watched.data(EventType.TOOL_RESULT)
    assert answered["tool"] == "look"
    assert answered["result"] == "There is nothing in the attic."


def graded(*scores: float, **config: Any) -> Verifier:
    """A verifier that gives these scores, one an iteration."""

    async def grade(query: str, result: AgentResult) -> VerifierFeedback:
        score = scores[result.loop_iterations - 1]
        return VerifierFeedback(score, issues=[f"Only {score}."], suggestion="Do more.")

    return Verifier(VerifierConfig(evaluate_fn=grade, **config))


@requirement("events.order", "events.payload-keys", "events.scored-once")
async def test_a_refine_loop_is_seen_as_it_happens():
    loop = LoopConfig(verifier=graded(0.5, 0.9))
    watched = await watch(Agent("ada", ScriptedModel(["a", "b"]), loop_config=loop))
    one_iteration = [
        EventType.AGENT_START,
        EventType.TEXT_DELTA,
        EventType.AGENT_DONE,
        EventType.VERIFIER_SCORED,
        EventType.LOOP_ITERATION,
    ]
    assert watched.kinds == [*one_iteration, *one_iteration, EventType.DONE]
    assert watched.data(EventType.VERIFIER_SCORED) == [
        {"iteration": 1, "score": 0.5, "issues": ["Only 0.5."]},
        {"iteration": 2, "score": 0.9, "issues": ["Only 0.9."]},
    ]


@requirement("events.scored-once")
async def test_a_confirmed_pass_is_shown_as_one_score():
    loop = LoopConfig(verifier=graded(0.9, confirmations=3))
    watched = await watch(Agent("ada", ScriptedModel(["a"]), loop_config=loop))
    assert [data["score"] for data in watched.data(EventType.VERIFIER_SCORED)] == [0.9]


@requirement("events.no-early-refining")
async def test_refining_is_never_announced_before_there_is_an_answer():
    loop = LoopConfig(max_iterations=3, convergence_fn=lambda result: False)
    watched = await watch(Agent("ada", ScriptedModel(["a", "b", "c"]), loop_config=loop))
    answers_so_far = 0
    for event in watched.events:
        answers_so_far += event.event is EventType.AGENT_DONE
        if event.event is EventType.LOOP_ITERATION:
            assert event.data["iteration"] == answers_so_far
    assert answers_so_far == 3


@requirement("events.agent-id")
@pytest.mark.parametrize(("given", "expected"), [(None, "ada"), ("drafter", "drafter")])
async def test_every_event_names_its_agent(given: str | None, expected: str):
    watched = await watch(looking_once(), agent_id=given)
    assert {event.agent_id for event in watched.events} == {expected}
    assert watched.result is not None
    assert watched.result.agent_id == expected


@requirement("events.shape")
@each(ENDINGS)
async def test_every_event_can_be_sent_as_json_and_as_sse(ending: Ending):
    for event in (await watch(ending.agent())).events:
        assert isinstance(event, StreamEvent)
        flat = event.to_dict()
        assert flat == {"event": event.event.value, "agent_id": "ada", **event.data}
        head, payload, *rest = event.to_sse().split("\n")
        assert head == f"event: {event.event.value}"
        assert json.loads(payload.removeprefix("data: ")) == {"agent_id": "ada", **event.data}
        assert rest == ["", ""]
        json.dumps(flat)


@requirement("events.shape")
def test_a_stream_event_is_made_of_kind_data_and_agent_id():
    event = StreamEvent(EventType.TEXT_DELTA, {"chunk": "two\nlines"}, "ada")
    assert (event.event, event.data, event.agent_id) == (
        "text_delta",
        {"chunk": "two\nlines"},
        "ada",
    )
    assert event.to_sse().count("\n") == 3


@requirement("events.done-or-error")
async def test_an_error_event_tells_type_and_text():
    watched = await watch(ENDINGS["foreign error"].agent())
    data = watched.events[-1].data
    assert data["error_type"] == "ZeroDivisionError"
    assert "the model" in data["message"]


# ── LOOP_ITERATION ───────────────────────────────────────────────────────────────────────────────


def iteration(number: int, **changes: Any) -> dict[str, Any]:
    """A LOOP_ITERATION payload with all of its keys."""
    return {
        "iteration": number,
        "converged": False,
        "continued": False,
        "continued_by": None,
        "has_feedback": False,
        "failed_criterion": None,
        "criterion_index": None,
        "ceiling_reached": False,
        "fails_run": False,
        "score": None,
        "agent_exit": "satisfied",
        "early_stop": None,
        **changes,
    }


def goes_on(number: int, by: str | None, **changes: Any) -> dict[str, Any]:
    return iteration(number, continued=True, continued_by=by, **changes)


async def iterations(settings: dict[str, Any], **agent: Any) -> list[dict[str, Any]]:
    model = ScriptedModel(lambda seen: f"answer {seen.index}")
    loop = LoopConfig(**settings)
    watched = await watch(Agent("ada", agent.pop("model", model), loop_config=loop, **agent))
    return watched.data(EventType.LOOP_ITERATION)


class Marker:
    """A criterion of a named kind."""

    kind = "completionMarker"

    def evaluate(self, context: Any) -> CriterionVerdict:
        return CriterionVerdict(context.iteration > 1, feedback="Write DONE.")


class LongEnough:
    """A criterion without a kind."""

    async def evaluate(self, context: Any) -> bool:
        return context.iteration > 1


def polite(context: Any) -> tuple[bool, str]:
    return context.iteration > 1, "Say please."


def accepts(_: Any) -> bool:
    return True


def refuses(_: Any) -> bool:
    return False


def breaks(_: Any) -> bool:
    raise ZeroDivisionError


async def breaks_grading(query: str, result: AgentResult) -> VerifierFeedback:
    raise ZeroDivisionError


FAIL = LoopOutcome.FAIL_RUN
FEEDBACK = {"has_feedback": True}
CEILING = {"ceiling_reached": True}
LOOPS: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    "nobody judges": (
        {"max_iterations": 2},
        [goes_on(1, None), iteration(2, **CEILING)],
    ),
    "convergence_fn at the ceiling": (
        {"max_iterations": 2, "convergence_fn": refuses},
        [goes_on(1, "convergence_fn"), iteration(2, **CEILING)],
    ),
    "converged at once": ({"convergence_fn": accepts}, [iteration(1, converged=True)]),
    "converged in the last iteration": (
        {"max_iterations": 1, "convergence_fn": accepts},
        [iteration(1, converged=True)],
    ),
    "verifier": (
        {"verifier": graded(0.5, 0.9)},
        [goes_on(1, "verifier", score=0.5, **FEEDBACK), iteration(2, converged=True, score=0.9)],
    ),
    "criterion with a kind": (
        {"criteria": [accepts, Marker()]},
        [
            goes_on(1, "completionMarker", criterion_index=1, **FEEDBACK),
            iteration(2, converged=True),
        ],
    ),
    "criterion that is a class's object": (
        {"criteria": [LongEnough()]},
        [goes_on(1, "LongEnough", criterion_index=0), iteration(2, converged=True)],
    ),
    "criterion that is a function": (
        {"criteria": [polite, breaks], "max_iterations": 2},
        [goes_on(1, "polite", criterion_index=0, **FEEDBACK), iteration(2, **CEILING)],
    ),
    "criterion that raises": (
        {"criteria": [accepts, breaks]},
        [iteration(1, failed_criterion="breaks", criterion_index=1)],
    ),
    "criterion that raises and fails the run": (
        {"criteria": [breaks], "on_criterion_error": FAIL},
        [iteration(1, failed_criterion="breaks", criterion_index=0, fails_run=True)],
    ),
    "convergence_fn that raises": (
        {"convergence_fn": breaks},
        [iteration(1, failed_criterion="convergence_fn")],
    ),
    "stop_condition that raises": (
        {"stop_condition": breaks},
        [iteration(1, failed_criterion="stop_condition")],
    ),
    "verifier that raises": (
        {"verifier": Verifier(VerifierConfig(evaluate_fn=breaks_grading))},
        [iteration(1, failed_criterion="verifier")],
    ),
    "stop_condition": (
        {"stop_condition": accepts},
        [iteration(1, early_stop="stop_condition")],
    ),
    "unsatisfied at the ceiling": (
        {"max_iterations": 1, "convergence_fn": refuses, "on_exhausted": FAIL},
        [iteration(1, fails_run=True, **CEILING)],
    ),
    "plateau": (
        {"verifier": graded(0.5, 0.5, 0.5), "adaptive": True},
        [
            goes_on(1, "verifier", score=0.5, **FEEDBACK),
            goes_on(2, "verifier", score=0.5, **FEEDBACK),
            iteration(3, score=0.5, early_stop="plateau"),
        ],
    ),
    "plateau in the last iteration": (
        {"verifier": graded(0.5, 0.5, 0.5), "adaptive": True, "max_iterations": 3},
        [
            goes_on(1, "verifier", score=0.5, **FEEDBACK),
            goes_on(2, "verifier", score=0.5, **FEEDBACK),
            iteration(3, score=0.5, early_stop="plateau"),
        ],
    ),
    "plateau that fails the run": (
        {"verifier": graded(0.5, 0.5, 0.5), "adaptive": True, "on_exhausted": FAIL},
        [
            goes_on(1, "verifier", score=0.5, **FEEDBACK),
            goes_on(2, "verifier", score=0.5, **FEEDBACK),
            iteration(3, score=0.5, early_stop="plateau", fails_run=True),
        ],
    ),
}


@requirement("events.loop-iteration")
@pytest.mark.parametrize(
    ("settings", "expected"), [pytest.param(*loop, id=name) for name, loop in LOOPS.items()]
)
async def test_each_finished_iteration_has_one_record_with_exactly_these_keys(settings, expected):
    seen = await iterations(settings)
    assert seen == expected
    assert [list(data) for data in seen] == [list(data) for data in expected]


@requirement("events.loop-iteration")
@pytest.mark.parametrize("exit_", ["max_turns", "stuck"])
async def test_an_inner_exit_is_named_in_the_record_and_ends_no_loop(exit_: str):
    model = ScriptedModel(lambda seen: reply(None, call("look", where="attic")))
    turns = {"max_turns": 2, "stuck": 20}[exit_]
    seen = await iterations({"max_iterations": 2}, model=model, tools=[look], max_turns=turns)
    assert seen == [goes_on(1, None, agent_exit=exit_), iteration(2, agent_exit=exit_, **CEILING)]


@requirement("events.loop-iteration")
@pytest.mark.parametrize("line", [ServerError("503"), KeyError("x")], ids=["ours", "foreign"])
async def test_an_iteration_that_is_cut_short_has_no_record(line: Any):
    model = ScriptedModel(["one", line])
    assert await iterations({"max_iterations": 5}, model=model) == [goes_on(1, None)]


@requirement("events.no-feedback-text")
async def test_no_feedback_text_stands_in_the_record():
    secret = "Mention the merger"

    async def grade(query: str, result: AgentResult) -> VerifierFeedback:
        first = result.loop_iterations == 1
        return VerifierFeedback(0.1 if first else 0.9, issues=[secret], suggestion=secret)

    def ask_again(context: Any) -> CriterionVerdict:
        if context.iteration == 2:
            return CriterionVerdict(False, feedback=secret)
        if context.iteration == 3:
            return CriterionVerdict(False, messages=[{"role": "user", "content": secret}])
        raise ValueError(secret)

    verifier = Verifier(VerifierConfig(evaluate_fn=grade))
    seen = await iterations({"verifier": verifier, "criteria": [ask_again], "max_iterations": 9})
    assert len(seen) == 4
    assert secret not in json.dumps(seen)


# ── Candidates ───────────────────────────────────────────────────────────────────────────────────


def by_text(**scores: float) -> Verifier:
    """A verifier that knows the score of each answer."""

    async def grade(query: str, result: AgentResult) -> VerifierFeedback:
        return VerifierFeedback(scores[result.text], issues=[f"{result.text} is it."])

    return Verifier(VerifierConfig(evaluate_fn=grade))


@requirement("events.candidates", "events.order", "events.scored-once", "events.payload-keys")
async def test_the_events_of_candidates_name_their_branch_and_come_before_the_choice():
    loop = LoopConfig(branches=3, verifier=by_text(a=0.2, b=0.9, c=0.5))
    watched = await watch(Agent("ada", ScriptedModel(["a", "b", "c"]), loop_config=loop))
    kinds = watched.kinds
    chosen = kinds.index(EventType.BRANCH_SELECTED)
    assert kinds[0] is EventType.AGENT_START
    assert sorted(kinds[1:chosen]) == ["agent_done"] * 3 + ["text_delta"] * 3
    assert kinds[chosen:] == ["branch_selected", "verifier_scored", "loop_iteration", "done"]
    for kind in (EventType.TEXT_DELTA, EventType.AGENT_DONE):
        assert sorted(data["branch"] for data in watched.data(kind)) == [0, 1, 2]
    (selected,) = watched.data(EventType.BRANCH_SELECTED)
    assert selected["branch_count"] == 3
    assert (selected["winning_index"], selected["winning_score"]) == (1, 0.9)
    assert watched.data(EventType.VERIFIER_SCORED) == [
        {"iteration": 1, "score": 0.9, "issues": ["b is it."]}
    ]
    assert watched.data(EventType.LOOP_ITERATION) == [iteration(1, converged=True, score=0.9)]


@requirement("events.candidates")
async def test_the_tool_events_of_candidates_name_their_branch_too():
    def look_then_answer(seen: Any) -> Any:
        if len(seen.messages) > 1:
            return "Done."
        return reply(None, call("look", where=f"{seen.index} room"))

    loop = LoopConfig(branches=2, verifier=by_text(**{"Done.": 1.0}))
    model = ScriptedModel(look_then_answer)
    watched = await watch(Agent("ada", model, tools=[look], loop_config=loop))
    asked = {data["branch"]: data["args"]["where"] for data in watched.data(EventType.TOOL_CALL)}
    told = {data["branch"]: data["result"] for data in watched.data(EventType.TOOL_RESULT)}
    assert sorted(asked) == [0, 1]
    assert told == {branch: f"There is nothing in the {asked[branch]}." for branch in asked}


@requirement("events.candidates", "events.payload-keys")
async def test_a_merge_has_no_winner():
    loop = LoopConfig(branches=2, max_iterations=1)
    model = ScriptedModel(["a", "b", "Both.\nCONFIDENCE: 0.7"])
    watched = await watch(Agent("ada", model, loop_config=loop))
    (selected,) = watched.data(EventType.BRANCH_SELECTED)
    assert selected["branch_count"] == 2
    assert (selected["winning_index"], selected["winning_score"]) == (None, None)
    assert watched.data(EventType.VERIFIER_SCORED) == []


@requirement("events.candidates")
async def test_without_candidates_no_event_names_a_branch():
    watched = await watch(looking_once())
    assert not any("branch" in event.data for event in watched.events)


# ── Streams that are tried again ─────────────────────────────────────────────────────────────────


class Breaking:
    """A model whose first calls stream a text and then fail."""

    name = "breaking"

    def __init__(self, *texts: str, answer: str | None) -> None:
        self._script = ScriptedModel([*texts, *([] if answer is None else [answer])])
        self._failures = len(texts)

    async def generate(self, request: Any, on_delta: Any = None) -> Any:
        whole = await self._script.generate(request, on_delta)
        if len(self._script.requests) <= self._failures:
            raise ServerError("the stream broke")
        return whole


def read_live(events: list[StreamEvent]) -> str:
    """What stands on the screen of a reader who drops what it is told to drop."""
    text = ""
    for event in events:
        text += event.data.get("chunk", "")
        if dropped := event.data.get("discard_chars", 0):
            text = text[:-dropped]
    return text


@requirement("events.discard-chars", "events.retry-announced")
@pytest.mark.parametrize(
    ("texts", "discarded"),
    [(["The ans"], [7]), (["T", "The answer is", ""], [1, 13, 0])],
)
async def test_a_retried_stream_says_how_much_a_reader_must_drop(texts, discarded):
    model = Breaking(*texts, answer="The answer is 42.")
    agent = Agent("ada", model, retry_policy=RetryPolicy(max_retries=len(texts)))
    watched = await watch(agent, clock=FakeClock())
    attempts = watched.data(EventType.RETRY_ATTEMPT)
    assert [data["discard_chars"] for data in attempts] == discarded
    assert watched.result is not None
    assert watched.result.text == "The answer is 42."
    assert read_live(watched.events) == "The answer is 42."


@requirement("events.discard-chars")
async def test_so_does_one_that_another_model_takes_over():
    model = Breaking("Half a", "Half of", answer=None)
    chain = FallbackChain([ScriptedModel(["A whole."], name="second")])
    agent = Agent("ada", model, retry_policy=RetryPolicy(max_retries=1), fallback_chain=chain)
    watched = await watch(agent, clock=FakeClock())
    (fallback,) = watched.data(EventType.FALLBACK_TRIGGERED)
    assert fallback["discard_chars"] == 7
    assert read_live(watched.events) == "A whole."


@requirement("events.discard-chars")
async def test_what_an_earlier_turn_said_is_not_dropped():
    first = reply("Let me see. ", call("look", where="attic"))

    class Second:
        name = "second"
        script = ScriptedModel([first, "Noth", "Nothing."])

        async def generate(self, request: Any, on_delta: Any = None) -> Any:
            whole = await self.script.generate(request, on_delta)
            if len(self.script.requests) == 2:
                raise ServerError("the stream broke")
            return whole

    agent = Agent("ada", Second(), tools=[look], retry_policy=RetryPolicy(max_retries=1))
    watched = await watch(agent, clock=FakeClock())
    assert read_live(watched.events) == "Let me see. Nothing."


# ── Streamed or not ──────────────────────────────────────────────────────────────────────────────


@requirement("events.same-result")
@each(RETURNED | RAISED)
async def test_a_run_gives_the_same_with_and_without_a_reader(ending: Ending):
    seen, unseen = await watch(ending.agent()), await unwatched(ending.agent())
    assert figures(seen.result, seen.error) == figures(*unseen)


async def unwatched(agent: Agent) -> tuple[AgentResult | None, BaseException | None]:
    task = asyncio.create_task(run_agent(agent, ask()))
    try:
        return await task, None
    except BaseException as error:
        return None, error


def figures(result: AgentResult | None, error: BaseException | None) -> Any:
    from untildone import partial_result

    known = result if error is None else partial_result(error)
    assert known is not None
    spent = (known.input_tokens, known.output_tokens, known.unknown_usage_calls)
    return (type(error), str(error), known.text, known.exit_reason, known.turns, spent)
