"""A reply held against ``response_model``: it fits, is sent back once, or fails the run."""

from __future__ import annotations

from typing import Final, NoReturn

from untildone.domain.errors import OutputParseError
from untildone.domain.log import At, OutputJudged
from untildone.engine.context import Run
from untildone.policy.cutting import cut_text
from untildone.policy.state import AgentRun
from untildone.policy.steps import OUTPUT_REPAIRS
from untildone.ports import OutputReader

_MAX_REFUSAL: Final = 1_000


async def check_output(run: Run, agent_run: AgentRun, at: At) -> None:
    """Reads the reply; where it does not fit, the model is told once why not."""
    problem = _problem(run.output, agent_run)
    complaint = None
    if problem is not None and agent_run.output_problems < OUTPUT_REPAIRS:
        complaint = f"Your reply does not fit: {problem}. Reply again with the JSON object only."
    await run.record(OutputJudged(at, problem, complaint))


def refuse_output(run: Run, agent_run: AgentRun) -> NoReturn:
    """Fails the run with what does not fit.

    Raises:
        OutputParseError: Always.
    """
    problem = _problem(run.output, agent_run) or "it was refused"
    raise OutputParseError(
        f"the reply of agent {run.agent.name!r} does not fit its response_model, also after one"
        f" repair: {problem}",
        agent_run.text,
    )


def _problem(output: OutputReader | None, agent_run: AgentRun) -> str | None:
    if output is None:
        return None
    try:
        output.read(agent_run.text)
    except OutputParseError as error:
        return _refusal(agent_run) or str(error)
    return None


def _refusal(agent_run: AgentRun) -> str | None:
    """What a reply says that is no try to fit, but a refusal; None for any other."""
    last = agent_run.conversation[-1]
    is_reply = last.role == "assistant" and last.text == agent_run.text
    words = last.extra.get("refusal") if is_reply and last.extra else None
    if isinstance(words, str) and words.strip():
        return f"it is a refusal of the model: {cut_text(words.strip(), _MAX_REFUSAL)}"
    if agent_run.finish_reason != "content_filter":
        return None
    words = agent_run.text.strip()
    said = cut_text(words, _MAX_REFUSAL) if words else "(it gave no words)"
    return f"the model or its provider refused (finish_reason content_filter): {said}"
