"""What is loaded when: data libraries on first use only."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("pydantic", "yaml", "tomli_w", "jsonschema", "click", "rich", "aiohttp")


def loaded_after(code: str) -> set[str]:
    """Which of the heavy packages are loaded after running some code in a fresh process."""
    report = f"{code}\nimport sys; print(*[name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", report], capture_output=True, text=True, check=True, timeout=60
    )
    return set(done.stdout.split())


def test_the_package_and_the_code_level_criteria_load_no_library():
    assert loaded_after("import untildone") == set()
    code = (
        "from untildone.criteria.composition import all_of, any_of, not_\n"
        "from untildone.criteria.registry import CriterionRegistry\n"
        "from untildone.criteria.min_score import MinScore\n"
        "from untildone.criteria.todo import TodoCompletion\n"
        "from untildone.criteria.background import BackgroundTaskCompletion\n"
        "CriterionRegistry().register('mine', lambda ctx: True)"
    )
    assert loaded_after(code) == set()


def test_definitions_load_pydantic_and_nothing_for_formats_that_are_not_read():
    assert loaded_after("import untildone.app.definitions") == {"pydantic"}
    text = "name = 'a'\\n[model]\\nprovider = 'openai'\\nmodel = 'm'\\n"
    code = (
        "from untildone.app.definitions import build_agent, parse_definition\n"
        f"build_agent(parse_definition({text!r}.encode().decode('unicode_escape'), 'toml'))"
    )
    assert loaded_after(code) == {"pydantic"}
