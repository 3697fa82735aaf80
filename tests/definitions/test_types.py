"""The types by themselves: what they take, what they refuse, how they compare."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from untildone import ConfigError, LoopOutcome
from untildone.app.definitions import (
    AgentDefinition,
    DefinitionError,
    HarnessSettings,
    LoopCriterion,
    LoopSettings,
    ModelBinding,
    dump_definition,
    parse_definition,
)
from untildone.app.definitions.kinds import KINDS
from untildone.app.definitions.problems import Problem
from untildone.criteria.registry import BUILT_IN_KINDS

NO_SERVERS = (
    "a definition cannot bring an MCP server along, which is a program to start or an address to"
    " reach: give the name of one that is offered to it"
)
MARKER: dict[str, Any] = {"kind": "completionMarker", "marker": "x"}
MODEL: dict[str, Any] = {"provider": "openai", "model": "gpt-5"}


def problems(kind: type, /, **data: Any) -> list[str]:
    with pytest.raises(DefinitionError) as caught:
        kind(**data)
    return [str(problem) for problem in caught.value.problems]


# ── Names ────────────────────────────────────────────────────────────────────────────────────────


def test_fields_are_written_as_in_python_or_as_in_s3():
    as_python = LoopSettings(
        criteria=[LoopCriterion(kind="aiJudge", judge_criteria=["a"], judge_instructions="b")],
        max_iterations=3,
        fresh_context_per_iteration=True,
        on_exhausted=LoopOutcome.FAIL_RUN,
        on_criterion_error=LoopOutcome.FAIL_RUN,
    )
    as_s3 = {
        "criteria": [{"kind": "aiJudge", "judgeCriteria": ["a"], "judgeInstructions": "b"}],
        "maxIterations": 3,
        "freshContextPerIteration": True,
        "onExhausted": "failRun",
        "onCriterionError": "failRun",
    }
    assert LoopSettings(**as_s3) == as_python
    assert as_python.model_dump(mode="json", by_alias=True, exclude_defaults=True) == as_s3
    harness = HarnessSettings(loop=as_python, maximum_iterations_per_request=4)
    also_s3: dict[str, Any] = {"loop": as_s3, "maximumIterationsPerRequest": 4}
    assert HarnessSettings(**also_s3) == harness


@pytest.mark.parametrize(
    "kind", [AgentDefinition, HarnessSettings, LoopSettings, LoopCriterion, ModelBinding]
)
def test_an_unknown_key_is_refused_everywhere(kind: type):
    assert any(text.startswith("nonsense: unknown key") for text in problems(kind, nonsense=1))


def test_an_unknown_key_that_is_nearly_one_is_guessed():
    assert problems(HarnessSettings, lop=None) == ["lop: unknown key; did you mean 'loop'?"]
    assert problems(HarnessSettings, nothing_like_it=1) == [
        "nothing_like_it: unknown key; known here: loop, maximum_iterations_per_request"
    ]


# ── Kinds ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", BUILT_IN_KINDS)
def test_kinds_are_matched_without_regard_to_case_and_kept_in_one_spelling(kind: str):
    needed: dict[str, Any] = {
        "marker": "x",
        "judge_criteria": ["x"],
        "min_score": 0.5,
        "json_schema": {},
        "pattern": "x",
        "command": "x",
        "criteria": [MARKER],
    }
    fields = {name: needed[name] for name in KINDS[kind].required}
    made = [
        LoopCriterion(kind=each, **fields) for each in (kind, kind.upper(), f" {kind.lower()} ")
    ]
    assert {criterion.kind for criterion in made} == {kind}
    assert len(set(made)) == 1


@pytest.mark.parametrize("kind", BUILT_IN_KINDS)
def test_every_kind_says_what_it_needs(kind: str):
    required = KINDS[kind].required
    if not required:
        assert LoopCriterion(kind=kind).kind == kind
        return
    assert problems(LoopCriterion, kind=kind) == [
        f"{name}: required by {kind}" for name in required
    ]


def test_a_field_of_another_kind_is_refused_not_ignored():
    assert problems(LoopCriterion, kind="completionMarker", marker="x", pattern="y") == [
        "pattern: has no effect with completionMarker; leave it out"
    ]


def test_the_table_of_kinds_is_complete_and_names_real_fields():
    assert tuple(KINDS) == BUILT_IN_KINDS
    named = {name for takes in KINDS.values() for name in (*takes.required, *takes.optional)}
    assert named == set(LoopCriterion.model_fields) - {"kind", "options"}


@pytest.mark.parametrize("kind", ["", " ", "\n", None, 3, ["completionMarker"]])
def test_a_blank_kind_or_none_is_refused(kind: Any):
    (problem,) = problems(LoopCriterion, kind=kind)
    assert problem.startswith("kind: is ")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"kind": "completionMarker", "marker": " "}, "marker: is blank; write something"),
        ({"kind": "completionMarker", "marker": ""}, "marker: is blank; write something"),
        ({"kind": "completionMarker", "marker": 5}, "marker: is 5; must be text; put it in quotes"),
        ({"kind": "completionMarker", "marker": "\ud800"}, "marker: has half a character"),
        ({"kind": "aiJudge", "judge_criteria": []}, "judge_criteria: is empty; 'aiJudge' needs"),
        ({"kind": "aiJudge", "judge_criteria": ["a", " "]}, "judge_criteria[1]: is blank; write"),
        ({"kind": "aiJudge", "judge_criteria": "a"}, "judge_criteria: is 'a'; must be a list"),
        (
            {"kind": "aiJudge", "judge_criteria": ["a"], "judge_instructions": " "},
            "judge_instructions: is blank",
        ),
        (
            {
                "kind": "aiJudge",
                "judge_criteria": ["a"],
                "judge_model": {**MODEL, "parameters": {"seed": 1}},
            },
            "judge_model: has parameters, which have no effect on a judge",
        ),
        ({"kind": "todoCompletion", "modes": []}, "modes: is empty; name at least one mode"),
        ({"kind": "minScore", "min_score": 1.01}, "min_score: is 1.01; must be 1.0 or less"),
        ({"kind": "minScore", "min_score": -0.1}, "min_score: is -0.1; must be 0.0 or more"),
        ({"kind": "minScore", "min_score": True}, "min_score: is True; must be a number"),
        ({"kind": "minScore", "min_score": float("nan")}, "min_score: is nan; must be"),
        ({"kind": "regex", "pattern": "(a"}, "pattern: the pattern '(a' is no regular expression"),
        ({"kind": "jsonSchema", "json_schema": []}, "json_schema: is []; must be a mapping"),
        ({"kind": "command", "command": []}, "command: is []; must be a line for the shell"),
        ({"kind": "command", "command": [" "]}, "command: is [' ']; must be a line"),
        ({"kind": "command", "command": ["a", 1]}, "command: is ['a', 1]; must be a line"),
        (
            {"kind": "command", "command": "a", "timeout_seconds": 0},
            "timeout_seconds: is 0; must be greater than 0.0",
        ),
        (
            {"kind": "backgroundTaskCompletion", "wait_seconds": -1},
            "wait_seconds: is -1; must be 0.0 or more",
        ),
        (
            {"kind": "backgroundTaskCompletion", "wait_seconds": 1e9},
            "wait_seconds: is 1000000000.0; must be 86400.0 or less",
        ),
        (
            {"kind": "not", "criteria": [MARKER, MARKER]},
            "criteria: has 2 criteria; 'not' takes one",
        ),
        ({"kind": "anyOf", "criteria": []}, "criteria: is empty; 'anyOf' needs at least one"),
        (
            {"kind": "anyOf", "criteria": [{"kind": "allOf", "criteria": [{"kind": "regex"}]}]},
            "criteria[0].criteria[0].pattern: required by regex",
        ),
    ],
)
def test_bad_values_are_named_with_their_place(fields: dict[str, Any], said: str):
    (problem,) = problems(LoopCriterion, **fields)
    assert problem.startswith(said)


def test_criteria_of_criteria_have_eight_levels_at_most():
    made: dict[str, Any] = MARKER
    for _ in range(8):
        made = {"kind": "not", "criteria": [made]}
    assert LoopCriterion(**made).kind == "not"
    (problem,) = problems(LoopCriterion, kind="not", criteria=[made])
    assert problem == "criteria: is nested more than 8 levels deep"
    for _ in range(1000):
        made = {"kind": "not", "criteria": [made]}
    (problem,) = problems(LoopCriterion, **made)
    assert len(problem) < 6000
    cycle: dict[str, Any] = {"kind": "not"}
    cycle["criteria"] = [cycle]
    assert problems(LoopCriterion, **cycle) == ["is nested more than 64 levels deep"]


# ── Settings ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("spelled", "outcome"),
    [
        ("failRun", LoopOutcome.FAIL_RUN),
        ("FailRun", LoopOutcome.FAIL_RUN),
        ("FAIL_RUN", LoopOutcome.FAIL_RUN),
        pytest.param(LoopOutcome.FAIL_RUN, LoopOutcome.FAIL_RUN, id="the outcome itself"),
        ("returnLastResponse", LoopOutcome.RETURN_LAST_RESPONSE),
        ("return_last_response", LoopOutcome.RETURN_LAST_RESPONSE),
    ],
)
def test_an_outcome_is_read_however_it_is_spelled(spelled: Any, outcome: LoopOutcome):
    settings = LoopSettings(criteria=[LoopCriterion(**MARKER)], on_exhausted=spelled)
    assert settings.on_exhausted is outcome


@pytest.mark.parametrize("bad", ["fail", "", None, 1, True, ["failRun"]])
def test_any_other_outcome_is_refused_with_the_two_that_are_there(bad: Any):
    (problem,) = problems(LoopSettings, criteria=[MARKER], on_criterion_error=bad)
    assert problem.startswith("on_criterion_error: is ")
    assert problem.endswith("must be 'returnLastResponse' or 'failRun'")


@pytest.mark.parametrize("bad", ["yes", 1, None, "true"])
def test_a_switch_is_true_or_false(bad: Any):
    (problem,) = problems(LoopSettings, criteria=[MARKER], fresh_context_per_iteration=bad)
    assert problem.endswith("must be true or false")


@pytest.mark.parametrize("bad", [0, -1, True, 1.0, "3", float("nan"), 2**63])
def test_bounds_are_whole_numbers_of_one_or_more(bad: Any):
    for name, kind in (
        ("maximum_iterations_per_request", HarnessSettings),
        ("max_iterations", LoopSettings),
    ):
        data = {"criteria": [MARKER]} if kind is LoopSettings else {}
        (problem,) = problems(kind, **data, **{name: bad})
        assert problem.startswith(f"{name}: is ")


def test_every_problem_is_told_at_once_with_its_path():
    assert problems(
        AgentDefinition,
        name=" ",
        model={"provider": "openai", "parameters": {"a": float("inf")}},
        tools=["a", "b", "a"],
        mcp_servers=["files", {"command": "npx evil"}],
        harness={"loop": {"criteria": [{"kind": "completionMarker"}], "maxIterations": 0}},
    ) == [
        "name: is blank; write something",
        "model.model: required",
        "model.parameters: has the number inf, which JSON does not know",
        "tools[2]: names 'a' again; once is enough",
        f"mcp_servers[1]: is no name; {NO_SERVERS}",
        "harness.loop.criteria[0].marker: required by completionMarker",
        "harness.loop.maxIterations: is 0; must be 1 or more",
    ]


def test_a_harness_that_is_null_is_the_default_one():
    assert AgentDefinition(name="a", model=MODEL, harness=None).harness == HarnessSettings()  # pyright: ignore[reportArgumentType]


def test_an_empty_list_of_mcp_servers_is_accepted():
    assert AgentDefinition(name="a", model=MODEL, mcp_servers=[]).mcp_servers == ()  # pyright: ignore[reportArgumentType]


# ── Values ───────────────────────────────────────────────────────────────────────────────────────


def binding(**parameters: Any) -> ModelBinding:
    return ModelBinding(provider="openai", model="gpt-5", parameters=parameters)


def test_parameters_compare_by_content_and_have_a_hash():
    one = binding(a=[1, {"b": None}], c="x")
    same = binding(c="x", a=(1, {"b": None}))
    assert one == same
    assert hash(one) == hash(same)
    assert one != binding(a=[1, {"b": 0}], c="x")
    assert binding(a=1) == binding(a=1.0)
    for value in (1, 1.0):
        assert binding(a=True) != binding(a=value)
        assert binding(a=[{"b": True}]) != binding(a=[{"b": value}])
    assert binding(a=[False]) != binding(a=[0])
    assert hash(binding(a=1)) == hash(binding(a=1.0))
    assert one.parameters == {"a": (1, {"b": None}), "c": "x"}


def test_parameters_never_change_also_not_from_outside():
    given: dict[str, Any] = {"stop": ["a"]}
    made = ModelBinding(provider="openai", model="gpt-5", parameters=given)
    given["stop"].append("b")
    given["x"] = 1
    assert made == binding(stop=["a"])
    with pytest.raises(TypeError):
        made.parameters["stop"] = []
    assert isinstance(made.parameters["stop"], tuple)


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


def test_a_deep_value_and_deep_criteria_still_fit_into_a_file():
    made: dict[str, Any] = {"kind": "jsonSchema", "json_schema": {"enum": nested(31)}}
    for _ in range(8):
        made = {"kind": "not", "criteria": [made]}
    loop = LoopSettings(criteria=[LoopCriterion(**made)])
    definition = AgentDefinition(name="a", model=binding(), harness=HarnessSettings(loop=loop))
    for written in ("yaml", "json", "toml"):
        assert parse_definition(dump_definition(definition, written), written) == definition


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (object(), "has a object; use text, numbers, lists and mappings"),
        (b"x", "has a bytes"),
        ({"a": {1, 2}}, "has a set"),
        (float("nan"), "has the number nan, which JSON does not know"),
        (2**63, "has a whole number of more than 64 bits"),
        ("\ud800", "has half a character (a lone surrogate)"),
        (nested(32), "is nested more than 32 levels deep"),
    ],
)
def test_parameters_are_json_values(value: Any, said: str):
    (problem,) = problems(ModelBinding, provider="openai", model="gpt-5", parameters={"p": value})
    assert problem.startswith(f"parameters: {said}")


def test_settings_are_frozen():
    for made, name in (
        (binding(), "model"),
        (LoopCriterion(**MARKER), "marker"),
        (HarnessSettings(), "loop"),
        (AgentDefinition(name="a", model=binding()), "name"),
    ):
        with pytest.raises(ValueError, match="frozen"):
            setattr(made, name, None)


def test_text_of_a_value_shows_what_is_set_only():
    assert repr(LoopCriterion(**MARKER)) == "LoopCriterion(kind='completionMarker', marker='x')"


# ── Every door raises the one error ──────────────────────────────────────────────────────────────

LOOP = {"criteria": [MARKER], "maxIterations": 3, "onExhausted": "failRun"}
SETTINGS = LoopSettings(
    criteria=[LoopCriterion(**MARKER)], max_iterations=3, on_exhausted=LoopOutcome.FAIL_RUN
)


def test_every_door_gives_the_same_value():
    assert LoopSettings.model_validate(LOOP) == SETTINGS
    assert LoopSettings.model_validate(SETTINGS) == SETTINGS
    for text in (json.dumps(LOOP), json.dumps(LOOP).encode(), bytearray(json.dumps(LOOP).encode())):
        assert LoopSettings.model_validate_json(text) == SETTINGS
    form = {"provider": "openai", "model": "gpt-5"}
    assert ModelBinding.model_validate_strings(form) == binding()
    counted = {"maximum_iterations_per_request": "3"}
    assert HarnessSettings.model_validate_strings(counted) == HarnessSettings(
        maximum_iterations_per_request=3
    )


def test_every_door_tells_all_problems_with_their_paths():
    bad = {"criteria": [{"kind": "completionMarker"}], "maxIterations": 0}
    said = [
        "criteria[0].marker: required by completionMarker",
        "maxIterations: is 0; must be 1 or more",
    ]
    with pytest.raises(DefinitionError) as caught:
        LoopSettings.model_validate(bad)
    assert [str(problem) for problem in caught.value.problems] == said
    assert str(caught.value).splitlines() == [
        "LoopSettings has 2 problems:",
        *(f"  LoopSettings: {line}" for line in said),
    ]
    with pytest.raises(DefinitionError) as caught:
        LoopSettings.model_validate_json(json.dumps(bad, indent=1))
    assert [str(problem) for problem in caught.value.problems] == said
    assert [problem.line for problem in caught.value.problems] == [3, 7]
    with pytest.raises(DefinitionError, match="HarnessSettings: maximumIterationsPerRequest: is"):
        HarnessSettings.model_validate_strings({"maximumIterationsPerRequest": "no"})


@pytest.mark.parametrize("kind", [AgentDefinition, HarnessSettings, LoopSettings, LoopCriterion])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "this is no JSON: Expecting value"),
        (b"\xff", "is no UTF-8 text"),
        ("[1", "this is no JSON"),
        ("3", "is 3; must be a mapping"),
        ("[" * 100_000, "is nested more than 64 levels deep"),
        ("#" * 2**21, "is larger than 1 MiB"),
        ('{"a": NaN}', "NaN is no JSON number"),
        ('{"kind": "\ud800"}', "half a character"),
        (3, "is 3; give a JSON text"),
        (None, "is None; give a JSON text"),
    ],
    ids=range(10),
)
def test_what_is_no_json_is_the_same_error(kind: Any, text: Any, said: str):
    with pytest.raises(DefinitionError, match=said):
        kind.model_validate_json(text)


def test_a_key_given_twice_is_told_by_the_json_door_too():
    with pytest.raises(DefinitionError, match="AgentDefinition:1:15: name: is given twice"):
        AgentDefinition.model_validate_json(
            '{"name": "a", "name": "b", "model": {"provider": "openai", "model": "m"}}'
        )


def test_inside_of_a_model_of_somebody_else_it_is_that_models_error():
    """As FastAPI needs it, to answer a bad request with 422; the words and paths are the same."""

    class Body(BaseModel):
        loop: LoopSettings

    assert Body.model_validate({"loop": LOOP}).loop == SETTINGS
    with pytest.raises(ValidationError) as caught:
        Body.model_validate({"loop": {"criteria": []}})
    (details,) = caught.value.errors()
    assert details["loc"] == ("loop", "criteria")
    assert details["msg"].startswith("is empty; must have at least one criterion")


# ── The error ────────────────────────────────────────────────────────────────────────────────────


def test_the_error_is_a_config_error_and_a_value_error_and_survives_pickling():
    import pickle

    with pytest.raises(DefinitionError) as caught:
        LoopSettings(criteria=[])
    assert isinstance(caught.value, ConfigError)
    assert isinstance(caught.value, ValueError)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.problems, str(again)) == (caught.value.problems, str(caught.value))


def test_one_problem_is_one_line_and_several_have_a_line_each():
    one = Problem("a.b", "is wrong", 3, 4)
    whole = Problem("", "is odd")
    assert str(DefinitionError([whole])) == "the definition: is odd"
    assert str(DefinitionError([one])) == "the definition:3:4: a.b: is wrong"
    assert str(DefinitionError([one], "x.yaml")) == "x.yaml:3:4: a.b: is wrong"
    assert str(DefinitionError([one, whole], "x.yaml")) == (
        "x.yaml has 2 problems:\n  x.yaml:3:4: a.b: is wrong\n  x.yaml: is odd"
    )
    assert str(DefinitionError([one, Problem("c", "is odd")])) == (
        "the definition has 2 problems:\n  3:4: a.b: is wrong\n  c: is odd"
    )
    assert Problem("", "is no UTF-8", 2).in_line("x.yaml") == "x.yaml:2: is no UTF-8"


def test_a_value_that_cannot_be_shown_is_named_by_its_type():
    class Rude:
        def __repr__(self):
            raise ZeroDivisionError

    (problem,) = problems(HarnessSettings, loop=Rude())
    assert problem.startswith("loop: is a Rude; must be a mapping with the keys criteria")
    (long,) = problems(LoopCriterion, kind="completionMarker", marker=["x" * 500])
    assert len(long) < 120
