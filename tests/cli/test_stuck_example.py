"""The demo's turn loop: what the screen says happens, happens."""

from untildone import Agent, ExitReason, run_agent
from untildone.cli.stuck_example import TASK, stuck_agent
from untildone.domain.log import Nudged
from untildone.policy.rules import DEFAULT_STUCK_POLICY
from untildone.testing import EventLog, ScriptedModel, call, reply


async def test_it_gets_stuck_is_nudged_and_recovers():
    log = EventLog()
    result = await run_agent(stuck_agent(), [{"role": "user", "content": TASK}], log=log)
    assert (result.exit_reason, result.text) == (
        ExitReason.SATISFIED,
        "The blue paint is on shelf 7.",
    )
    words = [made["args"]["words"] for made in result.tool_calls]
    assert words == ["blue paint"] * 4 + ["paint"]
    (nudge,) = [event for event in log.events if isinstance(event, Nudged)]
    assert nudge.text == DEFAULT_STUCK_POLICY.nudge_text


async def test_without_listening_to_the_nudge_it_would_have_been_stopped():
    tools = stuck_agent().tools
    model = ScriptedModel(lambda seen: reply(None, call("search_stock", words="blue paint")))
    result = await run_agent(Agent("a", model, tools=tools), [{"role": "user", "content": TASK}])
    assert result.exit_reason is ExitReason.STUCK
