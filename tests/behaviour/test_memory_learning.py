"""What becomes of an iteration and of a run: episodes, lessons, and the events that say so."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.behaviour.endings import ENDINGS, person_needed
from tests.behaviour.kit import ask, watch
from tests.behaviour.manifest import requirement
from tests.behaviour.memory_kit import (
    LESSON,
    Past,
    Playbook,
    agent_with,
    provider_with,
    reflection,
    speaking,
)
from tests.behaviour.refine_kit import in_turn, judging, loop_of, result_of, scoring
from untildone import (
    Agent,
    AgentHooks,
    EventType,
    ExitReason,
    LoopConfig,
    LoopConvergedError,
    LoopOutcome,
    MaxTurnsError,
    ServerError,
    Usage,
    Verifier,
    VerifierConfig,
    VerifierFeedback,
    run_agent,
)
from untildone.domain.episodes import Episode
from untildone.memory import InMemoryProvider
from untildone.testing import EventLog, ScriptedModel, call, reply

FAIL = LoopOutcome.FAIL_RUN


async def outcome_of(agent: Agent) -> Any:
    try:
        return await run_agent(agent, ask())
    except Exception as error:
        return error


# --- Episodes -------------------------------------------------------------------------------------


@requirement("memory.episode-each-iteration", "memory.outcome")
async def test_each_iteration_is_one_episode_with_its_own_answer_grade_and_tools():
    async def look(where: str) -> str:
        return "a heron"

    lines = [
        reply(None, call("look", where="a")),
        "answer 1",
        "answer 2",
        reply("", [call("peek"), call("look", where="b")]),
        "answer 3",
    ]
    past = Past()
    loop = LoopConfig(max_iterations=5, verifier=scoring(0.1, 0.5, 0.9), episodic_memory=past)
    agent = agent_with(loop, lines, tools=[look])
    result = await run_agent(agent, ask("herons?"), agent_id="me")
    assert past.recorded == await past.load()
    assert [
        (e.query, e.response, e.outcome, e.score, e.tools_used, e.agent_id) for e in past.recorded
    ] == [
        ("herons?", "answer 1", "failure", 0.1, ["look"], "me"),
        ("herons?", "answer 2", "partial", 0.5, [], "me"),
        ("herons?", "answer 3", "success", 0.9, ["look", "peek"], "me"),
    ]
    assert [e.id for e in past.recorded] == [f"{result.run_id}:{n}" for n in (1, 2, 3)]


UNGRADED = "unknown"
LEFT_EARLY = judging(LoopConvergedError())
OUTCOMES: list[tuple[dict[str, Any], list[str]]] = [
    ({"max_iterations": 2}, [UNGRADED, UNGRADED]),
    ({"convergence_fn": in_turn(False, True)}, [UNGRADED, UNGRADED]),
    ({"criteria": [judging(False, True)]}, [UNGRADED, UNGRADED]),
    ({"stop_condition": in_turn(True)}, [UNGRADED]),
    ({"criteria": [judging(OSError("down"))]}, [UNGRADED]),
    ({"verifier": scoring(0.39, 0.4, 0.8)}, ["failure", "partial", "success"]),
    ({"verifier": scoring(0.1, 0.2, threshold=0.2)}, ["partial", "success"]),
    ({"verifier": scoring(0.8, 0.8), "criteria": [judging(False, True)]}, ["partial", "success"]),
    ({"verifier": scoring(0.0), "convergence_fn": in_turn(True)}, ["success"]),
    (
        {"verifier": scoring(VerifierFeedback(0.9, converged=False), 0.9)},
        ["partial", "success"],
    ),
    ({"verifier": scoring(VerifierFeedback(0.1, converged=True))}, ["success"]),
    ({"verifier": scoring(0.5, OSError("down"))}, ["partial", UNGRADED]),
    ({"verifier": scoring(0.9), "criteria": [LEFT_EARLY]}, ["success"]),
    ({"verifier": scoring(0.2), "max_iterations": 1, "on_exhausted": FAIL}, ["failure"]),
]


@requirement("memory.outcome")
@pytest.mark.parametrize(("settings", "outcomes"), OUTCOMES)
async def test_the_outcome_is_told_by_the_grade(settings: dict[str, Any], outcomes: list[str]):
    past = Past()
    await outcome_of(agent_with(loop_of(episodic_memory=past, **settings)))
    assert [episode.outcome for episode in past.recorded] == outcomes


@requirement("memory.episode-each-iteration")
async def test_of_several_candidates_the_winner_is_the_episode():
    past = Past()

    def script(seen: Any) -> str:
        at = seen.request.at
        return f"answer {at.iteration} of {at.branch}"

    def grade(_query: str, result: Any) -> VerifierFeedback:
        return VerifierFeedback(0.5 if result.text.endswith("1") else 0.2)

    loop = LoopConfig(
        max_iterations=2,
        branches=3,
        verifier=Verifier(VerifierConfig(evaluate_fn=grade)),
        episodic_memory=past,
    )
    await run_agent(agent_with(loop, script), ask())
    assert [(e.response, e.score) for e in past.recorded] == [
        ("answer 1 of 1", 0.5),
        ("answer 2 of 1", 0.5),
    ]


@requirement("memory.episode-each-iteration")
async def test_an_iteration_that_was_cut_short_is_no_episode():
    past = Past()
    loop = LoopConfig(max_iterations=3, verifier=scoring(0.1, 0.2, 0.3), episodic_memory=past)
    agent = agent_with(loop, ["answer 1", OSError("the model")])
    assert isinstance(await outcome_of(agent), OSError)
    assert [episode.response for episode in past.recorded] == ["answer 1"]


# --- Curation -------------------------------------------------------------------------------------


@requirement("memory.curated-from-what-was-returned")
async def test_a_playbook_learns_from_the_grade_of_what_was_returned():
    playbook = Playbook()
    grades = [
        VerifierFeedback(0.3, ["first"], "one"),
        VerifierFeedback(0.7, ["second"], "two"),
        VerifierFeedback(0.1, ["third"], "three"),
    ]
    loop = LoopConfig(max_iterations=3, verifier=scoring(*grades), procedural_memory=playbook)
    result = await run_agent(agent_with(loop), ask("herons?"))
    assert (result.text, result.best_iteration) == ("answer 2", 2)
    ((tag, feedback, trajectory),) = playbook.curated
    assert tag == "tester"
    assert (feedback.score, feedback.issues, feedback.suggestion) == (0.7, ["second"], "two")
    assert feedback.converged is False
    assert [(a.text, a.scores, a.run_id) for a in trajectory] == [
        ("answer 1", [0.3], result.run_id),
        ("answer 2", [0.7], result.run_id),
        ("answer 3", [0.1], result.run_id),
    ]
    for attempt in trajectory:
        assert [m["content"] for m in attempt.messages][1:3] == ["herons?", attempt.text]
    assert "third" in trajectory[2].messages[3]["content"]


@requirement("memory.curated-from-what-was-returned")
async def test_only_what_the_run_was_shown_is_counted():
    playbook = Playbook()
    loop = LoopConfig(verifier=scoring(0.9), procedural_memory=playbook)

    async def meanwhile(_: Any) -> str:
        await playbook.curate("tester", VerifierFeedback(0.1, ["Learned meanwhile."]), [])
        return "answer 1"

    await playbook.curate("tester", VerifierFeedback(0.1, ["Known before."]), [])
    await run_agent(agent_with(loop, [meanwhile, reflection(LESSON)]), ask())
    uses = {
        entry.content: (entry.uses, entry.last_score) for entry in await playbook.load("tester")
    }
    assert uses == {
        "Known before.": (2, 0.9),  # by the run, and by the one who taught by hand
        "Learned meanwhile.": (0, None),
        LESSON: (0, None),
    }


LEARNING: dict[str, tuple[ExitReason, dict[str, Any]]] = {
    "converged": (ExitReason.CONVERGED, {"verifier": scoring(0.9)}),
    "plateau": (
        ExitReason.PLATEAU,
        {"verifier": scoring(0.5, 0.5, 0.5), "adaptive": True, "max_iterations": 9},
    ),
    "max_iterations": (
        ExitReason.MAX_ITERATIONS,
        {"verifier": scoring(0.5, 0.4), "max_iterations": 2},
    ),
    "unsatisfied": (
        ExitReason.UNSATISFIED,
        {"verifier": scoring(0.5), "max_iterations": 1, "on_exhausted": FAIL},
    ),
    "stop_condition": (
        ExitReason.STOP_CONDITION,
        {"verifier": scoring(0.5, 0.5), "stop_condition": in_turn(False, True)},
    ),
    "criterion_error": (ExitReason.CRITERION_ERROR, {"verifier": scoring(0.5, OSError("down"))}),
    "criterion_error raising": (
        ExitReason.CRITERION_ERROR,
        {"verifier": scoring(0.5, OSError("down")), "on_criterion_error": FAIL},
    ),
}


@requirement("memory.curated-on-every-learning-exit")
@pytest.mark.parametrize(
    ("reason", "settings"), [pytest.param(*v, id=k) for k, v in LEARNING.items()]
)
async def test_a_run_that_came_to_an_end_of_its_own_teaches(
    reason: ExitReason, settings: dict[str, Any]
):
    playbook = Playbook()
    outcome = await outcome_of(agent_with(LoopConfig(procedural_memory=playbook, **settings)))
    result = result_of(outcome) if isinstance(outcome, Exception) else outcome
    assert result.exit_reason is reason
    assert len(playbook.curated) == 1
    assert [entry.content for entry in await playbook.load("tester")] == [LESSON]


@requirement("memory.not-curated")
@pytest.mark.parametrize("name", ["error of ours", "foreign error", "cancelled"])
async def test_a_run_that_broke_off_teaches_nothing(name: str):
    playbook = Playbook()
    loop = LoopConfig(max_iterations=9, verifier=scoring(*[0.1] * 9), procedural_memory=playbook)

    async def cancel_self(_: Any) -> str:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)
        return "never"

    failures: dict[str, Any] = {
        "error of ours": ServerError("503"),
        "foreign error": ZeroDivisionError("odd"),
        "cancelled": cancel_self,
    }
    watched = await watch(agent_with(loop, ["answer 1", failures[name]]))
    assert type(watched.error) is ENDINGS[name].raises
    assert playbook.curated == []
    assert EventType.PLAYBOOK_UPDATED not in watched.kinds


@requirement("memory.not-curated")
async def test_a_run_that_raised_at_the_cap_teaches_nothing():
    async def look(where: str) -> str:
        return "a heron"

    playbook = Playbook()
    loop = LoopConfig(max_iterations=3, verifier=scoring(0.1, 0.2), procedural_memory=playbook)
    lines = ["answer 1", reply(None, call("look", where="a"))]
    agent = agent_with(loop, lines, tools=[look], max_turns=1, on_max_turns="raise")
    outcome = await outcome_of(agent)
    assert isinstance(outcome, MaxTurnsError)
    assert result_of(outcome).exit_reason is ExitReason.ERROR
    assert playbook.curated == []


@requirement("memory.not-curated")
async def test_a_run_that_waits_for_a_person_teaches_and_records_nothing_yet():
    async def look(where: str) -> str:
        return "a heron"

    playbook, past = Playbook(), Past()
    loop = LoopConfig(verifier=scoring(0.9), procedural_memory=playbook, episodic_memory=past)
    agent = agent_with(
        loop,
        [reply(None, call("look", where="a"))],
        tools=[look],
        hooks=AgentHooks(approve_tool=person_needed),
    )
    result = await run_agent(agent, ask())
    assert result.exit_reason is ExitReason.AWAITING_APPROVAL
    assert (playbook.curated, past.recorded) == ([], [])


@requirement("memory.counts-in-usage")
async def test_reflection_counts_in_the_usage_of_its_run_whoever_reflects():
    cost = Usage(input_tokens=1000, output_tokens=100)
    reflector = ScriptedModel(lambda seen: reflection(LESSON), usage=cost, name="reflector")
    lessons = ScriptedModel(lambda seen: '{"lesson": "Look."}', usage=cost, name="lessons")
    loop = LoopConfig(
        verifier=scoring(0.1, 0.9),
        procedural_memory=Playbook(reflect_model=reflector),
        episodic_memory=Past(reflect_model=lessons),
    )
    log = EventLog()
    result = await run_agent(agent_with(loop), ask(), log=log)
    assert (len(reflector.requests), len(lessons.requests)) == (1, 2)
    assert (result.input_tokens, result.output_tokens) == (2 * 10 + 3 * 1000, 2 * 5 + 3 * 100)
    assert result.turns == 2


@requirement("memory.counts-in-usage")
async def test_by_default_the_runs_own_model_reflects():
    agent = agent_with(LoopConfig(verifier=scoring(0.9), procedural_memory=Playbook()))
    result = await run_agent(agent, ask())
    assert isinstance(agent.model, ScriptedModel)
    assert [seen.request.purpose for seen in agent.model.requests] == ["worker", "reflection"]
    assert (result.input_tokens, result.text) == (20, "answer 1")


@requirement("memory.full-still-learns")
async def test_a_full_playbook_still_learns():
    playbook = Playbook(max_entries=3)
    for number in range(6):

        def script(seen: Any, number: int = number) -> str:
            if seen.request.purpose == "worker":
                return "answer"
            return reflection(f"Lesson number {number}.")

        loop = LoopConfig(verifier=scoring(0.9), procedural_memory=playbook)
        watched = await watch(agent_with(loop, script))
        (updated,) = watched.data(EventType.PLAYBOOK_UPDATED)
        assert updated["entry_count"] == min(number + 1, 3)
        assert (await playbook.load("tester"))[-1].content == f"Lesson number {number}."


# --- Events ---------------------------------------------------------------------------------------


@requirement("memory.events")
async def test_the_events_of_memories_come_in_order_with_s1s_payloads():
    past, playbook = Past(), Playbook()
    await past.record(Episode("Go on.", "I do."))
    loop = LoopConfig(
        max_iterations=3,
        verifier=scoring(0.1, 0.9),
        procedural_memory=playbook,
        episodic_memory=past,
        task_tag="herons",
    )
    watched = await watch(agent_with(loop))
    told = [
        EventType.EPISODE_RECALLED,
        EventType.AGENT_START,
        EventType.VERIFIER_SCORED,
        EventType.EPISODE_RECORDED,
        EventType.LOOP_ITERATION,
        EventType.PLAYBOOK_UPDATED,
        EventType.DONE,
    ]
    assert [kind for kind in watched.kinds if kind in told] == [
        told[0],
        *told[1:5],
        *told[1:5],
        *told[5:],
    ]
    assert watched.data(EventType.EPISODE_RECALLED) == [{"count": 1}]
    assert watched.data(EventType.EPISODE_RECORDED) == [
        {"outcome": "failure", "score": 0.1},
        {"outcome": "success", "score": 0.9},
    ]
    assert watched.data(EventType.PLAYBOOK_UPDATED) == [{"task_tag": "herons", "entry_count": 1}]


@requirement("memory.events")
async def test_a_run_that_raises_shows_its_playbook_update_before_its_last_event():
    loop = LoopConfig(
        max_iterations=1, verifier=scoring(0.1), on_exhausted=FAIL, procedural_memory=Playbook()
    )
    watched = await watch(agent_with(loop))
    assert watched.kinds[-2:] == [EventType.PLAYBOOK_UPDATED, EventType.ERROR]


@requirement("memory.events")
async def test_what_a_provider_gave_is_counted_in_an_event_of_its_own():
    provider = await provider_with(one="Go on.", two="Go on and on.", three="Herons.")
    watched = await watch(agent_with(None, memory=provider))
    assert watched.data(EventType.MEMORY_RETRIEVE) == [{"count": 2}]


@requirement("memory.events")
async def test_nothing_recalled_and_nothing_kept_shows_no_event():
    watched = await watch(agent_with(None, memory=InMemoryProvider(), procedural_memory=Playbook()))
    assert not {
        EventType.EPISODE_RECALLED,
        EventType.EPISODE_RECORDED,
        EventType.PLAYBOOK_UPDATED,
    } & set(watched.kinds)


@requirement("memory.own-drafts")
async def test_a_run_does_not_recall_its_own_drafts_in_a_later_iteration():
    past = Past()
    loop = LoopConfig(max_iterations=4, verifier=scoring(*[0.1] * 4), episodic_memory=past)
    agent = agent_with(loop, speaking)
    result = await run_agent(agent, ask())
    assert result.episodes_recalled == 0
    assert len(past.recorded) == 4
    assert past.asked == ["Go on."]
    assert isinstance(agent.model, ScriptedModel)
    assert not any(m["role"] == "system" for seen in agent.model.requests for m in seen.messages)
