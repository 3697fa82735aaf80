"""What one run has at hand: its configuration, its state, and the ports it may use."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from untildone.agent import Agent, LoopConfig
from untildone.domain.call_site import Closer
from untildone.domain.errors import LoopConvergedError, OutputParseError
from untildone.domain.log import At
from untildone.domain.results import AgentResult
from untildone.domain.tools import ToolSpecs
from untildone.domain.usage import NO_USAGE, Usage
from untildone.engine.record import Recorder
from untildone.policy.outcome import iteration_result, update_totals, usage_of
from untildone.policy.rules import LoopRules
from untildone.policy.state import RunState
from untildone.ports import Model, Offload, OutputReader, RunModel, Synthesizer, Tool

_log = logging.getLogger("untildone")


@dataclass(slots=True)
class Run:
    """One run. Made by the doors (``run.py``), used by the loops; never shared between runs.

    Attributes:
        agent: What a person configured.
        loop: Its refine loop, if any.
        agent_id: How events name the agent.
        query: The text of the caller's last user message.
        record: The only way to change ``state``.
        worker: The model, metered, with retries.
        judge_model: The same path for those who judge.
        judge_of_branch: The same for those who judge one of several candidates.
        tools: The tools by name.
        specs: The tools as the model is told of them.
        offload: Runs blocking functions in the run's pool.
        output: Reads replies as the agent's ``response_model``, if it has one.
        synthesizer: Merges candidates, where nothing grades them.
        distil: Makes a skill of the run from its tag and query, and gives its name.
        closers: What ends the work that tools still do for the run, by its id.
        spent_before: What a resumed run had cost before it was resumed.
        failure: What a judge raised, while it is needed to end the run.
        branch_failures: What candidates of the current iteration raised, by index.
        vote_keys: What candidates voted for, each different key once, with its text in the log.
        early: The ``LoopConvergedError`` that a predicate raised, likewise.
    """

    agent: Agent
    loop: LoopConfig | None
    run_id: str
    agent_id: str
    query: str
    record: Recorder
    worker: Model
    judge_model: RunModel
    judge_of_branch: Callable[[int], RunModel]
    tools: Mapping[str, Tool]
    specs: ToolSpecs
    offload: Offload
    output: OutputReader | None = None
    synthesizer: Synthesizer | None = None
    distil: Callable[[str, str], Awaitable[str]] | None = None
    closers: set[Closer] = field(default_factory=set[Closer])
    spent_before: Usage = NO_USAGE
    failure: BaseException | None = None
    branch_failures: dict[int, BaseException] = field(default_factory=dict[int, BaseException])
    vote_keys: list[tuple[Any, str]] = field(default_factory=list[tuple[Any, str]])
    early: LoopConvergedError | None = None
    _judged: AgentResult | None = None
    _here: At | None = None

    @property
    def state(self) -> RunState:
        """The run's state; changed by ``record`` alone."""
        return self.record.state

    @property
    def loop_rules(self) -> LoopRules:
        """The refine loop's rules; only asked inside one."""
        loop = self.state.rules.loop
        if loop is None:
            msg = "a run without a refine loop has no loop rules"
            raise RuntimeError(msg)
        return loop

    def at(self, *, iteration: int | None = None, branch: int = 0, turn: int = 0) -> At:
        """A place in this run; the current iteration where none is given."""
        number = self.record.state.iteration if iteration is None else iteration
        here = self._here
        if here is None or here.iteration != number:
            here = self._here = At(self.run_id, number)
        return At(self.run_id, number, branch, turn) if branch or turn else here

    def spent(self) -> Usage:
        """What the run has cost since it was started or resumed."""
        return usage_of(self.state) - self.spent_before

    async def let_go(self) -> None:
        """Ends what tools still do for this run; what fails then never costs an answer."""
        while self.closers:
            close = self.closers.pop()
            try:
                await close(self.run_id)
            except Exception:
                _log.warning("a tool could not end what it did for the run", exc_info=True)

    def judged_result(self) -> AgentResult:
        """The current iteration's result: the same object for all who judge it."""
        state = self.state
        result = self._judged
        if result is None or result.loop_iterations != state.iteration:
            result = self._judged = self.with_parsed(iteration_result(state))
        else:
            update_totals(result, state)
        return result

    def with_parsed(self, result: AgentResult) -> AgentResult:
        """The result with its text read as ``response_model``, where it fits."""
        if self.output is not None:
            with suppress(OutputParseError):
                result.parsed = self.output.read(result.text)
        return result

    def temperature(self, at: At) -> float | None:
        """The agent's temperature, or the one of a candidate that has its own."""
        own = () if self.loop is None else self.loop.branch_temperatures
        return own[at.branch] if own else self.agent.temperature

    def sampling_params(self, at: At) -> Mapping[str, Any]:
        """The agent's extra parameters; a seed is moved on, so that none is used twice."""
        params = self.agent.extra_params
        seed = params.get("seed") if params else None
        loop = self.state.rules.loop
        if not isinstance(seed, int) or loop is None:
            return params
        return {**params, "seed": seed + (at.iteration - 1) * loop.branches + at.branch}
