"""From texts and files to definitions: what each format gives, and where its problems stand."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from untildone import ConfigError
from untildone.app.definitions import (
    AgentDefinition,
    DefinitionError,
    HarnessSettings,
    LoopCriterion,
    LoopSettings,
    ModelBinding,
    dump_definition,
    load_definition,
    parse_definition,
)
from untildone.app.definitions.toml_text import _STRING_OR_COMMENT, _has_endless_key

YAML = """\
name: researcher
model:
  provider: openai
  model: gpt-5
harness:
  loop:
    criteria:
      - kind: completionMarker
        marker: ALL DONE
    maxIterations: 5
"""
JSON = """\
{
  "name": "researcher",
  "model": {"provider": "openai", "model": "gpt-5"},
  "harness": {
    "loop": {
      "criteria": [{"kind": "completionMarker", "marker": "ALL DONE"}],
      "maxIterations": 5
    }
  }
}
"""
TOML = """\
name = "researcher"

[model]
provider = "openai"
model = "gpt-5"

[harness.loop]
maxIterations = 5

[[harness.loop.criteria]]
kind = "completionMarker"
marker = "ALL DONE"
"""
TEXTS = {"yaml": YAML, "json": JSON, "toml": TOML}

DEFINITION = AgentDefinition(
    name="researcher",
    model=ModelBinding(provider="openai", model="gpt-5"),
    harness=HarnessSettings(
        loop=LoopSettings(
            criteria=[LoopCriterion(kind="completionMarker", marker="ALL DONE")], max_iterations=5
        )
    ),
)


def problems(text: str, written: Any = "yaml") -> list[tuple[int | None, str, str]]:
    """Line, path and message of everything that is wrong with a text."""
    with pytest.raises(DefinitionError) as caught:
        parse_definition(text, written)
    return [(each.line, each.path, each.message) for each in caught.value.problems]


def with_model(**parameters: str) -> str:
    """A definition in YAML whose parameters are written like this."""
    lines = "".join(f"    {name}: {text}\n" for name, text in parameters.items())
    return f"name: a\nmodel:\n  provider: openai\n  model: gpt-5\n  parameters:\n{lines}"


@pytest.mark.parametrize("written", TEXTS)
def test_all_formats_give_the_same_definition(written):
    assert parse_definition(TEXTS[written], written) == DEFINITION


def test_problems_of_files_speak_of_null_and_true():
    assert problems("name:\nmodel: true\n") == [
        (1, "name", "is null; must be text"),
        (2, "model", "is true; must be a mapping with the keys provider, model, parameters"),
    ]
    assert problems(YAML + "    freshContextPerIteration: 'yes'\n")[0][2] == (
        "is 'yes'; must be true or false"
    )


@pytest.mark.parametrize("written", TEXTS)
def test_snake_case_is_read_too(written):
    text = TEXTS[written].replace("maxIterations", "max_iterations")
    assert parse_definition(text, written) == DEFINITION


@pytest.mark.parametrize("written", TEXTS)
@pytest.mark.parametrize("name", ["agent", "AGENT", "ag.ent"])
def test_a_file_is_read_by_the_end_of_its_name(written, name: str, tmp_path: Path):
    path = tmp_path / f"{name}.{written.upper() if name == 'AGENT' else written}"
    path.write_text(TEXTS[written], "utf-8")
    assert load_definition(path) == load_definition(str(path)) == DEFINITION


@pytest.mark.parametrize("written", TEXTS)
def test_a_byte_order_mark_and_windows_lines_do_no_harm(written, tmp_path: Path):
    path = tmp_path / f"agent.{written}"
    path.write_bytes(b"\xef\xbb\xbf" + TEXTS[written].replace("\n", "\r\n").encode())
    assert load_definition(path) == DEFINITION
    assert parse_definition("\ufeff" + TEXTS[written], written) == DEFINITION


# ── Where problems stand ─────────────────────────────────────────────────────────────────────────


def test_every_problem_of_a_yaml_file_is_told_at_once_with_its_line():
    text = """\
name: ''
model:
  provider: openai
tool: [a]
harness:
  loop:
    criteria:
      - kind: completionMarker
      - kind: aiJudge
        judgeCriteria: [fine, ' ']
        marker: x
    maxIterations: 0
    onExhausted: fail
"""
    assert problems(text) == [
        (1, "name", "is blank; write something"),
        (2, "model.model", "required"),
        (4, "tool", "unknown key; did you mean 'tools'?"),
        (8, "harness.loop.criteria[0].marker", "required by completionMarker"),
        (10, "harness.loop.criteria[1].judgeCriteria[1]", "is blank; write something"),
        (11, "harness.loop.criteria[1].marker", "has no effect with aiJudge; leave it out"),
        (12, "harness.loop.maxIterations", "is 0; must be 1 or more"),
        (13, "harness.loop.onExhausted", "is 'fail'; must be 'returnLastResponse' or 'failRun'"),
    ]


def test_every_problem_of_a_json_file_is_told_at_once_with_its_line():
    text = """\
{"name": 5,
 "model": {"provider": "openai",
           "model": ["gpt-5"]},
 "harness": {
   "loop": {"criteria": [
     {"kind": "completionMarker", "marker": "[ \\"x\\": {"},
     {"kind": "aiJudge"}]}}}
"""
    assert problems(text, "json") == [
        (1, "name", "is 5; must be text; put it in quotes"),
        (3, "model.model", "is ['gpt-5']; must be text"),
        (7, "harness.loop.criteria[1].judgeCriteria", "required by aiJudge"),
    ]


def test_problems_of_a_toml_file_have_paths():
    text = TOML.replace('marker = "ALL DONE"', "marker = 5").replace("= 5\n\n", "= 2020-01-01\n\n")
    assert problems(text, "toml") == [
        (
            None,
            "harness.loop.criteria[0].marker",
            "is 5; must be text; put it in quotes",
        ),
        (
            None,
            "harness.loop.maxIterations",
            "is datetime.date(2020, 1, 1); must be a whole number",
        ),
    ]


def test_columns_are_told_too():
    with pytest.raises(DefinitionError) as caught:
        parse_definition(YAML.replace("    maxIterations: 5", "    maxIterations: none"))
    (problem,) = caught.value.problems
    assert (problem.line, problem.column) == (10, 5)
    assert str(problem).startswith("harness.loop.maxIterations: is 'none'; must be a whole number")


def test_the_error_names_the_file_and_has_a_line_for_each_problem(tmp_path: Path):
    path = tmp_path / "agent.yaml"
    path.write_text("name: a\nmodel: {}\n", "utf-8")
    with pytest.raises(DefinitionError) as caught:
        load_definition(path)
    assert caught.value.source == str(path)
    assert str(caught.value).splitlines() == [
        f"{path} has 2 problems:",
        f"  {path}:2:1: model.provider: required",
        f"  {path}:2:1: model.model: required",
    ]
    path.write_text(YAML + "extra: 1\n", "utf-8")
    with pytest.raises(DefinitionError) as caught:
        load_definition(path)
    assert str(caught.value).startswith(f"{path}:11:1: extra: unknown key; known here: name, model")


@pytest.mark.parametrize(
    ("text", "written", "said"),
    [
        ("", "yaml", "is empty; begin with 'name:'"),
        ("# nothing\n", "yaml", "is empty; begin with 'name:'"),
        ("", "json", "this is no JSON: Expecting value"),
        ("name: [", "yaml", "this is no YAML: "),
        ("\tname: a", "yaml", "this is no YAML: "),
        ("name: a\n---\nname: b\n", "yaml", "has several documents; keep one"),
        ("? [a]\n: b\n", "yaml", "a key must be text"),
        ('{"name": "a",}', "json", "this is no JSON: "),
        ('{"a": NaN}', "json", "this is no JSON: NaN is no JSON number"),
        ("name = ", "toml", "this is no TOML: "),
        ("a = 1\na = 2\n", "toml", "this is no TOML: "),
        ("- a\n- b\n", "yaml", "is ['a', 'b']; must be a mapping with the keys name, model"),
        ("just text", "yaml", "is 'just text'; must be a mapping with the keys name, model"),
        ("[1]", "json", "is [1]; must be a mapping"),
        ("null", "json", "is null; must be a mapping"),
    ],
)
def test_what_is_no_definition_at_all_is_one_problem(text: str, written, said: str):
    ((_, path, message),) = problems(text, written)
    assert path == ""
    assert message.startswith(said)


def test_a_syntax_error_has_its_line():
    with pytest.raises(DefinitionError) as caught:
        parse_definition("name: a\nmodel: [\n")
    assert caught.value.problems[0].line == 3
    with pytest.raises(DefinitionError) as caught:
        parse_definition('{\n "name": "a",\n}', "json")
    assert caught.value.problems[0].line == 3


# ── YAML without its surprises ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("on", "on"), ("off", "off"), ("yes", "yes"), ("no", "no"), ("y", "y")),
        *(("2020-01-01", "2020-01-01"), ("12:30:45", "12:30:45"), ("1_000", "1_000")),
        *(("=", "="), ("<<", "<<"), ("0b11", "0b11"), ("'1'", "1"), ('"null"', "null")),
        *(("true", True), ("False", False), ("TRUE", True), ("tRUE", "tRUE")),
        *(("null", None), ("~", None), ("", None), ("Null", None), ("nULL", "nULL")),
        *(("5", 5), ("-5", -5), ("+5", 5), ("010", 10), ("0o10", 8), ("0x10", 16)),
        *(("1.5", 1.5), ("1e3", 1000.0), (".5", 0.5), ("1.", 1.0), ("-1.5e-3", -0.0015)),
        *(("[a, 1]", ("a", 1)), ("{a: {b: no}}", {"a": {"b": "no"}})),
    ],
)
def test_a_yaml_value_is_what_json_would_say(text: str, value):
    definition = parse_definition(with_model(stop=text))
    got = definition.model.parameters["stop"]
    assert got == value
    assert type(got) is type(value) or value == {"a": {"b": "no"}}


def test_keys_of_yaml_are_the_text_that_stands_there():
    definition = parse_definition(with_model(on="1", logit_bias="{50256: -100, true: 1}"))
    assert dict(definition.model.parameters) == {
        "on": 1,
        "logit_bias": {"50256": -100, "true": 1},
    }


def test_a_key_given_twice_is_a_problem_of_its_own():
    text = YAML + "name: other\n"
    assert problems(text) == [(11, "name", "is given twice; leave one out")]
    assert problems(text + "name: again\n" * 300) == [
        (311, "name", "is given twice; leave one out")
    ]
    assert problems(YAML.replace("marker: ALL DONE", "marker: A\n        marker: B")) == [
        (10, "harness.loop.criteria[0].marker", "is given twice; leave one out")
    ]
    doubled = JSON.replace('"gpt-5"}', '"gpt-5", "model": "gpt-6"}')
    assert problems(doubled, "json") == [(3, "model.model", "is given twice; leave one out")]


def test_both_spellings_of_a_key_are_one_key_given_twice():
    ((line, path, message),) = problems(YAML + "    max_iterations: 3\n")
    assert (line, path) == (11, "harness.loop.max_iterations")
    assert message == "is given twice, in both spellings; leave one out"


BILLION_LAUGHS = "a: &a [x, x]\n" + "".join(
    f"{name}: &{name} [*{before}, *{before}]\n"
    for before, name in zip("abcdefghij", "bcdefghijk", strict=True)
)


def test_aliases_are_refused_so_that_ten_lines_cannot_mean_a_billion():
    found = problems(BILLION_LAUGHS)
    refused = [each for each in found if "repeats another part" in each[2]]
    assert len(refused) == 20
    assert refused[0] == (2, "b[0]", "*a repeats another part; write it out")


@pytest.mark.parametrize(
    "tagged",
    [
        "!!python/object/apply:os.system ['touch owned']",
        "!!python/name:os.system",
        "!!binary aGVsbG8=",
        "!env HOME",
        "!include /etc/passwd",
        "!!str 5",
        "! 5",
    ],
)
def test_tags_are_refused_and_nothing_is_made_of_them(tagged: str, tmp_path: Path):
    found = problems(with_model(stop=tagged))
    assert [each[1] for each in found] == ["model.parameters.stop"]
    assert "is not allowed; leave it out" in found[0][2]
    assert not (Path.cwd() / "owned").exists()


# ── Limits ───────────────────────────────────────────────────────────────────────────────────────

DEEP = {
    "yaml flow": ("yaml", "a: " + "[" * 500),
    "yaml block": ("yaml", "".join(f"{' ' * depth}a:\n" for depth in range(200))),
    "json": ("json", '{"a":' * 500 + "1" + "}" * 500),
    "json lists": ("json", "[" * 100_000),
    "toml": ("toml", "a = " + "[" * 500 + "]" * 500),
    "toml keys": ("toml", ".".join(["a"] * 500) + " = 1"),
}


@pytest.mark.parametrize("name", DEEP)
def test_deep_nesting_is_one_problem(name: str):
    written, text = DEEP[name]
    ((_, _, message),) = problems(text, written)
    assert message == "is nested more than 64 levels deep"


CRITERIA = "name: a\nmodel: {provider: p, model: m}\nharness:\n  loop:\n    criteria:\n"
MUCH = {
    "yaml values": ("yaml", CRITERIA + "      - {}\n" * 20_000, "has more than 10,000 values"),
    "yaml keys": ("yaml", "k: v\n" * 20_000, "has more than 10,000 values"),
    "json deep under a key given twice": (
        "json",
        '{"a": ' + "[" * 100 + "]" * 100 + ', "a": 1}',
        "is nested more than 64 levels",
    ),
    "json values under a key given twice": (
        "json",
        f'{{"a": [{",".join(["1"] * 20_000)}], "a": 1}}',
        "has more than 10,000 values",
    ),
    "json keys given twice": (
        "json",
        "{" + ",".join(['"a": 1'] * 20_000) + "}",
        "has more than 10,000 values",
    ),
    "json values": ("json", f"[{','.join(['1'] * 20_000)}]", "has more than 10,000 values"),
    "toml values": ("toml", "a = [" + "[]," * 20_000 + "]", "has more than 10,000 values"),
    "toml keys": ("toml", ".".join(["a"] * 200_000) + " = 1", "is nested more than 64 levels"),
    "toml quoted": ("toml", ".".join(["'a'"] * 99_999) + " = 1", "is nested more than 64 levels"),
}


@pytest.mark.parametrize("name", MUCH)
def test_much_of_anything_is_one_problem_and_told_at_once(name: str):
    written, text, said = MUCH[name]
    ((_, _, message),) = problems(text, written)
    assert message.startswith(said)


def test_a_loop_has_fifty_criteria_at_most_nested_ones_included():
    one = "      - {kind: completionMarker, marker: x}\n"
    nested = "      - kind: anyOf\n        criteria:\n" + f"    {one}" * 30
    assert parse_definition(CRITERIA + one * 50).name == "a"
    for text in (CRITERIA + one * 51, CRITERIA + one * 20 + nested):
        ((_, path, message),) = problems(text)
        assert path == "harness.loop.criteria"
        assert message == "has more than 50 criteria, nested ones included"


def test_of_very_many_problems_two_hundred_are_told():
    text = YAML + "".join(f"key{number}: 1\n" for number in range(300))
    found = problems(text)
    assert len(found) == 201
    assert found[-1] == (None, "", "has more problems than these")


@pytest.mark.parametrize(
    "text",
    [
        'x = """a"""" # \\\n{}."c" = 1',
        "x = '''a''''' # '\n{}.'c' = 1",
        'x = "a" # "\n{} = "b"',
        '"a" . {} = """b"""',
        '"\\"" = 1\n{} = 1',
    ],
)
def test_no_text_of_toml_hides_an_endless_key(text: str):
    """The library takes a time for it that grows with the square of its length."""
    assert _has_endless_key(text.format(".".join("b" * 70)))
    assert not _has_endless_key(text.format(".".join("b" * 60)))
    tomllib.loads(text.format("b.b"))


@pytest.mark.parametrize("end", ["", "\\"])
@pytest.mark.parametrize("text", ['\\"""\n' * 9, '"' + '\\"' * 9, '"""a\\"""', "'''a\n''"])
def test_a_text_of_toml_that_is_never_closed_is_looked_at_once(text: str, end: str):
    """Not once for each of its quotes."""
    assert len(_STRING_OR_COMMENT.findall(text + end)) == 1


def test_dots_in_texts_of_toml_are_no_keys():
    text = TOML + f"\n# {'.' * 100}\n[model.parameters]\nstop = ['{'a.' * 100}', \"{'.' * 99}\"]\n"
    definition = parse_definition(text, "toml")
    assert definition.model.parameters["stop"] == ("a." * 100, "." * 99)


def test_a_huge_file_is_refused_without_reading_it_all(tmp_path: Path):
    path = tmp_path / "agent.yaml"
    with path.open("wb") as file:
        file.truncate(2**40)  # a hole: a terabyte that takes no room
    with pytest.raises(DefinitionError, match="is larger than 1 MiB"):
        load_definition(path)
    with pytest.raises(DefinitionError, match="is larger than 1 MiB"):
        parse_definition("#" * (2**20 + 1))
    assert parse_definition(YAML + "#" * (2**20 - len(YAML))) == DEFINITION


@pytest.mark.parametrize("number", ["9" * 5000, "0x" + "f" * 900, str(2**63), "-" + str(2**64)])
@pytest.mark.parametrize("written", ["yaml", "json", "toml"])
def test_a_number_that_no_computer_word_holds_is_refused(number: str, written):
    model = '"provider": "p", "model": "m", "parameters"'
    text = {
        "yaml": with_model(seed=number),
        "json": f'{{"name": "a", "model": {{{model}: {{"seed": {number}}}}}}}',
        "toml": f'name = "a"\n[model]\nprovider = "p"\nmodel = "m"\nparameters.seed = {number}\n',
    }[written]
    assert len(problems(text, written)) == 1


@pytest.mark.parametrize("number", ["9" * 5000, "-" + "9" * 5000, "0x" + "f" * 5000])
def test_a_number_of_thousands_of_digits_is_told_as_one(number: str):
    told = "has a whole number of thousands of digits; the largest have 64 bits"
    assert problems(YAML.replace("maxIterations: 5", f"maxIterations: {number}")) == [
        (10, "harness.loop.maxIterations", told)
    ]
    texts = {"json": JSON.replace(": 5", f": {number}"), "toml": TOML.replace("= 5", f"= {number}")}
    for written, text in texts.items():
        if number.isdecimal():
            assert problems(text, written) == [(None, "", told)]
    quoted = parse_definition(YAML + f"instructions: '{number}'\n")
    assert parse_definition(dump_definition(quoted)) == quoted


@pytest.mark.parametrize("tag", ["!!python/object/apply:os.system", "!!int", "!", "!mine"])
def test_a_tag_on_a_key_is_refused(tag: str):
    ((line, path, message),) = problems(YAML.replace("maxIterations", f"{tag} maxIterations"))
    assert (line, path) == (10, "harness.loop.maxIterations")
    assert message.startswith("the tag '")
    assert message.endswith("is not allowed; leave it out")


def test_a_file_that_is_no_utf_8_says_so_with_the_line(tmp_path: Path):
    path = tmp_path / "agent.yaml"
    path.write_bytes(b"name: a\nmodel: \xff\xfe\n")
    with pytest.raises(DefinitionError, match=r"agent.yaml:2: is no UTF-8 text; save it as UTF-8"):
        load_definition(path)


def test_half_a_character_is_refused():
    found = problems('{"name": "\\ud800", "model": {"provider": "p", "model": "m"}}', "json")
    assert found == [(1, "name", "has half a character (a lone surrogate); write it whole")]
    with pytest.raises(DefinitionError, match="lone surrogate"):
        parse_definition("name: \ud800")


# ── Files ────────────────────────────────────────────────────────────────────────────────────────


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path):
    with pytest.raises(DefinitionError, match=r"no.yaml: cannot be read: No such file"):
        load_definition(tmp_path / "no.yaml")
    (tmp_path / "folder.yaml").mkdir()
    with pytest.raises(DefinitionError, match="cannot be read: Is a directory"):
        load_definition(tmp_path / "folder.yaml")
    with pytest.raises(DefinitionError, match="cannot be read: embedded null byte"):
        load_definition("a\0b.yaml")


@pytest.mark.parametrize("name", ["agent", "agent.txt", "agent.py", ".yaml"])
def test_a_file_of_another_kind_is_refused(name: str, tmp_path: Path):
    path = tmp_path / name
    path.write_text(YAML, "utf-8")
    with pytest.raises(DefinitionError, match=r"a definition ends in \.yaml, \.yml"):
        load_definition(path)


def test_without_the_package_for_yaml_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(ConfigError, match=r"pip install 'untildone\[definitions\]'"):
        parse_definition(YAML)
    assert parse_definition(JSON, "json") == DEFINITION
    assert parse_definition(TOML, "toml") == DEFINITION


def test_without_libyaml_the_slower_parser_reads_the_same(monkeypatch: pytest.MonkeyPatch):
    import yaml

    monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    assert parse_definition(YAML) == DEFINITION
    assert problems("a: " + "[" * 100_000)[0][2] == "is nested more than 64 levels deep"
    assert len(problems(BILLION_LAUGHS)) > 20
