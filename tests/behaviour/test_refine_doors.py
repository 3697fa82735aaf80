"""The doors to a refine loop: which of them loops, with which settings, and ``search_loop``."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
from typing import Any

import pytest

from tests.behaviour.manifest import requirement
from tests.behaviour.refine_kit import (
    ASK,
    in_turn,
    judging,
    loop_of,
    looping,
    model_of,
    result_of,
    said,
    scoring,
)
from untildone import (
    Agent,
    AgentResult,
    ConfigError,
    ExitReason,
    LoopConfig,
    LoopConfigWarning,
    LoopConvergedError,
    LoopOutcome,
    Verifier,
    VerifierConfig,
    VerifierFeedback,
    run_agent,
    run_agent_loop,
    search_loop,
    tool,
)
from untildone.testing import EventLog, ScriptedModel, call, reply


@tool
async def search_web(query: str) -> str:
    """Searches the web."""
    return f"about {query}"


@tool
async def other(query: str) -> str:
    """Does something else."""
    return query


# --- run_agent and run_agent_loop -----------------------------------------------------------------


@requirement("refine.run-agent-delegates")
@pytest.mark.parametrize("door", [run_agent, run_agent_loop])
async def test_both_doors_loop_where_the_agent_has_a_loop_config(door: Any):
    result = await door(looping(LoopConfig(convergence_fn=in_turn(False, True))), ASK)
    assert (result.exit_reason, result.loop_iterations) == (ExitReason.CONVERGED, 2)


@requirement("refine.run-agent-delegates")
async def test_run_agent_loop_takes_the_arguments_that_s1_shows_by_keyword():
    queue: asyncio.Queue[Any] = asyncio.Queue()
    result = await run_agent_loop(
        agent=looping(LoopConfig(convergence_fn=lambda r: True)),
        messages=[said("user", "Draft an executive summary")],
        tool_defs=None,
        queue=queue,
        agent_id="drafter",
    )
    assert (result.agent_id, result.loop_iterations) == ("drafter", 1)
    shown = [queue.get_nowait() for _ in range(queue.qsize())]
    assert shown.pop() is None
    assert {event.agent_id for event in shown} == {"drafter"}


@requirement("refine.no-loop-config")
@pytest.mark.parametrize("door", [run_agent, run_agent_loop])
async def test_without_a_loop_config_both_doors_are_one_agent_run(door: Any):
    agent = looping(None)
    result = await door(agent, ASK)
    assert (result.exit_reason, result.text) == (ExitReason.SATISFIED, "answer 1")
    assert (result.loop_iterations, result.best_iteration, result.turns) == (0, 0, 1)
    assert len(model_of(agent).requests) == 1


@requirement("refine.config-defaults")
def test_the_fields_and_defaults_of_s1s_loop_config_are_the_same():
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(LoopConfig).parameters.items()
    }
    expected = {
        "max_iterations": 5,
        "convergence_fn": None,
        "stop_condition": None,
        "refine_prompt": (
            "Your answer is incomplete. Please search for more information and expand"
            " your response."
        ),
        "verifier": None,
        "procedural_memory": None,
        "task_tag": None,
        "episodic_memory": None,
        "adaptive": False,
        "min_improvement": 0.02,
        "plateau_patience": 2,
        "branches": 1,
        "auto_extract_skill": False,
        "skill_confidence_threshold": 0.85,
    }
    assert {name: defaults[name] for name in expected} == expected
    assert defaults["on_exhausted"] is LoopOutcome.RETURN_LAST_RESPONSE
    assert defaults["on_criterion_error"] is LoopOutcome.RETURN_LAST_RESPONSE
    assert (defaults["fresh_context"], defaults["evaluate_final"]) == (False, False)


@requirement("refine.config-is-immutable", "counts.nothing-shared")
def test_a_loop_config_cannot_be_changed_after_it_was_built():
    loop = LoopConfig(max_iterations=3)
    with pytest.raises(dataclasses.FrozenInstanceError):
        loop.max_iterations = 2  # pyright: ignore[reportAttributeAccessIssue]
    criteria: list[Any] = [judging(True)]
    kept = LoopConfig(criteria=criteria)
    criteria.clear()
    assert len(kept.criteria) == 1


@requirement("refine.config-types")
@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"convergence_fn": True}, "convergence_fn"),
        ({"stop_condition": "DONE"}, "stop_condition"),
        ({"refine_prompt": None}, "refine_prompt"),
        ({"verifier": 0.8}, "verifier"),
    ],
)
def test_a_setting_of_the_wrong_kind_is_refused_by_name(settings: dict[str, Any], named: str):
    with pytest.raises(ConfigError, match=named):
        loop_of(**settings)


@requirement("refine.never-ignored")
@pytest.mark.parametrize("name", ["procedural_memory", "episodic_memory"])
def test_a_memory_that_is_none_is_refused_by_the_loop_and_never_ignored(name: str):
    with pytest.raises(ConfigError, match=name):
        loop_of(verifier=scoring(1.0), **{name: object()})


@requirement("refine.never-ignored")
@pytest.mark.parametrize("name", ["memory", "procedural_memory", "episodic_memory", "mcps"])
def test_what_is_no_memory_or_server_is_refused_by_the_agent_and_never_ignored(name: str):
    with pytest.raises(ConfigError, match=name):
        looping(None, **{name: [object()] if name == "mcps" else object()})


@requirement("refine.config-warning")
def test_extracting_a_skill_of_what_nothing_judges_warns_where_the_config_is_built():
    with pytest.warns(LoopConfigWarning, match=r"auto_extract_skill.*verifier") as warned:
        LoopConfig(auto_extract_skill=True)
    assert [warning.filename for warning in warned] == [__file__]


# --- search_loop ----------------------------------------------------------------------------------


def confident(*confidences: float | None, score: float = 0.0) -> Verifier:
    """A verifier that refuses and sets the n-th confidence in iteration n."""

    def grade(_query: str, result: AgentResult) -> VerifierFeedback:
        result.confidence = confidences[result.loop_iterations - 1]
        return VerifierFeedback(score)

    return Verifier(VerifierConfig(evaluate_fn=grade))


@requirement("search.stops-when-confident")
async def test_a_search_stops_when_the_confidence_reaches_the_threshold():
    agent = looping(LoopConfig(verifier=confident(0.5, 0.8, 0.9)))
    result = await search_loop("fusion", search_web, agent)
    assert (result.exit_reason, result.loop_iterations) == (ExitReason.CONVERGED, 2)
    assert (result.confidence, result.text) == (0.8, "answer 2")


@requirement("search.stops-when-confident")
async def test_the_keywords_of_s1s_search_loop_work():
    agent = looping(LoopConfig(verifier=confident(0.1, 0.2, 0.3, 0.4)))
    result = await search_loop(
        query="What is the current state of nuclear fusion research?",
        search_tool=search_web,
        agent=agent,
        max_iterations=4,
        confidence_threshold=0.4,
    )
    assert (result.exit_reason, result.loop_iterations) == (ExitReason.CONVERGED, 4)


@requirement("search.warns")
async def test_a_search_in_which_nothing_sets_a_confidence_uses_every_iteration_and_warns():
    agent = looping(None)
    with pytest.warns(LoopConfigWarning, match="confidence"):
        result = await search_loop("fusion", search_web, agent)
    assert (result.exit_reason, result.loop_iterations) == (ExitReason.MAX_ITERATIONS, 3)
    assert result.confidence is None


@requirement("search.warns")
async def test_a_search_that_the_verifier_alone_ends_warns_that_no_confidence_was_set():
    agent = looping(LoopConfig(verifier=scoring(0.9)))
    with pytest.warns(LoopConfigWarning, match="confidence"):
        result = await search_loop("fusion", search_web, agent)
    assert (result.exit_reason, result.loop_iterations) == (ExitReason.CONVERGED, 1)


@requirement("search.warns")
async def test_a_search_in_which_any_iteration_set_a_confidence_does_not_warn():
    too_low = looping(LoopConfig(verifier=confident(0.1, None, None)))
    result = await search_loop("fusion", search_web, too_low)
    assert result.exit_reason is ExitReason.MAX_ITERATIONS
    passing = looping(LoopConfig(verifier=confident(0.1, score=0.9)))
    result = await search_loop("fusion", search_web, passing)
    assert (result.exit_reason, result.confidence) == (ExitReason.CONVERGED, 0.1)


@requirement("search.fresh-agent")
async def test_the_only_tool_of_a_search_is_the_given_one_and_other_settings_are_kept():
    model = ScriptedModel([reply(None, call("search_web", query="x")), "found"])
    agent = Agent(
        "seeker",
        model,
        system_prompt="Be thorough.",
        tools=[other],
        temperature=0.3,
        max_tokens=77,
        extra_params={"top_p": 0.5},
        max_turns=2,
        loop_config=LoopConfig(verifier=confident(0.9), refine_prompt="Dig deeper."),
    )
    result = await search_loop("fusion", search_web, agent)
    assert result.exit_reason is ExitReason.CONVERGED
    assert result.tool_calls[0]["result"] == "about x"
    first = model.requests[0]
    assert first.tool_names == ["search_web"]
    assert first.messages == [said("system", "Be thorough."), said("user", "fusion")]
    request = first.request
    assert (request.temperature, request.max_tokens) == (0.3, 77)
    assert dict(request.extra_params) == {"top_p": 0.5}
    assert agent.tools == (other,)
    assert result.agent_id == "seeker"


@requirement("search.loop-config")
async def test_a_search_keeps_the_agents_loop_config_but_for_ceiling_and_convergence_fn():
    log = EventLog()
    model = ScriptedModel(["one", "two", "three"])
    loop = LoopConfig(
        max_iterations=99,
        convergence_fn=lambda r: pytest.fail("replaced"),
        verifier=confident(0.1, 0.2, 0.3),
        refine_prompt="Dig deeper.",
        stop_condition=lambda r: r.text == "two",
    )
    agent = Agent("seeker", model, loop_config=loop)
    with pytest.raises(LoopConvergedError) as raised:
        await search_loop("fusion", search_web, agent)
    assert result_of(raised.value).text == "two"
    assert model.requests[1].messages[-1] == said("user", "Dig deeper.")
    assert agent.loop_config is loop
    assert len(log) == 0


@requirement("search.bounds")
@pytest.mark.parametrize("bad", [-0.1, 1.5, float("nan"), True, None, "0.8"])
async def test_a_confidence_threshold_that_is_no_number_from_zero_to_one_is_refused(bad: Any):
    with pytest.raises(ConfigError, match="confidence_threshold"):
        await search_loop("q", search_web, looping(None), confidence_threshold=bad)


@requirement("search.bounds")
@pytest.mark.parametrize("bad", [0, -1, None, 2.5, True])
async def test_a_search_of_no_iterations_is_refused(bad: Any):
    agent = looping(None)
    with pytest.raises(ConfigError, match="max_iterations"):
        await search_loop("q", search_web, agent, max_iterations=bad)
    assert model_of(agent).requests == []
