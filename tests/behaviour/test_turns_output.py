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
