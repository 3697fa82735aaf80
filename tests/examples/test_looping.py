"""``examples/looping`` over HTTP: each program against a scripted provider, streamed.

The provider answers by what it is asked (work, judging) and by how often the same kind was asked
before, so that candidates which run at once get what belongs to them.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from tests.docs.openai_server import Answer, Body, OpenAIServer, asks_for_json, openai_server
from untildone import (
    AgentResult,
    EventType,
    ExitReason,
    LoopConfigWarning,
    StreamEvent,
    aclose,
    stream_agent,
)
from untildone.skills import SkillRegistry

FOLDER = Path(__file__).parents[2] / "examples" / "looping"
PATIENCE_S = 20
"""A consumer that never ends fails here; nothing waits for it otherwise."""

Serve = Callable[..., OpenAIServer]


def load(name: str) -> Any:
    """An example as a module."""
    spec = spec_from_file_location(f"looping_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Provider:
    """Gives the next line of the right script: the judges', else the workers'."""

    def __init__(self, work: Sequence[Any], grades: Sequence[Any]) -> None:
        self.work = list(work)
        self.grades = list(grades)
        self.lock = threading.Lock()

    def __call__(self, body: Body, _: int) -> Answer:
        with self.lock:
            script: list[Any] = self.grades if asks_for_json(body) else self.work
            line: Any = script[0] if len(script) == 1 else script.pop(0)
        given: Any = line(body) if callable(line) else line
        return given


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Generator[Serve]:
    """``serve(work, grades)``: a provider; the last line of a script repeats."""
    running: list[Any] = []

    def start(work: Sequence[Any], grades: Sequence[Any] = ()) -> OpenAIServer:
        context = openai_server(Provider(work, grades))
        server = context.__enter__()
        running.append(context)
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        return server

    yield start
    for context in running:
        context.__exit__(None, None, None)


@pytest.fixture(autouse=True)
def _own_skills() -> Generator[None]:
    SkillRegistry.clear()
    yield
    SkillRegistry.clear()


def main_of(module: Any) -> None:
    """The program as a person runs it, in an event loop of its own."""

    async def limited() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await module.main()
        await aclose()

    asyncio.run(limited())


def streamed(agent: Any, messages: Any) -> tuple[list[StreamEvent], AgentResult]:
    """The same agent through ``stream_agent``: its events and its result."""

    async def read() -> tuple[list[StreamEvent], AgentResult]:
        async with asyncio.timeout(PATIENCE_S), stream_agent(agent, messages) as stream:
            events = [event async for event in stream]
        await aclose()
        assert stream.result is not None
        return events, stream.result

    return asyncio.run(read())


def text_of(events: Sequence[StreamEvent]) -> str:
    return "".join(e.data["chunk"] for e in events if e.event is EventType.TEXT_DELTA)


def data_of(events: Sequence[StreamEvent], kind: EventType) -> list[dict[str, Any]]:
    return [event.data for event in events if event.event is kind]


def grade(score: float, *issues: str) -> dict[str, Any]:
    return {"issues": list(issues), "suggestion": "Say more." if issues else "", "score": score}


CALL = [("search_web", {"query": "CRISPR"})]
SHORT = "It cuts DNA."
LONG = "\n".join(f"{number}. {'Cas9 cuts where its guide leads it. ' * 5}" for number in range(7))


def test_basic_runs_the_whole_agent_again_with_its_refine_prompt(
    serve: Serve, capsys: pytest.CaptureFixture[str]
):
    example = load("basic")
    server = serve([CALL, SHORT, CALL, LONG])
    main_of(example)
    assert capsys.readouterr().out == f"{LONG}\nIterations: 2\n"
    roles = [message["role"] for message in server.requests[-1]["messages"]]
    run = ["assistant", "tool", "assistant"]
    assert roles == ["system", "user", *run, "user", "assistant", "tool"]
    asked = server.requests[2]["messages"][-1]["content"]
    assert asked == example.agent.loop_config.refine_prompt
    assert all(request["stream"] for request in server.requests)

    serve([CALL, SHORT, CALL, LONG])
    events, result = streamed(example.agent, example.messages)
    assert result.exit_reason is ExitReason.CONVERGED
    assert text_of(events) == SHORT + LONG
    assert len(data_of(events, EventType.TOOL_RESULT)) == 2
    assert events[-1].event is EventType.DONE


def test_basic_that_never_converges_ends_at_its_ceiling(serve: Serve):
    example = load("basic")
    server = serve([SHORT])
    _, result = streamed(example.agent, example.messages)
    assert (result.exit_reason, result.loop_iterations) == (ExitReason.MAX_ITERATIONS, 4)
    assert len(server.requests) == 4


def test_direct_ends_its_queue_and_names_its_events(serve: Serve):
    example = load("direct")

    async def both() -> tuple[AgentResult, list[Any]]:
        queue: asyncio.Queue[Any] = asyncio.Queue()
        async with asyncio.timeout(PATIENCE_S):
            result = await example.draft(queue)
        await aclose()
        return result, [queue.get_nowait() for _ in range(queue.qsize())]

    serve(["A draft.", "Summary: all is well."])
    result, items = asyncio.run(both())
    assert (result.exit_reason, result.loop_iterations) == (ExitReason.CONVERGED, 2)
    assert items[-1] is None
    assert {event.agent_id for event in items[:-1]} == {"drafter"}
    assert result.agent_id == "drafter"


def test_direct_as_a_program(serve: Serve, capsys: pytest.CaptureFixture[str]):
    serve(["Summary: all is well."])
    main_of(load("direct"))
    assert capsys.readouterr().out == "Summary: all is well.\nconverged after 1 iterations\n"


def test_adaptive_stops_at_the_plateau_with_the_best_draft(
    serve: Serve, capsys: pytest.CaptureFixture[str]
):
    example = load("adaptive")
    drafts = ["one", "two", "three", "four", "five"]
    grades = [grade(score, "too short") for score in (0.3, 0.6, 0.5, 0.61, 0.2)]
    serve(drafts, grades)
    main_of(example)
    out = capsys.readouterr().out
    assert out.startswith("Stopped after 4 iterations\nIteration 4 is the best of [0.3, 0.6, 0.5")

    server = serve(drafts, grades)
    events, result = streamed(example.agent, example.messages)
    assert result.exit_reason is ExitReason.PLATEAU
    assert (result.text, result.best_iteration) == ("four", 4)
    assert data_of(events, EventType.LOOP_ITERATION)[-1]["early_stop"] == "plateau"
    assert len(server.requests) == 8
    judged = [r["messages"][-1]["content"] for r in server.requests if asks_for_json(r)]
    assert all("Explain CRISPR" in prompt for prompt in judged)
    assert result.input_tokens == 8 * 20, "the judge's tokens count too"


def test_distilled_skill_appears_once_it_converged_well(
    serve: Serve, capsys: pytest.CaptureFixture[str]
):
    example = load("distilled_skill")
    serve([[("run_sql", {"statement": "select 1"})], "Ann, Bob, Cy"], [grade(0.9)])
    main_of(example)
    (name,) = [skill.name for skill in SkillRegistry.list_all()]
    assert name.startswith("sql_analyst_")
    assert capsys.readouterr().out == f"['{name}']\n"

    async def replayed() -> str:
        async with asyncio.timeout(PATIENCE_S):
            skill = SkillRegistry.get(name)
            assert skill is not None
            text = await skill.execute(task="Find the last 10 orders")
        await aclose()
        return text

    server = serve(["Order 7 to order 16"])
    assert asyncio.run(replayed()) == "Order 7 to order 16"
    assert server.requests[0]["messages"][-1]["content"] == "Find the last 10 orders"

    SkillRegistry.clear()
    serve(["Ann, Bob, Cy"], [grade(0.82)])
    events, result = streamed(example.agent, example.messages)
    assert result.exit_reason is ExitReason.CONVERGED
    assert SkillRegistry.list_all() == []
    assert not data_of(events, EventType.SKILL_EXTRACTED)


def test_search_without_a_confidence_uses_every_iteration_and_says_so(serve: Serve):
    example = load("search")

    async def search() -> AgentResult:
        async with asyncio.timeout(PATIENCE_S):
            result = await example.search()
        await aclose()
        return result

    server = serve([[("search_web", {"query": "fusion"})], "In progress."])
    with pytest.warns(LoopConfigWarning, match="confidence"):
        result = asyncio.run(search())
    assert (result.exit_reason, result.loop_iterations) == (ExitReason.MAX_ITERATIONS, 3)
    assert [tool["function"]["name"] for tool in server.requests[0]["tools"]] == ["search_web"]


def test_stop_condition_gives_the_result_that_met_it(
    serve: Serve, capsys: pytest.CaptureFixture[str]
):
    example = load("stop_condition")
    lines = ["Let me think.", "FINAL ANSWER: 8", "never asked"]
    server = serve(lines)
    main_of(example)
    assert capsys.readouterr().out == "FINAL ANSWER: 8\n"
    assert len(server.requests) == 2

    serve(lines)
    events, result = streamed(example.agent, example.messages)
    assert (result.text, result.exit_reason) == ("FINAL ANSWER: 8", ExitReason.STOP_CONDITION)
    assert events[-1].event is EventType.DONE
    assert events[-1].data["exit_reason"] == "stop_condition"


def grade_by_letter(body: Body) -> dict[str, Any]:
    """A judge that goes by the answer, whichever candidate comes first."""
    prompt = body["messages"][-1]["content"]
    return grade(next(score for mark, score in SCORES.items() if mark in prompt))


SCORES = {"draft A": 0.5, "draft B": 0.9, "draft C": 0.6}


def test_branching_returns_the_best_of_three_candidates(
    serve: Serve, capsys: pytest.CaptureFixture[str]
):
    example = load("branching")
    drafts: list[Answer] = list(SCORES)
    server = serve(drafts, [grade_by_letter])
    main_of(example)
    assert capsys.readouterr().out == "draft B\nconverged after 1 iterations\n"
    assert len(server.requests) == 6, "three candidates, each graded once"

    serve(drafts, [grade_by_letter])
    events, result = streamed(example.agent, example.messages)
    (selected,) = data_of(events, EventType.BRANCH_SELECTED)
    assert (selected["branch_count"], selected["winning_score"]) == (3, 0.9)
    assert len(data_of(events, EventType.VERIFIER_SCORED)) == 1
    assert result.text == "draft B"
    assert {e.data["branch"] for e in events if e.event is EventType.AGENT_DONE} == {0, 1, 2}


def test_the_reader_of_events_ends_by_itself(serve: Serve, capsys: pytest.CaptureFixture[str]):
    example = load("events")
    serve(["a draft"], [grade(0.5, "no source"), grade(0.4, "no source"), grade(0.9)])
    main_of(example)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] in {f"Branch {branch} won with score 0.5" for branch in (0, 1)}
    assert lines[1:4] == [
        "Verifier score: 0.5 - issues: ['no source']",
        "Loop iteration 1 - refining...",
        "Branch 0 won with score 0.9",
    ]
    assert lines[-2] == "Loop iteration 2 - converged"
    assert lines[-1].startswith("Distilled new skill: researcher_")


def test_the_reader_ends_after_a_crash_too(monkeypatch: pytest.MonkeyPatch):
    example = load("events")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)

    async def crash() -> tuple[Any, Any]:
        queue: asyncio.Queue[Any] = asyncio.Queue()
        running = example.run_agent(example.agent, example.messages, queue=queue)
        async with asyncio.timeout(PATIENCE_S):
            return await asyncio.gather(running, example.consume(queue), return_exceptions=True)

    failed, consumed = asyncio.run(crash())
    assert "OPENAI_API_KEY" in str(failed)
    assert consumed is None


def by_goal(body: Body) -> Answer:
    """One goal is reached, one never ends, one goes in circles."""
    goal, turn = body["messages"][0]["content"], len(body["messages"])
    match goal:
        case "Goal: answer":
            return "done" if turn > 1 else [("search", {"query": "login"})]
        case "Goal: go on":
            return [("search", {"query": f"page {turn}"})]
        case _:
            return [("search", {"query": "login"})]


def test_control_loop_has_three_exits_and_counts_them(serve: Serve):
    example = load("control_loop")
    goals = ["answer", "go on", "circle", "circle"]

    async def pursue_all() -> list[AgentResult]:
        async with asyncio.timeout(PATIENCE_S):
            runs = (example.pursue(goal, [example.search]) for goal in goals)
            results = await asyncio.gather(*runs)
        await aclose()
        return results

    serve([by_goal])
    results = asyncio.run(pursue_all())
    assert [example.summary(result) for result in results] == [
        {"answer": "done", "steps": 2, "exit": "satisfied", "repeats": False},
        {"answer": None, "steps": 15, "exit": "max_turns", "repeats": False},
        {"answer": None, "steps": 8, "exit": "stuck", "repeats": True},
        {"answer": None, "steps": 8, "exit": "stuck", "repeats": True},
    ]
    counted = example.statistics(results)
    assert counted == Counter({"stuck": 2, "satisfied": 1, "max_turns": 1})
    assert counted[ExitReason.STUCK] == 2


@pytest.mark.parametrize(
    ("goal", "exit_reason", "turns"),
    [("answer", "satisfied", 2), ("go on", "max_turns", 15), ("circle", "stuck", 8)],
)
def test_control_loop_streamed_ends_the_same_way(
    serve: Serve, goal: str, exit_reason: str, turns: int
):
    example = load("control_loop")
    serve([by_goal])
    events, result = streamed(example.agent_for([example.search]), example.goal_of(goal))
    assert (result.exit_reason, result.turns) == (exit_reason, turns)
    assert events[-1].data["exit_reason"] == exit_reason
    assert len(data_of(events, EventType.TOOL_CALL)) == len(data_of(events, EventType.TOOL_RESULT))
    nudges = data_of(events, EventType.NUDGED)
    assert len(nudges) == (exit_reason == "stuck")


def test_control_loop_as_a_program(serve: Serve, capsys: pytest.CaptureFixture[str]):
    serve(["It is in auth.py."])
    main_of(load("control_loop"))
    assert capsys.readouterr().out.splitlines()[-1] == "  3 satisfied"
