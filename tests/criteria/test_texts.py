"""``completionMarker`` and ``regex``: what the answer itself says."""

import re

import pytest

from tests.criteria.kit import context
from untildone import Agent, ConfigError, ExitReason, LoopConfig, run_agent
from untildone.criteria import CompletionMarker, Regex
from untildone.testing import ScriptedModel, call, reply


@pytest.mark.parametrize(
    ("answer", "satisfied"),
    [
        ("It is ALL DONE.", True),
        ("ALL DONE", True),
        ("all done", False),
        ("ALL  DONE", False),
        ("ALL\nDONE", False),
        ("", False),
    ],
)
def test_the_marker_has_to_stand_in_the_answer_as_it_is(answer: str, satisfied: bool):
    verdict = CompletionMarker("ALL DONE").evaluate(context(answer))
    assert verdict.satisfied is satisfied
    assert (verdict.feedback is None) is satisfied


def test_a_missing_marker_is_named_in_the_feedback():
    verdict = CompletionMarker("ALL DONE").evaluate(context("work"))
    assert "does not contain 'ALL DONE' yet" in (verdict.feedback or "")


async def test_the_last_words_of_a_run_that_was_cut_by_its_bound_are_its_answer():
    def look() -> str:
        """Looks."""
        return "seen"

    plan = reply("I will say DONE at the end.", calls=call("look"))
    agent = Agent(
        "ada",
        ScriptedModel([plan]),
        tools=[look],
        max_turns=1,
        loop_config=LoopConfig(criteria=[CompletionMarker("DONE")]),
    )
    result = await run_agent(agent, [{"role": "user", "content": "Go on."}])
    assert (result.exit_reason, result.loop_iterations) == (ExitReason.CONVERGED, 1)


async def test_the_marker_in_the_users_words_feedback_or_earlier_answers_does_not_count():
    model = ScriptedModel(["ALL DONE? no", "nearly", "ALL DONE"])
    loop = LoopConfig(criteria=[lambda ctx: ctx.iteration > 1, CompletionMarker("ALL DONE")])
    agent = Agent("ada", model, loop_config=loop)
    result = await run_agent(agent, [{"role": "user", "content": "Write ALL DONE at the end."}])
    assert (result.text, result.loop_iterations) == ("ALL DONE", 3)


@pytest.mark.parametrize("marker", ["", "  \n", None, 3])
def test_a_blank_marker_is_refused(marker):
    with pytest.raises(ConfigError, match=r"CompletionMarker.marker is .* such as 'ALL DONE'"):
        CompletionMarker(marker)


@pytest.mark.parametrize(
    ("pattern", "answer", "satisfied"),
    [
        (r"^\d{4}-\d{2}-\d{2}$", "2026-11-30", True),
        (r"^\d{4}-\d{2}-\d{2}$", "on 2026-11-30", False),
        (r"(?i)all done", "ALL DONE", True),
        (re.compile("b.d", re.DOTALL), "a b\nd", True),
        (r"x", "", False),
    ],
)
def test_a_pattern_is_searched_for(pattern, answer: str, satisfied: bool):
    assert Regex(pattern).evaluate(context(answer)).satisfied is satisfied


def test_what_a_pattern_wants_can_be_said_in_words():
    plain, told = Regex(r"\d+"), Regex(r"\d+", feedback="Give a number.")
    assert r"`\d+`" in (plain.evaluate(context("x")).feedback or "")
    assert told.evaluate(context("x")).feedback == "Give a number."


@pytest.mark.parametrize("pattern", ["(", "*", None, 3, b"bytes", "(" * 5000])
def test_what_is_no_pattern_is_refused(pattern):
    with pytest.raises(ConfigError, match=r"Regex.pattern is"):
        Regex(pattern)


def test_kinds_have_the_names_that_events_use():
    assert (CompletionMarker("x").kind, Regex("x").kind) == ("completionMarker", "regex")
