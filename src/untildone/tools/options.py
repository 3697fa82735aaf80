"""What ``@tool`` can be told, checked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, cast

from untildone.domain.errors import ConfigError
from untildone.domain.tools import PLAIN_TRAITS, TOOL_NAME, ToolTraits
from untildone.policy.cutting import DEFAULT_MAX_RESULT_CHARS

LEAST_MAX_RESULT_CHARS: Final = 200
"""The smallest bound a tool may set: below it the mark would be all there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOptions:
    """What ``@tool`` can say of a function beyond what the function says itself.

    Attributes:
        name: Default: the function's name.
        description: Default: its docstring without the sections.
        timeout_s: Most seconds a call may take, greater than 0; None: no limit.
        traits: How calls are to be read by the stuck detector and by a resume.
        max_result_chars: Most characters of a result that are sent, 200 or more.

    Raises:
        ConfigError: A value cannot work.
    """

    name: str | None = None
    description: str | None = None
    timeout_s: float | None = None
    traits: ToolTraits = PLAIN_TRAITS
    max_result_chars: int = DEFAULT_MAX_RESULT_CHARS

    def __post_init__(self) -> None:
        if self.name is not None:
            check_name(self.name)
        _check_description(self.description)
        _check_timeout(self.timeout_s)
        _check_max_chars(self.max_result_chars)


def check_name(name: object) -> str:
    """The name of a tool, if providers accept it.

    Raises:
        ConfigError: They would not.
    """
    if isinstance(name, str) and TOOL_NAME.fullmatch(name):
        return name
    raise ConfigError(
        f"the tool name {name!r:.80} cannot be used: a name has letters a to z, digits, _ and -,"
        ' at most 64; give another one: @tool(name="search")'
    )


def checked_traits(
    *, polling: object, idempotent: object, nondeterministic: object, volatile: object
) -> ToolTraits:
    """The traits of these values.

    Raises:
        ConfigError: A value has another type.
    """
    for name, value in (
        ("polling", polling),
        ("idempotent", idempotent),
        ("nondeterministic", nondeterministic),
    ):
        if not isinstance(value, bool):
            raise ConfigError(f"@tool({name}=) is {value!r:.80}; use True or False")
    return ToolTraits(
        polling=bool(polling),
        idempotent=bool(idempotent),
        nondeterministic=bool(nondeterministic),
        volatile=_checked_fields(volatile),
    )


def _checked_fields(value: object) -> tuple[str, ...]:
    if isinstance(value, list | tuple):
        fields = tuple(cast("Sequence[object]", value))
        if all(isinstance(field, str) for field in fields):
            return cast("tuple[str, ...]", fields)
    raise ConfigError(
        f"@tool(volatile=) is {value!r:.80}; give a list of field names, such as ['updated']"
    )


def _check_description(value: object) -> None:
    if value is not None and not isinstance(value, str):
        raise ConfigError(f"@tool(description=) is {value!r:.80}; give a text")


def _check_timeout(value: object) -> None:
    if value is None:
        return
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and math.isfinite(cast("float", value)) and cast("float", value) > 0:
        return
    raise ConfigError(
        f"@tool(timeout_s=) is {value!r:.80}; give seconds greater than 0,"
        " or leave it out for no limit"
    )


def _check_max_chars(value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < LEAST_MAX_RESULT_CHARS:
        raise ConfigError(
            f"@tool(max_result_chars=) is {value!r:.80}; give a whole number of"
            f" {LEAST_MAX_RESULT_CHARS} or more"
        )


PLAIN_OPTIONS: Final = ToolOptions()
