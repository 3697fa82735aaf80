"""Nothing is lost: not the answer, not the error, not a token, and not the caller's messages."""

import asyncio
import copy
import logging
from dataclasses import replace
from typing import Any

import pytest

from tests.behaviour.kit import Watched, ask, drained, other_tasks, watch
from tests.behaviour.manifest import requirement
from untildone import (
    Agent,
    AgentResult,
    ExitReason,
    FallbackChain,
    LoopConfig,
    LoopOutcome,
    RetryPolicy,
    ServerError,
    Usage,
    Verifier,
    VerifierConfig,
    VerifierFeedback,
    event_to_dict,
    partial_result,
    run_agent,
)
from untildone.testing import EventLog, FakeClock, ScriptedModel, call, reply


async def look(where: str) -> str:
    return f"There is nothing in the {where}."


def tokens(result: AgentResult | None) -> tuple[int, int, int, int]:
    assert result is not None
    return (
        result.input_tokens,
        result.output_tokens,
        result.cached_tokens,
        result.unknown_usage_calls,
    )


def cost(into: int, out: int, cached: int = 0) -> Usage:
    return Usage(input_tokens=into, output_tokens=out, cached_tokens=cached)


# ── Errors ───────────────────────────────────────────────────────────────────────────────────────


class TheirError(Exception):
    """Somebody else's, with arguments of its own."""

    def __init__(self, code: int, *, hint: str) -> None:
        super().__init__(code)
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.args[0]}: {self.hint}"


class TheirStopError(BaseException):
    """Somebody else's, and no ``Exception``."""


def their_errors() -> list[BaseException]:
    return [
        TheirError(7, hint="turn it off and on"),
        KeyError("x"),
        OSError(2, "No such file"),
        ExceptionGroup("theirs", [ValueError("a"), TypeError("b")]),
        ServerError("503", status=503, request_id="r1"),
        TimeoutError(),
        TheirStopError("enough"),
    ]


each_error = pytest.mark.parametrize(
    "error", their_errors(), ids=lambda error: type(error).__name__
)


def unchanged(watched: Watched, error: BaseException, before: tuple[Any, ...]) -> AgentResult:
    """The very exception left the run, as it was, and the best so far is found with it."""
    assert watched.error is error
    assert looks(error) == before
    result = partial_result(error)
    assert result is not None
    return result


def looks(error: BaseException) -> tuple[Any, ...]:
    cause = (error.__cause__, getattr(error, "__notes__", None))
    return (type(error), str(error), repr(error), error.args, *cause)


@requirement("lost.foreign-unchanged", "lost.partial-result")
@each_error
async def test_what_a_model_raises_leaves_the_run_as_it_was(error: BaseException):
    before = looks(error)
    model = ScriptedModel([reply("Hm.", call("look", where="attic")), error])
    watched = await watch(Agent("ada", model, tools=[look]))
    result = unchanged(watched, error, before)
    assert (result.text, result.turns) == ("Hm.", 1)
    assert len(result.messages) == 3


@requirement("lost.foreign-unchanged", "lost.partial-result")
@each_error
@pytest.mark.parametrize("place", ["stop_condition", "convergence_fn", "criteria", "verifier"])
async def test_what_a_judge_raises_leaves_a_failing_run_as_it_was(error: BaseException, place: str):
    before = looks(error)

    async def judge(*_: Any) -> Any:
        raise error

    judges: dict[str, Any] = {
        "criteria": [judge],
        "verifier": Verifier(VerifierConfig(evaluate_fn=judge)),
    }
    settings = {place: judges.get(place, judge), "on_criterion_error": LoopOutcome.FAIL_RUN}
    watched = await watch(Agent("ada", ScriptedModel(["Hm."]), loop_config=LoopConfig(**settings)))
    result = unchanged(watched, error, before)
    assert (result.text, result.turns) == ("Hm.", 1)


@requirement("lost.no-group")
@pytest.mark.parametrize("count", [1, 2, 9])
async def test_what_a_tool_raises_past_all_handlers_comes_alone(count: int):
    async def stop() -> str:
        raise TheirStopError("enough")

    model = ScriptedModel([reply("Hm.", [call("stop") for _ in range(count)])])
    watched = await watch(Agent("ada", model, tools=[stop]))
    assert type(watched.error) is TheirStopError
    assert str(watched.error) == "enough"
    result = partial_result(watched.error)
    assert result is not None
    assert result.text == "Hm."
    assert other_tasks() == set()


@requirement("lost.partial-result")
async def test_an_error_in_an_iteration_keeps_the_best_of_those_before():
    async def grade(query: str, result: AgentResult) -> VerifierFeedback:
        return VerifierFeedback([0.2, 0.7, 0.3][result.loop_iterations - 1])

    loop = LoopConfig(max_iterations=9, verifier=Verifier(VerifierConfig(evaluate_fn=grade)))
    model = ScriptedModel(["poor", "good", "bad", KeyError("x")])
    watched = await watch(Agent("ada", model, loop_config=loop))
    assert watched.error is not None
    result = partial_result(watched.error)
    assert result is not None
    assert (result.text, result.best_iteration, result.loop_iterations) == ("good", 2, 3)
    assert result.exit_reason is ExitReason.ERROR
    assert result.scores == [0.2, 0.7, 0.3]
    assert result.turns == 3
    assert [m["content"] for m in result.messages if m["role"] == "assistant"] == ["poor", "good"]
    assert result.messages[-1]["content"] == "good"


@requirement("lost.partial-result")
async def test_an_exception_that_left_no_run_has_no_result():
    assert partial_result(KeyError("x")) is None


@requirement("lost.partial-result")
async def test_an_exception_object_used_twice_tells_of_the_run_it_left_last():
    error = KeyError("x")
    for text in ("first", "second"):
        model = ScriptedModel([reply(text, call("look", where="attic")), error])
        with pytest.raises(KeyError) as caught:
            await run_agent(Agent("ada", model, tools=[look]), ask())
        result = partial_result(caught.value)
        assert result is not None
        assert result.text == text


# ── Sinks ────────────────────────────────────────────────────────────────────────────────────────


class BreakingSink:
    """A sink that takes some events and then fails."""

    def __init__(self, takes: int, error: Exception) -> None:
        self.events: list[Any] = []
        self._takes = takes
        self._error = error

    def write(self, event: Any) -> None:
        if len(self.events) >= self._takes:
            raise self._error
        self.events.append(event)


@requirement("lost.sinks")
@pytest.mark.parametrize("takes", range(9))
async def test_a_sink_that_fails_is_reported_and_costs_nothing(
    takes: int, caplog: pytest.LogCaptureFixture
):
    sound, sink = EventLog(), BreakingSink(takes, OSError("disk full"))
    model = ScriptedModel([reply(None, call("look", where="attic")), "Done."])
    agent = Agent("ada", model, tools=[look])
    with caplog.at_level(logging.WARNING, "untildone"):
        result = await run_agent(agent, ask(), log=[sink, sound])
    assert (result.text, result.exit_reason) == ("Done.", ExitReason.SATISFIED)
    # RunStarted, two events a model call, two a tool call, AgentRunEnded, RunEnded.
    assert len(sound) == 10 - 1
    assert sink.events == sound.events[:takes], "what it has is a whole prefix"
    assert len(caplog.records) == 1
    assert "disk full" in caplog.text


class BrokenQueue(asyncio.Queue[Any]):
    """A queue whose reader's end is gone: putting fails after some items."""

    def __init__(self, takes: int) -> None:
        super().__init__()
        self._takes = takes

    def _check(self) -> None:
        if self.qsize() >= self._takes:
            raise ConnectionResetError("the reader hung up")

    async def put(self, item: Any) -> None:
        self._check()
        await super().put(item)

    def put_nowait(self, item: Any) -> None:
        self._check()
        super().put_nowait(item)


@requirement("lost.sinks")
@pytest.mark.parametrize("takes", range(9))
async def test_a_queue_that_fails_costs_no_answer(takes: int):
    model = ScriptedModel([reply("Hm.", call("look", where="attic")), "Done."])
    result = await run_agent(Agent("ada", model, tools=[look]), ask(), queue=BrokenQueue(takes))
    assert (result.text, result.exit_reason) == ("Done.", ExitReason.SATISFIED)


# ── Usage ────────────────────────────────────────────────────────────────────────────────────────


@requirement("usage.sums")
async def test_usage_sums_every_turn_of_every_iteration():
    script = [
        reply(None, call("look", where="attic"), usage=cost(100, 10)),
        reply("one", usage=cost(200, 20, cached=150)),
        reply("two", usage=cost(400, 40, cached=300)),
    ]
    loop = LoopConfig(max_iterations=2)
    agent = Agent("ada", ScriptedModel(script), tools=[look], loop_config=loop)
    result = await run_agent(agent, ask())
    assert tokens(result) == (700, 70, 450, 0)
    assert result.total_tokens == 770
    assert result.turns == 3


@requirement("usage.sums")
async def test_usage_counts_the_judge_its_repair_and_its_confirmations():
    good = '{"score": 0.9, "issues": [], "suggestion": ""}'
    judge = ScriptedModel(
        [
            reply("I would say nine of ten.", usage=cost(1, 2)),
            reply(good, usage=cost(10, 20)),
            reply(good, usage=cost(100, 200)),
        ]
    )
    verifier = Verifier(VerifierConfig(model=judge, confirmations=1))
    worker = ScriptedModel([reply("Done.", usage=cost(1000, 2000))])
    result = await run_agent(Agent("ada", worker, loop_config=LoopConfig(verifier=verifier)), ask())
    assert result.exit_reason is ExitReason.CONVERGED
    assert tokens(result) == (1111, 2222, 0, 0)
    assert result.turns == 1


@requirement("usage.sums", "usage.failed-calls")
async def test_usage_counts_the_calls_that_failed_and_were_tried_again():
    script = [
        ServerError("cut", usage=cost(7, 3)),
        ServerError("refused", usage=Usage()),
        ServerError("nobody knows"),
        reply("Done.", usage=cost(100, 50)),
    ]
    agent = Agent("ada", ScriptedModel(script), retry_policy=RetryPolicy(max_retries=3))
    result = await run_agent(agent, ask(), clock=FakeClock())
    assert tokens(result) == (107, 53, 0, 1)


@requirement("usage.sums", "usage.failed-calls")
async def test_usage_counts_the_calls_before_a_fallback():
    first = ScriptedModel([ServerError("cut", usage=cost(7, 3))])
    second = ScriptedModel([reply("Done.", usage=cost(100, 50))])
    agent = Agent("ada", first, fallback_chain=FallbackChain([second]))
    assert tokens(await run_agent(agent, ask())) == (107, 53, 0, 0)


@requirement("usage.failed-calls")
async def test_a_call_of_which_nobody_told_the_tokens_is_unknown_and_not_free():
    silent = replace(reply("Done."), usage=None)
    assert tokens(await run_agent(Agent("ada", ScriptedModel([silent])), ask())) == (0, 0, 0, 1)
    watched = await watch(Agent("ada", ScriptedModel([KeyError("x")])))
    assert watched.error is not None
    assert tokens(partial_result(watched.error)) == (0, 0, 0, 1)


@requirement("usage.sums")
@pytest.mark.parametrize("fails", [False, True])
async def test_usage_counts_the_runs_made_inside_tools(fails: bool):
    async def delegate(n: int) -> str:
        script = [
            reply(f"inner {n}", call("look", where="attic"), usage=cost(10, 1)),
            KeyError("x") if fails else reply("inner", usage=cost(20, 2)),
        ]
        return (await run_agent(Agent("inner", ScriptedModel(script), tools=[look]), ask())).text

    calls = [call("delegate", n=1), call("delegate", n=2)]
    outer = ScriptedModel(
        [reply(None, calls, usage=cost(1000, 100)), reply("Done.", usage=cost(2000, 200))]
    )
    result = await run_agent(Agent("outer", outer, tools=[delegate]), ask())
    inner = (20, 2, 0, 2) if fails else (60, 6, 0, 0)
    assert tokens(result) == (3000 + inner[0], 300 + inner[1], 0, inner[3])
    assert result.turns == 2


@requirement("usage.sums")
async def test_usage_counts_the_candidates_that_lost_and_the_merge():
    script = [
        reply("a", usage=cost(1, 10)),
        reply("b", usage=cost(2, 20)),
        reply("Both.\nCONFIDENCE: 0.5", usage=cost(4, 40)),
    ]
    loop = LoopConfig(branches=2, max_iterations=1)
    result = await run_agent(Agent("ada", ScriptedModel(script), loop_config=loop), ask())
    assert tokens(result) == (7, 70, 0, 0)
    assert result.turns == 2


@requirement("usage.sums")
async def test_the_usage_of_a_result_is_the_sum_over_its_log():
    log = EventLog()
    script = [ServerError("cut", usage=cost(7, 3)), reply("a", usage=cost(10, 5)), "b"]
    agent = Agent(
        "ada",
        ScriptedModel(script),
        retry_policy=RetryPolicy(),
        loop_config=LoopConfig(max_iterations=2),
    )
    result = await run_agent(agent, ask(), log=log, clock=FakeClock())
    spent = [form["usage"] for form in map(event_to_dict, log) if "usage" in form]
    assert sum(usage["input_tokens"] for usage in spent) == result.input_tokens == 27
    assert sum(usage["output_tokens"] for usage in spent) == result.output_tokens == 13


# ── What is the caller's ─────────────────────────────────────────────────────────────────────────


def history() -> list[dict[str, Any]]:
    """A conversation with all that OpenAI's form can have."""
    asked = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    return [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "name": "eve", "content": [{"type": "text", "text": "Hello"}]},
        {"role": "assistant", "content": None, "tool_calls": [asked]},
        {"role": "tool", "tool_call_id": "c1", "content": "nothing"},
        {"role": "assistant", "content": "Nothing.", "reasoning_content": "Hm."},
        {"role": "user", "content": "And now?"},
    ]


def meddle(value: Any) -> None:
    """Changes all that can be changed in messages."""
    for message in value:
        for key, part in list(message.items()):
            if isinstance(part, list):
                meddle(part)
            elif isinstance(part, dict):
                meddle([part])
            message[key] = "meddled with"


@requirement("lost.callers-messages")
async def test_the_callers_messages_are_never_changed_and_their_list_never_grows():
    given = history()
    model = ScriptedModel([reply(None, call("look", where="attic")), "one", "two"])
    agent = Agent("ada", model, tools=[look], loop_config=LoopConfig(max_iterations=2))
    await run_agent(agent, given)
    assert given == history()


@requirement("lost.callers-messages")
async def test_the_callers_messages_are_sent_as_they_are():
    model = ScriptedModel(["Ok."])
    await run_agent(Agent("ada", model), history())
    assert model.requests[0].messages == history()


@requirement("lost.callers-messages")
async def test_who_changes_what_a_run_shows_changes_nothing_of_the_run_or_of_the_caller():
    given = history()

    def judge(context: Any) -> bool:
        meddle(context.messages)
        meddle(context.original_messages)
        meddle(context.result.messages)
        return False

    def peek(result: AgentResult) -> bool:
        meddle(result.messages)
        return True

    model = ScriptedModel(["one", "two", "three"])
    loop = LoopConfig(max_iterations=3, convergence_fn=peek, criteria=[judge])
    agent = Agent("ada", model, loop_config=loop)
    result = await run_agent(agent, given)
    assert given == history()
    assert [request.messages[:6] for request in model.requests] == [history()] * 3
    assert "meddled with" not in str(model.requests[-1].messages)
    kept = copy.deepcopy(model.requests[-1].messages)
    meddle(result.messages)
    assert model.requests[-1].messages == kept
    assert given == history()


@requirement("lost.callers-messages")
async def test_changing_messages_while_the_run_goes_on_changes_nothing_of_the_run():
    given = history()

    async def look(where: str) -> str:
        meddle(given)
        given.clear()
        return "nothing"

    model = ScriptedModel([reply(None, call("look", where="attic")), "Done."])
    await run_agent(Agent("ada", model, tools=[look]), given)
    assert model.requests[1].messages[:6] == history()


# ── Shared objects ───────────────────────────────────────────────────────────────────────────────


@requirement("lost.shared-config")
async def test_one_agent_gives_the_same_in_every_run_one_after_the_other_and_at_once():
    async def grade(query: str, result: AgentResult) -> VerifierFeedback:
        await asyncio.sleep(0)
        return VerifierFeedback(0.5, issues=["More."])

    def answer(seen: Any) -> Any:
        spoken = [m for m in seen.messages if m["role"] == "assistant" and m["content"]]
        asked = [m for m in seen.messages if m["role"] == "tool"]
        if len(asked) <= len(spoken):
            return reply(None, call("look", where=f"{len(asked)} room"))
        return f"answer {len(spoken)}"

    loop = LoopConfig(
        max_iterations=9,
        verifier=Verifier(VerifierConfig(evaluate_fn=grade)),
        adaptive=True,
        plateau_patience=2,
    )
    agent = Agent("ada", ScriptedModel(answer), tools=[look], max_turns=2, loop_config=loop)
    queue: asyncio.Queue[Any] = asyncio.Queue()
    one_by_one = [await run_agent(agent, ask(), queue=queue) for _ in range(3)]
    at_once = await asyncio.gather(*(run_agent(agent, ask()) for _ in range(50)))
    for result in (*one_by_one, *at_once):
        assert (result.exit_reason, result.loop_iterations) == (ExitReason.PLATEAU, 3)
        assert (result.text, result.best_iteration, result.turns) == ("answer 2", 3, 6)
        assert result.scores == [0.5, 0.5, 0.5]
        assert tokens(result) == (60, 30, 0, 0)
    assert drained(queue).count(None) == 3
