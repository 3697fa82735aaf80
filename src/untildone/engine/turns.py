"""The turn loop: model, tools, model, until the model is done, stuck or out of turns.

What comes next is decided by ``policy.steps.next_turn``; the order there is the contract's: answer
the calls, look whether the agent is stuck, then look at the cap.
"""

from __future__ import annotations

from typing import assert_never

from untildone.cancellation import OwnCancellation
from untildone.domain.log import AgentRunEnded, At, Nudged
from untildone.domain.requests import ModelRequest
from untildone.engine.context import Run
from untildone.engine.hooks import call_hook
from untildone.engine.live import branches_of
from untildone.engine.output import check_output, refuse_output
from untildone.engine.tool_calls import answer_calls
from untildone.policy.state import AgentRun
from untildone.policy.steps import (
    CallModel,
    CheckOutput,
    EndAgentRun,
    Nudge,
    RefuseOutput,
    RunTools,
    next_turn,
)


async def run_turns(run: Run, branch: int = 0) -> None:
    """Takes one agent run from where it stands to its inner exit."""
    agent_run, rules = run.state.runs[branch], run.state.rules
    at = run.at(branch=branch, turn=agent_run.turns)
    if agent_run.turns == 0:
        await call_hook(run, "on_agent_start")
    cancellation = OwnCancellation()
    while True:
        cancellation.stop_if_asked()
        step = next_turn(agent_run, rules)
        match step:
            case CallModel():
                at = run.at(branch=branch, turn=agent_run.turns + 1)
                await _call_model(run, agent_run, at)
            case RunTools():
                await answer_calls(run, agent_run, at)
            case Nudge(signal):
                text = rules.stuck.nudge_text
                await run.record(Nudged(at, text, signal.rule, signal.evidence))
            case CheckOutput():
                await check_output(run, agent_run, at)
            case RefuseOutput():
                refuse_output(run, agent_run)
            case EndAgentRun(reason):
                await run.record(AgentRunEnded(at, reason))
                return
            case _:
                assert_never(step)


async def _call_model(run: Run, agent_run: AgentRun, at: At) -> None:
    """One model call; its reply is applied to the state by the port that meters it."""
    agent = run.agent
    request = ModelRequest(
        messages=agent_run.conversation,
        tools=run.specs,
        temperature=run.temperature(at),
        max_tokens=agent.max_tokens,
        extra_params=run.sampling_params(at),
        at=at,
    )
    if run.output is not None:
        request.json_schema = run.output.json_schema
        request.schema_name = run.output.name
    live = run.record.live
    branch = at.branch if branches_of(run.state) > 1 else None
    await run.worker.generate(request, None if live is None else live.delta_sink(branch))
