"""How one run is put together: strings and functions become ports, and what is opened is closed.

The doors in ``run.py`` are for callers; the loops in ``engine/`` are for what happens between.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, cast
from weakref import WeakKeyDictionary

from untildone.agent import Agent, AgentAsTool
from untildone.domain.errors import (
    ConfigError,
    ResumeError,
    ToolError,
)
from untildone.domain.exits import ExitReason
from untildone.domain.log import (
    ApprovalDecided,
    At,
    Log,
    LogEvent,
    Record,
    RunStarted,
    approval_key,
)
from untildone.domain.messages import messages_from_dicts
from untildone.domain.results import AgentResult
from untildone.domain.tools import NO_TOOLS, ToolSpecs
from untildone.engine.context import Run
from untildone.engine.ending import ended_properly, give_result
from untildone.engine.opening import fingerprint_of, query_of, rules_for
from untildone.engine.record import Recorder
from untildone.engine.refine import refine
from untildone.engine.remembering import learn, recall_context, remembers
from untildone.entrance import Entrance, Options
from untildone.models.metered import EarlierReplies, MeteredModel, ModelPath
from untildone.policy.fold import fold
from untildone.policy.outcome import usage_of
from untildone.policy.state import RunState
from untildone.ports import Clock, Model, OutputReader, Synthesizer, Tool

Messages = Sequence[Mapping[str, Any]]
Approvals = Mapping[str, bool | str]

_tools_of: WeakKeyDictionary[Agent, tuple[dict[str, Tool], ToolSpecs]] = WeakKeyDictionary()
"""An agent never changes, so its functions are read, and encoded for the wire, only once."""


_NO_REPLIES: Final = EarlierReplies()


async def start_run(agent: Agent, messages: Messages, options: Options) -> AgentResult:
    """A new run from its first event to its end."""
    entrance = Entrance(agent, os.urandom(16).hex(), options)
    return await entrance.watch(partial(_start, entrance, messages))


async def resume_run(agent: Agent, log: Log, approvals: Approvals, options: Options) -> AgentResult:
    """A logged run, from the end of its log on."""
    events = _events_of(log)
    started = events[0] if events else None
    if isinstance(started, RunStarted):
        options = replace(options, agent_id=started.agent_id)
    entrance = Entrance(agent, "" if started is None else started.at.run, options)
    return await entrance.watch(partial(_resume, entrance, events, approvals, _shown(log)))


def _events_of(log: Any) -> list[LogEvent]:
    """A log as a list; empty where it is none, which ``_resume`` then refuses."""
    events = list(cast("Iterable[Any]", log)) if isinstance(log, Iterable) else []
    return events if all(isinstance(event, Record) for event in events) else []


async def _start(entrance: Entrance, messages: Messages) -> AgentResult:
    given = tuple(messages_from_dicts(messages))
    agent, outer = entrance.agent, entrance.outer
    async with AsyncExitStack() as opened:
        model, tools, specs = await _ports(entrance, opened)
        rules = rules_for(agent, agent.loop_config, specs)
        run = _run(entrance, RunState(rules), model, tools, specs)
        run.query = query_of(given)
        started = RunStarted(
            run.at(iteration=0),
            run.agent_id,
            model.name,
            agent.system_prompt,
            given,
            fingerprint_of(agent, model.name, rules, specs) if entrance.sinks else "",
            None if outer is None else outer.run_id,
        )
        return await ended_properly(run, _refined(run, opened, started))


def _beginning_of(log: Log, approvals: Approvals, given: str) -> RunStarted:
    """The first event of a log that can be resumed.

    Raises:
        ResumeError: It is no log, or that of several runs.
        ConfigError: The approvals are none.
    """
    started = log[0] if log else None
    if not isinstance(started, RunStarted):
        raise ResumeError(
            f"the log cannot be read, it is {given}: give the events of one run as a list"
            " that begins with RunStarted; dicts become events by event_from_dict"
        )
    runs = {event.at.run for event in log}
    if len(runs) > 1:
        raise ResumeError(
            f"the log holds events of {len(runs)} runs; give those of one:"
            f" [e for e in log if e.at.run == {started.at.run!r}]"
        )
    if not isinstance(approvals, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError(
            f"approvals must be a dict of call ids and decisions, not {approvals!r:.80}"
        )
    return started


def _shown(log: object) -> str:
    if isinstance(log, Sequence) and not isinstance(log, str | bytes):
        first: object = next(iter(cast("Sequence[object]", log)), None)
        return "an empty list" if first is None else f"a list that begins with {first!r:.80}"
    return f"{log!r:.80}"


def _difference(started: RunStarted, agent: Agent, model: str) -> str:
    """What the log itself can tell of what differs; the rest of the configuration is a hash."""
    parts: list[str] = []
    if started.model != model:
        parts.append(f"the model was {started.model!r:.80} and is {model!r:.80}")
    if started.system_prompt != agent.system_prompt:
        parts.append("the system_prompt is another")
    return f" ({'; '.join(parts)})" if parts else ""


async def _resume(entrance: Entrance, log: Log, approvals: Approvals, given: str) -> AgentResult:
    started = _beginning_of(log, approvals, given)
    agent = entrance.agent
    async with AsyncExitStack() as opened:
        model, tools, specs = await _ports(entrance, opened)
        rules = rules_for(agent, agent.loop_config, specs)
        if started.fingerprint not in ("", fingerprint_of(agent, model.name, rules, specs)):
            raise ResumeError(
                f"run {started.at.run} was started with another configuration than agent"
                f" {agent.name!r} has now{_difference(started, agent, model.name)}; resume it with"
                " the agent that it was started with: name, model, system_prompt, temperature,"
                " max_tokens, extra_params, max_turns, on_max_turns, response_model, stuck, tools"
                " and loop_config count"
            )
        state = fold(rules, log)
        run = _run(entrance, state, model, tools, specs)
        run.query = query_of(started.messages)
        for decided in _decisions(run, approvals):
            run.record.note(decided)
        if state.ended is not None:
            await learn(run, state.ended.reason)
            return give_result(run)
        return await ended_properly(run, _refined(run, opened))


async def _refined(
    run: Run, opened: AsyncExitStack, started: RunStarted | None = None
) -> AgentResult:
    """The run itself; closing what was opened for it is part of it, so that no answer is lost."""
    async with opened:
        try:
            if started is not None:
                await run.record(started)
            if run.state.recalled is None and remembers(run):
                await recall_context(run)
            return await refine(run)
        finally:
            if run.closers:
                await run.let_go()


async def _ports(
    entrance: Entrance, opened: AsyncExitStack
) -> tuple[Model, dict[str, Tool], ToolSpecs]:
    """The model and the tools; tools are discovered here, once a run.

    What has to be closed when the run ends goes into ``opened``.
    """
    agent, given = entrance.agent, entrance.options.tool_defs
    model = resolve(agent.model)
    if given is not None:
        return model, *_encoded(collect(given))
    if not agent.mcps:
        return model, *_own_tools(agent)
    from untildone.tools.mcp import open_servers

    own, _ = _own_tools(agent)
    found = await opened.enter_async_context(open_servers(agent.mcps, taken=own))
    return model, *_encoded({**own, **collect(found)})


def _run(
    entrance: Entrance, state: RunState, model: Model, tools: dict[str, Tool], specs: ToolSpecs
) -> Run:
    """The run around a state."""
    agent, run_id = entrance.agent, entrance.run_id
    recorder = Recorder(state, entrance.sinks, entrance.live)
    paths = _Paths(agent, model, run_id, recorder, entrance.options.clock)
    path = paths.of_branch(0)
    entrance.scope.run = run = Run(
        agent=agent,
        loop=agent.loop_config,
        run_id=run_id,
        agent_id=entrance.options.agent_id or agent.name,
        query="",
        record=recorder,
        worker=path,
        judge_model=path,
        judge_of_branch=paths.of_branch,
        tools=tools,
        specs=specs,
        offload=entrance.pool,
        output=_output(agent),
        synthesizer=_synthesizer(agent, path),
        distil=_distiller(entrance),
        spent_before=usage_of(state),
    )
    return run


def _distiller(entrance: Entrance) -> Callable[[str, str], Awaitable[str]] | None:
    """What makes a skill of this run's agent, with the tools that the run has."""
    agent, given, distil = entrance.agent, entrance.options.tool_defs, entrance.scope.distil
    loop = agent.loop_config
    if loop is None or not loop.auto_extract_skill or distil is None:
        return None
    used = agent if given is None else replace(agent, tools=list(given), mcps=[], skills=[])
    return partial(distil, used)


def _own_tools(agent: Agent) -> tuple[dict[str, Tool], ToolSpecs]:
    """The tools and skills of an agent."""
    known = _tools_of.get(agent)
    if known is None:
        known = _tools_of[agent] = _encoded(collect((*agent.tools, *agent.skills)))
    return known


def _encoded(tools: dict[str, Tool]) -> tuple[dict[str, Tool], ToolSpecs]:
    return tools, ToolSpecs([tool.spec for tool in tools.values()]) if tools else NO_TOOLS


def _synthesizer(agent: Agent, path: ModelPath) -> Synthesizer | None:
    """What merges candidates; by default the agent's own model, by the run's metered path."""
    loop = agent.loop_config
    if loop is None or loop.branches == 1 or loop.verifier is not None or loop.branch_vote:
        return None
    from untildone.verify.apex import APEXSynthesizer

    own = loop.synthesizer
    if isinstance(own, APEXSynthesizer):
        return own.asking(path.using(own.model))
    return own if own is not None else APEXSynthesizer(path)


def _output(agent: Agent) -> OutputReader | None:
    if agent.response_model is None:
        return None
    from untildone.tools.structured_output import output_reader

    return output_reader(agent.response_model)


def resolve(model: str | Model) -> Model:
    """A model string as a model; a model as it is.

    Raises:
        ConfigError: The string names no known provider, or its key is missing.
    """
    if not isinstance(model, str):
        return model
    from untildone.models.providers import resolve_model

    return resolve_model(model)


def collect(items: Sequence[Any]) -> dict[str, Tool]:
    """Functions and tools as tools by name.

    Raises:
        ConfigError: Something is no tool, or two have one name.
    """
    if not isinstance(items, list | tuple):
        raise ConfigError(f"tool_defs must be a list of tools or functions, not {items!r:.80}")
    if not items:
        return {}
    from untildone.tools import collect_tools

    return collect_tools(
        [_agent_tool(item) if isinstance(item, AgentAsTool) else item for item in items]
    )


def _agent_tool(data: AgentAsTool) -> Tool:
    """An agent as a tool: a run of its own with an exit of its own, at the caller's cost."""
    from untildone.tools import as_tool, tool

    agent = data.agent

    @tool(name=data.name, description=data.description)
    async def run_task(task: str) -> str:
        result = await start_run(agent, [{"role": "user", "content": task}], Options())
        reason = result.exit_reason
        if reason in (ExitReason.SATISFIED, ExitReason.CONVERGED):
            return result.text
        if reason is ExitReason.AWAITING_APPROVAL:
            raise ToolError(
                f"{agent.name} has to ask a person for approval, which it cannot do as a tool"
            )
        return f"[{agent.name} stopped early: {reason}]\n{result.text}"

    return as_tool(run_task)


class _Paths:
    """The ways of one run to its model, one for each candidate: each call says whose it is."""

    __slots__ = ("_agent", "_clock", "_earlier", "_model", "_record", "_run_id")

    def __init__(
        self, agent: Agent, model: Model, run_id: str, record: Recorder, clock: Clock | None
    ) -> None:
        self._agent = agent
        self._model = model
        self._run_id = run_id
        self._record = record
        self._clock = clock
        replies = record.state.judge_replies
        self._earlier = EarlierReplies(replies) if replies else _NO_REPLIES

    def of_branch(self, branch: int) -> ModelPath:
        """The way for a candidate, or for the run itself."""
        chain = self._agent.fallback_chain
        wrap = partial(self._wrapped, branch)
        return ModelPath(self._model, wrap, resolve, () if chain is None else chain.models)

    def _wrapped(self, branch: int, inner: Model) -> Model:
        """Each try is timed and metered; retries go around that."""
        agent = self._agent
        if agent.timeout_s is not None:
            from untildone.models.timeout import TimeoutModel

            inner = TimeoutModel(inner, agent.timeout_s)
        metered = MeteredModel(inner, self._record, partial(self._at, branch), self._earlier)
        policy = agent.retry_policy
        if policy is None:
            return metered
        from untildone.models.clock import SystemClock
        from untildone.models.retrying import RetryingModel

        return RetryingModel(metered, policy, self._clock or SystemClock())

    def _at(self, branch: int) -> At:
        return At(self._run_id, self._record.state.iteration, branch)


def _decisions(run: Run, approvals: Approvals) -> list[LogEvent]:
    """The decisions as events.

    Raises:
        ResumeError: A call does not wait, or two that wait have the id that was given.
    """
    waiting = _waiting_calls(run)
    decided: list[LogEvent] = []
    for key, answer in approvals.items():
        meant = [call for call in waiting if key in (call.call_id, call.key)]
        if len(meant) != 1:
            shown = ", ".join(f"{call.key} ({call.tool}, id {call.call_id!r})" for call in waiting)
            problem = "more than one call has this id" if meant else "no such call waits"
            raise ResumeError(
                f"approvals has {key!r}: {problem} in run {run.run_id}; waiting: {shown or 'none'}"
            )
        reason = answer if isinstance(answer, str) else None
        decided.append(ApprovalDecided(meant[0].at, meant[0].index, answer is True, reason))
    return decided


@dataclass(frozen=True, slots=True)
class _WaitingCall:
    """A call that waits for a person, by its id and by a key that no other call has."""

    at: At
    index: int
    call_id: str
    tool: str

    @property
    def key(self) -> str:
        return approval_key(self.at, self.index)


def _waiting_calls(run: Run) -> list[_WaitingCall]:
    state = run.state
    return [
        _WaitingCall(
            At(run.run_id, state.iteration, branch, agent_run.turns),
            index,
            agent_run.calls[index].id,
            agent_run.calls[index].name,
        )
        for branch, agent_run in enumerate(state.runs)
        for index, decision in agent_run.approvals.items()
        if decision is None
    ]
