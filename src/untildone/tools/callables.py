"""What a callable really is: behind partials, and behind objects that can be called."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, cast


def unwrapped_partial(function: Any) -> Any:
    """The function that a partial stands for; any other function is itself."""
    while isinstance(function, functools.partial):
        function = cast("functools.partial[Any]", function).func
    return function


def call_of(function: Any) -> Any:
    """What runs when an object is called."""
    return cast("Any", class_of(function)).__call__


def class_of(function: Any) -> type[Any]:
    """The class of a callable object."""
    return function.__class__


def is_kind(function: Any, ask: Callable[[Any], bool]) -> bool:
    """Whether a function is of a kind, or the one that a partial or an object stands for."""
    function = unwrapped_partial(function)
    return ask(function) or ask(call_of(function))
