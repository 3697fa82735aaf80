"""``examples/fix_until_green``: the command of its README, in a process of its own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "fix_until_green"
ORDERS = EXAMPLE / "broken" / "stock" / "orders.py"


def run(directory: Path, agent: str, *options: str) -> "subprocess.CompletedProcess[str]":
    """The command of the README, in a copy of the broken package."""
    shutil.copytree(EXAMPLE / "broken", directory / "stock")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    command = [sys.executable, "-m", "untildone", "run", "Make the tests pass."]
    command += ["--agent", f"{EXAMPLE}/agents.py:{agent}", "--workspace", "stock"]
    command += ["--until", "command:python -m pytest -q", *options]
    return subprocess.run(
        command,
        cwd=directory,
        env={**os.environ, "PATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        timeout=100,
    )


def test_a_model_that_can_repair_it_ends_converged(tmp_path: Path):
    done = run(tmp_path, "fixer")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "The total counts all pieces, and the discount begins at 100.\n"
    assert "1 failed, 2 passed" in done.stderr
    assert "✓ converged: every check accepted the answer · 2 iterations" in done.stderr
    repaired = (tmp_path / "stock" / "stock" / "orders.py").read_text("utf-8")
    assert repaired != ORDERS.read_text("utf-8")
    tests = tmp_path / "stock" / "tests" / "test_orders.py"
    assert tests.read_bytes() == (EXAMPLE / "broken" / "tests" / "test_orders.py").read_bytes()


def test_a_model_that_cannot_ends_at_the_ceiling_and_names_the_best(tmp_path: Path):
    done = run(tmp_path, "hopeless", "--max-iterations", "3")
    assert done.returncode == 3
    assert done.stdout == "Try 3: it must work now.\n"
    assert "2 failed, 1 passed" in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("✗ max_iterations: the last allowed iteration was used · 3 iterations")
    assert "answer: iteration 3" in last
