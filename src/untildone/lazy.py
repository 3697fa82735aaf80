"""Names of a package that are loaded when they are first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(
    package: str, where: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """A package's ``__getattr__`` and ``__dir__``.

    Args:
        package: The package's ``__name__``.
        where: For each name the module it is in, relative to the package, such as ``"sql"``.
    """
    known = vars(sys.modules[package])

    def load(name: str) -> Any:
        module = where.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = known[name] = getattr(import_module(f"{package}.{module}"), name)
        return value

    def names() -> list[str]:
        return sorted({*known, *where})

    return load, names
