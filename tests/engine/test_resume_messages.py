"""What a refused resume tells: what was given, and what differs."""

import asyncio
from pathlib import Path

import pytest

from untildone import Agent, ResumeError, resume_agent, run_agent
from untildone.testing import EventLog, ScriptedModel


def agent(**settings) -> Agent:
    return Agent("a", ScriptedModel(["x"]), **settings)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "it is an empty list"),
        (Path("x.jsonl"), "it is PosixPath.'x.jsonl'."),
        ([{"a": 1}], "it is a list that begins with {'a': 1}"),
    ],
)
def test_what_is_no_log_is_named(given, said: str):
    with pytest.raises(ResumeError, match=said):
        asyncio.run(resume_agent(agent(), given))


def test_what_differs_is_named_and_what_counts():
    log = EventLog()
    asyncio.run(run_agent(agent(system_prompt="one"), [{"role": "user", "content": "x"}], log=log))
    with pytest.raises(ResumeError, match=r"\(the system_prompt is another\).*loop_config count"):
        asyncio.run(resume_agent(agent(system_prompt="two"), log.events))
