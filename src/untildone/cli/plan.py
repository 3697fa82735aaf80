"""From the options of ``untildone run`` to the agent that is run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from untildone.agent import CODING, SIMPLE, Agent, LoopConfig, RetryPolicy
from untildone.assembly import collect, resolve
from untildone.cli.until import Surroundings, Until, read_until
from untildone.cli.user_code import load_agent, load_tools
from untildone.criteria import CompletionMarker
from untildone.domain.errors import ConfigError

_ALONE: Final = (
    "You work on your own: nobody answers questions. Use the tools to do the task, then say in a"
    " few sentences what you did."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What was typed after ``untildone run``; see ``--help`` for each."""

    model: str | None = None
    agent: str | None = None
    tools: Sequence[str] = ()
    workspace: Path | None = None
    until: Sequence[str] = ()
    judge_model: str | None = None
    max_iterations: int | None = None
    max_turns: int | None = None
    max_tokens: int | None = None
    fresh: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is run.

    Attributes:
        agent: The agent, with its refine loop if it has one.
        untils: The conditions of the command line.
    """

    agent: Agent
    untils: tuple[Until, ...]


def plan_run(options: RunOptions) -> Plan:
    """Puts the agent together.

    Raises:
        ConfigError: An option cannot work, a file cannot be loaded, or a model string is wrong.
    """
    agent = _first_agent(options)
    around = Surroundings(cwd=options.workspace, judge_model=options.judge_model)
    untils = tuple(read_until(text, around) for text in options.until)
    agent = replace(
        agent,
        tools=[*agent.tools, *_added_tools(options)],
        max_turns=options.max_turns or agent.max_turns,
        max_tokens=options.max_tokens or agent.max_tokens,
        loop_config=_loop(agent.loop_config, untils, options),
    )
    _check_models(agent, options)
    for tool in collect(agent.tools).values():
        _ = tool.spec  # made on first use: a function that cannot be a tool is told of here
    return Plan(agent=agent, untils=untils)


def _first_agent(options: RunOptions) -> Agent:
    if options.agent is not None:
        agent = load_agent(options.agent)
        return agent if options.model is None else replace(agent, model=options.model)
    if options.model is None:
        raise ConfigError(
            "no model: give --model PROVIDER/NAME, such as openai/gpt-4o-mini or, offline,"
            " local/smollm2; or set UNTILDONE_MODEL, or give --agent FILE.py:NAME"
        )
    has_tools = bool(options.tools or options.workspace)
    return Agent(
        "agent",
        options.model,
        system_prompt=_ALONE if has_tools else "",
        max_turns=SIMPLE if options.workspace is None else CODING,
        retry_policy=RetryPolicy(max_retries=2),
    )


def _added_tools(options: RunOptions) -> list[Any]:
    added = [tool for file in options.tools for tool in load_tools(file)]
    if options.workspace is not None:
        from untildone.tools.workspace import Workspace

        added += Workspace(options.workspace).tools
    return added


def tell_conditions(plan: Plan, task: str) -> Plan:
    """The plan with the conditions in the system prompt: nobody meets what he does not know.

    A marker that the task names is not told again: a small model repeats what it is told.
    """
    untold = [until for until in plan.untils if not _is_named(until, task)]
    if not untold:
        return plan
    listed = "\n".join(f"- {until.told}" for until in untold)
    own = plan.agent.system_prompt
    head = f"{own}\n\n" if own else ""
    told = f"{head}Your work is checked when you stop, and counts as done only if:\n{listed}"
    return replace(plan, agent=replace(plan.agent, system_prompt=told))


def _is_named(until: Until, task: str) -> bool:
    return isinstance(until.criterion, CompletionMarker) and until.criterion.marker in task


def _loop(
    own: LoopConfig | None, untils: Sequence[Until], options: RunOptions
) -> LoopConfig | None:
    """The refine loop: the agent's own conditions stay, those of the command line come after."""
    if own is None and not untils:
        for option, given in (
            ("--max-iterations", options.max_iterations is not None),
            ("--fresh", options.fresh),
        ):
            if given:
                raise ConfigError(
                    f"{option} has no effect without a loop; say when the work is done:"
                    " --until marker:TEXT"
                )
        return None
    loop = own or LoopConfig()
    return replace(
        loop,
        criteria=[*loop.criteria, *(until.criterion for until in untils)],
        max_iterations=options.max_iterations or loop.max_iterations,
        fresh_context=options.fresh or loop.fresh_context,
        evaluate_final=True,
    )


def _check_models(agent: Agent, options: RunOptions) -> None:
    """Wrong strings and missing keys are told before anything runs, the judge's too."""
    resolve(agent.model)
    if options.judge_model is not None:
        if not any(text.lower().startswith("judge:") for text in options.until):
            raise ConfigError("--judge-model has no effect without --until judge:TEXT")
        resolve(options.judge_model)
