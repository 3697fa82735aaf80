"""The page about skills says what is so."""

import re
from pathlib import Path
from typing import Any

import pytest

from untildone import LoopConfig
from untildone.skills import DistilledSkill, SkillRegistry
from untildone.skills.distilled import skill_name
from untildone.testing import ScriptedModel

PAGE = (Path(__file__).parents[2] / "docs" / "concepts" / "skills.md").read_text("utf-8")


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the page's code defines, run from top to bottom in an empty folder."""
    monkeypatch.chdir(tmp_path)
    defined: dict[str, Any] = {"__name__": "page"}
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(compile(block, "skills.md", "exec"), defined)
    return defined


async def test_its_code_runs(names: dict[str, Any]):
    assert await names["Summarise"]().execute(path="a.md") == "a summary of a.md"
    names["editor"].__dict__["model"] = ScriptedModel(["plain"])
    assert await names["plain_words"].execute(text="abstruse") == "plain"
    assert names["plain_words"].description == "Rewrites a text in plain words."
    assert names["skills"] == []


def test_its_figures_are_those_of_the_code(names: dict[str, Any]):
    loop = names["analyst"].loop_config
    assert isinstance(loop, LoopConfig)
    assert f"({loop.skill_confidence_threshold})" in PAGE
    assert skill_name("sql_analyst", "Find top 10 customers by revenue") in PAGE


def test_a_saved_skill_stands_where_it_says(names: dict[str, Any], tmp_path: Path):
    made = DistilledSkill("sql_analyst_fe79258e", "Analyses.", names["editor"])
    names["library"].save(made)
    assert (tmp_path / "skills" / "sql-analyst-fe79258e" / "SKILL.md").is_file()
    assert [each.name for each in names["library"].load()] == [made.name]
    assert SkillRegistry.get(made.name) is not None
