"""What it takes to build a distilled skill's agent again, as texts: all but code.

Functions, servers, skills, hooks and classes are kept by name and found again by name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, cast

from untildone.agent import Agent, AgentHooks, FallbackChain, RetryPolicy
from untildone.assembly import collect
from untildone.domain import errors
from untildone.domain.errors import ConfigError, SkillError
from untildone.policy.rules import DEFAULT_STUCK_POLICY
from untildone.policy.stuck import StuckPolicy
from untildone.ports import Model, Tool
from untildone.skills.base import Skill
from untildone.skills.distilled import DistilledSkill
from untildone.skills.skill_file import SkillFile, front_of

_FORMAT: Final = "1"
_KEY: Final = "untildone-"
_FORMAT_KEY: Final = f"{_KEY}format"
_OURS: Final = re.compile(rf"(?m)^\s*[\"']?{_FORMAT_KEY}[\"']?\s*:")
_PLAIN: Final = ("max_turns", "temperature", "max_tokens", "timeout_s", "on_max_turns")
_SECRET: Final = re.compile(
    r"(?i).*(?:secret|passw|passphrase|credential|authorization|bearer|cookie|signature)"
    r"|.*(?:api|access|account|auth|client|encryption|master|private|shared|signing|ssh"
    r"|subscription)[_-]?key"
    r"|(?:.*[_-])?(?:auth|jwt|pwd|sig)(?:[_-].*)?$"
    r"|(?!(?:eos|bos|pad|unk|mask|stop|sep|cls)[_-])(?:.*[_-])?token$|.*[a-z]Token$"
)
"""How keys of parameters begin, whose texts are secrets; a ``stop_token`` is none."""


def is_ours(text: str) -> bool:
    """Whether a ``SKILL.md`` was written by this library, whatever has become of it since."""
    return _OURS.search(front_of(text)) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bindings:
    """What skills are bound to when they are loaded; see ``SkillLibrary.load``."""

    tools: Mapping[str, Tool] = field(default_factory=dict[str, Tool])
    mcps: Mapping[str, Any] = field(default_factory=dict[str, Any])
    skills: Callable[[str], Skill | None] = lambda _: None
    response_models: Mapping[str, type[Any]] = field(default_factory=dict[str, type[Any]])
    hooks: AgentHooks | None = None
    model: str | Model | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A skill without its code."""

    name: str
    description: str
    prompt: str
    agent: str
    model: str
    settings: dict[str, Any]
    tools: Sequence[str] = ()
    mcps: Sequence[str] = ()
    skills: Sequence[str] = ()
    hooks: Sequence[str] = ()
    response_model: str = ""

    @classmethod
    def of(cls, skill: DistilledSkill) -> Recipe:
        """The recipe of a skill.

        Raises:
            ConfigError: Something in its agent cannot or must not be written down.
        """
        agent = skill.agent
        _check_texts(agent, skill.description)
        hooks, response_model = agent.hooks, agent.response_model
        return cls(
            name=skill.name,
            description=skill.description,
            prompt=agent.system_prompt,
            agent=agent.name,
            model=agent.model if isinstance(agent.model, str) else "",
            settings=_settings(agent),
            tools=list(collect(agent.tools)),
            mcps=[str(server.name) for server in agent.mcps],
            skills=list(collect(agent.skills)),
            hooks=[] if hooks is None else _set_hooks(hooks),
            response_model="" if response_model is None else response_model.__qualname__,
        )

    def to_file(self, folder: str) -> SkillFile:
        """The recipe as a ``SKILL.md`` in a folder of this name."""
        lists = {name: getattr(self, name) for name in ("tools", "mcps", "skills", "hooks")}
        known = {
            "format": _FORMAT,
            "skill": self.name,
            "agent": self.agent,
            "model": self.model,
            **{name: _json(values) for name, values in lists.items() if values},
            **({"response-model": self.response_model} if self.response_model else {}),
            "settings": _json(self.settings),
        }
        metadata = {_KEY + name: text for name, text in known.items()}
        return SkillFile(
            name=folder, description=self.description, metadata=metadata, body=self.prompt
        )

    @classmethod
    def from_file(cls, file: SkillFile) -> Recipe | None:
        """The recipe in a file; None where it is a skill that others made.

        Raises:
            SkillError: It is one of ours and cannot be read.
        """
        known = {
            key.removeprefix(_KEY): value
            for key, value in file.metadata.items()
            if key.startswith(_KEY)
        }
        if "format" not in known and _FORMAT_KEY not in file.unread:
            return None
        unread = sorted(key for key in file.unread if key.startswith(_KEY))
        if unread:
            raise SkillError(
                f"its metadata {unread[0]!r} has a form that is not read here; put it in double"
                " quotes, as it was"
            )
        if known.get("format") != _FORMAT:
            raise SkillError(
                f"it has the format {known.get('format')!r}; this version of untildone reads"
                f" {_FORMAT!r}"
            )
        missing = [name for name in ("skill", "agent", "settings") if not known.get(name)]
        if missing:
            raise SkillError(f"its metadata has no {_KEY + missing[0]!r}")
        return cls(
            name=known["skill"],
            description=file.description,
            prompt=file.body,
            agent=known["agent"],
            model=known.get("model", ""),
            settings=_dict(known, "settings"),
            tools=_list(known, "tools"),
            mcps=_list(known, "mcps"),
            skills=_list(known, "skills"),
            hooks=_list(known, "hooks"),
            response_model=known.get("response-model", ""),
        )

    def missing(self, bindings: Bindings) -> list[str]:
        """What it needs and ``bindings`` do not have, a sentence each."""
        return [
            *_lacking("tool", self.tools, bindings.tools, "tools=[...]"),
            *_lacking("MCP server", self.mcps, bindings.mcps, "mcps=[...]"),
            *(
                f"it needs the skill {name!r}: give skills=[...] or register it before"
                for name in self.skills
                if bindings.skills(name) is None
            ),
            *(
                f"its agent had the hook {name}: give hooks=AgentHooks({name}=...)"
                for name in self.hooks
                if bindings.hooks is None or getattr(bindings.hooks, name, None) is None
            ),
            *_lacking(
                "response model",
                [self.response_model] if self.response_model else [],
                bindings.response_models,
                "response_models=[...]",
            ),
            *(
                ["its model was an object: give model=..."]
                if not self.model and bindings.model is None
                else []
            ),
        ]

    def build(self, bindings: Bindings) -> DistilledSkill:
        """The skill, bound to what it needs.

        Raises:
            ConfigError: A setting cannot work.
            KeyError: Something is missing; ask ``missing`` first.
        """
        settings = self.settings
        stuck = cast("dict[str, Any]", settings.get("stuck") or {})
        agent = Agent(
            self.agent,
            self.model or bindings.model or "",
            self.prompt,
            tools=[bindings.tools[name] for name in self.tools],
            mcps=[bindings.mcps[name] for name in self.mcps],
            skills=[skill for name in self.skills if (skill := bindings.skills(name))],
            extra_params=settings.get("extra_params") or {},
            hooks=self._hooks_of(bindings),
            response_model=bindings.response_models.get(self.response_model),
            retry_policy=_retry_policy(settings.get("retry")),
            fallback_chain=FallbackChain(chain) if (chain := settings.get("fallback")) else None,
            stuck=replace(DEFAULT_STUCK_POLICY, **stuck),
            **{name: settings[name] for name in _PLAIN if name in settings},
        )
        return DistilledSkill(self.name, self.description, agent)

    def _hooks_of(self, bindings: Bindings) -> AgentHooks | None:
        """Those that its agent had; what was given for another skill is not for this one."""
        if not self.hooks:
            return None
        return AgentHooks(**{name: getattr(bindings.hooks, name) for name in self.hooks})


def _settings(agent: Agent) -> dict[str, Any]:
    settings: dict[str, Any] = {name: getattr(agent, name) for name in _PLAIN}
    settings["extra_params"] = _checked_params(agent)
    retry, chain = agent.retry_policy, agent.fallback_chain
    if retry is not None:
        settings["retry"] = {
            **{each.name: getattr(retry, each.name) for each in fields(retry)},
            "retry_on": [_error_name(kind) for kind in retry.retry_on],
        }
    if chain is not None and chain.models:
        if not all(isinstance(model, str) for model in chain.models):
            raise ConfigError(
                "the skill's fallback_chain has a model that is an object; only model strings can"
                " be written down"
            )
        settings["fallback"] = list(chain.models)
    changed = {
        name: value
        for name in StuckPolicy.__slots__
        if (value := getattr(agent.stuck, name)) != getattr(DEFAULT_STUCK_POLICY, name)
    }
    if changed:
        settings["stuck"] = changed
    return settings


def _checked_params(agent: Agent) -> dict[str, Any]:
    """The extra parameters, if they may be read by anybody who can read the file."""
    params = dict(agent.extra_params)
    for path in _secrets_in(params):
        raise ConfigError(
            f"extra_params[{path!r}] of the agent {agent.name!r} looks like a secret, and a"
            " SKILL.md can be read by others; set it in the environment instead"
        )
    try:
        json.dumps(params, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"extra_params of the agent {agent.name!r} cannot be written down: {error}"
        ) from error
    return params


def _secrets_in(value: object, path: str = "") -> Iterable[str]:
    if isinstance(value, Mapping):
        for key, part in cast("Mapping[object, object]", value).items():
            here = f"{path}.{key}" if path else str(key)
            if _SECRET.match(str(key)) and _is_text(part):
                yield here
            else:
                yield from _secrets_in(part, here)
    elif isinstance(value, list | tuple):
        for part in cast("Sequence[object]", value):
            yield from _secrets_in(part, path)
    elif isinstance(value, str) and _has_key(value):
        yield path


def _is_text(value: object) -> bool:
    """Whether it is a text, or a list of them; what a schema calls a token is a mapping."""
    if isinstance(value, list | tuple):
        return any(isinstance(part, str | bytes) for part in cast("Sequence[object]", value))
    return isinstance(value, str | bytes)


def _has_key(text: str) -> bool:
    from untildone.tools.redaction import has_key  # compiles its patterns: 25 ms

    return has_key(text)


def _check_texts(agent: Agent, description: str) -> None:
    """Looks for keys in what is written as it is.

    Raises:
        ConfigError: There is one, or no description.
    """
    if not description.strip():
        raise ConfigError(
            "the skill has an empty description, and a SKILL.md needs one that says what it is for"
        )
    texts = {"system_prompt": agent.system_prompt, "description": description}
    chain = () if agent.fallback_chain is None else agent.fallback_chain.models
    texts |= {"model": "\n".join(m for m in (agent.model, *chain) if isinstance(m, str))}
    for name, text in texts.items():
        if _has_key(text):
            raise ConfigError(
                f"the {name} of the agent {agent.name!r} holds what looks like a key, and a"
                " SKILL.md can be read by others; let a tool or the environment have it instead"
            )


def _set_hooks(hooks: AgentHooks) -> list[str]:
    return [each.name for each in fields(hooks) if getattr(hooks, each.name) is not None]


def _error_name(kind: type[BaseException]) -> str:
    if getattr(errors, kind.__name__, None) is kind:
        return kind.__name__
    raise ConfigError(
        f"retry_on has {kind.__qualname__}; only untildone's own exceptions can be written down"
    )


def _retry_policy(data: dict[str, Any] | None) -> RetryPolicy | None:
    if data is None:
        return None
    names = cast("list[str]", data.get("retry_on") or [])
    kinds = [getattr(errors, name, None) for name in names]
    wrong = [name for name, kind in zip(names, kinds, strict=True) if not isinstance(kind, type)]
    if wrong:
        raise ConfigError(f"retry_on has {wrong[0]!r}, which is no exception of untildone")
    settings: dict[str, Any] = {**data, "retry_on": tuple(kinds)}
    return RetryPolicy(**settings)


def _lacking(kind: str, names: Iterable[str], known: Mapping[str, Any], give: str) -> list[str]:
    return [f"it needs the {kind} {name!r}: give {give}" for name in names if name not in known]


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _list(known: Mapping[str, str], name: str) -> list[str]:
    value: object = _loaded(known, name) if name in known else list[str]()
    if isinstance(value, list):
        listed = cast("list[object]", value)
        if all(isinstance(part, str) for part in listed):
            return cast("list[str]", listed)
    raise SkillError(f"its metadata {_KEY + name!r} is no list of texts in JSON")


def _dict(known: Mapping[str, str], name: str) -> dict[str, Any]:
    value = _loaded(known, name)
    if isinstance(value, dict):
        return cast("dict[str, Any]", value)
    raise SkillError(f"its metadata {_KEY + name!r} is no object in JSON")


def _loaded(known: Mapping[str, str], name: str) -> object:
    try:
        return json.loads(known[name])
    except ValueError as error:
        raise SkillError(f"its metadata {_KEY + name!r} is no JSON: {error}") from error
