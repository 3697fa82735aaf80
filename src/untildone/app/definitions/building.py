"""From a definition to an ``Agent``."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from untildone.agent import SIMPLE, Agent, LoopConfig
from untildone.app.definitions.frozen_json import thawed
from untildone.app.definitions.reading import check_data, check_file, usable
from untildone.app.definitions.surroundings import Surroundings, surroundings
from untildone.app.definitions.types import AgentDefinition, LoopCriterion, LoopSettings
from untildone.criteria.ai_judge import AiJudge
from untildone.criteria.background import BackgroundTaskCompletion
from untildone.criteria.bounded_schema import BoundedJsonSchema
from untildone.criteria.command import Command
from untildone.criteria.completion_marker import CompletionMarker
from untildone.criteria.composition import AllOf, AnyOf, Not
from untildone.criteria.linear_regex import LinearRegex
from untildone.criteria.min_score import MinScore
from untildone.criteria.registry import CriterionRegistry
from untildone.criteria.todo import TodoCompletion
from untildone.ports import Model
from untildone.verify import Verifier, VerifierConfig


def build_agent(
    definition: AgentDefinition | Mapping[str, Any] | Path,
    *,
    tools: Sequence[Any] = (),
    mcps: Sequence[Any] = (),
    registry: CriterionRegistry | None = None,
    judge_model: str | Model | None = None,
    allow_commands: bool = False,
    providers: Collection[str] | None = None,
    allow_parameters: Collection[str] = (),
) -> Agent:
    """Makes an agent of a definition, or says everything that is wrong with it.

    A definition may come from anybody. It reaches what is given here and nothing else: it cannot
    read files, import modules, run commands (unless allowed) or choose an address; model calls go
    where the environment of this process says. What it can do is to spend tokens at the providers
    it may name.

    Args:
        definition: The definition, the same as plain data, or the ``Path`` of its file, whose
            problems are then told with those of building, each with its line. A text is no path:
            data from outside must not be able to name files.
        tools: What the definition may name in ``tools``: functions, tools, and groups such as
            ``TodoList()`` and ``BackgroundTasks([...])``. The agent gets those that are named, and
            a group that one of its criteria needs.
        mcps: What the definition may name in ``mcp_servers``: MCP servers, by their ``name``. The
            agent gets those that are named.
        registry: Kinds of criteria written in code; ``CriterionRegistry.installed()`` has those of
            installed packages.
        judge_model: Who judges where a criterion does not say; default: the agent's own model.
        allow_commands: Whether ``command`` criteria may be used. They run with the rights of this
            process: only for definitions that you would run as a program.
        providers: The model providers that the definition may name; default: all but ``litellm``.
        allow_parameters: Model parameters it may set beyond those that only shape a reply.

    Raises:
        DefinitionError: The definition cannot be used; the error has every problem at once.
        ConfigError: One of the other arguments cannot be used, or a file is YAML and the package
            for that is missing.
    """
    around = surroundings(
        tools=tools,
        mcps=mcps,
        registry=registry,
        judge_model=judge_model,
        allow_commands=allow_commands,
        providers=providers,
        allow_parameters=allow_parameters,
    )
    if isinstance(definition, Path):
        return agent_of(usable(check_file(definition, around), str(definition)), around)
    return agent_of(usable(check_data(definition, around), None), around)


def agent_of(definition: AgentDefinition, around: Surroundings) -> Agent:
    """The agent of a definition that was checked with these surroundings."""
    binding, harness = definition.model, definition.harness
    parameters = thawed(binding.parameters)
    return Agent(
        definition.name,
        _model_string(binding.provider, binding.model),
        system_prompt=definition.instructions,
        tools=_tools(definition, around),
        mcps=[around.mcps[name] for name in definition.mcp_servers],
        max_turns=harness.maximum_iterations_per_request or SIMPLE,
        temperature=parameters.pop("temperature", None),
        max_tokens=parameters.pop("max_tokens", None),
        extra_params=parameters,
        loop_config=None if harness.loop is None else _loop(harness.loop, around),
    )


def _model_string(provider: str, model: str) -> str:
    return f"{provider}/{model}"


def _loop(settings: LoopSettings, around: Surroundings) -> LoopConfig:
    return LoopConfig(
        max_iterations=settings.max_iterations or settings.DEFAULT_MAX_ITERATIONS,
        criteria=[_criterion(each, around) for each in settings.criteria],
        fresh_context=settings.fresh_context_per_iteration,
        on_exhausted=settings.on_exhausted,
        on_criterion_error=settings.on_criterion_error,
    )


def _tools(definition: AgentDefinition, around: Surroundings) -> list[Any]:
    """What is named, and what criteria need to have any effect; each once."""
    named = (tool for name in definition.tools for tool in around.tools[name])
    loop = definition.harness.loop
    kinds = set(_kinds(() if loop is None else loop.criteria))
    needed: list[Any] = []
    if "todoCompletion" in kinds and around.todos is not None:
        needed += around.todos.tools
    if "backgroundTaskCompletion" in kinds and around.background is not None:
        needed += around.background.tools
    return list({id(tool): tool for tool in (*named, *needed)}.values())


def _kinds(criteria: Iterable[LoopCriterion]) -> Iterator[str]:
    for criterion in criteria:
        yield criterion.kind
        yield from _kinds(criterion.criteria or ())


def _criterion(data: LoopCriterion, around: Surroundings) -> Any:
    """The criterion that a checked one describes."""
    match data.kind:
        case "completionMarker":
            return CompletionMarker(data.marker or "")
        case "aiJudge":
            return AiJudge(
                data.judge_criteria or (),
                model=_judge(data, around),
                instructions=data.judge_instructions,
            )
        case "todoCompletion" if around.todos is not None:
            return TodoCompletion(around.todos, modes=data.modes)
        case "backgroundTaskCompletion" if around.background is not None:
            return BackgroundTaskCompletion(around.background, **_given(wait_s=data.wait_seconds))
        case "minScore":
            return MinScore(_verifier(data, around))
        case "jsonSchema":
            return BoundedJsonSchema(thawed(data.json_schema))
        case "regex":
            return LinearRegex(data.pattern or "", feedback=data.feedback)
        case "command" if around.allow_commands:
            limit = _given(timeout_s=data.timeout_seconds)
            return Command(data.command or "", cwd=_directory(data, around), **limit)
        case "allOf" | "anyOf" | "not":
            return _composed(data, around)
        case kind:
            return around.registry.make(kind, thawed(data.options) or {})


def _directory(data: LoopCriterion, around: Surroundings) -> str | None:
    """Where a command runs: its own directory, counted from the one all commands run in."""
    base, own = around.command_directory, data.working_directory
    if base is None or own is None:
        return own or base
    return str(Path(base, own))


def _given(**settings: Any) -> dict[str, Any]:
    """The settings that were given; the others keep the default of what takes them."""
    return {name: value for name, value in settings.items() if value is not None}


def _composed(data: LoopCriterion, around: Surroundings) -> Any:
    parts = [_criterion(each, around) for each in data.criteria or ()]
    match data.kind:
        case "allOf":
            return AllOf(parts)
        case "anyOf":
            return AnyOf(parts)
        case _:
            return Not(parts[0], feedback=data.feedback)


def _verifier(data: LoopCriterion, around: Surroundings) -> Verifier:
    return Verifier(
        VerifierConfig(
            model=_judge(data, around),
            threshold=data.min_score or 0.0,
            rubric=data.rubric,
            confirmations=data.confirmations or 0,
        )
    )


def _judge(data: LoopCriterion, around: Surroundings) -> str | Model | None:
    own = data.judge_model
    return around.judge_model if own is None else _model_string(own.provider, own.model)
