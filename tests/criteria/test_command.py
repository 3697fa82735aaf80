"""``command``: exit status 0 is done, and nothing of it is left afterwards."""

import asyncio
import os
import sys
import time
from pathlib import Path

import pytest

from tests.criteria.kit import context
from untildone import Agent, ConfigError, ExitReason, GradingError, LoopConfig, run_agent
from untildone.criteria import Command, not_
from untildone.testing import ScriptedModel

ANY = context("answer")


async def feedback_of(command: Command) -> str:
    verdict = await command.evaluate(ANY)
    assert not verdict.satisfied
    return verdict.feedback or ""


def is_alive(pid: int) -> bool:
    """Whether a process is there and is no zombie that waits to be collected by another one."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def written(path: Path) -> str:
    return path.read_text("utf-8").strip() if path.exists() else ""


async def until_file(path: Path) -> int:
    """The number that a command has written into a file."""
    for _ in range(1000):
        if text := written(path):
            return int(text)
        await asyncio.sleep(0.01)
    raise AssertionError(path)


async def until_gone(pid: int) -> None:
    for _ in range(500):
        if not is_alive(pid):
            return
        await asyncio.sleep(0.01)
    raise AssertionError(pid)


async def test_status_0_is_done():
    assert (await Command("exit 0").evaluate(ANY)).satisfied
    assert (await Command([sys.executable, "-c", "pass"]).evaluate(ANY)).satisfied


async def test_any_other_status_asks_for_more_with_the_end_of_the_output():
    said = await feedback_of(Command("echo out; echo err >&2; exit 3"))
    assert said == (
        "The check `echo out; echo err >&2; exit 3` failed with exit status 3."
        " The end of its output:\nout\nerr"
    )
    assert await feedback_of(Command("exit 1")) == (
        "The check `exit 1` failed with exit status 1. It printed nothing."
    )


async def test_a_signal_is_named():
    assert "was ended by signal SIGTERM." in await feedback_of(Command("kill -TERM $$"))


async def test_only_the_end_of_a_long_output_is_kept():
    program = "import sys\nfor n in range(300_000): print(n)\nprint('the end'); sys.exit(1)"
    command = Command([sys.executable, "-c", program], max_feedback_chars=100)
    said = (await feedback_of(command)).partition("output:\n")[2]
    assert said.startswith("…")
    assert said.endswith("299999\nthe end")
    assert len(said) == 101


async def test_it_runs_where_it_is_told(tmp_path: Path):
    (tmp_path / "here").touch()
    assert (await Command("test -e here", cwd=tmp_path).evaluate(ANY)).satisfied
    assert (await Command("test -e here", cwd=str(tmp_path)).evaluate(ANY)).satisfied
    assert not (await Command("test -e here").evaluate(ANY)).satisfied


async def test_its_input_is_empty():
    assert (await Command('test -z "$(cat)"', timeout_s=10).evaluate(ANY)).satisfied


async def test_its_environment_can_be_given():
    command = Command('test "$A-$HOME" = "1-"', env={"A": "1", "PATH": os.environ["PATH"]})
    assert (await command.evaluate(ANY)).satisfied


async def test_terminal_codes_and_odd_bytes_do_not_reach_the_model():
    said = await feedback_of(
        Command(r"printf '\033[31mred\033[0m\033]0;t\007 caf\351\000x'; exit 1")
    )
    assert said.endswith("\nred caf\ufffdx")


async def test_secrets_of_the_environment_do_not_reach_the_model(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ACME_API_KEY", "sk-0123456789")
    monkeypatch.setenv("DB_PASSWORD", "hunter2-hunter2")
    monkeypatch.setenv("ACME_KEYBOARD", "qwertz-layout")
    said = await feedback_of(Command("env; exit 1"))
    assert "ACME_API_KEY=[ACME_API_KEY]" in said
    assert "DB_PASSWORD=[DB_PASSWORD]" in said
    assert "ACME_KEYBOARD=qwertz-layout" in said
    assert "0123456789" not in said


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DATABASE_URL", "postgres://ada:pw123456@db.example/shop"),
        ("GH_PAT", "ghp_1234567890"),
        ("DB_PASS", "pa55word99"),
        ("MYSQL_PWD", "pa66word99"),
        ("SSH_PASSPHRASE", "hunter2hunter2"),
        ("SENTRY_DSN", "https://abcdef@sentry.example/1"),
        ("OPENAI_KEYS", "k1234567890"),
        ("AWS_ACCESS_KEY_ID", "AKIA1234567890"),
        ("PGPASSWORD_1", "pa77word99"),
    ],
)
async def test_what_looks_like_a_secret_is_masked(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
):
    monkeypatch.setenv(name, value)
    said = await feedback_of(Command("env; exit 1"))
    assert f"{name}=[{name}]" in said
    assert value not in said


async def test_the_password_of_a_url_is_masked_alone_and_decoded_too(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("SHOP", "redis://ada:pa%40ssword@db.example:6379/0")
    said = await feedback_of(Command("echo 'no entry with pa%40ssword or pa@ssword'; exit 1"))
    assert said.endswith("\nno entry with [SHOP] or [SHOP]")


async def test_of_two_secrets_of_which_one_holds_the_other_nothing_is_left(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("A_TOKEN", "abcdefgh")
    monkeypatch.setenv("B_TOKEN", "abcdefghijkl")
    assert (await feedback_of(Command("echo abcdefghijkl; exit 1"))).endswith("\n[B_TOKEN]")


@pytest.mark.parametrize(
    "name", ["PATH_OF_IT", "PWD", "OLDPWD", "SSH_ASKPASS", "COMPASS_HOME", "LC_PATTERN", "BASE_URL"]
)
async def test_what_only_sounds_like_a_secret_is_shown(name: str):
    env = {"PATH": os.environ["PATH"], name: "https://example.com/12345678"}
    line = "https://example.com/12345678"
    said = await feedback_of(Command(f"echo {line}; exit 1", env=env))
    assert said.endswith(f"\n{line}")


@pytest.mark.parametrize(
    ("command", "undecided"),
    [
        ("exit 1", False),
        ("exit 125", False),
        ("no-such-program", True),
        ("/", True),
        ("kill -KILL $$", True),
        ("sleep 60", True),
    ],
)
async def test_a_command_that_did_not_get_to_say_anything_leaves_it_undecided(
    command: str, undecided: bool
):
    check = Command(command, timeout_s=0.3 if command.startswith("sleep") else 60)
    verdict = await check.evaluate(ANY)
    assert (verdict.satisfied, verdict.undecided) == (False, undecided)
    assert (await not_(check).evaluate(ANY)).satisfied is not undecided


async def test_a_command_that_takes_too_long_is_killed_with_all_it_has_started(tmp_path: Path):
    script = "sleep 300 & echo $! > inner; echo begun; wait"
    command = Command(script, cwd=tmp_path, timeout_s=0.3)
    said = await feedback_of(command)
    assert "was stopped: it took longer than 0.3 s. The end of its output:\nbegun" in said
    await until_gone(await until_file(tmp_path / "inner"))


async def test_a_command_that_ignores_being_asked_to_end_is_killed_too(tmp_path: Path):
    command = Command(
        "trap '' TERM INT HUP; echo $$ > pid; while :; do sleep 1; done", cwd=tmp_path
    )
    task = asyncio.create_task(command.evaluate(ANY))
    pid = await until_file(tmp_path / "pid")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until_gone(pid)


async def test_what_is_left_in_the_background_does_not_hold_a_finished_check(tmp_path: Path):
    began = time.monotonic()
    command = Command("sleep 300 & echo $! > inner; echo done", cwd=tmp_path)
    assert (await command.evaluate(ANY)).satisfied
    assert time.monotonic() - began < 30
    await until_gone(int((tmp_path / "inner").read_text()))


async def test_cancelling_the_run_kills_the_command(tmp_path: Path):
    command = Command("sleep 300 & echo $! > inner; wait", cwd=tmp_path)
    loop = LoopConfig(criteria=[command])
    agent = Agent("ada", ScriptedModel(["draft"]), loop_config=loop)
    run = asyncio.create_task(run_agent(agent, [{"role": "user", "content": "x"}]))
    pid = await until_file(tmp_path / "inner")
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    await until_gone(pid)


@pytest.mark.parametrize("steps", range(8))
async def test_cancelling_while_the_command_is_being_started_kills_all_of_it(
    tmp_path: Path, steps: int
):
    inner = tmp_path / "inner"
    command = Command("sleep 300 & echo $! > new; mv new inner; wait", cwd=tmp_path)
    check = asyncio.create_task(command.evaluate(ANY))
    for _ in range(steps):
        await asyncio.sleep(0)
    for _ in range(50):  # not one step of the event loop more, while the command goes on
        if inner.exists():
            break
        time.sleep(0.01)  # noqa: ASYNC251  it must not go on
    check.cancel()
    done, _ = await asyncio.wait([check], timeout=20)
    assert done == {check}
    assert check.cancelled()
    if inner.exists():
        await until_gone(int(inner.read_text()))


async def test_a_program_or_directory_that_is_not_there_is_a_failed_check(tmp_path: Path):
    with pytest.raises(GradingError, match=r"'no-such-program -x' could not be started: .* check"):
        await Command(["no-such-program", "-x"]).evaluate(ANY)
    with pytest.raises(GradingError, match=r"could not be started in .*missing"):
        await Command("true", cwd=tmp_path / "missing").evaluate(ANY)


async def test_a_command_the_shell_does_not_know_is_told_to_the_agent():
    assert "failed with exit status 127" in await feedback_of(Command("no-such-program -x"))


async def test_in_a_loop_the_agent_gets_the_output_and_the_run_converges(tmp_path: Path):
    def work(seen):
        (tmp_path / "count").write_text(str(seen.index))
        return f"try {seen.index}: {seen.messages[-1]['content']}"

    command = Command('c=$(cat count); echo "count is $c"; test $c = 2', cwd=tmp_path)
    agent = Agent("ada", ScriptedModel(work), loop_config=LoopConfig(criteria=[command]))
    result = await run_agent(agent, [{"role": "user", "content": "x"}])
    assert (result.exit_reason, result.loop_iterations) == (ExitReason.CONVERGED, 3)
    assert "count is 1" in result.text


async def test_one_command_serves_many_runs_at_once():
    command = Command("sleep 0.1; exit 0")
    verdicts = await asyncio.gather(*(command.evaluate(ANY) for _ in range(20)))
    assert all(verdict.satisfied for verdict in verdicts)


@pytest.mark.parametrize("command", ["", "  ", [], [""], ["ls", 3], None, 3, "a\0b", ["ls", "\0"]])
def test_what_is_no_command_is_refused(command):
    with pytest.raises(ConfigError, match=r"Command\.command is"):
        Command(command)


@pytest.mark.parametrize(
    "bounds", [{"timeout_s": 0}, {"timeout_s": float("nan")}, {"max_feedback_chars": 0}]
)
def test_bounds_are_checked(bounds):
    with pytest.raises(ConfigError, match="Command"):
        Command("true", **bounds)


def test_it_is_shown_as_one_line():
    assert repr(Command(["pytest", "-k", "a b"])) == """Command("pytest -k 'a b'")"""
    assert Command("x").kind == "command"
