"""How a turn loop ends with an answer."""

from tests.behaviour.manifest import requirement
from untildone import Agent, ExitReason, run_agent
from untildone.testing import ScriptedModel


@requirement("turns.answer-verbatim")
async def test_the_answer_is_the_reply_verbatim():
    text = "  two\n\n spaces, a newline \n"
    result = await run_agent(Agent("a", ScriptedModel([text])), [{"role": "user", "content": "hi"}])
    assert result.text == text
    assert result.exit_reason is ExitReason.SATISFIED
