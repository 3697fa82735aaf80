"""A server whose answers and whose list of tools are odd costs what is odd, and no more."""

import json
import logging
import sys
from typing import Any

import pytest

from tests.behaviour.kit import ask
from tests.mcp.kit import SERVERS, results, run_calls
from untildone import Agent, ConfigError, MCPError, run_agent
from untildone.testing import ScriptedModel, call
from untildone.tools.mcp import StdioMCP

SCHEMA = {"type": "object", "properties": {}}
UNREADABLE = "Error: the MCP server's answer cannot be read: it is no message of the protocol"


def tool(name: Any, **fields: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": SCHEMA, **fields}


def odd(*tools: Any, cursor: str = "", **settings: Any) -> StdioMCP:
    """A server with these tools; a text stands for a plain tool of this name."""
    listed = [tool(each) if isinstance(each, str) else each for each in tools]
    env = {"TOOLS": json.dumps(listed), "CURSOR": cursor}
    return StdioMCP(
        sys.executable, ["-I", str(SERVERS / "odd.py")], name="odd", env=env, **settings
    )


async def names_of(server: StdioMCP, **settings: Any) -> list[str]:
    model = ScriptedModel(["Done."])
    await run_agent(Agent("ada", model, mcps=[server], **settings), ask())
    return model.requests[0].tool_names


# ── Answers ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("binary", "after it"),
        ("latin1", "caf\ufffd"),
        ("surrogate", "a\ufffdb"),
        ("null", UNREADABLE),
        ("deep", UNREADABLE),
        ("echoed", "after the echo"),
    ],
)
async def test_an_odd_answer_costs_itself_at_most_and_no_time(name: str, answer: str):
    result = await run_calls(odd(name, "plain", timeout_s=300), call(name), call("plain"))
    assert results(result)[0] == answer
    assert results(result)[1].startswith("plain from ")


async def test_a_server_that_no_longer_reads_is_started_anew_after_one_time_limit():
    calls = call("plain"), call("deaf"), call("plain"), call("plain")
    result = await run_calls(odd("plain", "deaf", timeout_s=1), *calls)
    before, deaf, after, again = results(result)
    assert deaf.startswith("Error: timed out: the MCP server gave no result within 1 s")
    assert after.startswith("plain from ")
    assert after != before
    assert again == after


# ── The list of tools ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("tools", "names"),
    [
        (["a.b", "a_b"], ["a_b_2", "a_b"]),
        (["a.b", "a b", "a_b_2"], ["a_b", "a_b_3", "a_b_2"]),
        (["日本", "中国"], ["__", "___2"]),
        ([""], ["_"]),
        (["x" * 70 + "1", "x" * 70 + "2"], ["x" * 64, "x" * 62 + "_2"]),
        (["twice", "twice"], ["twice"]),
    ],
)
async def test_names_that_would_be_the_same_get_a_number(tools: list[str], names: list[str]):
    assert await names_of(odd(*tools)) == names


async def test_a_tool_with_a_number_is_called_by_the_servers_own_name():
    result = await run_calls(odd("a.b", "a_b"), [call("a_b_2"), call("a_b")])
    assert [text.split(" from ")[0] for text in results(result)] == ["a.b", "a_b"]


async def test_a_name_that_the_agent_has_is_still_refused():
    async def a_b() -> str:
        return "own"

    with pytest.raises(ConfigError, match='prefix="odd_"'):
        await names_of(odd("a.b"), tools=[a_b])


@pytest.mark.parametrize(
    "broken", [{"name": "broken"}, tool("broken", inputSchema=None), tool(5), "text", None]
)
async def test_a_tool_that_does_not_fit_costs_itself(broken: Any, caplog: Any):
    server = odd("good")
    listed = json.dumps([tool("good"), broken, tool("better")])
    server = StdioMCP(server.command, server.args, {"TOOLS": listed}, name="odd")
    with caplog.at_level(logging.WARNING, "untildone"):
        assert await names_of(server) == ["good", "better"]
    assert "a tool that cannot be used and is left out" in caplog.text


async def test_a_list_of_tools_without_an_end_is_an_error():
    with pytest.raises(
        MCPError, match="its list of tools has no end: the page 'again' comes again"
    ):
        await names_of(odd("plain", cursor="again"))


def test_an_error_shows_no_value_of_a_secret_option():
    server = StdioMCP("serve", ["--token", "swordfish", "--port", "80", "/srv/key"])
    assert server.label == "'serve --token [secret] --port 80 /srv/key'"
