"""The page about tools says what is so."""

import re
from pathlib import Path
from typing import Any

import pytest

from untildone.domain.errors import ToolError
from untildone.policy.cutting import DEFAULT_MAX_RESULT_CHARS
from untildone.tools import as_tool, collect_tools
from untildone.tools.options import LEAST_MAX_RESULT_CHARS
from untildone.tools.results import MAX_ITERATED

PAGE = (Path(__file__).parents[2] / "docs" / "concepts" / "tools.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def names_of_the_page() -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "page"}
    for block in blocks("python"):
        exec(compile(block, "tools.md", "exec"), names)
    return names


async def test_its_code_runs():
    names = names_of_the_page()
    assert list(collect_tools(names["agent"].tools)) == ["search"]
    assert as_tool(names["status"]).spec.traits.volatile == ("checked_at",)
    assert await names["search"]("x") == ["a hit for x"]


def test_the_refusal_it_shows_is_the_one_that_comes():
    with pytest.raises(ToolError) as caught:
        as_tool(names_of_the_page()["search"]).parse('{"query": "a", "limit": "5", "lmit": 3}')
    assert str(caught.value) == " ".join(blocks("text")[0].split("\n")).strip()


def test_its_figures_are_those_of_the_code():
    for figure in (DEFAULT_MAX_RESULT_CHARS, LEAST_MAX_RESULT_CHARS, MAX_ITERATED):
        assert f"{figure:,}" in PAGE
