"""The numbers that scripts rely on."""

import re
from pathlib import Path

from tests.cli.kit import untildone
from untildone import ExitReason
from untildone.cli.exit_status import STATUS_OF, status_table

DOCS = Path(__file__).parents[2] / "docs" / "cli.md"


def test_only_satisfied_and_converged_are_success():
    done = {reason for reason, status in STATUS_OF.items() if status == 0}
    assert done == {ExitReason.SATISFIED, ExitReason.CONVERGED}


def test_every_reason_has_a_status_of_its_own():
    assert set(STATUS_OF) == set(ExitReason)
    failing = [status for status in STATUS_OF.values() if status]
    assert len(failing) == len(set(failing))


def test_the_numbers_never_change():
    assert {reason.value: status for reason, status in STATUS_OF.items() if status} == {
        "error": 1,
        "max_iterations": 3,
        "max_turns": 4,
        "stuck": 5,
        "plateau": 6,
        "unsatisfied": 7,
        "criterion_error": 8,
        "budget": 9,
        "awaiting_approval": 10,
        "stop_condition": 11,
        "cancelled": 130,
    }


def test_help_names_every_status():
    shown = untildone("run", "--help").stdout
    for status, name, words in status_table():
        assert re.search(rf"^ +{status}  {name}: {re.escape(words)}$", shown, re.MULTILINE)


def test_the_docs_name_every_status():
    page = DOCS.read_text("utf-8")
    for status, name, _words in status_table():
        assert f"| {status} | `{name}` |" in page or f"| {status} | {name} |" in page
