"""Progress on a real terminal: a line that moves, and lines that stay."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.kit import agent_file

pty = pytest.importorskip("pty", reason="this system has no pseudo-terminals")

BODY = """
script = [reply("looking [bold]about[/bold]", call("look", where="attic")), "Not yet.", "DONE"]
agent = Agent("ada", ScriptedModel(script, latency_s=0.3), tools=[look])
"""


def on_a_terminal(directory: Path, columns: int, *args: str) -> tuple[int, str]:
    """Runs the command with a terminal for all three streams; gives status and what it showed."""
    ours, theirs = pty.openpty()
    running = subprocess.Popen(
        [sys.executable, "-m", "untildone", *args],
        cwd=directory,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "COLUMNS": str(columns), "LINES": "20", "TERM": "xterm-256color"},
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            piece = os.read(ours, 65_536)
        except OSError:  # Linux says so when the last writer has gone
            break
        if not piece:
            break
        shown += piece
    os.close(ours)
    return running.wait(30), shown.decode()


@pytest.mark.parametrize("columns", [30, 80, 200])
def test_a_run_shows_a_moving_line_and_leaves_the_lasting_ones(tmp_path: Path, columns: int):
    agent = agent_file(tmp_path, BODY)
    args = ["run", "x", "--agent", agent, "--until", "marker:DONE"]
    status, shown = on_a_terminal(tmp_path, columns, *args)
    assert status == 0
    assert "iteration 2 of 5" in shown
    assert "\x1b[2K" in shown  # the moving line is wiped
    assert "\x1b[?25h" in shown  # and the cursor is back
    lasting = shown.rpartition("\x1b[?25h")[2]
    assert "DONE\r\n" in lasting
    assert "converged: every check accepted the answer" in lasting
    assert "[bold]" not in shown or columns > 60  # markup of others is text, where it has room


def test_a_dumb_terminal_gets_plain_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NO_COLOR", "1")
    args = ["run", "x", "--agent", agent_file(tmp_path, BODY), "--until", "marker:DONE"]
    _status, shown = on_a_terminal(tmp_path, 80, *args)
    assert "\x1b[3" not in shown  # no colours


def test_without_a_task_a_person_is_told_to_give_one(tmp_path: Path):
    status, shown = on_a_terminal(tmp_path, 80, "run", "--agent", agent_file(tmp_path, BODY))
    assert status == 2
    assert "error: no TASK; write it in quotes, or pipe it in" in shown


def test_an_answer_cannot_steer_the_terminal(tmp_path: Path):
    body = r"agent = Agent('a', ScriptedModel(['fine \x1b[2J\x1b]0;owned\x07']))"
    _status, shown = on_a_terminal(tmp_path, 80, "run", "x", "--agent", agent_file(tmp_path, body))
    assert "\x1b[2J" not in shown
    assert "\x1b]0;" not in shown
    assert "fine [2J]0;owned" in shown
