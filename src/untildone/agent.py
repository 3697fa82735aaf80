"""What a person configures: ``Agent`` and ``LoopConfig``. Immutable, checked when built, shareable.

No counters live here: one ``Agent`` serves a thousand runs at once.
"""

from __future__ import annotations

import warnings
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from inspect import iscoroutinefunction
from reprlib import recursive_repr
from typing import Any, Final, Literal, cast

from untildone.domain.bounds import check_count, check_number
from untildone.domain.errors import (
    BadReplyError,
    ConfigError,
    ConnectionFailedError,
    LoopConfigWarning,
    ModelTimeoutError,
    RateLimitError,
    ServerError,
)
from untildone.domain.grading import LoopOutcome
from untildone.domain.results import AgentResult
from untildone.domain.tools import TOOL_NAME
from untildone.policy.rules import DEFAULT_REFINE_PROMPT, DEFAULT_STUCK_POLICY
from untildone.policy.stuck import StuckPolicy
from untildone.ports import Grader, Model, Predicate, Synthesizer

SIMPLE: Final = 10
"""``max_turns`` for questions and answers (S2: 5 to 10)."""
RESEARCH: Final = 30
"""``max_turns`` for research in several steps (S2: 20 to 30)."""
CODING: Final = 100
"""``max_turns`` for long coding work (S2: 50 to 100)."""


@dataclass(frozen=True)
class RetryPolicy:
    """How a failed model call is tried again (S1). It stays the same turn.

    Attributes:
        max_retries: Tries after the first one; 0 or more.
        backoff_seconds: The first wait, in seconds. A provider's Retry-After wins where longer.
        retry_on: Exception types that are worth another try. Refused keys and refused requests
            are not among them: the same request would be refused again.
        exponential: Whether each wait is twice the one before.
        max_backoff_seconds: The longest wait, Retry-After included.
        jitter: The part of a wait that is random, in [0, 1]: it keeps many runs from retrying at
            the same moment.

    Raises:
        ConfigError: A value is out of bounds.
    """

    max_retries: int = 3
    backoff_seconds: float = 1.0
    retry_on: tuple[type[BaseException], ...] = (
        RateLimitError,
        ServerError,
        ConnectionFailedError,
        ModelTimeoutError,
        BadReplyError,
    )
    exponential: bool = True
    max_backoff_seconds: float = 60.0
    jitter: float = 0.1

    def __post_init__(self) -> None:
        check_count("RetryPolicy.max_retries", self.max_retries, least=0)
        check_number("RetryPolicy.backoff_seconds", self.backoff_seconds, least=0)
        check_number("RetryPolicy.max_backoff_seconds", self.max_backoff_seconds, least=0)
        check_number("RetryPolicy.jitter", self.jitter, least=0, most=1)
        kinds: Any = self.retry_on
        kinds = (kinds,) if isinstance(kinds, type) else kinds
        if not isinstance(kinds, list | tuple) or not all(
            isinstance(kind, type) and issubclass(kind, BaseException)
            for kind in cast("list[Any]", kinds)
        ):
            raise ConfigError(
                f"RetryPolicy.retry_on must be exception types, not {self.retry_on!r:.80}"
            )
        object.__setattr__(self, "retry_on", tuple(cast("list[Any]", kinds)))


@dataclass(frozen=True)
class FallbackChain:
    """Models to ask, in order, when the one before has failed for good (S1).

    Attributes:
        models: Model strings or objects.

    Raises:
        ConfigError: It is a single string instead of a list.
    """

    models: Sequence[str | Model] = ()

    def __post_init__(self) -> None:
        if isinstance(self.models, str) or not isinstance(self.models, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
            msg = f"FallbackChain.models must be a list of models, not {self.models!r:.80}"
            raise ConfigError(msg)
        for index, model in enumerate(self.models):
            _check_model(f"FallbackChain.models[{index}]", model)
        object.__setattr__(self, "models", tuple(self.models))


ApprovalAnswer = bool | str | None


@dataclass(frozen=True, kw_only=True)
class AgentHooks:
    """Async callbacks around an agent's work (S1). Unlike events they may change it.

    A hook that raises is logged and ignored, except ``approve_tool``: then the call is denied.

    Attributes:
        on_agent_start: ``async ()``, before the first turn of each agent run.
        on_tool_start: ``async (tool, args)``, before a tool runs.
        on_tool_end: ``async (tool, result)``, after it.
        approve_tool: ``async (tool, args)``: True runs the call; False or a text denies it, and
            the model reads the text; None asks a person: the run ends ``awaiting_approval`` and
            can be resumed with the decision.
    """

    on_agent_start: Callable[[], Awaitable[None]] | None = None
    on_tool_start: Callable[[str, dict[str, Any]], Awaitable[None]] | None = None
    on_tool_end: Callable[[str, str], Awaitable[None]] | None = None
    approve_tool: Callable[[str, dict[str, Any]], Awaitable[ApprovalAnswer]] | None = None


@dataclass(frozen=True, eq=False)
class LoopConfig:
    """The refine loop around an agent: run, judge, refine, until it is done (S1, S3).

    Attributes:
        max_iterations: The ceiling, 1 or more.
        convergence_fn: True ends the loop with this result. Sync or async.
        stop_condition: True ends the loop by raising ``LoopConvergedError`` with this result.
        refine_prompt: What the agent is told when nobody gave feedback; ``""`` for nothing.
        verifier: Grades each iteration with a score and reasons.
        procedural_memory: A playbook, read before iteration 1 and curated on exit.
        task_tag: The playbook's name; default: the agent's tag, then its name.
        episodic_memory: Gets one episode an iteration.
        adaptive: End when the verifier's score stops improving.
        min_improvement: What a score must gain to count as improving; finite, 0 or more.
        plateau_patience: Misses in a row that end an adaptive loop; 1 or more.
        branches: Candidates run at once in each iteration; 1 or more.
        branch_early_stop: The first candidate that passes the verifier ends the others.
        branch_vote: ``(result) -> key``: candidates vote instead of being graded or merged; the
            first of the most frequent key wins, and asking stops once it is certain to. None
            abstains.
        branch_temperatures: A sampling temperature for each candidate, instead of the agent's.
        synthesizer: Merges candidates that nothing grades; default: the agent's own model does.
        auto_extract_skill: Distil a converged run into a reusable skill.
        skill_confidence_threshold: The quality that needs, in [0, 1].
        skill_description: What the skill's callers read: a text, or ``(task_tag, query) -> text``,
            sync or async; default: made of both, with what looks like a secret left out.
        skill_library: Where the skill is kept beyond this process; see ``SkillLibrary``.
        criteria: Stop criteria in order, all of which must be satisfied; the first that asks for
            another iteration wins (S3). Callables taking a ``CriterionContext``, or objects with
            ``evaluate(ctx)``; sync or async; giving a ``CriterionVerdict``, a bool or
            ``(bool, feedback)``.
        fresh_context: Begin each iteration anew with the original messages and the feedback.
        on_exhausted: What becomes of a run that nothing accepted.
        on_criterion_error: What becomes of a run whose judge raised.
        evaluate_final: Ask the criteria on the last iteration too.

    Raises:
        ConfigError: A value is out of bounds or of the wrong kind.
    """

    max_iterations: int = 5
    convergence_fn: Predicate | None = None
    stop_condition: Predicate | None = None
    refine_prompt: str = DEFAULT_REFINE_PROMPT
    verifier: Grader | None = None
    procedural_memory: Any | None = None
    task_tag: str | None = None
    episodic_memory: Any | None = None
    adaptive: bool = False
    min_improvement: float = 0.02
    plateau_patience: int = 2
    branches: int = 1
    auto_extract_skill: bool = False
    skill_confidence_threshold: float = 0.85
    criteria: Sequence[Any] = ()
    fresh_context: bool = False
    on_exhausted: LoopOutcome = LoopOutcome.RETURN_LAST_RESPONSE
    on_criterion_error: LoopOutcome = LoopOutcome.RETURN_LAST_RESPONSE
    evaluate_final: bool = False
    branch_early_stop: bool = field(default=False, kw_only=True)
    branch_vote: Callable[[AgentResult], Any] | None = field(default=None, kw_only=True)
    branch_temperatures: Sequence[float] = field(default=(), kw_only=True)
    synthesizer: Synthesizer | None = field(default=None, kw_only=True)
    skill_description: str | Callable[[str, str], Any] | None = field(default=None, kw_only=True)
    skill_library: Any | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        check_count("LoopConfig.max_iterations", self.max_iterations)
        check_count("LoopConfig.branches", self.branches)
        check_count("LoopConfig.plateau_patience", self.plateau_patience)
        check_number("LoopConfig.min_improvement", self.min_improvement, least=0)
        check_number(
            "LoopConfig.skill_confidence_threshold",
            self.skill_confidence_threshold,
            least=0,
            most=1,
        )
        for name in ("convergence_fn", "stop_condition"):
            _check_callable(f"LoopConfig.{name}", getattr(self, name))
        if not isinstance(self.refine_prompt, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            msg = f"LoopConfig.refine_prompt must be a string, not {self.refine_prompt!r}"
            raise ConfigError(msg)
        for name in (
            "adaptive",
            "fresh_context",
            "evaluate_final",
            "auto_extract_skill",
            "branch_early_stop",
        ):
            _check_flag(f"LoopConfig.{name}", getattr(self, name))
        self._check_verifier()
        object.__setattr__(self, "criteria", _checked_criteria(self.criteria))
        for name in ("on_exhausted", "on_criterion_error"):
            object.__setattr__(self, name, _checked_outcome(name, getattr(self, name)))
        _check_memories("LoopConfig", self)
        self._check_branches()
        self._check_skills()
        if self.on_exhausted is LoopOutcome.FAIL_RUN and not self.judges:
            msg = (
                "LoopConfig.on_exhausted is FAIL_RUN, but nothing could ever accept the work;"
                " set verifier, convergence_fn or criteria"
            )
            raise ConfigError(msg)
        self._warn_of_what_has_no_effect()

    @property
    def judges(self) -> bool:
        """Whether anything can accept the work."""
        return bool(self.verifier is not None or self.convergence_fn or self.criteria)

    def _check_verifier(self) -> None:
        verifier = self.verifier
        is_object = not isinstance(verifier, type)
        if verifier is None or (is_object and callable(getattr(verifier, "evaluate", None))):
            return
        msg = (
            f"LoopConfig.verifier must be a Verifier, not {verifier!r:.80};"
            " give Verifier(config); for a plain function use"
            " Verifier(VerifierConfig(evaluate_fn=...)) or convergence_fn"
        )
        raise ConfigError(msg)

    def _check_branches(self) -> None:
        _check_callable("LoopConfig.branch_vote", self.branch_vote)
        if self.synthesizer is not None and not callable(
            getattr(self.synthesizer, "synthesize", None)
        ):
            raise ConfigError(
                "LoopConfig.synthesizer must have an async synthesize(query, results, queue),"
                f" such as APEXSynthesizer(model), not {self.synthesizer!r:.80}"
            )
        temperatures = _checked_list("LoopConfig.branch_temperatures", self.branch_temperatures)
        object.__setattr__(self, "branch_temperatures", temperatures)
        for index, temperature in enumerate(temperatures):
            check_number(f"LoopConfig.branch_temperatures[{index}]", temperature)
        if temperatures and len(temperatures) != self.branches:
            raise ConfigError(
                f"LoopConfig.branch_temperatures has {len(temperatures)} values for"
                f" {self.branches} branches; give one for each, or leave it out"
            )
        if self.branch_vote is not None and self.verifier is not None:
            raise ConfigError(
                "LoopConfig has both a verifier and branch_vote; either the best grade wins or the"
                " most frequent answer: leave one out"
            )

    def _check_skills(self) -> None:
        description, library = self.skill_description, self.skill_library
        if not (description is None or isinstance(description, str) or callable(description)):
            raise ConfigError(
                f"LoopConfig.skill_description is {description!r:.80}; give a text or a function"
                " of task tag and query"
            )
        if library is not None and not callable(getattr(library, "save", None)):
            raise ConfigError(
                f"LoopConfig.skill_library is {library!r:.80}; give a SkillLibrary('folder')"
            )

    def _warn_of_what_has_no_effect(self) -> None:
        for name in ("branch_vote", "branch_early_stop"):
            if getattr(self, name) and self.branches == 1:
                self._warn(f"{name} has no effect with branches=1: set branches=3 or more")
        if self.branch_early_stop and self.verifier is None:
            self._warn("branch_early_stop has no effect without a verifier: set verifier=...")
        if self.adaptive and self.verifier is None:
            self._warn("adaptive has no effect without a verifier: set verifier=Verifier(...)")
        if self.procedural_memory is not None and self.verifier is None:
            self._warn(
                "procedural_memory is read but learns nothing without a verifier:"
                " set verifier=Verifier(...)"
            )
        if self.auto_extract_skill and self.verifier is None and self.convergence_fn is None:
            self._warn(
                "auto_extract_skill has no effect without a verifier or a convergence_fn, since"
                " nothing tells how good an answer is: set verifier=Verifier(...)"
            )
        for name in ("skill_description", "skill_library"):
            if getattr(self, name) is not None and not self.auto_extract_skill:
                self._warn(f"{name} has no effect: set auto_extract_skill=True")

    def _warn(self, text: str) -> None:
        warnings.warn(f"LoopConfig.{text}", LoopConfigWarning, stacklevel=5)


@dataclass(frozen=True, eq=False)
class Agent:
    """An agent: a model, its instructions and its tools (S1).

    Attributes:
        name: How events, logs and results name it.
        model: A model string such as ``"openai/gpt-4o-mini"``, or any ``Model``.
        system_prompt: Its instructions; sent before the caller's messages.
        mcps: MCP servers whose tools it may use: ``StdioMCP``, ``HTTPMCP``, ``SSEMCP``.
        tools: Functions, ``@tool`` functions or ``Tool`` objects.
        max_turns: Most turns in one agent run, 1 or more; see ``SIMPLE``, ``RESEARCH``, ``CODING``.
        temperature: Sampling temperature; None leaves it to the provider.
        max_tokens: Most tokens a reply may have; None leaves it to the provider.
        extra_params: Further model parameters, sent as they are.
        retry_policy: How failed model calls are tried again; None: not at all.
        fallback_chain: Models to ask when the first has failed for good.
        memory: A provider whose memories are put into the context.
        loop_config: The refine loop around it; None: one agent run.
        skills: Skills it may call like tools.
        procedural_memory: A playbook put into the context.
        procedural_task_tag: The playbook's name; default: the agent's name.
        episodic_memory: Past episodes put into the context.
        response_model: A pydantic model that the reply must fit.
        hooks: Callbacks around its work.
        stuck: When repeating is noticed and what is done about it.
        on_max_turns: ``"return"`` the last text with exit reason ``max_turns``, or ``"raise"``
            ``MaxTurnsError``.
        timeout_s: Most seconds one try of a model call may take; None: no limit.

    Raises:
        ConfigError: A value is out of bounds or of the wrong kind.
    """

    name: str
    model: str | Model
    system_prompt: str = ""
    mcps: Sequence[Any] = ()
    tools: Sequence[Any] = ()
    max_turns: int = 10
    temperature: float | None = None
    max_tokens: int | None = None
    extra_params: Mapping[str, Any] = field(default_factory=dict[str, Any])
    retry_policy: RetryPolicy | None = None
    fallback_chain: FallbackChain | None = None
    memory: Any | None = None
    loop_config: LoopConfig | None = None
    skills: Sequence[Any] = ()
    procedural_memory: Any | None = None
    procedural_task_tag: str | None = None
    episodic_memory: Any | None = None
    response_model: type[Any] | None = None
    hooks: AgentHooks | None = None
    stuck: StuckPolicy = field(default=DEFAULT_STUCK_POLICY, kw_only=True)
    on_max_turns: Literal["return", "raise"] = field(default="return", kw_only=True)
    timeout_s: float | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
            msg = f"Agent.name must be a non-empty string, not {self.name!r}"
            raise ConfigError(msg)
        _check_model("Agent.model", self.model)
        check_count("Agent.max_turns", self.max_turns)
        if self.max_tokens is not None:
            check_count("Agent.max_tokens", self.max_tokens)
        if self.temperature is not None:
            check_number("Agent.temperature", self.temperature, least=0)
        if self.timeout_s is not None:
            check_number("Agent.timeout_s", self.timeout_s, least=0, above=True)
        if self.on_max_turns not in ("return", "raise"):
            msg = f"Agent.on_max_turns is {self.on_max_turns!r}; use 'return' or 'raise'"
            raise ConfigError(msg)
        _check_instance("Agent.loop_config", self.loop_config, LoopConfig)
        _check_instance("Agent.retry_policy", self.retry_policy, RetryPolicy)
        _check_instance("Agent.fallback_chain", self.fallback_chain, FallbackChain)
        _check_instance("Agent.hooks", self.hooks, AgentHooks)
        _check_instance("Agent.stuck", self.stuck, StuckPolicy)
        for name in ("tools", "mcps", "skills"):
            object.__setattr__(self, name, _checked_list(f"Agent.{name}", getattr(self, name)))
        self._check_servers()
        if not isinstance(self.extra_params, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(f"Agent.extra_params must be a dict, not {self.extra_params!r:.80}")
        object.__setattr__(self, "extra_params", dict(self.extra_params))
        if not isinstance(self.system_prompt, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(
                f"Agent.system_prompt must be a string, not {self.system_prompt!r:.80}"
            )
        _check_memories("Agent", self)

    @recursive_repr("Agent(...)")
    def __repr__(self) -> str:
        """All fields; a mask for what ``extra_params`` has under names that secrets have."""
        from untildone.domain.masking import masked

        shown = {one.name: getattr(self, one.name) for one in fields(self)}
        shown["extra_params"] = masked(self.extra_params)
        return f"Agent({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    def _check_servers(self) -> None:
        for index, server in enumerate(self.mcps):
            if isinstance(server, type) or not callable(getattr(server, "transport", None)):
                raise ConfigError(
                    f"Agent.mcps[{index}] is {server!r:.80}; give StdioMCP(...), HTTPMCP(...) or"
                    " SSEMCP(...)"
                )

    def as_tool(self, *, name: str | None = None, description: str | None = None) -> AgentAsTool:
        """This agent as a tool of another: it takes a ``task`` and gives the answer's text.

        Its exit is its own: a stop condition met inside it is that call's successful result, and
        what it costs counts for the run that called it.

        Args:
            name: The tool's name; default: the agent's.
            description: What the calling model reads; default: a sentence with the agent's name.

        Raises:
            ConfigError: The name is none that providers accept.
        """
        return AgentAsTool(
            self, name or self.name, description or f"Hands a task to the agent {self.name}."
        )


@dataclass(frozen=True, eq=False)
class AgentAsTool:
    """An agent in the tools of another; made by ``Agent.as_tool``."""

    agent: Agent
    name: str
    description: str

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not TOOL_NAME.fullmatch(self.name):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(
                f"an agent cannot be a tool with the name {self.name!r:.80}: a tool's name has"
                ' letters a to z, digits, _ and -, at most 64; give it one: as_tool(name="helper")'
            )
        if not isinstance(self.description, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(
                f"as_tool(description=) is {self.description!r:.80}; give a text, what the calling"
                " model reads"
            )


def criterion_name(criterion: object) -> str:
    """How events and errors name a criterion: its kind, else the callable's or class's name."""
    for attribute in ("kind", "__name__"):
        name = getattr(criterion, attribute, None)
        if isinstance(name, str) and name:
            return name
    return type(criterion).__name__


def _checked_criteria(criteria: object) -> tuple[Any, ...]:
    listed = _checked_list("LoopConfig.criteria", criteria)
    for index, criterion in enumerate(listed):
        if not (callable(criterion) or callable(getattr(criterion, "evaluate", None))):
            msg = (
                f"LoopConfig.criteria[{index}] must be a callable or have evaluate(ctx),"
                f" not {criterion!r:.80}"
            )
            raise ConfigError(msg)
        if isinstance(criterion, type):
            msg = (
                f"LoopConfig.criteria[{index}] is the class {criterion.__name__};"
                f" make an object of it: {criterion.__name__}(...)"
            )
            raise ConfigError(msg)
    return listed


_MEMORY_METHODS: Final = {
    "memory": (("search",), "a provider such as InMemoryProvider()"),
    "procedural_memory": (("load", "render", "curate"), "ProceduralMemory(provider)"),
    "episodic_memory": (("recall", "record"), "EpisodicMemory(provider)"),
}


def _check_memories(owner: str, config: Agent | LoopConfig) -> None:
    for name, (methods, instead) in _MEMORY_METHODS.items():
        memory: object = getattr(config, name, None)
        if memory is None or (
            not isinstance(memory, type)
            and all(callable(getattr(memory, method, None)) for method in methods)
        ):
            continue
        raise ConfigError(f"{owner}.{name} is {memory!r:.80}; give {instead}")
    for name in ("task_tag", "procedural_task_tag"):
        tag: object = getattr(config, name, None)
        if not (tag is None or isinstance(tag, str)):
            raise ConfigError(f"{owner}.{name} is {tag!r:.80}; give a text")


def _checked_list(name: str, value: object) -> tuple[Any, ...]:
    if isinstance(value, list | tuple):
        return tuple(value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    msg = f"{name} must be a list, not {value!r:.80}; put a single one in brackets: [...]"
    raise ConfigError(msg)


def _checked_outcome(name: str, value: object) -> LoopOutcome:
    try:
        return LoopOutcome(value)
    except ValueError:
        msg = (
            f"LoopConfig.{name} is {value!r}; use LoopOutcome.RETURN_LAST_RESPONSE"
            " or LoopOutcome.FAIL_RUN"
        )
        raise ConfigError(msg) from None


def _check_model(name: str, model: object) -> None:
    if isinstance(model, str) and model.strip():
        return
    is_usable = not isinstance(model, str | type) and hasattr(model, "name")
    if is_usable and iscoroutinefunction(getattr(model, "generate", None)):
        return
    raise ConfigError(
        f"{name} must be a string like 'openai/gpt-4o-mini' or an object with a name and an"
        f" async generate(request, on_delta), not {model!r:.80}"
    )


def _check_flag(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise ConfigError(f"{name} must be True or False, not {value!r:.80}")


def _check_instance(name: str, value: object, expected: type) -> None:
    if value is not None and not isinstance(value, expected):
        msg = f"{name} must be a {expected.__name__}, not {value!r:.80}"
        raise ConfigError(msg)


def _check_callable(name: str, value: object) -> None:
    if value is not None and not callable(value):
        msg = f"{name} must be a function of the result, not {value!r:.80}"
        raise ConfigError(msg)
