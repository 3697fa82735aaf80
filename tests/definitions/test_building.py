"""``build_agent``: what becomes of each part, and everything that is refused, at once."""

from __future__ import annotations

import json
from collections import ChainMap, OrderedDict, UserDict
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from tests.definitions.kit import ASK, DOORS, asked, serving, through, verdict
from tests.mcp.kit import sdk_stdio
from untildone import ConfigError, ExitReason, LoopOutcome, run_agent, tool
from untildone.app.definitions import (
    AgentDefinition,
    DefinitionError,
    HarnessSettings,
    LoopCriterion,
    LoopSettings,
    ModelBinding,
    build_agent,
    load_definition,
)
from untildone.criteria import AiJudge, Command, CompletionMarker
from untildone.criteria.background import BackgroundTaskCompletion
from untildone.criteria.bounded_schema import BoundedJsonSchema
from untildone.criteria.composition import AllOf, AnyOf, Not
from untildone.criteria.linear_regex import LinearRegex
from untildone.criteria.min_score import MinScore
from untildone.criteria.todo import TodoCompletion
from untildone.testing import ScriptedModel, call, reply
from untildone.tools.background import BackgroundTasks
from untildone.tools.mcp import StdioMCP
from untildone.tools.todo import TodoList

MODEL = {"provider": "openai", "model": "gpt-5"}
MARKER = {"kind": "completionMarker", "marker": "DONE"}


@tool
def search(query: str) -> str:
    """Searches."""
    return f"results for {query}"


async def render() -> str:
    """Renders."""
    return "film.mp4"


def with_criteria(*criteria: dict[str, Any], **settings: Any) -> dict[str, Any]:
    return {
        "name": "a",
        "model": MODEL,
        "harness": {"loop": {"criteria": list(criteria), **settings}},
    }


def built_criteria(*criteria: dict[str, Any], **options: Any) -> tuple[Any, ...]:
    loop = build_agent(with_criteria(*criteria), **options).loop_config
    assert loop is not None
    return tuple(loop.criteria)


def problems(definition: Any, **options: Any) -> list[str]:
    with pytest.raises(DefinitionError) as caught:
        build_agent(definition, **options)
    return [str(problem) for problem in caught.value.problems]


# ── What becomes of each part ────────────────────────────────────────────────────────────────────


def test_each_field_becomes_what_it_says():
    definition = AgentDefinition(
        name="writer",
        model=ModelBinding(
            provider="Anthropic",
            model="claude-x",
            parameters={"temperature": 0.5, "max_tokens": 100, "seed": 7, "stop": ["END"]},
        ),
        instructions="Be brief.",
        tools=["search"],
        harness=HarnessSettings(
            maximum_iterations_per_request=4,
            loop=LoopSettings(
                criteria=[LoopCriterion(kind="completionMarker", marker="DONE")],
                max_iterations=3,
                fresh_context_per_iteration=True,
                on_exhausted=LoopOutcome.FAIL_RUN,
                on_criterion_error=LoopOutcome.FAIL_RUN,
            ),
        ),
    )
    agent = build_agent(definition, tools=[search])
    assert (agent.name, agent.model) == ("writer", "anthropic/claude-x")
    assert agent.system_prompt == "Be brief."
    assert (agent.temperature, agent.max_tokens, agent.max_turns) == (0.5, 100, 4)
    assert agent.extra_params == {"seed": 7, "stop": ["END"]}
    assert list(agent.tools) == [search]
    loop = agent.loop_config
    assert loop is not None
    assert (loop.max_iterations, loop.fresh_context) == (3, True)
    assert loop.on_exhausted is loop.on_criterion_error is LoopOutcome.FAIL_RUN
    assert [type(criterion) for criterion in loop.criteria] == [CompletionMarker]


def test_defaults_are_those_of_s3_and_of_an_agent():
    agent = build_agent(AgentDefinition(name="a", model=ModelBinding(**MODEL)))
    assert (agent.max_turns, agent.loop_config, agent.system_prompt) == (10, None, "")
    assert (agent.temperature, agent.max_tokens, agent.extra_params) == (None, None, {})
    loop = build_agent(with_criteria(MARKER)).loop_config
    assert loop is not None
    assert (loop.max_iterations, loop.fresh_context, loop.evaluate_final) == (10, False, False)
    assert loop.on_exhausted is loop.on_criterion_error is LoopOutcome.RETURN_LAST_RESPONSE


def test_plain_data_builds_the_same_as_the_types():
    data = with_criteria(MARKER, maxIterations=3)
    typed = AgentDefinition.model_validate(data)
    for agent in (build_agent(data), build_agent(typed)):
        assert agent.loop_config is not None
        assert agent.loop_config.max_iterations == 3


def test_each_kind_becomes_its_criterion():
    todos, background = TodoList(modes=["plan", "execute"]), BackgroundTasks([render])
    made = built_criteria(
        MARKER,
        {"kind": "aiJudge", "judgeCriteria": ["a", "b"], "judgeInstructions": "Be strict."},
        {"kind": "todoCompletion", "modes": ["execute"]},
        {"kind": "backgroundTaskCompletion", "waitSeconds": 3},
        {"kind": "minScore", "minScore": 0.7, "rubric": "style", "confirmations": 2},
        {"kind": "jsonSchema", "jsonSchema": {"type": "object"}},
        {"kind": "regex", "pattern": "^#", "feedback": "A title, please."},
        {"kind": "command", "command": ["true"], "workingDirectory": "/", "timeoutSeconds": 5},
        {"kind": "anyOf", "criteria": [MARKER, {"kind": "not", "criteria": [MARKER]}]},
        {"kind": "allOf", "criteria": [MARKER]},
        tools=[todos, background],
        allow_commands=True,
    )
    kinds = (
        CompletionMarker,
        AiJudge,
        TodoCompletion,
        BackgroundTaskCompletion,
        MinScore,
        BoundedJsonSchema,
        LinearRegex,
        Command,
        AnyOf,
        AllOf,
    )
    assert tuple(type(criterion) for criterion in made) == kinds
    _, judge, todo, waits, score, _, regex, command, any_of, _ = made
    assert (judge.criteria, judge.instructions, judge.model) == (("a", "b"), "Be strict.", None)
    assert todo.modes == ("execute",)
    assert waits.wait_s == 3
    config = score.verifier.config
    assert (config.threshold, config.rubric, config.confirmations) == (0.7, "style", 2)
    assert (regex.pattern, regex.feedback) == ("^#", "A title, please.")
    assert (command.command, command.cwd, command.timeout_s) == (("true",), "/", 5)
    assert isinstance(any_of.criteria[1], Not)


def test_kinds_without_settings_keep_the_defaults_of_the_criteria():
    todos, background = TodoList(), BackgroundTasks([render])
    waits, score, command = built_criteria(
        {"kind": "backgroundTaskCompletion"},
        {"kind": "minScore", "minScore": 0},
        {"kind": "command", "command": "true"},
        tools=[todos, background],
        allow_commands=True,
    )
    assert waits.wait_s == BackgroundTaskCompletion(background).wait_s
    assert (score.verifier.threshold, score.verifier.confirmations) == (0, 0)
    assert (command.timeout_s, command.cwd) == (Command("true").timeout_s, None)


def test_who_judges_is_the_criterions_own_then_the_builders_then_the_agents_model():
    own = {"judgeModel": {"provider": "openai", "model": "gpt-5-mini"}}
    judge = {"kind": "aiJudge", "judgeCriteria": ["a"]}
    score = {"kind": "minScore", "minScore": 0.5}
    made = built_criteria({**judge, **own}, judge, score, {**score, **own}, judge_model="groq/x")
    assert [made[0].model, made[1].model] == ["openai/gpt-5-mini", "groq/x"]
    assert [each.verifier.config.model for each in made[2:]] == ["groq/x", "openai/gpt-5-mini"]
    assert built_criteria(judge)[0].model is None
    scripted = ScriptedModel([])
    assert built_criteria(judge, judge_model=scripted)[0].model is scripted


@pytest.mark.parametrize("door", DOORS)
async def test_parameters_and_instructions_reach_the_provider(door):
    data = {
        "name": "a",
        "model": {**MODEL, "parameters": {"temperature": 0.5, "max_tokens": 9, "top_p": 0.9}},
        "instructions": "Be brief.",
    }
    async with serving("ok") as server:
        await through(door, build_agent(data))
    body = server.body(0)
    assert (body["temperature"], body["top_p"], body["max_tokens"]) == (0.5, 0.9, 9)
    assert body["messages"][0] == {"role": "system", "content": "Be brief."}


@pytest.mark.parametrize("door", DOORS)
async def test_the_judge_model_of_the_builder_is_asked(door):
    data = with_criteria({"kind": "aiJudge", "judgeCriteria": ["It is good"]})
    async with serving("draft", verdict(True)) as server:
        watched = await through(door, build_agent(data, judge_model="openai/gpt-5-mini"))
    assert watched.got.exit_reason is ExitReason.CONVERGED
    assert asked(server) == ["worker", "judge"]
    assert [server.body(index)["model"] for index in range(2)] == ["gpt-5", "gpt-5-mini"]


# ── Tools ────────────────────────────────────────────────────────────────────────────────────────


def test_an_agent_has_the_tools_it_names_and_no_others():
    def other() -> str:
        """Another."""
        return ""

    data = {"name": "a", "model": MODEL, "tools": ["other"]}
    assert list(build_agent(data, tools=[search, other]).tools) == [other]
    assert list(build_agent({**data, "tools": []}, tools=[search, other]).tools) == []


def test_a_group_can_be_named_as_a_whole_or_by_its_tools():
    todos = TodoList()
    whole = build_agent({"name": "a", "model": MODEL, "tools": ["todo"]}, tools=[todos])
    assert list(whole.tools) == list(todos.tools)
    one = build_agent({"name": "a", "model": MODEL, "tools": ["todo_read"]}, tools=[todos])
    assert list(one.tools) == [todos.tools[2]]
    both = {"name": "a", "model": MODEL, "tools": ["todo_read", "todo"]}
    assert len(build_agent(both, tools=[todos]).tools) == 3


def test_a_criterion_that_needs_a_group_brings_its_tools():
    todos, background = TodoList(), BackgroundTasks([render])
    data = with_criteria(
        {"kind": "anyOf", "criteria": [{"kind": "todoCompletion"}]},
        {"kind": "backgroundTaskCompletion"},
    )
    agent = build_agent({**data, "tools": ["search"]}, tools=[search, todos, background])
    assert list(agent.tools) == [search, *todos.tools, *background.tools]


async def test_todo_and_background_criteria_work_from_a_definition():
    todos, background = TodoList(), BackgroundTasks([render])
    data = with_criteria({"kind": "todoCompletion"}, {"kind": "backgroundTaskCompletion"})
    agent = replace(
        build_agent(data, tools=[todos, background]),
        model=ScriptedModel(
            [
                reply(calls=[call("todo_add", items=["render"]), call("start_render")]),
                "started",
                reply(calls=call("todo_complete", numbers=[1])),
                "half done",
                "here is film.mp4",
            ]
        ),
    )
    result = await run_agent(agent, ASK)
    assert (result.exit_reason, result.loop_iterations) == (ExitReason.CONVERGED, 3)


def test_an_agent_can_be_a_tool_of_a_definition():
    helper = build_agent({"name": "helper", "model": MODEL})
    agent = build_agent(
        {"name": "a", "model": MODEL, "tools": ["helper"]}, tools=[helper.as_tool()]
    )
    assert [each.name for each in agent.tools] == ["helper"]


async def test_an_agent_has_the_mcp_servers_it_names_and_no_others():
    """A real one, in a process of its own, that only the code could start."""
    offered = [sdk_stdio(), StdioMCP("no-such-program", name="other")]
    data = {"name": "a", "model": MODEL, "mcpServers": ["sdk"]}
    agent = build_agent(data, mcps=offered)
    assert list(agent.mcps) == offered[:1]
    assert list(build_agent({"name": "a", "model": MODEL}, mcps=offered).mcps) == []
    model = ScriptedModel([reply(calls=call("add", a=1, b=2)), "3"])
    result = await run_agent(replace(agent, model=model), ASK)
    assert [each["result"] for each in result.tool_calls] == ["3"]


# ── What is refused, all at once ─────────────────────────────────────────────────────────────────


def test_every_problem_is_told_at_once_with_its_path():
    data = {
        "name": "",
        "model": {"provider": "opanai", "model": "m", "parameters": {"base_url": "http://x"}},
        "tools": ["search", "serach"],
        "mcpServers": ["files", "files", "web"],
        "harness": {
            "maximumIterationsPerRequest": 0,
            "loop": {
                "maxIterations": -1,
                "criteria": [
                    MARKER,
                    {"kind": "completionMarker"},
                    {"kind": "nope"},
                    {"kind": "command"},
                    {"kind": "todoCompletion"},
                    {"kind": "anyOf", "criteria": [{"kind": "backgroundTaskCompletion"}]},
                ],
            },
        },
    }
    found = problems(data, tools=[search])
    starts = [
        "name: is blank",
        "model.provider: unknown provider 'opanai'. Did you mean 'openai'?",
        "model.parameters.base_url: a definition may not set this parameter",
        "tools[1]: nobody registered a tool 'serach'; registered are search.",
        "mcpServers[0]: nobody registered an MCP server 'files'; registered are none. Give it in",
        "mcpServers[1]: names 'files' again; once is enough",
        "mcpServers[2]: nobody registered an MCP server 'web'",
        "harness.loop.criteria[1].marker: required by completionMarker",
        "harness.loop.criteria[2].kind: unknown kind 'nope'.",
        "harness.loop.criteria[3].kind: commands are not allowed",
        "harness.loop.criteria[3].command: required by command",
        "harness.loop.criteria[4].kind: todoCompletion needs a todo list",
        "harness.loop.criteria[5].criteria[0].kind: backgroundTaskCompletion needs",
        "harness.loop.maxIterations: is -1; must be 1 or more",
        "harness.maximumIterationsPerRequest: is 0; must be 1 or more",
    ]
    assert len(found) == len(starts)
    for start in starts:
        assert any(text.startswith(start) for text in found), start


@pytest.mark.parametrize("name", ["agent.yaml", "agent.json", "agent.toml"])
def test_a_file_is_checked_in_one_pass_its_own_problems_and_those_of_building(
    name: str, tmp_path: Path
):
    texts = {
        "agent.yaml": (
            "name: ''\nmodel:\n  provider: opanai\n  model: m\ntools: [serach]\n"
            "harness:\n  loop:\n    criteria:\n      - kind: nope\n    maxIterations: 0\n"
        ),
        "agent.json": (
            '{"name": "",\n "model": {\n  "provider": "opanai",\n "model": "m"},\n'
            ' "tools": ["serach"],\n "harness": {"loop": {\n\n "criteria": [\n'
            '  {"kind": "nope"}],\n "maxIterations": 0}}}'
        ),
        "agent.toml": (
            "name = ''\ntools = ['serach']\n[model]\nprovider = 'opanai'\nmodel = 'm'\n"
            "[harness.loop]\nmaxIterations = 0\n[[harness.loop.criteria]]\nkind = 'nope'\n"
        ),
    }
    path = tmp_path / name
    path.write_text(texts[name], "utf-8")
    with pytest.raises(DefinitionError) as caught:
        build_agent(path, tools=[search])
    assert caught.value.source == str(path)
    found = {problem.path: problem.line for problem in caught.value.problems}
    lines = {
        "name": 1,
        "model.provider": 3,
        "tools[0]": 5,
        "harness.loop.criteria[0].kind": 9,
        "harness.loop.maxIterations": 10,
    }
    assert found == (dict.fromkeys(lines) if name.endswith("toml") else lines)
    shown = str(caught.value).splitlines()
    assert shown[0] == f"{path} has 5 problems:"
    assert all(line.startswith(f"  {path}:") for line in shown[1:])


def test_a_file_that_is_fine_is_built_as_its_definition_is(tmp_path: Path):
    path = tmp_path / "agent.json"
    path.write_text(json.dumps({**with_criteria(MARKER), "tools": ["search"]}), "utf-8")
    agent, other = (build_agent(each, tools=[search]) for each in (path, load_definition(path)))
    assert (agent.name, agent.model, agent.tools) == (other.name, other.model, other.tools)
    assert agent.loop_config is not None
    assert [type(criterion) for criterion in agent.loop_config.criteria] == [CompletionMarker]


def test_a_text_never_names_a_file_whoever_it_is_from(tmp_path: Path):
    path = tmp_path / "agent.json"
    path.write_text(json.dumps(with_criteria(MARKER)), "utf-8")
    with pytest.raises(DefinitionError, match=r"is a text; parse_definition\(text\) reads one"):
        build_agent(str(path))  # pyright: ignore[reportArgumentType]


def test_a_typed_definition_is_checked_against_its_surroundings_too():
    definition = AgentDefinition(
        name="a",
        model=ModelBinding(provider="nope", model="m"),
        tools=["search"],
        harness=HarnessSettings(loop=LoopSettings(criteria=[LoopCriterion(kind="mine")])),
    )
    assert [text.partition(":")[0] for text in problems(definition)] == [
        "model.provider",
        "tools[0]",
        "harness.loop.criteria[0].kind",
    ]


def test_a_definition_that_was_made_without_checks_is_checked():
    made = AgentDefinition.model_construct(
        name="", model=ModelBinding.model_construct(provider="openai", model=3), tools=()
    )
    found = problems(made)
    assert "name: is blank; write something" in found
    assert "model.model: is 3; must be text; put it in quotes" in found


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"type": "nonsense"}, "JsonSchema.schema is no valid JSON Schema"),
        ({"$ref": "https://example.com/x"}, "the schema refers to"),
        ({"pattern": "(a"}, "is no regular expression"),
    ],
)
def test_a_schema_that_cannot_work_is_told_when_the_agent_is_built(schema, said: str):
    (problem,) = problems(with_criteria({"kind": "jsonSchema", "jsonSchema": schema}))
    assert problem.startswith("harness.loop.criteria[0].jsonSchema: ")
    assert said in problem


def test_modes_must_be_modes_of_the_list():
    criterion = {"kind": "todoCompletion", "modes": ["execute", "rest"]}
    (problem,) = problems(with_criteria(criterion), tools=[TodoList(modes=["plan", "execute"])])
    assert problem == (
        "harness.loop.criteria[0].modes: has 'rest', which is no mode of the todo list; it has"
        " plan, execute"
    )
    (problem,) = problems(with_criteria(criterion), tools=[TodoList()])
    assert problem.endswith("it has none: TodoList(modes=[...]) gives it some")


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"temperature": "hot"}, "temperature: is 'hot'; must be a number of 0 or more"),
        ({"temperature": -1}, "temperature: is -1; must be a number of 0 or more"),
        ({"temperature": True}, "temperature: is true; must be a number of 0 or more"),
        ({"max_tokens": 0}, "max_tokens: is 0; must be a whole number of 1 or more"),
        ({"max_tokens": 1.5}, "max_tokens: is 1.5; must be a whole number of 1 or more"),
        ({"maxTokens": 5}, "maxTokens: a definition may not set this parameter"),
    ],
)
def test_parameters_that_an_agent_cannot_have_are_told_when_it_is_built(parameters, said: str):
    data = {"name": "a", "model": {**MODEL, "parameters": parameters}}
    (problem,) = problems(data)
    assert problem.startswith(f"model.parameters.{said}")


@pytest.mark.parametrize("bad", [None, 3, "agent.yaml", Path("agent.yaml"), [], MARKER])
def test_what_is_no_definition_is_refused(bad: Any):
    with pytest.raises(DefinitionError):
        build_agent(bad)


# ── What the caller gives ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tools": "search"}, "tools must be a list of tools, not 'search'"),
        ({"tools": [3]}, "which is no tool"),
        ({"tools": [search, search]}, "two tools are named 'search'"),
        ({"tools": [TodoList(), TodoList()]}, "two tools are named 'todo_add'"),
        ({"mcps": "files"}, "mcps must be a list of MCP servers, not 'files'"),
        ({"mcps": ["files"]}, "mcps[0] is 'files'; give StdioMCP(...)"),
        ({"mcps": [StdioMCP]}, "mcps[0] is <class"),
        ({"mcps": [StdioMCP("a", name="x"), StdioMCP("b", name="x")]}, "servers are named 'x'"),
        ({"registry": {}}, "registry must be a CriterionRegistry, not {}"),
        ({"judge_model": 3}, "judge_model is 3"),
        ({"judge_model": " "}, "judge_model is ' '"),
        ({"judge_model": "opanai/x"}, "judge_model is 'opanai/x'; write PROVIDER/MODEL, where"),
        ({"judge_model": "openai/ "}, "judge_model is 'openai/ '; write PROVIDER/MODEL, where"),
        ({"judge_model": "gpt-5"}, "judge_model is 'gpt-5'; write PROVIDER/MODEL, where"),
        ({"providers": ["opanai"]}, "providers has 'opanai'; known are openai, "),
        ({"providers": "openai"}, "providers must be a list of names"),
        ({"allow_parameters": "seed"}, "allow_parameters must be a list of names"),
        ({"allow_parameters": [3]}, "allow_parameters must be a list of names"),
    ],
)
def test_what_the_caller_gives_wrongly_is_a_config_error_of_its_own(options, said: str):
    with pytest.raises(ConfigError) as caught:
        build_agent({"name": "a", "model": MODEL}, **options)
    assert said in str(caught.value)
    assert not isinstance(caught.value, DefinitionError)


@pytest.mark.parametrize("kind", [MappingProxyType, UserDict, ChainMap, OrderedDict])
def test_any_mapping_is_plain_data(kind: Any):
    criterion = kind({**MARKER})
    loop = kind({"criteria": (criterion,), "maxIterations": 3})
    data = kind({"name": "a", "model": kind({**MODEL}), "harness": kind({"loop": loop})})
    config = build_agent(data).loop_config
    assert config is not None
    assert config.max_iterations == 3
    made = AgentDefinition(name="a", model=kind({**MODEL}))
    assert made.model == ModelBinding(provider="openai", model="gpt-5")


@pytest.mark.parametrize(
    ("key", "path", "said"),
    [
        ("\ud800", r"['\ud800']", "has half a character (a lone surrogate); write it whole"),
        (1, "", "has the key 1, which is no text; put it in quotes"),
        (None, "", "has the key None, which is no text; put it in quotes"),
        ((1, 2), "", "has the key (1, 2), which is no text; put it in quotes"),
    ],
)
def test_a_key_that_no_text_can_be_hides_nothing(key: Any, path: str, said: str):
    with pytest.raises(DefinitionError) as caught:
        build_agent({"name": 1, key: 1, "model": {"provider": "openai", key: 2}})
    found = [(each.path, each.message) for each in caught.value.problems]
    assert found == [
        (path, said),
        (f"model{path}", said),
        ("name", "is 1; must be text; put it in quotes"),
        ("model.model", "required"),
    ]
