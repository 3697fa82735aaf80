"""The turn loop, from the question to an answer or to the cap."""

import pytest

from tests.behaviour.kit import answers, ask, check_conversation, check_requests
from tests.behaviour.manifest import requirement
from untildone import (
    Agent,
    ExitReason,
    FallbackChain,
    LoopConfig,
    MaxTurnsError,
    RetryPolicy,
    ServerError,
    Usage,
    partial_result,
    run_agent,
)
from untildone.testing import FakeClock, ScriptedModel, call, reply


def look(where: str) -> str:
    return f"nothing in {where}"


def looking(where: str, text: str | None = None):
    return reply(text, call("look", where=where))


# ── Answers ──────────────────────────────────────────────────────────────────────────────────────


@requirement("turns.satisfied", "turns.answer-verbatim")
@pytest.mark.parametrize(
    "text", ["Done.", "  two\n\n spaces, a newline \n", "\ttab", "  ", "\n", "ünïcödé 🎉\u2028", ""]
)
async def test_a_reply_without_calls_is_the_answer_character_for_character(text: str):
    model = ScriptedModel([text])
    result = await run_agent(Agent("ada", model), ask())
    assert result.text == text
    assert result.exit_reason is ExitReason.SATISFIED
    assert len(model.requests) == 1


@requirement("turns.satisfied")
async def test_text_beside_a_call_is_not_the_answer():
    model = ScriptedModel([looking("attic", "I think it is in the attic."), "It is not there."])
    result = await run_agent(Agent("ada", model, tools=[look]), ask())
    assert result.text == "It is not there."
    assert result.exit_reason is ExitReason.SATISFIED
    assert result.turns == 2


@requirement("turns.conversation-and-tools")
async def test_each_turn_sends_the_whole_conversation_and_the_tools():
    model = ScriptedModel([looking("attic", "Hm."), looking("cellar"), "Gone."])
    agent = Agent("ada", model, system_prompt="Find it.", tools=[look])
    history = [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hi."},
        {"role": "user", "content": "Where is my hat?"},
    ]
    result = await run_agent(agent, history)
    opening = [{"role": "system", "content": "Find it."}, *history]
    assert model.requests[0].messages == opening
    assert [len(request.messages) for request in model.requests] == [4, 6, 8]
    assert model.requests[1].messages[4]["content"] == "Hm."
    assert model.requests[1].messages[5]["content"] == "nothing in attic"
    assert model.requests[2].messages[7]["content"] == "nothing in cellar"
    assert [request.tool_names for request in model.requests] == [["look"]] * 3
    assert result.messages == [
        *model.requests[2].messages,
        {"role": "assistant", "content": "Gone."},
    ]
    check_requests(model)


@requirement("turns.s2-keys")
@pytest.mark.parametrize(
    ("script", "max_turns", "expected"),
    [
        (["ready"], 5, ("ready", 1, "satisfied")),
        ([looking("a"), looking("b"), "ready"], 5, ("ready", 3, "satisfied")),
        ([looking("a"), looking("b", "so far")], 2, ("so far", 2, "max_turns")),
    ],
)
async def test_answer_steps_and_exit_are_text_turns_and_exit_reason(script, max_turns, expected):
    agent = Agent("ada", ScriptedModel(script), tools=[look], max_turns=max_turns)
    result = await run_agent(agent, ask())
    assert (result.text, result.turns, result.exit_reason) == expected


@requirement("turns.finish-reason")
@pytest.mark.parametrize("reason", ["stop", "length", "content_filter", "made_up"])
async def test_the_finish_reason_of_the_last_reply_is_on_the_result(reason: str):
    model = ScriptedModel([looking("attic"), reply("It is in the", finish_reason=reason)])
    result = await run_agent(Agent("ada", model, tools=[look]), ask())
    assert result.finish_reason == reason
    assert result.text == "It is in the"
    assert result.exit_reason is ExitReason.SATISFIED


@requirement("turns.finish-reason")
async def test_at_the_cap_the_finish_reason_is_the_last_replys():
    script = [looking("attic"), reply("cut", call("look", _raw="{"), finish_reason="length")]
    result = await run_agent(Agent("ada", ScriptedModel(script), tools=[look], max_turns=2), ask())
    assert (result.exit_reason, result.finish_reason) == ("max_turns", "length")


@requirement("turns.empty-answer")
@pytest.mark.parametrize("empty", ["", None, " \n"])
async def test_an_empty_answer_ends_the_turns_and_is_never_sent_back(empty: str | None):
    model = ScriptedModel([looking("attic"), reply(empty), looking("cellar"), reply(empty), "Ok"])
    agent = Agent("ada", model, tools=[look], loop_config=LoopConfig(max_iterations=3))
    result = await run_agent(agent, ask())
    check_requests(model)
    check_conversation(result.messages)
    assert [message["role"] for message in model.requests[2].messages[1:]] == [
        "assistant",
        "tool",
        "user",
    ]
    assert (result.text, result.turns) == ("Ok", 5)


@requirement("turns.empty-answer")
async def test_a_run_whose_only_answer_is_empty_gives_an_empty_text():
    model = ScriptedModel([reply("")])
    result = await run_agent(Agent("ada", model), ask("Say nothing."))
    assert (result.text, result.exit_reason, result.turns) == ("", ExitReason.SATISFIED, 1)
    assert result.messages == ask("Say nothing.")


# ── The cap ──────────────────────────────────────────────────────────────────────────────────────


def endless(tool: str = "look") -> ScriptedModel:
    """A model that asks for something new for ever."""
    return ScriptedModel(lambda seen: reply(f"t{seen.index}", call(tool, where=f"w{seen.index}")))


@requirement("turns.at-most-n", "turns.cap-is-a-result")
@pytest.mark.parametrize("max_turns", [1, 2, 3, 7])
async def test_a_cap_of_n_makes_n_model_calls_and_gives_a_result(max_turns: int):
    model = endless()
    result = await run_agent(Agent("ada", model, tools=[look], max_turns=max_turns), ask())
    assert len(model.requests) == max_turns
    assert result.turns == max_turns
    assert result.exit_reason is ExitReason.MAX_TURNS
    assert result.text == f"t{max_turns - 1}"
    assert (result.input_tokens, result.output_tokens) == (10 * max_turns, 5 * max_turns)
    assert len(result.messages) == 1 + 2 * max_turns


@requirement("turns.at-most-n", "turns.default-cap")
async def test_without_a_setting_the_cap_is_ten():
    model = endless()
    result = await run_agent(Agent("ada", model, tools=[look]), ask())
    assert (len(model.requests), result.exit_reason) == (10, ExitReason.MAX_TURNS)


@requirement("turns.last-calls-run")
async def test_the_calls_of_the_last_turn_are_run_too():
    places: list[str] = []

    async def look(where: str) -> str:
        places.append(where)
        return "empty"

    agent = Agent("ada", endless(), tools=[look], max_turns=2)
    result = await run_agent(agent, ask())
    assert places == ["w0", "w1"]
    assert answers(result.messages) == ["empty", "empty"]
    check_conversation(result.messages)


@requirement("turns.at-most-n")
async def test_an_answer_in_the_last_turn_is_an_answer():
    model = ScriptedModel([looking("attic"), "Found it."])
    result = await run_agent(Agent("ada", model, tools=[look], max_turns=2), ask())
    assert (result.exit_reason, result.text) == (ExitReason.SATISFIED, "Found it.")


@requirement("turns.cap-is-a-result")
async def test_at_the_cap_the_last_text_is_kept_though_later_turns_had_none():
    script = [looking("a", "In the attic?"), looking("b"), looking("c", "")]
    result = await run_agent(Agent("ada", ScriptedModel(script), tools=[look], max_turns=3), ask())
    assert (result.exit_reason, result.text) == (ExitReason.MAX_TURNS, "In the attic?")


@requirement("turns.cap-can-raise")
async def test_the_cap_raises_where_the_agent_says_so_with_the_same_result():
    agent = Agent("ada", endless(), tools=[look], max_turns=3, on_max_turns="raise")
    with pytest.raises(MaxTurnsError, match="max_turns") as caught:
        await run_agent(agent, ask())
    result = caught.value.result
    assert result is not None
    assert partial_result(caught.value) is result
    assert (result.exit_reason, result.turns, result.text) == (ExitReason.MAX_TURNS, 3, "t2")
    assert (result.input_tokens, result.output_tokens) == (30, 15)
    check_conversation(result.messages)


@requirement("turns.cap-can-raise")
async def test_a_satisfied_run_does_not_raise():
    agent = Agent("ada", ScriptedModel(["Hi."]), max_turns=1, on_max_turns="raise")
    assert (await run_agent(agent, ask())).text == "Hi."


@requirement("turns.retry-same-turn")
async def test_a_retried_call_is_the_same_turn():
    model = ScriptedModel(
        [ServerError("503", usage=Usage()), ServerError("502", usage=Usage()), "Hi."]
    )
    agent = Agent("ada", model, max_turns=1, retry_policy=RetryPolicy(max_retries=2))
    result = await run_agent(agent, ask(), clock=FakeClock())
    assert (result.turns, result.exit_reason) == (1, ExitReason.SATISFIED)
    assert len(model.requests) == 3
    assert [request.messages for request in model.requests] == [ask()] * 3


@requirement("turns.retry-same-turn")
async def test_a_call_that_another_model_takes_over_is_the_same_turn():
    first, second = ScriptedModel([ServerError("500")]), ScriptedModel(["Hi."], name="second")
    agent = Agent("ada", first, max_turns=1, fallback_chain=FallbackChain([second]))
    result = await run_agent(agent, ask())
    assert (result.turns, result.exit_reason) == (1, ExitReason.SATISFIED)
    assert (result.text, result.model) == ("Hi.", "second")
