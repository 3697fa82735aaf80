"""A reply held against ``response_model``: it fits, is sent back once, or fails the run."""

from __future__ import annotations

from typing import NoReturn

from untildone.domain.errors import OutputParseError
from untildone.domain.log import At, OutputJudged
from untildone.engine.context import Run
from untildone.policy.state import AgentRun
from untildone.policy.steps import OUTPUT_REPAIRS
from untildone.ports import OutputReader


async def check_output(run: Run, agent_run: AgentRun, at: At) -> None:
    """Reads the reply; where it does not fit, the model is told once why not."""
    problem = _problem(run.output, agent_run.text)
    complaint = None
    if problem is not None and agent_run.output_problems < OUTPUT_REPAIRS:
        complaint = f"Your reply does not fit: {problem}. Reply again with the JSON object only."
    await run.record(OutputJudged(at, problem, complaint))


def refuse_output(run: Run, agent_run: AgentRun) -> NoReturn:
    """Fails the run with what does not fit.

    Raises:
        OutputParseError: Always.
    """
    problem = _problem(run.output, agent_run.text) or "it was refused"
    raise OutputParseError(
        f"the reply of agent {run.agent.name!r} does not fit its response_model, also after one"
        f" repair: {problem}",
        agent_run.text,
    )


def _problem(output: OutputReader | None, text: str) -> str | None:
    if output is None:
        return None
    try:
        output.read(text)
    except OutputParseError as error:
        return str(error)
    return None
