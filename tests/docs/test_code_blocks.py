"""Every block of code in README.md and docs/ runs, and prints what the page says it prints.

The Python blocks of a page share one namespace, from top to bottom. ``openai/…`` and ``ollama/…``
reach a scripted server on loopback. A ``text`` block right below a Python block is its output.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import itertools
import re
import shlex
import tomllib
from collections.abc import Generator
from pathlib import Path
from typing import Any

import click
import pytest

from tests.docs.openai_server import Answer, Body, OpenAIServer, asks_for_json, openai_server
from tests.docs.pages import ROOT, Block, blocks_of, name_of, pages
from untildone.cli import main as command_line
from untildone.models.local import local_weights
from untildone.run import aclose

SHELL = ("sh", "shell", "console", "bash")
KNOWN_LANGUAGES = {"python", "text", "toml", "yaml", "json", "jsonc", "ini", "make", "", *SHELL}

PREPARED: dict[str, str] = {
    "docs/stuck-detector-notes.md": (
        "from untildone import StuckDetector, StuckPolicy\n"
        "from untildone.domain.tools import ToolTraits\n"
        "recorded_messages = []\n"
    ),
}
"""What has to be there before the fragments of a page can run."""

FILES: dict[str, dict[str, str]] = {"docs/definitions.md": {"researcher.yaml": "yaml"}}
"""Files that the code of a page reads: each is the page's first block of a language."""

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def sample(schema: dict[str, Any]) -> Any:
    """The simplest value that fits a JSON Schema, as far as judges and answers need it."""
    schema = schema.get("anyOf", [schema])[0]
    if "enum" in schema:
        return schema["enum"][0]
    match schema.get("type"):
        case "object":
            return {name: sample(field) for name, field in schema.get("properties", {}).items()}
        case "array":
            return []
        case "number":
            return 0.9
        case "integer":
            return schema.get("minimum", 1)
        case "boolean":
            return True
        case _:
            return "fine"


def answer(body: Body, _: int) -> Answer:
    """What the scripted provider says: JSON where it is asked for it, a sentence else."""
    if asks_for_json(body):
        return sample(body["response_format"]["json_schema"]["schema"])
    return "The sea is wide, blue and never still."


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Generator[OpenAIServer]:
    with openai_server(answer) as server:
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        yield server


def with_python() -> list[Path]:
    return [page for page in pages() if any(b.language == "python" for b in blocks_of(page))]


@pytest.mark.parametrize("page", with_python(), ids=name_of)
@pytest.mark.usefixtures("provider")
def test_the_python_of_a_page_runs_and_prints_what_it_says(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    blocks = blocks_of(page)
    for name, language in FILES.get(name_of(page), {}).items():
        shown = next(block for block in blocks if block.language == language)
        (tmp_path / name).write_text(shown.code, "utf-8")
    if any("local/smollm2" in block.code for block in blocks if block.language == "python"):
        local_weights("smollm2")  # says what to install where they are missing
    namespace: dict[str, Any] = {"__name__": "page"}
    exec(PREPARED.get(name_of(page), ""), namespace)
    printed, said_by = "", ""
    with asyncio.Runner() as runner:
        for block in blocks:
            if block.language == "python":
                printed, said_by = run(block, namespace, runner), block.where
            elif block.follows_code:
                assert printed == block.code, f"{said_by} prints something else"
        runner.run(aclose())


def run(block: Block, namespace: dict[str, Any], runner: asyncio.Runner) -> str:
    """Runs a block, with its ``await``s if it has any, and gives what it printed."""
    compiled = compile(
        "\n" * (block.line - 1) + block.code,
        str(block.page),
        "exec",
        flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT,
    )
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        if compiled.co_flags & inspect.CO_COROUTINE:
            runner.run(_awaited(compiled, namespace))
        else:
            exec(compiled, namespace)
    return out.getvalue()


async def _awaited(compiled: Any, namespace: dict[str, Any]) -> None:
    await eval(compiled, namespace)


def all_blocks() -> list[Block]:
    return [block for page in pages() for block in blocks_of(page)]


def test_every_block_says_its_language():
    unknown = [b.where for b in all_blocks() if b.language not in KNOWN_LANGUAGES]
    assert not unknown


def shell_lines() -> list[tuple[str, str]]:
    """Every command of every shell block, with where it stands; continued lines joined."""
    found: list[tuple[str, str]] = []
    for block in all_blocks():
        if block.language not in SHELL:
            continue
        lines = block.code.replace("\\\n", " ").splitlines()
        prompts = any(line.startswith("$ ") for line in lines)
        for line in lines:
            if prompts and not line.startswith("$ "):
                continue  # output
            command = line.removeprefix("$ ").strip()
            if command and not command.startswith("#"):
                found.append((block.where, command))
    return found


def commands_in(line: str) -> list[list[str]]:
    """The simple commands of a line, as words."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    lexer.commenters = "#"
    commands: list[list[str]] = [[]]
    for word in lexer:
        if set(word) <= set("|&;"):
            commands.append([])
        else:
            commands[-1].append(word)
    return [words for words in commands if words]


def is_a_setting(word: str) -> bool:
    """Whether a word before a command sets a variable for it."""
    return re.fullmatch(r"[A-Z_]+=.*", word) is not None


@pytest.mark.parametrize(("where", "line"), shell_lines(), ids=lambda value: str(value)[:60])
def test_the_commands_of_shell_blocks_exist(where: str, line: str):
    for command in commands_in(line):
        words = list(itertools.dropwhile(is_a_setting, command))
        assert words, where
        if words[:3] == ["python", "-m", "untildone"]:
            words = words[2:]
        match words:
            case ["untildone", *arguments]:
                check_arguments(arguments, where)
            case ["make", *targets]:
                check_targets(targets, where)
            case ["pip", "install", *requirements]:
                check_requirements(requirements, where)
            case ["export", setting]:
                check_variable(setting.partition("=")[0], where)
            case [
                "git"
                | "cd"
                | "ollama"
                | "llama-server"
                | "vllm"
                | "printf"
                | "echo"
                | "cat"
                | "python"
                | "pytest"
                | "jq"
                | "cp"
                | "tail"
                | "ls"
                | "mkdir"
                | "docker",
                *_,
            ]:
                pass
            case _:
                raise AssertionError(f"{where}: unknown command {words[0]!r}")


def check_arguments(arguments: list[str], where: str) -> None:
    """The subcommand and the options of a command line are there."""
    group: Any = _click_group()
    command = group
    for word in arguments:
        if word in {">", ">>", "<", "2>"}:
            return
        if not word.startswith("-") and isinstance(command, click.Group):
            command = command.commands.get(word)
            assert command is not None, f"{where}: untildone has no command {word!r}"
        elif word.startswith("-") and word != "-":
            name = word.partition("=")[0]
            assert name in _options_of(command), f"{where}: no option {name!r}"


def _options_of(command: click.Command) -> set[str]:
    with click.Context(command, **command.context_settings) as context:
        return {name for param in command.get_params(context) for name in param.opts}


def _click_group() -> Any:
    from untildone.cli import commands

    groups = [value for value in vars(commands).values() if isinstance(value, click.Group)]
    assert len(groups) == 1, "untildone.cli.commands has one group of commands"
    assert callable(command_line)
    return groups[0]


def check_targets(targets: list[str], where: str) -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    known = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    for target in targets:
        if "=" not in target:
            assert target in known, f"{where}: the Makefile has no target {target!r}"


def check_requirements(requirements: list[str], where: str) -> None:
    extras = set(PROJECT["project"]["optional-dependencies"])
    for requirement in requirements:
        named = re.fullmatch(r"untildone(?:\[([\w,-]+)\])?", requirement)
        if named is not None and named[1]:
            missing = set(named[1].split(",")) - extras
            assert not missing, f"{where}: pyproject.toml has no extra {missing}"
        elif not requirement.startswith("-"):
            assert re.match(r"[\w.-]+", requirement), where


def check_variable(name: str, where: str) -> None:
    sources = (ROOT / "src").rglob("*.py")
    assert any(name in source.read_text("utf-8") for source in sources), (
        f"{where}: nothing reads the variable {name}"
    )
