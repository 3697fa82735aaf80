"""The command itself: how it starts, and what it says where something is missing."""

import subprocess
import sys

import pytest

import untildone as package
from tests.cli.kit import process, untildone

STANDARD_ONLY = """
import sys
from untildone.cli import main
loaded = {"click", "rich", "aiohttp", "pydantic", "untildone.run"} & set(sys.modules)
assert not loaded, loaded
"""

WITHOUT = """
import sys
sys.modules[{missing!r}] = None
from untildone.cli import main
main()
"""


def python(code: str, *args: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", code, *args], capture_output=True, text=True, check=False, timeout=60
    )


def test_the_version_is_the_packages():
    assert untildone("--version").stdout == f"untildone, version {package.__version__}\n"


def test_python_m_untildone_is_the_command():
    assert process("--version").stdout == f"untildone, version {package.__version__}\n"


def test_importing_the_entry_loads_neither_terminal_nor_network():
    assert python(STANDARD_ONLY).stderr == ""


def test_help_loads_neither_the_loops_nor_the_network():
    code = (
        "import sys; from untildone.cli.commands import cli\n"
        "try: cli.main(['run', '--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'aiohttp', 'pydantic', 'rich.console', 'untildone.run'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = python(code)
    assert done.stderr == ""
    assert "Exit status:" in done.stdout


@pytest.mark.parametrize("missing", ["click", "rich"])
def test_without_the_extra_one_line_says_what_to_install(missing: str):
    done = python(WITHOUT.format(missing=missing), "run", "x")
    assert done.returncode == 1
    assert done.stderr == (
        f"untildone: the command line needs {missing}; pip install 'untildone[cli]'\n"
    )


def test_a_fault_of_ours_is_not_taken_for_a_missing_extra():
    done = python(WITHOUT.format(missing="untildone.cli.exit_status"), "run", "x")
    assert "ModuleNotFoundError" in done.stderr
    assert "pip install" not in done.stderr


def test_a_fault_of_ours_is_told_in_one_line_too(monkeypatch: pytest.MonkeyPatch):
    def broken(**_: object) -> None:
        raise KeyError("oops")

    monkeypatch.setattr("untildone.cli.doctor.examine", broken)
    result = untildone("doctor")
    assert result.exit_code == 1
    assert result.stderr == "error: KeyError: 'oops' (set UNTILDONE_DEBUG=1 to see where)\n"


def test_alone_it_shows_what_there_is():
    result = untildone()
    assert result.exit_code == 2
    assert "run" in result.stderr


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["bogus"], "error: No such command 'bogus'."),
        (["run", "--foo"], "error: No such option '--foo'. Did you mean '--tools'?"),
        (["run", "x", "--max-turns", "0"], "error: Invalid value for '--max-turns': 0 is not"),
        (["run", "x", "--max-iterations", "-1"], "error: Invalid value for '--max-iterations'"),
        (["run", "x", "--json", "--quiet"], "error: --json and --quiet exclude each other"),
    ],
)
def test_a_wrong_command_is_answered_in_two_lines(args: list[str], said: str):
    result = untildone(*args)
    assert result.exit_code == 2
    assert result.stderr.startswith(said)
    assert result.stderr.count("\n") == 2
    assert "--help" in result.stderr
    assert result.stdout == ""
