"""``docs/definitions.md`` says what is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.definitions.kit import serving, through
from untildone import ExitReason, LoopUnsatisfiedError
from untildone.app.definitions import (
    DefinitionError,
    LoopSettings,
    build_agent,
    dump_definition,
    parse_definition,
)
from untildone.app.definitions.frozen_json import DEEPEST
from untildone.app.definitions.kinds import KINDS
from untildone.app.definitions.parsed import MOST_VALUES
from untildone.app.definitions.reading import LARGEST, check_text
from untildone.app.definitions.rules import _MOST_CRITERIA
from untildone.app.definitions.surroundings import Surroundings
from untildone.app.definitions.types import LoopCriterion

PAGE = (Path(__file__).parents[2] / "docs" / "definitions.md").read_text("utf-8")


def block(language: str, index: int = 0) -> str:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)[index]


def test_the_file_on_the_page_is_what_its_python_writes():
    definition = parse_definition(block("yaml"))
    assert parse_definition(dump_definition(definition)) == definition
    names: dict[str, object] = {}
    python = block("python")
    types = python[python.index("in_python") : python.index("Path(")]
    exec(
        "from untildone.app.definitions import *\nfrom untildone import LoopOutcome\n" + types,
        names,
    )
    assert names["in_python"] == definition


def test_the_table_of_kinds_is_the_one_of_the_code():
    rows = re.findall(r"^\| (`[^|]+) \| [^|]+ \| ([^|]+) \|$", PAGE, re.MULTILINE)
    table = {
        kind: set(re.findall(r"`(\w+)`", takes))
        for kinds, takes in rows
        for kind in re.findall(r"`(\w+)`", kinds)
        if kind in KINDS
    }
    fields = LoopCriterion.model_fields
    assert table == {
        kind: {fields[name].alias or name for name in (*takes.required, *takes.optional)}
        for kind, takes in KINDS.items()
    }


def test_its_figures_are_those_of_the_code():
    assert f"{LoopSettings.DEFAULT_MAX_ITERATIONS}" in PAGE
    assert (LARGEST, MOST_VALUES, DEEPEST, _MOST_CRITERIA) == (2**20, 10_000, 64, 50)
    words = " ".join(PAGE.split())
    assert "at most 1 MiB, 10,000 values and 64 levels, a loop at most 50 criteria" in words


@pytest.mark.parametrize("outcome", ["returnLastResponse", "failRun"])
async def test_the_table_of_outcomes_is_so(outcome: str):
    """Row by row: the ceiling, the last iteration, a ceiling of one, a criterion that raises."""
    text = (
        "name: a\nmodel: {provider: openai, model: m}\nharness:\n  loop:\n    criteria:\n"
        "      - {kind: completionMarker, marker: DONE}\n"
        f"    maxIterations: 1\n    onExhausted: {outcome}\n"
    )
    agent = build_agent(parse_definition(text))
    async with serving("no"):
        unsatisfied = await through("run_agent", agent)
    async with serving("DONE"):
        satisfied = await through("run_agent", agent)
    if outcome == "failRun":
        assert isinstance(unsatisfied.error, LoopUnsatisfiedError)
        assert unsatisfied.iterations[-1]["fails_run"]
        assert satisfied.got.exit_reason is ExitReason.CONVERGED
    else:
        assert unsatisfied.got.exit_reason is ExitReason.MAX_ITERATIONS
        assert unsatisfied.iterations[-1]["ceiling_reached"]
        assert satisfied.got.exit_reason is ExitReason.MAX_ITERATIONS  # returned unseen


def test_the_error_at_the_end_is_the_one_that_comes():
    text = (
        "name: a\nmodel:\n  provider: opanai\n  model: m\nharness:\n  loop:\n    criteria:\n"
        "      - kind: completionMarker\n    maxIterations: 0\n"
    )
    error = DefinitionError(check_text(text, "yaml", Surroundings()).problems, "agent.yaml")
    shown = block("text", -1).rstrip().splitlines()
    for line, said in zip(shown, str(error).splitlines(), strict=True):
        assert said.startswith(line.removesuffix("…").rstrip())
