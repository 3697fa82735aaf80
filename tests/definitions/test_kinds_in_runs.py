"""Each kind at work from a definition, over HTTP, through both doors; and the examples."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.definitions.kit import ASK, DOORS, asked, called, serving, through, verdict
from untildone import ExitReason, run_agent
from untildone.app.definitions import build_agent, load_definition
from untildone.criteria.registry import CriterionRegistry
from untildone.testing import ScriptedModel
from untildone.tools.background import BackgroundTasks
from untildone.tools.todo import TodoList
from untildone.tools.workspace import Workspace

EXAMPLES = Path(__file__).parents[2] / "examples" / "definitions"

SCORE_LOW = '{"issues": ["no source"], "suggestion": "name one", "score": 0.2}'
SCORE_HIGH = '{"issues": [], "suggestion": "", "score": 0.9}'

CASES: dict[str, tuple[dict[str, Any], list[Any], str, str]] = {
    "completionMarker": (
        {"marker": "DONE"},
        ["done", "DONE"],
        "completionMarker",
        "The answer does not contain 'DONE' yet.",
    ),
    "aiJudge": (
        {"judgeCriteria": ["It rhymes"]},
        ["a poem", verdict(False, "It does not rhyme."), "a rhyme", verdict(True)],
        "aiJudge",
        "It does not rhyme.",
    ),
    "minScore": (
        {"minScore": 0.8},
        ["draft", SCORE_LOW, "better", SCORE_HIGH],
        "minScore",
        "Issues:\n- no source\nSuggestion: name one",
    ),
    "jsonSchema": (
        {"jsonSchema": {"required": ["a"]}},
        ["{}", '{"a": 1}'],
        "jsonSchema",
        "'a' is a required property",
    ),
    "regex": (
        {"pattern": "^# ", "feedback": "A title, please."},
        ["text", "# Title"],
        "regex",
        "A title, please.",
    ),
    "command": (
        {"command": "test -e done.txt || { echo 'no done.txt'; touch done.txt; false; }"},
        ["one", "two"],
        "command",
        "no done.txt",
    ),
    "allOf": (
        {"criteria": [{"kind": "regex", "pattern": "a"}, {"kind": "regex", "pattern": "b"}]},
        ["a", "ab"],
        "allOf(regex, regex)",
        "must match the regular expression `b`",
    ),
    "anyOf": (
        {
            "criteria": [
                {"kind": "completionMarker", "marker": "DONE"},
                {"kind": "regex", "pattern": "^#"},
            ]
        },
        ["x", "# x"],
        "anyOf(completionMarker, regex)",
        "Any one of the following would do.\n\nThe answer does not contain 'DONE' yet.",
    ),
    "not": (
        {"criteria": [{"kind": "regex", "pattern": "TODO"}], "feedback": "No TODO, please."},
        ["TODO", "all"],
        "not(regex)",
        "No TODO, please.",
    ),
    "isPolite": ({}, ["now", "please"], "isPolite", "Say please."),
}


def is_polite(ctx) -> tuple[bool, str]:
    return "please" in ctx.result.text, "Say please."


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("kind", CASES)
async def test_each_kind_refuses_with_feedback_then_accepts(
    kind: str, door, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    fields, replies, name, feedback = CASES[kind]
    registry = CriterionRegistry()
    registry.register("isPolite", is_polite)
    agent = build_agent(
        {
            "name": "a",
            "model": {"provider": "openai", "model": "gpt-5"},
            "harness": {"loop": {"criteria": [{"kind": kind.upper(), **fields}]}},
        },
        registry=registry,
        allow_commands=True,
    )
    async with serving(*replies) as server:
        watched = await through(door, agent)
    assert (watched.got.exit_reason, watched.got.loop_iterations) == (ExitReason.CONVERGED, 2)
    assert len(server.requests) == len(replies)
    first = watched.iterations[0]
    assert (first["continued_by"], first["criterion_index"]) == (name, 0)
    assert first["has_feedback"] is True
    workers = [index for index, who in enumerate(asked(server)) if who == "worker"]
    assert feedback in server.body(workers[1])["messages"][-1]["content"]


@pytest.mark.parametrize("door", DOORS)
async def test_a_todo_list_keeps_the_loop_going_over_http(door):
    agent = build_agent(
        {
            "name": "a",
            "model": {"provider": "openai", "model": "gpt-5"},
            "harness": {"loop": {"criteria": [{"kind": "todoCompletion"}]}},
        },
        tools=[TodoList()],
    )
    replies = [
        called("todo_add", items=["one", "two"]),
        called("todo_complete", numbers=[1]),
        "half",
        called("todo_complete", numbers=[2]),
        "all",
    ]
    async with serving(*replies) as server:
        watched = await through(door, agent)
    assert (watched.got.exit_reason, watched.got.loop_iterations) == (ExitReason.CONVERGED, 2)
    assert watched.iterations[0]["continued_by"] == "todoCompletion"
    assert "[ ] 2. two" in server.body(3)["messages"][-1]["content"]
    names = [each["function"]["name"] for each in server.body(0)["tools"]]
    assert names == ["todo_add", "todo_complete", "todo_read"]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(("mode", "iterations"), [("plan", 1), ("execute", 2)])
async def test_modes_restrict_a_todo_list_over_http(mode: str, iterations: int, door):
    """Open items keep the loop going in the modes that are named, and in no other."""
    agent = build_agent(
        {
            "name": "a",
            "model": {"provider": "openai", "model": "gpt-5"},
            "harness": {"loop": {"criteria": [{"kind": "todoCompletion", "modes": ["execute"]}]}},
        },
        tools=[TodoList(modes=["plan", "execute"])],
    )
    replies = [
        called("todo_set_mode", mode=mode),
        called("todo_add", items=["one"]),
        "planned",
        called("todo_complete", numbers=[1]),
        "done",
    ]
    async with serving(*replies):
        watched = await through(door, agent)
    got = watched.got
    assert (got.exit_reason, got.loop_iterations) == (ExitReason.CONVERGED, iterations)


def renders() -> str:
    """Renders."""
    return "film.mp4"


def fails() -> str:
    """Renders."""
    raise OSError("disk full")


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    ("function", "told"),
    [
        (renders, "(renders): finished\nfilm.mp4\n"),
        (fails, "(fails): failed\nOSError: disk full\n"),
    ],
)
async def test_background_tasks_are_waited_for_over_http_and_failed_ones_have_ended(
    function: Any, told: str, door
):
    agent = build_agent(
        {
            "name": "a",
            "model": {"provider": "openai", "model": "gpt-5"},
            "harness": {"loop": {"criteria": [{"kind": "backgroundTaskCompletion"}]}},
        },
        tools=[BackgroundTasks([function])],
    )
    replies = [called(f"start_{function.__name__}"), "it was started", "here it is"]
    async with serving(*replies) as server:
        watched = await through(door, agent)
    assert (watched.got.exit_reason, watched.got.loop_iterations) == (ExitReason.CONVERGED, 2)
    assert asked(server) == ["worker"] * 3  # two turns and one: waiting asked nobody
    assert told in server.body(2)["messages"][-1]["content"]


@pytest.mark.parametrize("door", DOORS)
async def test_a_judge_gets_the_parts_of_a_multi_modal_request_as_they_are(door):
    agent = build_agent(
        {
            "name": "a",
            "model": {"provider": "openai", "model": "gpt-5"},
            "harness": {"loop": {"criteria": [{"kind": "aiJudge", "judgeCriteria": ["It fits"]}]}},
        }
    )
    parts = [
        {"type": "text", "text": "What is in both?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png", "detail": "low"}},
    ]
    no, yes = verdict(False, "Name the animal."), verdict(True)
    async with serving("an animal", no, "a cat", yes) as server:
        watched = await through(door, agent, [{"role": "user", "content": parts}])
    assert watched.got.loop_iterations == 2
    for index, answer in ((1, "an animal"), (3, "a cat")):
        content = server.body(index)["messages"][-1]["content"]
        assert content[1:-1] == parts
        assert answer in content[-1]["text"]
        assert "tools" not in server.body(index)


# ── Examples ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_every_example_builds(path: Path, tmp_path: Path):
    tools = [*Workspace(tmp_path).tools, TodoList()]
    trusted = path.name == "fixer.yaml"
    agent = build_agent(load_definition(path), tools=tools, allow_commands=trusted)
    assert agent.name == path.stem
    assert agent.loop_config is not None


async def test_the_extractor_is_told_what_does_not_fit():
    model = ScriptedModel(
        ['{"name": "Ada"}', '{"name": "Ada", "street": "12 St James", "city": "London"}']
    )
    agent = replace(build_agent(load_definition(EXAMPLES / "extractor.yaml")), model=model)
    result = await run_agent(agent, ASK)
    assert (result.exit_reason, result.loop_iterations) == (ExitReason.CONVERGED, 2)
    assert "'street' is a required property" in model.requests[1].messages[-1]["content"]


async def test_the_writer_goes_from_cheap_to_dear():
    long = "# Tides\n" + "The moon pulls. " * 60
    model = ScriptedModel(["Tides are TBD", "# Tides\nTBD", long, "# Tides\nThe moon pulls."])
    judge = ScriptedModel([SCORE_LOW])
    agent = build_agent(load_definition(EXAMPLES / "writer.yaml"))
    loop = agent.loop_config
    assert loop is not None
    either = loop.criteria[2]
    verifier = either.criteria[1].verifier
    verifier.config = replace(verifier.config, model=judge)
    result = await run_agent(replace(agent, model=model), ASK)
    assert (result.exit_reason, result.loop_iterations) == (ExitReason.CONVERGED, 4)
    assert len(judge.requests) == 1  # only the one answer that was neither short nor unfinished
