"""A reply that must fit ``response_model``: read, repaired once, or refused."""

import pytest
from pydantic import BaseModel

from tests.behaviour.kit import ask, check_requests
from tests.behaviour.manifest import requirement
from untildone import Agent, ExitReason, OutputParseError, partial_result, run_agent
from untildone.testing import ScriptedModel, call, reply


class City(BaseModel):
    name: str
    people: int


FITS = '{"name": "Rome", "people": 2800000}'
MISFIT = '{"name": "Rome", "people": "many"}'


async def count(city: str) -> str:
    return "2800000"


def agent(model: ScriptedModel, **settings) -> Agent:
    return Agent("ada", model, tools=[count], response_model=City, **settings)


@requirement("output.parsed")
async def test_a_reply_that_fits_is_read_and_its_text_stays_verbatim():
    text = f"  {FITS}\n"
    result = await run_agent(agent(ScriptedModel([text])), ask())
    assert result.parsed == City(name="Rome", people=2_800_000)
    assert (result.text, result.turns, result.exit_reason) == (text, 1, ExitReason.SATISFIED)


@requirement("output.repair-is-a-turn")
async def test_a_reply_that_does_not_fit_is_sent_back_once_as_one_more_turn():
    model = ScriptedModel([reply(None, call("count", city="Rome")), MISFIT, FITS])
    result = await run_agent(agent(model, max_turns=3), ask())
    assert result.parsed == City(name="Rome", people=2_800_000)
    assert (result.turns, result.exit_reason) == (3, ExitReason.SATISFIED)
    assert (result.input_tokens, result.output_tokens) == (30, 15)
    sent_back = model.requests[2].messages
    assert sent_back[-2] == {"role": "assistant", "content": MISFIT}
    assert sent_back[-1]["role"] == "user"
    assert "people" in sent_back[-1]["content"]
    check_requests(model)


@requirement("output.repair-is-a-turn", "turns.at-most-n")
@pytest.mark.parametrize("max_turns", [1, 2])
async def test_without_a_turn_left_there_is_no_repair_and_the_exit_is_the_cap(max_turns: int):
    calls = [reply(None, call("count", city="Rome"))] * (max_turns - 1)
    model = ScriptedModel([*calls, MISFIT, FITS])
    result = await run_agent(agent(model, max_turns=max_turns), ask())
    assert len(model.requests) == max_turns
    assert (result.exit_reason, result.turns) == (ExitReason.MAX_TURNS, max_turns)
    assert (result.text, result.parsed) == (MISFIT, None)


@requirement("output.refused")
@pytest.mark.parametrize("second", [MISFIT, "Rome.", "", "[]", "null"])
async def test_a_reply_that_does_not_fit_after_its_repair_is_an_error_with_the_reply(second: str):
    model = ScriptedModel([MISFIT, second])
    with pytest.raises(OutputParseError) as caught:
        await run_agent(agent(model), ask())
    assert caught.value.raw_text == second
    result = partial_result(caught.value)
    assert result is not None
    assert (result.exit_reason, result.turns) == (ExitReason.ERROR, 2)
    assert result.text == second
    assert (result.input_tokens, result.output_tokens) == (20, 10)


SORRY = "I'm sorry, I can't help with that."


@requirement("output.refused")
@pytest.mark.parametrize(
    ("refusal", "said"),
    [
        pytest.param(
            reply(SORRY, extra={"refusal": SORRY}),
            f"it is a refusal of the model: {SORRY}",
            id="OpenAI's",
        ),
        pytest.param(
            reply(SORRY, finish_reason="content_filter"),
            f"the model or its provider refused (finish_reason content_filter): {SORRY}",
            id="Anthropic's",
        ),
        pytest.param(
            reply("", finish_reason="content_filter"),
            "refused (finish_reason content_filter): (it gave no words)",
            id="without a word",
        ),
    ],
)
async def test_a_refusal_is_told_as_one_and_not_as_bad_json(refusal, said: str):
    model = ScriptedModel([refusal, refusal])
    with pytest.raises(OutputParseError) as caught:
        await run_agent(agent(model), ask())
    assert str(caught.value).endswith(said)
    assert "JSON" not in str(caught.value)
    assert said in str(model.requests[1].messages[-1]["content"])


@requirement("output.parsed")
async def test_what_fits_is_taken_whatever_the_provider_calls_it():
    result = await run_agent(agent(ScriptedModel([reply(FITS, extra={"refusal": "no"})])), ask())
    assert result.parsed == City(name="Rome", people=2_800_000)


@requirement("output.refused")
async def test_a_long_refusal_is_cut():
    long = "no " * 100_000
    refusal = reply(long, extra={"refusal": long})
    with pytest.raises(OutputParseError, match="characters left out") as caught:
        await run_agent(agent(ScriptedModel([refusal, refusal])), ask())
    assert len(str(caught.value)) < 2_000
    assert caught.value.raw_text == long
