"""``ScriptedModel``: what its script may be, and what it says at its end."""

import pytest

from untildone import Agent, ConfigError, run_agent_sync
from untildone.testing import ScriptedModel


def test_one_text_is_no_script():
    with pytest.raises(ConfigError, match=r"a list of lines: ScriptedModel\(\['hello'\]\)"):
        ScriptedModel("hello")


def test_a_script_that_is_over_says_how_long_it_was():
    model = ScriptedModel(["one"])
    agent = Agent("a", model)
    run_agent_sync(agent, [{"role": "user", "content": "x"}])
    with pytest.raises(AssertionError, match="has 1 line, but the model was called 2 times"):
        run_agent_sync(agent, [{"role": "user", "content": "x"}])
