"""Stuck, as the live loop shows it: when an agent is nudged, and when it is stopped."""

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from tests.behaviour.kit import answers, ask, check_conversation, check_requests, watch
from tests.behaviour.manifest import requirement
from untildone import (
    Agent,
    EventType,
    ExitReason,
    LoopConfig,
    StuckDetector,
    StuckPolicy,
    ToolError,
    is_stuck,
    run_agent,
    tool,
)
from untildone.testing import ScriptedModel, call, reply

NUDGE = (
    "You seem to be repeating yourself. "
    "Try a different approach or finalize your answer with what you have."
)
"""As it stands on S2's page."""


def nudged_after(model: ScriptedModel, nudge: str = NUDGE) -> list[int]:
    """After how many turns the model was nudged, for each nudge."""
    told = {"role": "user", "content": nudge}
    return [seen.index for seen in model.requests if seen.messages[-1] == told]


def going_round(*arguments: dict[str, Any], name: str = "look") -> ScriptedModel:
    """A model that makes these calls in turn, for ever, each with another text beside it."""
    return ScriptedModel(
        lambda seen: reply(
            f"Thought {seen.index}.", call(name, **arguments[seen.index % len(arguments)])
        )
    )


def asking(calls: Iterable[dict[str, Any]], name: str = "look") -> ScriptedModel:
    """A model that makes these calls, one a turn, and then answers."""
    return ScriptedModel([*(reply(None, call(name, **each)) for each in calls), "Done."])


async def look(where: str) -> str:
    return f"There is nothing in the {where}."


def agent(model: ScriptedModel, *tools: Any, **settings: Any) -> Agent:
    return Agent("ada", model, tools=list(tools) or [look], **{"max_turns": 100, **settings})


# ── Nudge, then stop ─────────────────────────────────────────────────────────────────────────────


@requirement("stuck.nudge-then-stop", "stuck.levels", "stuck.judged-after-calls")
async def test_identical_calls_are_nudged_after_the_fourth_and_stopped_after_the_eighth():
    looked: list[str] = []

    async def look(where: str) -> str:
        looked.append(where)
        return "nothing"

    model = going_round({"where": "attic"})
    result = await run_agent(agent(model, look), ask())
    assert nudged_after(model) == [4]
    assert result.exit_reason is ExitReason.STUCK
    assert (len(model.requests), result.turns, len(looked)) == (8, 8, 8)
    check_requests(model)
    check_conversation(result.messages)
    assert len(answers(result.messages)) == 8


@requirement("stuck.keeps-text")
async def test_a_stuck_run_keeps_its_last_text_its_conversation_and_its_usage():
    result = await run_agent(agent(going_round({"where": "attic"})), ask())
    assert result.text == "Thought 7."
    assert (result.input_tokens, result.output_tokens) == (80, 40)
    # The question, eight replies with their answers, the nudge.
    assert len(result.messages) == 1 + 8 * 2 + 1


@requirement("stuck.nudge-text", "stuck.nudge-then-stop")
async def test_the_nudge_is_s2s_text_as_a_user_message_after_the_batchs_last_result():
    script = [reply(None, [call("look", where="attic"), call("look", where="cellar")])] * 4
    model = ScriptedModel([*script, "All right, I give up."])
    watched = await watch(agent(model))
    (event,) = watched.data(EventType.NUDGED)
    assert event["text"] == NUDGE
    (after,) = nudged_after(model)
    conversation = model.requests[after].messages
    assert conversation[-1] == {"role": "user", "content": NUDGE}
    assert [message["role"] for message in conversation[-4:-1]] == ["assistant", "tool", "tool"]
    check_requests(model)


@requirement("stuck.nudge-text")
async def test_the_nudge_text_can_be_ones_own():
    model = going_round({"where": "attic"})
    policy = StuckPolicy(nudge_text="Stop it.")
    await run_agent(agent(model, stuck=policy), ask())
    assert nudged_after(model, "Stop it.") == [4]
    assert nudged_after(model) == []


@requirement("stuck.nudge-then-stop")
async def test_after_the_one_nudge_there_is_no_second():
    places = [{"where": "attic"}] * 4 + [{"where": "cellar"}] + [{"where": "attic"}] * 3
    model = asking(places)
    result = await run_agent(agent(model), ask())
    assert nudged_after(model) == [4]
    assert (result.exit_reason, result.text) == (ExitReason.SATISFIED, "Done.")


@requirement("stuck.no-self-reset")
async def test_an_agent_that_recovers_after_the_nudge_is_left_alone():
    places = [{"where": "attic"}] * 4 + [{"where": f"{name} room"} for name in "abcdefghijklmnop"]
    model = asking(places)
    result = await run_agent(agent(model), ask())
    assert nudged_after(model) == [4]
    assert (result.exit_reason, result.text) == (ExitReason.SATISFIED, "Done.")


@requirement("stuck.no-self-reset")
async def test_what_was_seen_before_the_nudge_is_no_news_after_it():
    old = [{"where": "attic"}, {"where": "cellar"}]
    model = going_round(*old)
    result = await run_agent(agent(model), ask())
    # Two novel calls, then three without anything new; after the nudge four more.
    assert nudged_after(model) == [5]
    assert (result.exit_reason, result.turns) == (ExitReason.STUCK, 9)


@requirement("stuck.precedes-cap")
@pytest.mark.parametrize("on_max_turns", ["return", "raise"])
async def test_stuck_in_the_last_turn_is_stuck_and_not_the_cap(on_max_turns: str):
    model = going_round({"where": "attic"})
    result = await run_agent(agent(model, max_turns=8, on_max_turns=on_max_turns), ask())
    assert (result.exit_reason, result.turns) == (ExitReason.STUCK, 8)


@requirement("stuck.precedes-cap", "turns.at-most-n")
async def test_a_nudge_in_the_last_turn_makes_no_further_turn():
    model = going_round({"where": "attic"})
    result = await run_agent(agent(model, max_turns=4), ask())
    assert (result.exit_reason, len(model.requests)) == (ExitReason.MAX_TURNS, 4)
    check_conversation(result.messages)


@requirement("stuck.action-stop")
async def test_with_action_stop_the_first_signal_of_stop_level_ends_the_run():
    model = going_round({"where": "attic"})
    result = await run_agent(agent(model, stuck=StuckPolicy(action="stop")), ask())
    assert (result.exit_reason, result.turns) == (ExitReason.STUCK, 5)
    assert nudged_after(model) == []


@requirement("stuck.action-off")
async def test_with_action_off_nothing_is_said_and_nothing_is_stopped():
    model = going_round({"where": "attic"})
    result = await run_agent(agent(model, stuck=StuckPolicy(action="off"), max_turns=60), ask())
    assert (result.exit_reason, result.turns) == (ExitReason.MAX_TURNS, 60)
    assert nudged_after(model) == []


@requirement("stuck.per-iteration")
async def test_detector_and_nudge_allowance_begin_anew_with_each_iteration():
    model = going_round({"where": "attic"})
    loop = LoopConfig(max_iterations=3)
    watched = await watch(agent(model, loop_config=loop))
    assert nudged_after(model) == [4, 12, 20]
    assert len(watched.data(EventType.NUDGED)) == 3
    assert watched.result is not None
    assert watched.result.turns == 24
    assert [each["agent_exit"] for each in watched.data(EventType.LOOP_ITERATION)] == ["stuck"] * 3
    check_requests(model)


# ── What counts as going round ───────────────────────────────────────────────────────────────────


@requirement("stuck.cycles")
@pytest.mark.parametrize("length", [1, 2, 3, 5, 12])
async def test_cycles_of_any_length_are_seen_also_with_other_texts_between(length: int):
    model = going_round(*({"where": f"{'x' * n} room"} for n in range(1, length + 1)))
    result = await run_agent(agent(model), ask())
    assert nudged_after(model) == [length + 3]
    assert (result.exit_reason, result.turns) == (ExitReason.STUCK, length + 3 + 4)


@requirement("stuck.canonical")
async def test_the_same_arguments_in_another_order_are_the_same_call():
    async def find(name: str, place: str) -> str:
        return "not found"

    forms = ['{"name": "hat", "place": "hall"}', '{ "place":"hall","name":"hat" }']
    model = ScriptedModel(
        lambda seen: reply(None, call("find", _raw=forms[seen.index % len(forms)]))
    )
    result = await run_agent(agent(model, find), ask())
    assert nudged_after(model) == [4]
    assert (result.exit_reason, result.turns) == (ExitReason.STUCK, 8)


@requirement("stuck.masked")
@pytest.mark.parametrize(
    "text",
    [
        "Nothing new as of 2024-05-01T10:{n:02d}:00Z.",
        "No match (took 0.{n:03d}s).",
        '{{"id": "9f0c3a52-7c1e-4d8e-9b1a-0000000000{n:02d}", "hits": []}}',
        '{{"request_id": "req-7f3a9c{n:02d}", "hits": []}}',
    ],
)
async def test_a_result_that_differs_in_time_duration_or_id_only_is_no_news(text: str):
    count = itertools.count()

    async def look(where: str) -> str:
        return text.format(n=next(count))

    model = going_round({"where": "attic"})
    result = await run_agent(agent(model, look), ask())
    assert nudged_after(model) == [4]
    assert (result.exit_reason, result.turns) == (ExitReason.STUCK, 8)


@requirement("stuck.same-error")
async def test_the_same_call_with_the_same_error_is_nudged_after_the_third():
    async def look(where: str) -> str:
        raise ToolError("that door is locked")

    model = going_round({"where": "attic"})
    result = await run_agent(agent(model, look), ask())
    assert nudged_after(model) == [3]
    assert (result.exit_reason, result.turns) == (ExitReason.STUCK, 7)


@requirement("stuck.error-streak")
async def test_one_tool_with_one_error_and_other_arguments_is_nudged_after_the_fifth():
    async def look(where: str) -> str:
        raise ToolError("the light is off")

    model = going_round(*({"where": f"{name} room"} for name in "abcdefghijklmnopqrst"))
    result = await run_agent(agent(model, look), ask())
    assert nudged_after(model) == [5]
    assert (result.exit_reason, result.turns) == (ExitReason.STUCK, 11)


@requirement("stuck.transient")
@pytest.mark.parametrize(
    "text", ["429 Too Many Requests", "HTTP 503 Service Unavailable", "the request timed out"]
)
async def test_passing_errors_have_a_limit_of_their_own(text: str):
    async def look(where: str) -> str:
        raise ToolError(text)

    model = going_round({"where": "attic"})
    result = await run_agent(agent(model, look), ask())
    assert nudged_after(model) == [6]
    assert (result.exit_reason, result.turns) == (ExitReason.STUCK, 12)


@requirement("stuck.near-duplicates")
async def test_nearly_equal_queries_with_an_equal_result_are_nudged_after_the_sixth():
    words = ["auth", "code", "login", "page", "form", "session", "token", "cookie", "user", "name"]
    queries = [{"where": " ".join(words[:n])} for n in range(1, len(words) + 1)]

    async def look(where: str) -> str:
        return "Your search matched nothing in any of the files."

    model = asking(queries)
    result = await run_agent(agent(model, look), ask())
    # Each has the words of the one before it and one more.
    assert nudged_after(model) == [6]
    assert result.exit_reason is ExitReason.SATISFIED


@requirement("stuck.identical-25")
async def test_one_call_made_twenty_five_times_is_noticed_though_its_result_changes():
    count = itertools.count()

    async def look(where: str) -> str:
        return f"{next(count)} sheep"

    model = going_round({"where": "attic"})
    result = await run_agent(agent(model, look), ask())
    assert nudged_after(model) == [25]
    assert (result.exit_reason, result.turns) == (ExitReason.STUCK, 50)


@requirement("stuck.same-text")
def test_the_same_text_three_times_with_nothing_between_is_noticed():
    detector = StuckDetector(StuckPolicy())
    said = {"role": "assistant", "content": "Let me look into that."}
    assert [detector.observe(said) for _ in range(2)] == [None, None]
    signal = detector.observe(said)
    assert signal is not None
    assert signal.rule == "same_text"


# ── What does not ────────────────────────────────────────────────────────────────────────────────


async def undisturbed(model: ScriptedModel, *tools: Any, turns: int) -> None:
    result = await run_agent(agent(model, *tools), ask())
    assert nudged_after(model) == []
    assert (result.exit_reason, result.turns) == (ExitReason.SATISFIED, turns)


@requirement("stuck.changing-results")
async def test_polling_with_changing_results_is_left_alone():
    count = itertools.count()

    async def progress(job: str) -> str:
        return f"{next(count)} of 24 parts are done"

    await undisturbed(asking([{"job": "a"}] * 24, "progress"), progress, turns=25)


@requirement("stuck.polling")
async def test_an_unchanged_answer_of_a_polling_tool_is_no_repeat():
    @tool(polling=True)
    async def progress(job: str) -> str:
        return "still running"

    await undisturbed(asking([{"job": "a"}] * 60, "progress"), progress, turns=61)


@requirement("stuck.batch-work")
@pytest.mark.parametrize("result", ["ok", "The record has been stored in the archive of names."])
async def test_one_tool_with_other_arguments_each_time_is_batch_work(result: str):
    async def store(name: str) -> str:
        return result

    names = ["alice", "bob", "carol", "dan", "erin", "frank", "grace", "heidi", "ivan", "judy"]
    await undisturbed(asking([{"name": name} for name in names], "store"), store, turns=11)


@requirement("stuck.paging")
async def test_arguments_that_differ_in_numbers_only_are_paging():
    async def read(file: str, page: int) -> str:
        return "This page is intentionally left blank."

    pages = [{"file": "book", "page": n} for n in range(1, 31)]
    await undisturbed(asking(pages, "read"), read, turns=31)


@requirement("stuck.one-batch")
async def test_identical_calls_in_one_reply_count_once():
    model = ScriptedModel([reply(None, [call("look", where="attic") for _ in range(9)]), "Done."])
    await undisturbed(model, turns=2)
    twins = [reply(None, [call("look", where="attic")] * 5)]
    model = ScriptedModel([*twins * 3, "Done."])
    await undisturbed(model, turns=4)


@requirement("stuck.one-batch")
async def test_batches_of_identical_calls_are_nudged_when_single_calls_would_be():
    model = ScriptedModel(lambda seen: reply(None, [call("look", where="attic")] * 3))
    result = await run_agent(agent(model), ask())
    assert nudged_after(model) == [4]
    assert (result.exit_reason, result.turns) == (ExitReason.STUCK, 8)
    check_requests(model)


@requirement("stuck.nondeterministic")
async def test_of_a_nondeterministic_tool_only_the_call_counts():
    count = itertools.count()

    @tool(nondeterministic=True)
    async def brainstorm(topic: str) -> str:
        return f"Idea number {next(count)}"

    model = going_round({"topic": "hats"}, name="brainstorm")
    result = await run_agent(agent(model, brainstorm), ask())
    assert nudged_after(model) == [4]
    assert (result.exit_reason, result.turns) == (ExitReason.STUCK, 8)


@requirement("stuck.volatile")
async def test_fields_declared_volatile_are_left_out():
    count = itertools.count()

    @tool(volatile=["load", "nonce"])
    async def status(host: str, nonce: str) -> dict[str, Any]:
        return {"host": host, "load": f"{next(count)} percent", "up": True}

    model = ScriptedModel(
        lambda seen: reply(None, call("status", host="a", nonce="x" * (seen.index + 1)))
    )
    result = await run_agent(agent(model, status), ask())
    assert nudged_after(model) == [4]
    assert (result.exit_reason, result.turns) == (ExitReason.STUCK, 8)


# ── S2's function ────────────────────────────────────────────────────────────────────────────────


class Attributes:
    """What clients give that have attributes instead of keys."""

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)


def as_dict(name: str, arguments: str) -> Any:
    calls = [{"function": {"name": name, "arguments": arguments}}]
    return {"role": "assistant", "content": "", "tool_calls": calls}


def as_mixed(name: str, arguments: str) -> Any:
    calls = [Attributes(function=Attributes(name=name, arguments=arguments))]
    return {"role": "assistant", "content": "", "tool_calls": calls}


def as_attributes(name: str, arguments: str) -> Any:
    calls = [Attributes(function=Attributes(name=name, arguments=arguments))]
    return Attributes(role="assistant", content="", tool_calls=calls)


ANSWER = {"role": "tool", "content": "nothing"}


@requirement("stuck.s2-function")
@pytest.mark.parametrize("form", [as_dict, as_mixed, as_attributes])
def test_is_stuck_counts_identical_calls_in_the_window(form: Callable[[str, str], Any]):
    a, b = form("search", '{"q": "a"}'), form("search", '{"q": "b"}')
    assert not is_stuck([])
    assert not is_stuck([a, ANSWER, a, ANSWER, b, ANSWER])
    assert is_stuck([a, ANSWER, b, ANSWER, a, ANSWER, b, ANSWER, a, ANSWER])
    assert is_stuck([a, ANSWER, a, ANSWER], threshold=2)
    assert not is_stuck([a, ANSWER, a, ANSWER, a, ANSWER], threshold=4)
    # Ten messages are looked at: the first of three stands before them.
    assert not is_stuck([a, ANSWER, b, ANSWER, b, ANSWER, a, ANSWER, ANSWER, a, ANSWER])
    assert is_stuck([a, ANSWER, b, ANSWER, b, ANSWER, a, ANSWER, ANSWER, a, ANSWER], window=6)


@requirement("stuck.s2-function")
def test_is_stuck_looks_at_the_calls_of_assistants_only():
    a = as_dict("search", '{"q": "a"}')
    echoes = [{**a, "role": "user"}] * 5
    assert not is_stuck([*echoes, {"role": "assistant", "content": "a"}])
