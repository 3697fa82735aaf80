"""``untildone check``, ``schema``, and ``run`` with a definition."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.cli.kit import Provider, provider, refusal, said, without_provider_settings
from tests.definitions.test_reading import JSON, TOML, YAML
from untildone.cli.commands import cli

TOOLS = """
from untildone import tool


@tool
def search(query: str) -> str:
    "Searches."
    return f"results for {query}"
"""


def untildone(*args: Any, stdin: str = "", env: dict[str, str | None] | None = None) -> Result:
    runner = CliRunner(env={"UNTILDONE_MODEL": None, **(env or {})})
    arguments = [str(each) for each in args]
    result = runner.invoke(cli, arguments, input=stdin, prog_name="untildone")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def reaching(server: Provider) -> dict[str, str | None]:
    return without_provider_settings(OPENAI_BASE_URL=server.url, OPENAI_API_KEY="sk-test")


def written(folder: Path, text: str, name: str = "agent.yaml") -> Path:
    path = folder / name
    path.write_text(text, "utf-8")
    return path


def completion(text: str) -> tuple[int, bytes]:
    return said(text)


VERDICT = '{{"reasoning": "{}", "answered": {}}}'


# ── check ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "text"), [("a.yaml", YAML), ("a.yml", YAML), ("a.json", JSON), ("a.toml", TOML)]
)
def test_check_accepts_what_can_be_built(name: str, text: str, tmp_path: Path):
    path = written(tmp_path, text, name)
    result = untildone("check", path)
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == f"{path}: no problems\n"


def test_check_tells_all_problems_of_yaml_with_line_and_column(tmp_path: Path):
    text = YAML.replace("openai", "opanai").replace("maxIterations: 5", "maxIterations: 0")
    path = written(tmp_path, text + "tools: [search]\nextra: 1\n")
    result = untildone("check", path)
    assert result.exit_code == 2
    lines = result.stdout.splitlines()
    assert lines[0].startswith(f"{path}:3:3: model.provider: unknown provider 'opanai'")
    assert lines[1] == f"{path}:10:5: harness.loop.maxIterations: is 0; must be 1 or more"
    assert lines[2].startswith(f"{path}:11:9: tools[0]: nobody registered a tool 'search'")
    assert lines[3].startswith(f"{path}:12:1: extra: unknown key")
    assert len(lines) == 4
    assert result.stderr == "4 problems\n"


def test_check_tells_problems_of_json_with_lines_and_of_toml_with_paths(tmp_path: Path):
    path = written(tmp_path, JSON.replace('"ALL DONE"', "5"), "a.json")
    result = untildone("check", path)
    assert result.exit_code == 2
    assert result.stdout.startswith(f"{path}:6:49: harness.loop.criteria[0].marker: is 5; must be")
    assert result.stderr == "1 problem\n"
    path = written(tmp_path, TOML.replace('"ALL DONE"', "5"), "a.toml")
    result = untildone("check", path)
    assert result.stdout.startswith(f"{path}: harness.loop.criteria[0].marker: is 5; must be")


def test_check_knows_the_tools_of_a_file(tmp_path: Path):
    path = written(tmp_path, YAML + "tools: [search, todo, start_search]\n")
    assert untildone("check", path).exit_code == 2
    tools = written(tmp_path, TOOLS, "tools.py")
    result = untildone("check", path, "--tools", tools)
    assert (result.exit_code, result.stdout) == (0, "")


def test_check_knows_the_tools_of_the_workspace(tmp_path: Path):
    path = written(tmp_path, YAML + "tools: [read_file]\n")
    assert untildone("check", path).exit_code == 2
    assert untildone("check", path, "--workspace", tmp_path).exit_code == 0


def test_check_takes_commands_only_from_a_trusted_file(tmp_path: Path):
    text = YAML.replace("completionMarker", "command").replace(
        "marker: ALL DONE", "command: 'true'"
    )
    path = written(tmp_path, text)
    result = untildone("check", path)
    assert result.exit_code == 2
    assert "criteria[0].kind: commands are not allowed" in result.stdout
    assert result.stderr == "1 problem\n"
    assert untildone("check", path, "--trust").exit_code == 0


def test_trust_takes_every_provider_and_parameter(tmp_path: Path):
    text = YAML.replace("openai", "litellm").replace(
        "  model: gpt-5", "  model: gpt-5\n  parameters: {web_search_options: {}}"
    )
    path = written(tmp_path, text)
    result = untildone("check", path)
    assert len(result.stdout.splitlines()) == 2
    assert untildone("check", path, "--trust").exit_code == 0


@pytest.mark.parametrize(
    ("text", "name", "shown"),
    [
        ("name: [", "agent.yaml", ":2:1: this is no YAML: "),
        ("", "agent.yaml", ": is empty; begin with 'name:'"),
        ("name: a", "agent.txt", ": its name ends in '.txt'; a definition ends in .yaml"),
    ],
)
def test_check_says_why_a_file_is_no_definition(text: str, name: str, shown: str, tmp_path: Path):
    path = written(tmp_path, text, name)
    result = untildone("check", path)
    assert result.exit_code == 2
    assert result.stdout.startswith(f"{path}{shown}")


def test_check_says_when_there_is_no_such_file(tmp_path: Path):
    result = untildone("check", tmp_path / "no.yaml")
    assert result.exit_code == 2
    assert "no.yaml: cannot be read: No such file or directory" in result.stdout


def test_check_offers_modes_where_a_criterion_asks_for_them(tmp_path: Path):
    def definition(mode: str) -> str:
        return YAML.replace("completionMarker", "todoCompletion").replace(
            "marker: ALL DONE", f"modes: [{mode}]"
        )

    assert untildone("check", written(tmp_path, definition("execute"))).exit_code == 0
    result = untildone("check", written(tmp_path, definition("rest")))
    assert "has 'rest', which is no mode of the todo list; it has plan, execute" in result.stdout


EVERY_REFUSAL = """\
name: a
model:
  provider: litellm
  model: m
  parameters: {base_url: "http://x"}
tools: [search]
mcpServers: [files]
harness:
  loop:
    criteria:
      - {kind: command, command: "true"}
      - {kind: backgroundTaskCompletion}
      - {kind: mine}
"""


def test_what_helps_is_said_in_the_words_of_the_command_line(tmp_path: Path):
    path = written(tmp_path, EVERY_REFUSAL)
    result = untildone("check", path)
    told = dict(line.split(": ", 2)[1:] for line in result.stdout.splitlines())
    trust = "add --trust, which treats FILE like a program"
    criteria = "harness.loop.criteria"
    assert told["model.provider"].endswith(f"If you trust the definition: {trust}")
    assert told["model.parameters.base_url"].endswith(f"If you trust it: {trust}")
    assert told["tools[0]"].endswith(
        "Tools come with --tools FILE.py and, for files, with --workspace DIR"
    )
    assert told["mcpServers[0]"].endswith("in Python, where it can have one: --agent FILE.py:NAME")
    assert told[f"{criteria}[0].kind"].endswith(f"If you trust the definition: {trust}")
    assert told[f"{criteria}[1].kind"] == (
        "backgroundTaskCompletion needs background tasks: --tools FILE.py and --workspace DIR give"
        " what can be started"
    )
    assert told[f"{criteria}[2].kind"].endswith(
        "install a package that has it as an entry point of 'untildone.criteria'"
    )
    assert len(told) == 7
    assert "build_agent" not in result.output
    assert "registry" not in result.output
    ran = untildone("run", path, "go")
    assert ran.stderr.splitlines()[1:] == [f"  {line}" for line in result.stdout.splitlines()]


def test_what_helps_does_help(tmp_path: Path):
    """Each advice followed, nothing is left but what only Python can have."""
    path = written(tmp_path, EVERY_REFUSAL)
    tools = written(tmp_path, TOOLS, "tools.py")
    result = untildone("check", path, "--trust", "--tools", tools)
    assert [line.split(": ")[1] for line in result.stdout.splitlines()] == [
        "mcpServers[0]",
        "harness.loop.criteria[2].kind",
    ]


@pytest.mark.parametrize(
    ("fine", "options"),
    [
        ("{kind: todoCompletion, modes: [execute]}", []),
        ("{kind: completionMarker, marker: x}", ["--trust"]),
    ],
    ids=["modes", "parameters"],
)
def test_a_problem_makes_no_other_part_a_problem(fine: str, options: list[str], tmp_path: Path):
    path = written(
        tmp_path,
        "name: ''\nmodel: {provider: openai, model: m, parameters: {web_search_options: {}}}\n"
        if options
        else "name: ''\nmodel: {provider: openai, model: m}\n",
    )
    with path.open("a", encoding="utf-8") as file:
        file.write(f"harness: {{loop: {{criteria: [{fine}]}}}}\n")
    result = untildone("check", path, *options)
    assert result.stdout == f"{path}:1:1: name: is blank; write something\n"


# ── schema ───────────────────────────────────────────────────────────────────────────────────────


def test_schema_prints_a_json_schema():
    result = untildone("schema")
    assert result.exit_code == 0
    schema = json.loads(result.stdout)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["properties"]["harness"]["description"].startswith("The loop around it")


# ── run ──────────────────────────────────────────────────────────────────────────────────────────


def test_run_takes_a_definition_before_the_task(tmp_path: Path):
    path = written(tmp_path, YAML)
    with provider(completion("notes"), completion("the report. ALL DONE")) as server:
        result = untildone("run", path, "Write the report.", env=reaching(server))
    assert (result.exit_code, result.stdout) == (0, "the report. ALL DONE\n")
    assert server.requests[0]["model"] == "gpt-5"
    assert server.requests[0]["messages"] == [{"role": "user", "content": "Write the report."}]
    assert "converged" in result.stderr


@pytest.mark.parametrize("name", ["agent.json", "agent.toml", "AGENT.YML"])
def test_run_takes_every_format(name: str, tmp_path: Path):
    text = {"json": JSON, "toml": TOML, "yml": YAML}[name.rpartition(".")[2].lower()]
    with provider(completion("ALL DONE")) as server:
        result = untildone("run", written(tmp_path, text, name), "go", env=reaching(server))
    assert (result.exit_code, result.stdout) == (0, "ALL DONE\n")


def test_run_reads_the_task_from_stdin(tmp_path: Path):
    path = written(tmp_path, YAML)
    for arguments in ([path], [path, "-"]):
        with provider(completion("ALL DONE")) as server:
            result = untildone("run", *arguments, stdin="from stdin\n", env=reaching(server))
        assert result.exit_code == 0
        assert server.requests[0]["messages"][0]["content"] == "from stdin\n"


def test_run_evaluates_the_last_iteration_so_that_the_status_tells(tmp_path: Path):
    path = written(tmp_path, YAML)
    replies = [completion("one"), completion("two, ALL DONE")]
    with provider(*replies) as server:
        result = untildone("run", path, "go", "--max-iterations", "2", env=reaching(server))
    assert result.exit_code == 0
    with provider(completion("never")) as server:
        result = untildone("run", path, "go", "--max-iterations", "2", env=reaching(server))
    assert (result.exit_code, len(server.requests)) == (3, 2)


def test_run_gives_the_tools_that_the_definition_names(tmp_path: Path):
    tools = written(tmp_path, TOOLS, "tools.py")
    for named, expected in (("[search]", ["search"]), ("[]", [])):
        path = written(tmp_path, YAML + f"tools: {named}\n")
        with provider(completion("ALL DONE")) as server:
            result = untildone("run", path, "go", "--tools", tools, env=reaching(server))
        assert result.exit_code == 0
        sent = server.requests[0].get("tools", [])
        assert [each["function"]["name"] for each in sent] == expected


def test_run_offers_the_workspace(tmp_path: Path):
    path = written(tmp_path, YAML + "tools: [read_file]\n")
    with provider(completion("ALL DONE")) as server:
        result = untildone("run", path, "go", "--workspace", tmp_path, env=reaching(server))
    assert result.exit_code == 0, result.stderr
    assert [each["function"]["name"] for each in server.requests[0]["tools"]] == ["read_file"]


def test_run_judges_with_the_judge_model(tmp_path: Path):
    text = YAML.replace("completionMarker", "aiJudge").replace(
        "marker: ALL DONE", "judgeCriteria: [It is good]"
    )
    yes = VERDICT.format("fine", "true")
    with provider(completion("draft"), completion(yes)) as server:
        result = untildone(
            "run",
            written(tmp_path, text),
            "go",
            "--judge-model",
            "openai/gpt-5-mini",
            env=reaching(server),
        )
    assert result.exit_code == 0
    assert [request["model"] for request in server.requests] == ["gpt-5", "gpt-5-mini"]


def test_run_lets_the_command_line_change_model_and_bounds(tmp_path: Path):
    path = written(tmp_path, YAML)
    with provider(completion("never")) as server:
        result = untildone(
            *("run", path, "go", "--model", "openai/other", "--max-iterations", "1"),
            *("--max-turns", "1", "--quiet"),
            env=reaching(server),
        )
    assert (result.exit_code, result.stdout) == (3, "never\n")
    assert [request["model"] for request in server.requests] == ["other"]


def test_the_default_model_of_the_environment_does_not_change_a_definition(tmp_path: Path):
    path = written(tmp_path, YAML)
    with provider(completion("ALL DONE")) as server:
        env = reaching(server) | {"UNTILDONE_MODEL": "openai/other"}
        assert untildone("run", path, "go", env=env).exit_code == 0
    assert [request["model"] for request in server.requests] == ["gpt-5"]


def test_run_gives_json_lines(tmp_path: Path):
    with provider(completion("ALL DONE")) as server:
        path = written(tmp_path, YAML)
        result = untildone("run", "--json", path, "go", env=reaching(server))
    last = json.loads(result.stdout.splitlines()[-1])
    assert (last["event"], last["exit_reason"], last["exit_status"]) == ("done", "converged", 0)


def test_run_with_fail_run_has_the_status_of_unsatisfied(tmp_path: Path):
    path = written(tmp_path, YAML + "    onExhausted: failRun\n")
    with provider(completion("never")) as server:
        result = untildone("run", path, "go", env=reaching(server))
    assert (result.exit_code, result.stdout) == (7, "never\n")
    assert len(server.requests) == 5


def test_run_keeps_the_draft_when_the_judge_is_down(tmp_path: Path):
    text = YAML.replace("completionMarker", "aiJudge").replace(
        "marker: ALL DONE", "judgeCriteria: [It is good]"
    )
    with provider(completion("draft"), refusal(401, "no")) as server:
        result = untildone("run", written(tmp_path, text), "go", env=reaching(server))
    assert (result.exit_code, result.stdout) == (8, "draft\n")


def test_run_tells_all_problems_and_runs_nothing(tmp_path: Path):
    path = written(tmp_path, YAML.replace("openai", "opanai") + "tools: [search]\n")
    with provider(completion("x")) as server:
        result = untildone("run", path, "go", env=reaching(server))
    assert result.exit_code == 2
    first, *lines = result.stderr.splitlines()
    assert first == "error: 2 problems; nothing was run:"
    assert lines[0].startswith(f"  {path}:3:3: model.provider: unknown provider 'opanai'")
    assert lines[1].startswith(f"  {path}:11:9: tools[0]: nobody registered a tool 'search'")
    assert server.requests == []


def test_run_takes_commands_only_from_a_trusted_file(tmp_path: Path):
    text = YAML.replace("completionMarker", "command").replace(
        "marker: ALL DONE", "command: 'true'"
    )
    path = written(tmp_path, text)
    with provider(completion("x")) as server:
        assert untildone("run", path, "go", env=reaching(server)).exit_code == 2
        assert untildone("run", "--trust", path, "go", env=reaching(server)).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "said_so"),
    [
        (["--until", "marker:X"], "--until cannot be given with a definition"),
        (["--fresh"], "--fresh cannot be given with a definition"),
        (["--agent", "x.py:a"], "--agent cannot be given with a definition"),
        (["--json", "--quiet"], "--json and --quiet exclude each other"),
        (["more", "words"], "TASK is 3 words; put it in quotes"),
    ],
)
def test_run_refuses_what_has_no_effect_beside_a_definition(
    arguments: list[str], said_so: str, tmp_path: Path
):
    result = untildone("run", written(tmp_path, YAML), "go", *arguments)
    assert result.exit_code == 2
    assert said_so in result.stderr


def test_run_refuses_a_judge_model_that_nobody_would_ask(tmp_path: Path):
    own = YAML.replace("completionMarker", "aiJudge").replace(
        "marker: ALL DONE",
        "judgeCriteria: [It is good]\n        judgeModel: {provider: openai, model: judge}",
    )
    for text in (YAML, own, "name: a\nmodel: {provider: openai, model: m}\n"):
        path = written(tmp_path, text)
        result = untildone("run", path, "go", "--judge-model", "openai/gpt-5-mini")
        assert result.exit_code == 2
        assert "--judge-model has no effect: no criterion of" in result.stderr


def test_run_refuses_max_iterations_where_there_is_no_loop(tmp_path: Path):
    path = written(tmp_path, "name: a\nmodel: {provider: openai, model: m}\n")
    result = untildone("run", path, "go", "--max-iterations", "3")
    assert result.exit_code == 2
    assert "--max-iterations has no effect" in result.stderr


def test_commands_of_a_definition_run_in_the_workspace(tmp_path: Path):
    work = tmp_path / "work"
    work.mkdir()
    (work / "here.txt").write_text("yes")
    text = """
name: checker
model: {provider: openai, model: test}
harness:
  loop:
    criteria: [{kind: command, command: test -f here.txt}]
    maxIterations: 1
"""
    with provider(completion("done")) as server:
        file = written(tmp_path, text)
        options = ("--trust", "--workspace", work)
        result = untildone("run", file, "Look", *options, env=reaching(server))
    assert result.exit_code == 0, result.stderr


def test_run_says_which_key_is_missing(tmp_path: Path):
    env = without_provider_settings()
    result = untildone("run", written(tmp_path, YAML), "go", env=env)
    assert result.exit_code == 2
    assert "OPENAI_API_KEY" in result.stderr


def test_run_needs_a_task(tmp_path: Path):
    result = untildone("run", written(tmp_path, YAML), " ", env={"OPENAI_API_KEY": "sk-test"})
    assert result.exit_code == 2
    assert "TASK is empty" in result.stderr


def test_run_without_a_definition_is_what_it_was(tmp_path: Path):
    with provider(completion("hello")) as server:
        result = untildone("run", "say hello", "-m", "openai/gpt-5", env=reaching(server))
    assert (result.exit_code, result.stdout) == (0, "hello\n")
    for task in ("look at agent.yaml", "what is agent.yaml"):
        with provider(completion("hello")) as server:
            untildone("run", task, "-m", "openai/gpt-5", env=reaching(server))
        assert server.requests[0]["messages"][-1]["content"] == task
    result = untildone("run", "--trust", "say hello", "-m", "openai/gpt-5")
    assert result.exit_code == 2
    assert "--trust has no effect without a definition" in result.stderr
    result = untildone("run", "two", "words", "-m", "openai/gpt-5")
    assert "TASK is 2 words; put it in quotes" in result.stderr


def test_run_takes_a_definition_in_a_folder_with_a_space(tmp_path: Path):
    folder = tmp_path / "my agents"
    folder.mkdir()
    path = written(folder, YAML, "the agent.yaml")
    for arguments, stdin in (([path, "go"], ""), ([path], "go")):
        with provider(completion("ALL DONE")) as server:
            result = untildone("run", *arguments, stdin=stdin, env=reaching(server))
        assert (result.exit_code, result.stdout) == (0, "ALL DONE\n")
        assert server.requests[0]["messages"][0]["content"] == "go"
    result = untildone("run", folder / "no such.yaml", "go")
    assert result.exit_code == 2
    assert "cannot be read: No such file or directory" in result.stderr


def test_a_strangers_names_reach_the_terminal_without_control_characters(tmp_path: Path):
    text = YAML.replace("gpt-5", r'"m\e]0;title\a\e[2J\e[31mX"').replace(
        "ALL DONE", r'"ALL\e[2J DONE"'
    )
    with provider(completion("ALL\x1b[2J DONE")) as server:
        result = untildone("run", written(tmp_path, text), "go", env=reaching(server))
    assert result.exit_code == 0, result.stderr
    assert "openai/m" in result.stderr
    assert not set(result.stderr) & {"\x1b", "\x07"}
    bad = text.replace("maxIterations: 5", r'"max\eIterations": 5')
    for arguments in (["check"], ["run"]):
        told = untildone(*arguments, written(tmp_path, bad), *(["go"] * (arguments == ["run"])))
        assert told.exit_code == 2
        assert not set(told.output) & {"\x1b", "\x07"}


# ── Tools whose names are in the way ─────────────────────────────────────────────────────────────


def tool_file(folder: Path, *names: str) -> Path:
    """Tools with these names."""
    functions = "\n".join(
        f"@tool\ndef {name}() -> str:\n    'Does it.'\n    return 'x'\n" for name in names
    )
    return written(folder, f"from untildone import tool\n\n{functions}", f"{names[0]}.py")


@pytest.mark.parametrize(
    "names",
    [["x" * 59], ["x" * 64], ["todo_add"], ["todo"], ["x", "start_x"], ["background_wait"]],
)
def test_a_tool_that_is_fine_in_code_is_fine_on_the_command_line(names: list[str], tmp_path: Path):
    tools = tool_file(tmp_path, *names)
    path = written(tmp_path, YAML + f"tools: [{', '.join(names)}]\n")
    result = untildone("check", path, "--tools", tools)
    assert (result.exit_code, result.stdout) == (0, ""), result.output
    with provider(completion("ALL DONE")) as server:
        result = untildone("run", path, "go", "--tools", tools, env=reaching(server))
    assert result.exit_code == 0, result.stderr
    assert [each["function"]["name"] for each in server.requests[0]["tools"]] == names


def test_an_agent_as_a_tool_is_fine_too(tmp_path: Path):
    code = """
from untildone import Agent
TOOLS = [Agent("helper", "openai/gpt-5").as_tool()]
"""
    tools = written(tmp_path, code, "tools.py")
    path = written(tmp_path, YAML + "tools: [helper]\n")
    result = untildone("check", path, "--tools", tools)
    assert (result.exit_code, result.stdout) == (0, ""), result.output


def test_the_other_tools_can_still_be_started(tmp_path: Path):
    tools = tool_file(tmp_path, "x", "start_x", "y", "z" * 60)
    path = written(tmp_path, YAML + "tools: [background]\n")
    with provider(completion("ALL DONE")) as server:
        result = untildone("run", path, "go", "--tools", tools, env=reaching(server))
    assert result.exit_code == 0, result.stderr
    assert [each["function"]["name"] for each in server.requests[0]["tools"]] == [
        "start_start_x",
        "start_y",
        "background_list",
        "background_wait",
    ]


@pytest.mark.parametrize(
    ("name", "kind", "needs"),
    [
        ("todo_add", "todoCompletion", "a todo list"),
        ("background_list", "backgroundTaskCompletion", "background tasks"),
    ],
)
def test_a_criterion_whose_tools_are_in_the_way_says_what_is(
    name: str, kind: str, needs: str, tmp_path: Path
):
    text = YAML.replace("completionMarker", kind).replace("        marker: ALL DONE\n", "")
    path = written(tmp_path, text)
    result = untildone("check", path, "--tools", tool_file(tmp_path, name))
    assert result.exit_code == 2
    assert f"{kind} needs {needs}: another tool is named '{name}'; rename that one" in result.stdout


def test_help_names_both_ways():
    text = untildone("run", "--help").stdout
    assert "      TASK is read" not in text
    assert "untildone run agent.yaml TASK" in " ".join(text.split())
    assert "--trust" in text
    assert "Exit status:" in text
