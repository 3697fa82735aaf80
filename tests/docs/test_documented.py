"""Nothing public is undocumented, and what the tables of docs/ say is what the code does."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import re
import tomllib
from pathlib import Path
from typing import Any, get_args

import click
import pytest

import untildone
from tests.docs.pages import (
    DOCS,
    README,
    ROOT,
    name_of,
    pages,
    prose_of,
    spans,
    table_headed,
    tables_of,
    words_in_code,
)
from untildone import EventType, ExitReason, StuckPolicy
from untildone.cli.commands import cli
from untildone.cli.exit_status import STATUS_OF
from untildone.domain import errors
from untildone.domain.log import LogEvent
from untildone.models.providers import PROVIDERS
from untildone.policy.stuck import StuckRule

CONCEPTS = DOCS / "concepts"
REFERENCE = DOCS / "reference"


def directives() -> set[str]:
    """What the pages of the reference are generated from."""
    text = "\n".join(page.read_text("utf-8") for page in REFERENCE.glob("*.md"))
    return set(re.findall(r"^::: ([\w.]+)$", text, re.MULTILINE))


def said_in_docs() -> set[str]:
    """Every word that stands as code in docs/, apart from the reference."""
    found: set[str] = set()
    for page in pages():
        if page != README and REFERENCE not in page.parents:
            found |= words_in_code(page)
    return found


# ── Names ────────────────────────────────────────────────────────────────────────────────────────


def test_every_public_name_stands_in_the_docs_and_in_the_reference():
    said = said_in_docs()
    documented = {name.rpartition(".")[2] for name in directives()}
    silent = [name for name in untildone.__all__ if name not in said]
    unlisted = [name for name in untildone.__all__ if name not in documented]
    assert not silent, "no page of docs/ shows them as code"
    assert not unlisted, "no page of docs/reference has ::: for them"


def test_the_list_of_public_names_on_the_first_page_is_whole():
    page = DOCS / "index.md"
    _, listing = prose_of(page).split("## Every public name")
    listed = re.findall(r"`(\w+)`", listing.split("In the reference")[0])
    assert len(listed) == len(set(listed))
    missing = sorted(set(untildone.__all__) - set(listed))
    gone = sorted(set(listed) - set(untildone.__all__) - {"untildone"})
    assert not missing
    assert not gone


@pytest.mark.parametrize(
    "package", ["app.definitions", "criteria", "memory", "skills", "testing", "verify"]
)
def test_the_reference_has_what_the_other_packages_offer(package: str):
    module = importlib.import_module(f"untildone.{package}")
    last = {name.rpartition(".")[2] for name in directives()}
    assert not set(module.__all__) - last


def test_the_reference_names_only_what_is_there():
    for name in sorted(directives()):
        parts = name.split(".")
        for length in range(len(parts), 0, -1):
            try:
                found: Any = importlib.import_module(".".join(parts[:length]))
            except ModuleNotFoundError:
                continue
            for attribute in parts[length:]:
                found = getattr(found, attribute)
            break


# ── Settings ─────────────────────────────────────────────────────────────────────────────────────

SETTINGS = {
    "Agent": "two-loops",
    "LoopConfig": "two-loops",
    "AgentHooks": "two-loops",
    "AgentResult": "exit-reasons",
    "VerifierConfig": "verifier",
    "VerifierFeedback": "verifier",
    "ApexConfig": "branches",
    "StuckPolicy": "stuck",
    "ModelTimeouts": "models",
    "RetryPolicy": "models",
}
"""Classes whose fields stand in a table headed "field of `…`", and the page with it."""


@pytest.mark.parametrize(("class_name", "page"), SETTINGS.items())
def test_every_setting_is_in_its_table(class_name: str, page: str):
    rows = table_headed(CONCEPTS / f"{page}.md", f"field of `{class_name}`")
    listed = [name for row in rows for name in spans(row[0]) if re.fullmatch(r"[a-z]\w*", name)]
    assert len(listed) == len(set(listed))
    described = getattr(untildone, class_name)
    fields = {field.name for field in dataclasses.fields(described)}
    properties = {n for n, v in vars(described).items() if isinstance(v, property)}
    assert fields <= set(listed) <= fields | properties


@pytest.mark.parametrize(("class_name", "page"), SETTINGS.items())
def test_the_defaults_in_the_tables_are_those_of_the_code(class_name: str, page: str):
    path = CONCEPTS / f"{page}.md"
    head = next(rows[0] for rows in tables_of(path) if rows[0][0] == f"field of `{class_name}`")
    if head[-1] != "default":
        return
    fields = {field.name: field for field in dataclasses.fields(getattr(untildone, class_name))}
    for row in table_headed(path, f"field of `{class_name}`"):
        names = [name for name in spans(row[0]) if name in fields]
        for name, said in zip(names, row[-1].split(", "), strict=False):
            try:
                value = ast.literal_eval(said.strip("`"))
            except (ValueError, SyntaxError):
                continue  # in words
            assert fields[name].default == value, f"{class_name}.{name}"


def test_the_verdict_and_the_context_of_criteria_are_described():
    rows = table_headed(CONCEPTS / "criteria.md", "`CriterionContext`")
    listed = {name for row in rows for name in spans(row[0])}
    context = untildone.CriterionContext
    fields = {field.name for field in dataclasses.fields(context)} - {"original"}
    properties = {n for n, v in vars(context).items() if isinstance(v, property)}
    assert listed == fields | properties
    said = prose_of(CONCEPTS / "criteria.md")
    assert "CriterionVerdict(satisfied, feedback=None, messages=None)" in said


@pytest.mark.parametrize(
    "name", ["FallbackChain", "StreamPolicy", "StuckSignal", "Usage", "LoopOutcome", "StreamEvent"]
)
def test_small_classes_have_their_fields_somewhere(name: str):
    described = getattr(untildone, name)
    if dataclasses.is_dataclass(described):
        wanted = {field.name for field in dataclasses.fields(described)}
    else:
        wanted = set(described.__members__)
    assert not wanted - said_in_docs()


def test_the_options_of_the_doors_are_described():
    rows = table_headed(CONCEPTS / "two-loops.md", "option", "meaning")
    listed = {name for row in rows for name in spans(row[0])}
    options = dataclasses.fields(importlib.import_module("untildone.entrance").Options)
    assert listed == {option.name for option in options} - {"distil"}


def test_what_a_tool_can_be_told_is_described():
    rows = table_headed(CONCEPTS / "tools.md", "option", "meaning")
    listed = {name for row in rows for name in spans(row[0])}
    parameters = inspect.signature(untildone.tool).parameters.values()
    assert listed == {p.name for p in parameters if p.kind is p.KEYWORD_ONLY}


# ── Endings ──────────────────────────────────────────────────────────────────────────────────────


def test_every_exit_reason_is_in_the_tables():
    reasons = [reason.value for reason in ExitReason]
    rows = table_headed(CONCEPTS / "exit-reasons.md", "exit reason", "loop")
    assert [row[0].strip("`") for row in rows] == reasons
    readme = table_headed(README, "exit reason", "what it means")
    assert sorted(row[0].strip("`") for row in readme) == sorted(reasons)


def test_the_loops_of_exit_reasons_are_those_of_the_enum():
    rows = table_headed(CONCEPTS / "exit-reasons.md", "exit reason", "loop")
    loops = [row[1] for row in rows]
    assert loops == ["turn"] * 3 + ["refine"] * 6 + ["both"] * 4


def test_the_tree_of_errors_is_the_tree_of_the_classes():
    page = (CONCEPTS / "errors.md").read_text("utf-8")
    tree = page.split("```text\n")[1].split("```")[0]
    path: list[str] = []
    drawn: dict[str, str] = {}
    for line in tree.splitlines():
        found = re.match(r"([│├└─ ]*)(\w+)", line)
        assert found is not None
        depth = len(found[1]) // 4
        path = [*path[:depth], found[2]]
        drawn[found[2]] = path[-2] if depth else "Exception"
    classes = {
        name: value
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, untildone.UntildoneError)
    }
    assert drawn == {name: value.__bases__[0].__name__ for name, value in classes.items()}
    for line in tree.splitlines():
        if also := re.search(r"(\w+) \(also (\w+)\)", line):
            assert also[2] in [base.__name__ for base in classes[also[1]].__mro__]


# ── Events and log ───────────────────────────────────────────────────────────────────────────────


def test_every_event_is_in_the_table():
    rows = table_headed(CONCEPTS / "events.md", "event", "when")
    assert sorted(n for row in rows for n in spans(row[0])) == sorted(k.value for k in EventType)


def test_every_record_of_the_log_is_in_the_table():
    rows = table_headed(CONCEPTS / "resume.md", "record")
    listed = [name for row in rows for name in spans(row[0])]
    assert sorted(listed) == sorted(kind.__name__ for kind in get_args(LogEvent))


# ── Stuck ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("page", [CONCEPTS / "stuck.md", DOCS / "stuck-detector-notes.md"])
def test_the_stuck_rules_and_their_limits_are_those_of_the_code(page: Path):
    (rows,) = [rows for rows in tables_of(page) if rows[0][0] == "rule"]
    listed = {row[0].strip("`"): [n for n in row[2:] if n.isdigit()] for row in rows[1:]}
    assert sorted(listed) == sorted(get_args(StuckRule))
    policy = StuckPolicy()
    for rule, said in listed.items():
        short = rule.removesuffix("_errors") if rule == "transient_errors" else rule
        fields = [getattr(policy, f"{short}_{end}", None) for end in ("nudge", "stop", "limit")]
        assert said == [str(limit) for limit in fields if limit is not None], rule


# ── Figures ──────────────────────────────────────────────────────────────────────────────────────


def test_the_table_of_judge_noise_is_the_arithmetic_it_says():
    (rows,) = [t for t in tables_of(CONCEPTS / "verifier.md") if "wrong this often" in t[0][0]]
    for row in rows[1:]:
        wrong = float(row[0].removeprefix("p = "))
        shares = [1 - (1 - wrong ** (k + 1)) ** n for n, k in ((1, 0), (5, 0), (5, 1), (5, 2))]
        for cell, share in zip(row[1:], shares, strict=True):
            digits = len(cell.rstrip("%").partition(".")[2])
            assert cell == f"{100 * share:.{digits}f}%"


@pytest.mark.parametrize("page", [DOCS / "why.md", CONCEPTS / "stuck.md"], ids=name_of)
def test_figures_of_the_stuck_detector_are_those_of_its_notes(page: Path):
    """The notes' figures are asserted against the recorded runs elsewhere."""
    notes = (DOCS / "stuck-detector-notes.md").read_text("utf-8").replace("*", "")
    for figure in ("2,055", "935", "365", "196 of 365"):
        assert figure in notes
    said = page.read_text("utf-8").replace("\n", " ").replace("*", "")
    assert "2,055" in said
    assert re.search(r"196 of the 365", said)
    assert re.search(r"(0 of 935|none of the 935)", said)


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_extras_that_a_page_names_are_there(page: Path):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = set(project["optional-dependencies"])
    for named in re.findall(r"untildone\[([a-z,]+)\]", page.read_text("utf-8")):
        assert set(named.split(",")) <= extras, f"pyproject.toml has no extra {named!r}"


# ── Models ───────────────────────────────────────────────────────────────────────────────────────


def test_every_provider_is_in_the_table_with_its_variables():
    rows = table_headed(CONCEPTS / "models.md", "string", "needs")
    listed = {row[0].strip("`").partition("/")[0]: row for row in rows}
    assert set(listed) == set(PROVIDERS)
    for name, provider in PROVIDERS.items():
        row = listed[name]
        if provider.needs_key:
            assert spans(row[1]) == list(provider.key_variables), name
        if provider.base_url_variable:
            assert spans(row[2]) == [provider.base_url_variable], name


# ── Command line ─────────────────────────────────────────────────────────────────────────────────

PAGES_OF_COMMANDS = [DOCS / "cli.md", DOCS / "definitions.md"]


def described_commands() -> str:
    return "\n".join(page.read_text("utf-8") for page in PAGES_OF_COMMANDS if page.exists())


def all_commands(group: click.Group, before: str = "untildone") -> dict[str, click.Command]:
    found: dict[str, click.Command] = {}
    for name, command in group.commands.items():
        if command.hidden:
            continue
        found[f"{before} {name}"] = command
        if isinstance(command, click.Group):
            found |= all_commands(command, f"{before} {name}")
    return found


@pytest.mark.parametrize("name", all_commands(cli))
def test_every_command_and_option_is_described(name: str):
    text = described_commands()
    assert name in text
    assert all_commands(cli)[name].help
    for parameter in all_commands(cli)[name].params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            long = max(parameter.opts, key=len)
            assert f"{long}" in text, f"{name} {long}"


def test_every_exit_status_is_in_the_table():
    rows = table_headed(DOCS / "cli.md", "status", "name")
    listed = {(row[1].strip("`"), row[0]) for row in rows}
    assert {(reason.value, str(status)) for reason, status in STATUS_OF.items()} <= listed


# ── Links ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_links_lead_to_files_that_are_there(page: Path):
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = target.partition("#")
        if "://" in path:
            continue
        linked = page if not path else (page.parent / path).resolve()
        assert linked.exists(), f"{name_of(page)} links {target}"
        if anchor:
            assert anchor in anchors_of(linked), f"{name_of(page)} links {target}"


def anchors_of(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    plain = [re.sub(r"[^\w\s-]", "", title).strip().lower() for title in titles]
    return {re.sub(r"[\s]+", "-", title) for title in plain}
