"""Keys and passwords in the configuration of a server are shown to nobody, the model included."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.mcp.kit import results, run_calls, sdk_at_port
from tests.mcp.test_sse_faults import sour
from untildone import Agent, AgentHooks, ConfigError, MCPError
from untildone.testing import ScriptedModel, call
from untildone.tools.mcp import HTTPMCP, SSEMCP, StdioMCP


@pytest.fixture(scope="module", params=[(HTTPMCP, "http"), (SSEMCP, "sse")])
def there(request: pytest.FixtureRequest) -> Iterator[tuple[Any, str]]:
    kind, name = request.param
    with sdk_at_port(name) as (port, _):
        yield kind, f"127.0.0.1:{port}"


@pytest.mark.parametrize(
    "address",
    [
        "http://{}/elsewhere?api_key=swordfish",
        "http://ada:swordfish@{}/elsewhere",
        "http://{}/elsewhere?v=1&sig=sword%66ish#swordfish",
    ],
)
async def test_a_refusal_shows_status_and_address_and_no_key(there: tuple[Any, str], address: str):
    kind, host = there
    with pytest.raises(MCPError) as caught:
        await run_calls(kind(address.format(host), headers={"X-Key": "swordfish"}))
    text = str(caught.value)
    assert f"'http://{host}/elsewhere' cannot be used" in text
    assert "404 Not Found" in text
    assert "fish" not in text


async def test_a_model_reads_no_key_when_connecting_anew_is_refused():
    async with sour() as (server, url):
        servers = SSEMCP(f"{url}?api_key=swordfish", timeout_s=8)

        async def move(name: str, text: str) -> None:
            server.refusal = "500 Internal Server Error"
            object.__setattr__(servers, "url", f"{elsewhere}?api_key=swordfish")

        with sdk_at_port("sse") as (port, _):
            elsewhere = f"http://127.0.0.1:{port}/elsewhere"
            result = await run_calls(
                servers, *[call("say")] * 3, hooks=AgentHooks(on_tool_end=move)
            )
    refused = results(result)[2]
    assert refused.startswith(f"Error: the MCP server '{elsewhere}' cannot be used: HTTP 404")
    assert "swordfish" not in refused


@pytest.mark.parametrize(
    ("server", "shown"),
    [
        (HTTPMCP("https://ada:swordfish@h/mcp?key=swordfish"), "HTTPMCP('https://h/mcp', name='h'"),
        (SSEMCP("https://h/sse?swordfish", {"X": "swordfish"}), "SSEMCP('https://h/sse', name='h'"),
        (
            StdioMCP("serve", ["--api-key", "swordfish", "--port", "80"], {"K": "swordfish"}),
            "StdioMCP('serve --api-key [secret] --port 80', name='serve'",
        ),
    ],
)
def test_the_repr_of_a_server_and_of_its_agent_show_no_key(server: Any, shown: str):
    assert repr(server).startswith(shown)
    assert "swordfish" not in repr(server)
    assert "swordfish" not in repr(Agent("ada", ScriptedModel(["x"]), mcps=[server]))


def test_the_repr_of_a_server_shows_its_settings():
    shown = repr(HTTPMCP("https://h/mcp", prefix="a_", only=["b"], timeout_s=3))
    assert "prefix='a_', only=('b',), timeout_s=3, connect_timeout_s=30.0" in shown


async def test_the_last_words_of_a_program_show_no_key():
    program = "import os, sys; sys.exit(f'bad key {sys.argv[2]} or {os.environ[\"API_TOKEN\"]}')"
    server = StdioMCP(
        sys.executable,
        ["-c", program, "--api-key", "swordfish"],
        {"API_TOKEN": "greatwhite"},
    )
    with pytest.raises(MCPError) as caught:
        await run_calls(server)
    assert "bad key [secret] or [secret]" in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "args"),
    [
        (HTTPMCP, ["ada:swordfish@h/mcp"]),
        (HTTPMCP, ["ftp://ada:swordfish@h/mcp?key=swordfish"]),
        (SSEMCP, ["http://h:swordfish/sse"]),
        (StdioMCP, ["serve", "--api-key swordfish"]),
    ],
)
def test_a_refused_setting_shows_no_key(kind: Any, args: list[str]):
    with pytest.raises(ConfigError, match="; give a") as caught:
        kind(*args)
    assert "swordfish" not in str(caught.value)
