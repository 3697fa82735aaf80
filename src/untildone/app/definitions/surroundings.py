"""What a definition may reach: what the code that builds it offers and allows, and nothing else."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from untildone.agent import AgentAsTool
from untildone.criteria.registry import CriterionRegistry
from untildone.domain.errors import ConfigError
from untildone.models.providers import PROVIDERS, provider_of
from untildone.ports import Model
from untildone.tools import as_tool
from untildone.tools.background import BackgroundTasks
from untildone.tools.todo import TodoList

SAMPLING_PARAMETERS: Final = frozenset(
    {
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "max_tokens",
        "max_completion_tokens",
        "stop",
        "stop_sequences",
        "seed",
        "presence_penalty",
        "frequency_penalty",
        "repetition_penalty",
        "logit_bias",
        "reasoning_effort",
        "verbosity",
        "parallel_tool_calls",
    }
)
"""The model parameters that only shape a reply. Any other may change where a request goes, who pays
for it or what the provider does with it, so it has to be allowed by name."""

DEFAULT_PROVIDERS: Final = frozenset(PROVIDERS) - {"litellm"}
"""The providers a definition may name. ``litellm`` takes addresses and far more in model names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What can be done about what a definition may not reach, said to who offers it.

    Attributes:
        tools: How a tool is offered.
        background: How background tasks are.
        todos: How a todo list is.
        modes: How it gets modes.
        kinds: How a kind of criterion is made known.
        servers: How an MCP server is offered.
        commands: How commands are allowed.
        provider: How a provider is; ``{}`` is its name.
        parameter: How a model parameter is; likewise.
    """

    tools: str = "Give it in code: build_agent(..., tools=[function])"
    background: str = "build_agent(..., tools=[BackgroundTasks([function])])"
    todos: str = "build_agent(..., tools=[TodoList()])"
    modes: str = "TodoList(modes=[...]) gives it some"
    kinds: str = (
        "registry = CriterionRegistry(); registry.register(kind, criterion);"
        " build_agent(..., registry=registry)"
    )
    servers: str = "Give it in code: build_agent(..., mcps=[StdioMCP(..., name=...)])"
    commands: str = "build_agent(..., allow_commands=True)"
    provider: str = "build_agent(..., providers=[{}, ...])"
    parameter: str = "build_agent(..., allow_parameters=[{}])"


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the code that builds an agent gives to its definition.

    Attributes:
        tools: What a name in ``tools`` stands for; a group such as ``todo`` stands for several.
        mcps: The MCP servers that a name in ``mcp_servers`` stands for.
        todos: The todo list, if there is one.
        background: The background tasks, if there are any.
        registry: Kinds of criteria written in code.
        judge_model: Who judges where a criterion names nobody; None: the agent's own model.
        allow_commands: Whether criteria may run commands.
        command_directory: Where they run; a relative ``workingDirectory`` counts from here.
        providers: The model providers it may name.
        parameters: The model parameters it may set; None: all.
        advice: What is said to who gives all this, where something is missing.
    """

    tools: Mapping[str, Sequence[Any]] = field(default_factory=dict[str, Sequence[Any]])
    mcps: Mapping[str, Any] = field(default_factory=dict[str, Any])
    todos: TodoList | None = None
    background: BackgroundTasks | None = None
    registry: CriterionRegistry = field(default_factory=CriterionRegistry)
    judge_model: str | Model | None = None
    allow_commands: bool = False
    command_directory: str | None = None
    providers: frozenset[str] = DEFAULT_PROVIDERS
    parameters: frozenset[str] | None = SAMPLING_PARAMETERS
    advice: Advice = Advice()


def surroundings(
    *,
    tools: Sequence[Any] = (),
    mcps: Sequence[Any] = (),
    registry: CriterionRegistry | None = None,
    judge_model: str | Model | None = None,
    allow_commands: bool = False,
    command_directory: str | None = None,
    providers: Collection[str] | None = None,
    allow_parameters: Collection[str] = (),
) -> Surroundings:
    """The surroundings out of what ``build_agent`` takes; see there.

    Raises:
        ConfigError: Something among them cannot be used; that is the caller's, not a definition's.
    """
    if isinstance(tools, str) or not isinstance(tools, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError(f"tools must be a list of tools, not {tools!r:.80}")
    return Surroundings(
        tools=_by_name(tools),
        mcps=_servers_by_name(mcps),
        todos=_only_one(TodoList, tools),
        background=_only_one(BackgroundTasks, tools),
        registry=_checked_registry(registry),
        judge_model=_checked_judge(judge_model),
        allow_commands=allow_commands is True,
        command_directory=command_directory,
        providers=DEFAULT_PROVIDERS if providers is None else _known_providers(providers),
        parameters=SAMPLING_PARAMETERS | _names("allow_parameters", allow_parameters),
    )


def names_of(items: Iterable[Any]) -> set[str]:
    """What tools and groups of tools are named, the tools of a group included.

    Raises:
        ConfigError: One of them is no tool.
    """
    return {name for item in items for name, _ in _entries(item)}


def _by_name(items: Sequence[Any]) -> dict[str, Sequence[Any]]:
    """Each tool under its name, and the tools of a group under the group's name too."""
    named: dict[str, Sequence[Any]] = {}
    for name, tools in (entry for item in items for entry in _entries(item)):
        if name in named:
            raise ConfigError(f"two tools are named {name!r}; leave one out or rename it")
        named[name] = tools
    return named


def _servers_by_name(servers: Sequence[Any]) -> dict[str, Any]:
    if not isinstance(servers, list | tuple):
        raise ConfigError(f"mcps must be a list of MCP servers, not {servers!r:.80}")
    named: dict[str, Any] = {}
    for index, server in enumerate(servers):
        if isinstance(server, type) or not callable(getattr(server, "transport", None)):
            raise ConfigError(
                f"mcps[{index}] is {server!r:.80}; give StdioMCP(...), HTTPMCP(...) or SSEMCP(...)"
            )
        if server.name in named:
            raise ConfigError(
                f"two MCP servers are named {server.name!r}; give one another name=..."
            )
        named[server.name] = server
    return named


def _entries(item: Any) -> Iterator[tuple[str, Sequence[Any]]]:
    members: Any = getattr(item, "tools", None)
    if callable(item) or not isinstance(members, list | tuple):
        yield _name_of(item), [item]
        return
    tools = cast("Sequence[Any]", members)
    for tool in tools:
        yield _name_of(tool), [tool]
    group: Any = getattr(item, "name", None)
    if isinstance(group, str) and group:
        yield group, tools


def _name_of(item: Any) -> str:
    return item.name if isinstance(item, AgentAsTool) else as_tool(item).spec.name


def _only_one(kind: type[Any], items: Iterable[Any]) -> Any:
    found = [item for item in items if isinstance(item, kind)]
    if len(found) > 1:
        raise ConfigError(f"tools has {len(found)} of {kind.__name__}; give one")
    return found[0] if found else None


def _checked_judge(model: Any) -> str | Model | None:
    is_text = isinstance(model, str)
    if model is None or (model.strip() if is_text else callable(getattr(model, "generate", None))):
        if is_text and (provider_of(model) is None or not model.partition("/")[2].strip()):
            raise ConfigError(
                f"judge_model is {model!r:.80}; write PROVIDER/MODEL, where PROVIDER is one of"
                f" {', '.join(PROVIDERS)}"
            )
        return model
    raise ConfigError(
        f"judge_model is {model!r:.80}; give a model, or a string such as 'openai/gpt-4o-mini'"
    )


def _checked_registry(registry: object) -> CriterionRegistry:
    if registry is None:
        return CriterionRegistry()
    if isinstance(registry, CriterionRegistry):
        return registry
    raise ConfigError(f"registry must be a CriterionRegistry, not {registry!r:.80}")


def _known_providers(providers: Collection[str]) -> frozenset[str]:
    names = _names("providers", providers)
    unknown = sorted(names - PROVIDERS.keys())
    if unknown:
        raise ConfigError(
            f"providers has {', '.join(map(repr, unknown))}; known are {', '.join(PROVIDERS)}"
        )
    return names


def _names(setting: str, values: Collection[str]) -> frozenset[str]:
    if isinstance(values, str) or not all(isinstance(value, str) for value in values):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError(f"{setting} must be a list of names, not {values!r:.80}")
    return frozenset(values)
