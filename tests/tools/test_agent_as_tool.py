"""An agent as a tool of another is checked where it is made; and what its ``repr`` shows."""

from dataclasses import replace

import pytest

from untildone import Agent, AgentHooks, ConfigError
from untildone.agent import AgentAsTool

KEY = "mykey-0123456789abcdef"


def test_a_name_that_no_tool_can_have_is_refused_at_once_with_the_way_out():
    agent = Agent("my agent", "openai/gpt-4o-mini")
    for refused in (agent.as_tool, lambda: AgentAsTool(agent, "my agent", "Helps.")):
        with pytest.raises(ConfigError, match=r"'my agent': .* as_tool\(name=\"helper\"\)"):
            refused()
    for name in ("a b", "é", "x" * 65, 5):
        with pytest.raises(ConfigError, match="cannot be a tool with the name"):
            agent.as_tool(name=name)  # type: ignore[arg-type]
    made = agent.as_tool(name="my_agent")
    assert (made.name, made.description) == ("my_agent", "Hands a task to the agent my agent.")
    with pytest.raises(ConfigError, match="give a text"):
        agent.as_tool(name="helper", description=5)  # type: ignore[arg-type]


def test_the_repr_shows_all_but_what_has_the_name_of_a_secret():
    params = {
        "api_key": KEY,
        "apiKey": KEY,
        "extra_headers": {"Authorization": f"Bearer {KEY}", "X-Token": KEY, "X-Team": "red"},
        "stops": [{"password": KEY}, "end"],
        "max_completion_tokens": 50,
        "secret": None,
    }
    agent = Agent("ada", "litellm/x/y", extra_params=params)
    assert KEY not in repr(agent)
    assert KEY not in repr(agent.as_tool())
    assert repr(agent).startswith("Agent(name='ada', model='litellm/x/y', system_prompt='',")
    assert repr(agent).endswith("on_max_turns='return', timeout_s=None)")
    assert (
        "extra_params={'api_key': '***', 'apiKey': '***', 'extra_headers': {'Authorization':"
        " '***', 'X-Token': '***', 'X-Team': 'red'}, 'stops': [{'password': '***'}, 'end'],"
        " 'max_completion_tokens': 50, 'secret': None}"
    ) in repr(agent)
    assert agent.extra_params == params


def test_the_repr_of_an_agent_that_knows_itself_ends():
    class Desk:
        agent: Agent | None = None

        def __repr__(self) -> str:
            return f"Desk({self.agent!r})"

        async def approve(self, tool: str, args: object) -> bool:
            return bool(tool or args)

    desk = Desk()
    desk.agent = replace(Agent("ada", "openai/m"), hooks=AgentHooks(approve_tool=desk.approve))
    assert "Desk(Agent(...))" in repr(desk.agent)
