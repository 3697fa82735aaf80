"""Bounds of settings, checked when an object is built: no 0, None, True or NaN slips through."""

from __future__ import annotations

import math

from untildone.domain.errors import ConfigError


def check_count(name: str, value: object, *, least: int = 1) -> None:
    """Checks that a setting is a whole number of ``least`` or more.

    Raises:
        ConfigError: It is not; the text names the setting, the value and what would do.
    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= least:
        return
    is_cap = name.rpartition(".")[2].startswith("max_")
    unlimited = " (there is no 'unlimited': choose the most you would pay for)" if is_cap else ""
    raise ConfigError(
        f"{name} is {value!r}; it must be a whole number of {least} or more{unlimited}"
    )


def check_number(
    name: str, value: object, *, least: float = 0, most: float = math.inf, above: bool = False
) -> None:
    """Checks that a setting is a finite number from ``least`` to ``most``.

    Args:
        name: The setting.
        value: Its value.
        least: The smallest allowed value.
        most: The greatest allowed value.
        above: Whether it must be greater than ``least``.

    Raises:
        ConfigError: It is not; the text names the setting, the value and what would do.
    """
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        in_bounds = (value > least if above else value >= least) and value <= most
    else:
        in_bounds = False
    if in_bounds:
        return
    if above:
        bounds = f"greater than {least}"
    else:
        bounds = f"in [{least}, {most}]" if math.isfinite(most) else f"of {least} or more"
    raise ConfigError(f"{name} is {value!r}; it must be a finite number {bounds}")
