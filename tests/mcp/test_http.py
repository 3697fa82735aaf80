"""Servers at an address: made with the SDK, over streamable HTTP and over server-sent events."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.behaviour.kit import other_tasks, watch
from tests.mcp.kit import results, run_calls, sdk_at_port
from untildone import Agent, AgentHooks, EventType, MCPError
from untildone.testing import ScriptedModel, call
from untildone.tools.mcp import HTTPMCP, SSEMCP

KINDS = {"http": (HTTPMCP, "mcp"), "sse": (SSEMCP, "sse")}


@pytest.fixture(scope="module", params=list(KINDS))
def address(request: pytest.FixtureRequest) -> Iterator[tuple[Any, str]]:
    kind, path = KINDS[request.param]
    with sdk_at_port(request.param) as (port, _):
        yield kind, f"http://127.0.0.1:{port}/{path}"


async def test_the_tools_of_a_server_are_used_like_functions(address: tuple[Any, str]):
    kind, url = address
    result = await run_calls(
        kind(url, headers={"X-Key": "k"}),
        [call("add", a=1, b=2), call("words", text="a b"), call("boom")],
        call("add", a=2, b=2),
    )
    assert results(result) == ["3", "a\nb", "Error: Error executing tool boom", "4"]
    assert other_tasks() == set()


async def test_several_servers_serve_one_run(address: tuple[Any, str]):
    kind, url = address
    result = await run_calls(
        [kind(url, prefix="one_", only=["add"]), kind(url, prefix="two_", only=["add"])],
        [call("one_add", a=1, b=1), call("two_add", a=2, b=2)],
    )
    assert results(result) == ["2", "4"]


async def test_a_name_with_a_dot_is_written_as_models_take_it(address: tuple[Any, str]):
    kind, url = address
    model = ScriptedModel(["Done."])
    await watch(Agent("ada", model, mcps=[kind(url, only=["die.now"])]))
    assert model.requests[0].tool_names == ["die_now"]


async def test_a_server_that_dies_costs_an_error_a_call_and_is_found_again(
    address: tuple[Any, str],
):
    kind, living = address
    with sdk_at_port(living.rpartition("/")[2].replace("mcp", "http")) as (port, _):
        server = kind(living.replace(living.split("/")[2], f"127.0.0.1:{port}"))
        errors: list[str] = []

        async def come_back(tool: str, text: str) -> None:
            errors.append(text)
            if len(errors) == 2:  # for its user it is the same server, up again
                object.__setattr__(server, "url", living)

        hooks = AgentHooks(on_tool_end=come_back)
        calls = [call("die_now"), call("add", a=1, b=2), call("add", a=1, b=2)]
        result = await run_calls(server, *calls, hooks=hooks)
    died, down, back = results(result)
    assert died.startswith("Error: the MCP server broke down during this call")
    assert down.startswith(f"Error: the MCP server 'http://127.0.0.1:{port}/")
    assert "cannot be used: ConnectError" in down
    assert back == "3"
    assert result.text == "Done."
    assert other_tasks() == set()


@pytest.mark.parametrize("kind", [HTTPMCP, SSEMCP])
async def test_an_address_where_nobody_is_is_named_and_the_queue_ends(kind: Any):
    server = kind("http://user:hunter2@127.0.0.1:9/mcp?key=k1", connect_timeout_s=5)
    seen = await watch(Agent("ada", ScriptedModel(["never"]), mcps=[server]))
    assert isinstance(seen.error, MCPError)
    text = str(seen.error)
    assert "the MCP server 'http://127.0.0.1:9/mcp' cannot be used" in text
    assert "Check that a server runs at this address" in text
    assert "hunter2" not in text
    assert "k1" not in text
    assert seen.kinds == [EventType.ERROR]


async def test_a_refusal_shows_its_status(address: tuple[Any, str]):
    kind, url = address
    with pytest.raises(MCPError, match=r"404 Not Found.*headers="):
        await run_calls(kind(url.rpartition("/")[0] + "/elsewhere"))
