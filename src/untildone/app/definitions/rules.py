"""What types cannot say: what a kind of criterion needs, and what a definition may reach.

The second part only applies while an agent is built: pydantic then carries the ``Surroundings``, so
that one pass over the definition finds everything.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, cast

from untildone.app.definitions.frozen_json import thawed
from untildone.app.definitions.kinds import KINDS, built_in, unknown_kind
from untildone.app.definitions.problems import Path, shown
from untildone.app.definitions.surroundings import SAMPLING_PARAMETERS, Surroundings
from untildone.app.definitions.values import all_wrong, wrong
from untildone.criteria.bounded_schema import BoundedJsonSchema
from untildone.criteria.linear_regex import LinearRegex
from untildone.criteria.registry import folded
from untildone.domain.errors import ConfigError
from untildone.models.providers import PROVIDERS

if TYPE_CHECKING:
    from pydantic import ValidationInfo

_DEEPEST_CRITERIA: Final = 8
_MOST_CRITERIA: Final = 50
_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def known_kind(kind: str, info: ValidationInfo) -> str:
    """A kind in its canonical spelling; an unknown one is refused when an agent is built."""
    found = built_in(kind)
    around = _around(info)
    if found is not None or around is None:
        return found or kind.strip()
    registered = around.registry.canonical(kind.strip())
    if registered is None:
        raise wrong(unknown_kind(kind, around.registry.kinds, around.advice.kinds))
    _in_our_words(around.registry.load, registered)
    return registered


def not_too_many(criteria: object) -> object:
    """Criteria as they were given, if there are not too many of them, nested ones included."""
    waiting, count = [criteria], 0
    while waiting:
        for each in _items(waiting.pop()):
            count += 1
            waiting.append(each)
        if count > _MOST_CRITERIA:
            raise wrong(f"has more than {_MOST_CRITERIA} criteria, nested ones included")
    return criteria


def _items(value: object) -> Sequence[object]:
    """The criteria in a list of them, or those that one is made of."""
    if isinstance(value, Mapping):
        return _listed(cast("Mapping[str, Any]", value).get("criteria"))
    return _listed(value) or _listed(getattr(value, "criteria", None))


def kind_not_allowed(kind: str | None, info: ValidationInfo) -> str | None:
    """Why a built-in kind cannot be used by who builds the agent; None where it can."""
    around = _around(info)
    if around is None:
        return None
    if kind == "command" and not around.allow_commands:
        return (
            "commands are not allowed: they run with the rights of this process. If you trust the"
            f" definition: {around.advice.commands}"
        )
    if kind == "todoCompletion" and around.todos is None:
        return f"todoCompletion needs a todo list: {around.advice.todos}"
    if kind == "backgroundTaskCompletion" and around.background is None:
        return f"backgroundTaskCompletion needs background tasks: {around.advice.background}"
    return None


def check_field(value: Any, info: ValidationInfo) -> None:
    """Whether a field of a criterion fits its kind: it is there if needed, and not if not."""
    kind, name = info.data.get("kind"), info.field_name or ""
    if kind is None or name == "kind":
        return
    takes = KINDS.get(kind)
    if takes is None:
        _check_registered(kind, name, value, _around(info))
        return
    if name not in takes.required and name not in takes.optional:
        if value is not None:
            raise wrong(f"has no effect with {kind}; leave it out")
    elif value is not None:
        _check_value(kind, name, value, info)
    elif name in takes.required:
        raise wrong(f"required by {kind}")


def _check_registered(kind: str, name: str, value: Any, around: Surroundings | None) -> None:
    """A kind that is written in code has one field, ``options``, and only if it takes some."""
    if around is None:
        return
    registry = around.registry
    if name == "options" and registry.takes_options(kind):
        _in_our_words(registry.make, kind, thawed(value) or {})
    elif value is not None:
        raise wrong(f"has no effect with {kind}, which was registered without it; leave it out")


def _check_value(kind: str, name: str, value: Any, info: ValidationInfo) -> None:
    around = _around(info)
    match name:
        case "judge_criteria" | "criteria" if not value:
            raise wrong(f"is empty; {kind!r} needs at least one")
        case "criteria" if _levels_of(value) > _DEEPEST_CRITERIA:
            raise wrong(f"is nested more than {_DEEPEST_CRITERIA} levels deep")
        case "criteria" if kind == "not" and len(value) != 1:
            raise wrong(f"has {len(value)} criteria; 'not' takes one: put several into an 'anyOf'")
        case "judge_model" if value.parameters:
            raise wrong("has parameters, which have no effect on a judge; leave them out")
        case "pattern":
            _in_our_words(LinearRegex, value)
        case "json_schema" if around is not None:
            _in_our_words(BoundedJsonSchema, thawed(value))
        case "modes":
            _check_modes(value, around)
        case _:
            return


def _levels_of(criteria: Sequence[Any]) -> int:
    """How many levels of criteria made of criteria there are; each was checked before."""
    return 1 + max((_levels_of(each.criteria) for each in criteria if each.criteria), default=0)


def _check_modes(modes: Sequence[str], around: Surroundings | None) -> None:
    if not modes:
        raise wrong("is empty; name at least one mode, or leave it out for all")
    if around is None or around.todos is None:
        return
    known = around.todos.modes
    for mode in modes:
        if mode not in known:
            names = ", ".join(known) or f"none: {around.advice.modes}"
            raise wrong(f"has {shown(mode)}, which is no mode of the todo list; it has {names}")


def check_binding(value: str, info: ValidationInfo) -> str:
    """Whether an agent may talk to this model."""
    around = _around(info)
    if around is None:
        return value
    if info.field_name == "provider":
        return _allowed_provider(value, around)
    is_local = info.data.get("provider") == "local"
    if is_local and not _PLAIN_NAME.fullmatch(value):
        raise wrong(f"is {shown(value)}; a local model has a plain name, such as 'smollm2'")
    return value


def _allowed_provider(value: str, around: Surroundings) -> str:
    name = folded(value.strip())
    if name in around.providers:
        return name
    allowed = ", ".join(provider for provider in PROVIDERS if provider in around.providers)
    if name in PROVIDERS:
        raise wrong(
            f"the provider {name!r} is not allowed to definitions; allowed are {allowed}. If you"
            f" trust the definition: {around.advice.provider.format(repr(name))}"
        )
    near = get_close_matches(name, around.providers, n=1)
    guess = f" Did you mean {near[0]!r}?" if near else ""
    raise wrong(f"unknown provider {shown(value)}.{guess} Known are {allowed}")


def check_parameters(parameters: Mapping[str, Any], info: ValidationInfo) -> None:
    """Whether a definition may set these model parameters."""
    around = _around(info)
    if around is None:
        return
    problems: dict[Path, str] = {}
    for name, value in parameters.items():
        if around.parameters is not None and name not in around.parameters:
            problems[name,] = _parameter_refused(name, around)
        elif name in _PARAMETER_RULES:
            is_right, wanted = _PARAMETER_RULES[name]
            if not is_right(value):
                problems[name,] = f"is {shown(thawed(value))}; must be {wanted}"
    if problems:
        all_wrong(problems)


def _parameter_refused(name: str, around: Surroundings) -> str:
    snake = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower().replace("-", "_")
    near = get_close_matches(snake, sorted(SAMPLING_PARAMETERS), n=1, cutoff=0.75)
    guess = f" Did you mean {near[0]!r}?" if near else ""
    return (
        "a definition may not set this parameter: it could change where requests go or what is"
        f" done with them.{guess} If you trust it: {around.advice.parameter.format(shown(name))}"
    )


def only_names(servers: object) -> object:
    """MCP servers as they were given, if each is a name."""
    problems: dict[Path, str] = {
        (index,): "is no name; a definition cannot bring an MCP server along, which is a program to"
        " start or an address to reach: give the name of one that is offered to it"
        for index, item in enumerate(_listed(servers))
        if not isinstance(item, str)
    }
    if problems:
        all_wrong(problems)
    return servers


def _listed(value: object) -> Sequence[object]:
    return cast("Sequence[object]", value) if isinstance(value, list | tuple) else ()


def check_servers(names: Sequence[str], info: ValidationInfo) -> None:
    """Whether each MCP server is named once and stands for something."""
    around = _around(info)
    known = None if around is None else around.mcps
    _check_names("an MCP server", names, known, "" if around is None else around.advice.servers)


def check_tools(names: Sequence[str], info: ValidationInfo) -> None:
    """Whether each tool is named once and stands for something."""
    around = _around(info)
    known = None if around is None else around.tools
    _check_names("a tool", names, known, "" if around is None else around.advice.tools)


def _check_names(
    what: str, names: Sequence[str], known: Mapping[str, object] | None, advice: str
) -> None:
    problems: dict[Path, str] = {}
    for index, name in enumerate(names):
        if name in names[:index]:
            problems[index,] = f"names {shown(name)} again; once is enough"
        elif known is not None and name not in known:
            registered = ", ".join(known) or "none"
            problems[index,] = (
                f"nobody registered {what} {shown(name)}; registered are {registered}. {advice}"
            )
    if problems:
        all_wrong(problems)


def _is_number(value: object) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(cast("float", value))


def _is_from_0(value: object) -> bool:
    return _is_number(value) and cast("float", value) >= 0


def _is_share(value: object) -> bool:
    return _is_from_0(value) and cast("float", value) <= 1


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_count(value: object) -> bool:
    return _is_whole(value) and cast("int", value) >= 1


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_texts(value: object) -> bool:
    is_list = isinstance(value, list | tuple)
    return _is_text(value) or (is_list and all(map(_is_text, _listed(cast("object", value)))))


def _is_bias(value: object) -> bool:
    biases = cast("Mapping[str, object]", value)
    return isinstance(value, Mapping) and all(map(_is_number, biases.values()))


def _is_switch(value: object) -> bool:
    return isinstance(value, bool)


_Rule = tuple[Callable[[object], bool], str]
_NUMBER: Final[_Rule] = (_is_number, "a number")
_FROM_0: Final[_Rule] = (_is_from_0, "a number of 0 or more")
_SHARE: Final[_Rule] = (_is_share, "a number from 0 to 1")
_WHOLE: Final[_Rule] = (_is_whole, "a whole number")
_COUNT: Final[_Rule] = (_is_count, "a whole number of 1 or more")
_WORD: Final[_Rule] = (_is_text, "text")
_TEXTS: Final[_Rule] = (_is_texts, "text or a list of texts")

_PARAMETER_RULES: Final[Mapping[str, _Rule]] = {
    "temperature": _FROM_0,
    "top_p": _SHARE,
    "top_k": _WHOLE,
    "min_p": _SHARE,
    "max_tokens": _COUNT,
    "max_completion_tokens": _COUNT,
    "stop": _TEXTS,
    "stop_sequences": _TEXTS,
    "seed": _WHOLE,
    "presence_penalty": _NUMBER,
    "frequency_penalty": _NUMBER,
    "repetition_penalty": _NUMBER,
    "logit_bias": (_is_bias, "a mapping of tokens to numbers"),
    "reasoning_effort": _WORD,
    "verbosity": _WORD,
    "parallel_tool_calls": (_is_switch, "true or false"),
}
"""What each of ``SAMPLING_PARAMETERS`` can be, as far as all providers agree on it."""


def _around(info: ValidationInfo) -> Surroundings | None:
    context: object = info.context
    return context if isinstance(context, Surroundings) else None


def _in_our_words(make: Callable[..., object], *arguments: object) -> None:
    try:
        make(*arguments)
    except ConfigError as error:
        raise wrong(str(error)) from None
