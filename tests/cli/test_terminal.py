"""Progress on a real terminal: a line that moves, and lines that stay."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.cli.kit import agent_file

pty = pytest.importorskip("pty", reason="this system has no pseudo-terminals")

BODY = """
script = [reply("looking [bold]about[/bold]", call("look", where="attic")), "Not yet.", "DONE"]
agent = Agent("ada", ScriptedModel(script, latency_s=0.3), tools=[look])
"""


def on_a_terminal(
    directory: Path, columns: int, *args: str, keys: Sequence[tuple[str, str]] = ()
) -> tuple[int, str]:
    """Runs the command with a terminal for all three streams; gives status and what it showed.

    ``keys`` are typed one after another, each once its text has been shown.
    """
    ours, theirs = pty.openpty()
    # The leader of a session who opens a terminal is its owner: its Ctrl-C is then a signal.
    opened = 'exec <"$0" >"$0" 2>&1 "$@"'
    command = [sys.executable, "-m", "untildone", *args]
    running = subprocess.Popen(
        ["/bin/sh", "-c", opened, os.ttyname(theirs), *command],
        cwd=directory,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, "COLUMNS": str(columns), "LINES": "20", "TERM": "xterm-256color"},
    )
    with running:
        try:
            shown = _watched(ours, theirs, keys)
            return running.wait(30), shown.decode()
        finally:
            running.kill()


def _watched(ours: int, theirs: int, keys: Sequence[tuple[str, str]]) -> bytes:
    """What is shown until the last writer has gone."""
    shown = b""
    waiting = list(keys)
    while True:
        if waiting and waiting[0][0].encode() in shown:
            os.write(ours, waiting.pop(0)[1].encode())
        try:
            piece = os.read(ours, 65_536)
        except OSError:  # Linux says so when the last writer has gone
            break
        if not piece:
            break
        if not shown:
            os.close(theirs)  # not before the command has opened it
        shown += piece
    os.close(ours)
    return shown


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


# ── Ctrl-C ───────────────────────────────────────────────────────────────────────────────────────

CTRL_C = "\x03"


def test_ctrl_c_while_a_command_runs_ends_both_and_shows_the_answer_so_far(tmp_path: Path):
    body = "agent = Agent('a', ScriptedModel(['draft']))"
    command = "echo $$ > pid.new; mv pid.new pid; sleep 300"
    args = ["run", "x", "--agent", agent_file(tmp_path, body), "--until", f"command:{command}"]
    status, shown = on_a_terminal(tmp_path, 80, *args, keys=[("checking", CTRL_C)])
    assert status == 130
    lasting = shown.rpartition("\x1b[?25h")[2]
    assert "draft\r\n" in lasting
    assert "■ cancelled: the run was cancelled" in lasting
    if (tmp_path / "pid").exists():  # it may have been stopped before its first line
        with pytest.raises(ProcessLookupError):
            os.kill(int((tmp_path / "pid").read_text()), 0)


BLOCKING_TOOL = """
import time

def wait() -> str:
    "Waits."
    time.sleep(300)
    return "late"

agent = Agent("a", ScriptedModel([reply("Half.", call("wait")), "end"]), tools=[wait])
"""


def test_ctrl_c_while_a_tool_blocks_shows_the_text_so_far(tmp_path: Path):
    args = ["run", "x", "--agent", agent_file(tmp_path, BLOCKING_TOOL)]
    status, shown = on_a_terminal(tmp_path, 80, *args, keys=[("→ wait()", CTRL_C)])
    assert status == 130
    assert "Half.\r\n" in shown.rpartition("\x1b[?25h")[2]


BLOCKING_CHECK = """
import sys
import time

def check(ctx):
    print("blocked", file=sys.stderr)
    while True:
        try:
            time.sleep(300)
        except Exception:
            pass

agent = Agent("a", ScriptedModel(["draft"]), loop_config=LoopConfig(criteria=[check]))
"""


def test_ctrl_c_twice_quits_where_nothing_can_be_stopped_and_gives_the_cursor_back(tmp_path: Path):
    args = ["run", "x", "--agent", agent_file(tmp_path, BLOCKING_CHECK)]
    keys = [("blocked", CTRL_C), ("again quits at once", CTRL_C)]
    status, shown = on_a_terminal(tmp_path, 80, *args, keys=keys)
    assert status == 130
    assert shown.count("\x1b[?25l") == 1
    assert shown.endswith("\x1b[?25h\r\n")
