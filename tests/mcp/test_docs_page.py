"""The page about MCP servers says what is so."""

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

from untildone.tools.mcp import HTTPMCP, SSEMCP, StdioMCP

PAGE = (Path(__file__).parents[2] / "docs" / "concepts" / "mcp.md").read_text("utf-8")


def test_its_code_runs():
    names: dict[str, Any] = {"__name__": "page"}
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(compile(block, "mcp.md", "exec"), names)
    assert [type(server) for server in names["agent"].mcps] == [StdioMCP, HTTPMCP, SSEMCP]


def test_every_option_is_on_the_page_with_its_default():
    rows = {
        name: row
        for row in re.findall(r"^\| `.*$", PAGE, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", row.split("|")[1])
    }
    for kind in (StdioMCP, HTTPMCP):
        for field in fields(kind):
            if field.name in ("command", "args", "url"):
                continue
            row = rows[field.name]
            if isinstance(field.default, int | float):
                assert row.rstrip("| ").endswith(f"{field.default:,g}".replace("50000", "50,000"))
