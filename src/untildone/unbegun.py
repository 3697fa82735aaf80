"""A run that is cancelled before its first step, when none of its own code has run.

``create_task(run_agent(…, queue=queue)).cancel()`` throws into a coroutine that has not begun: its
body never runs, and whoever reads the queue would wait for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from untildone.entrance import end_unbegun

P = ParamSpec("P")
T = TypeVar("T")


class _Watched(Coroutine[Any, Any, T]):
    """A coroutine that ends a queue if it is ended before it began."""

    __slots__ = ("_begun", "_end", "_inner")

    def __init__(self, inner: Coroutine[Any, Any, T], end: Callable[[BaseException], None]) -> None:
        self._inner = inner
        self._end = end
        self._begun = False

    def __await__(self) -> Generator[Any, Any, T]:
        self._begun = True
        return self._inner.__await__()

    def send(self, value: Any) -> Any:
        self._begun = True
        return self._inner.send(value)

    def throw(self, kind: Any, value: Any = None, _trace: Any = None, /) -> Any:
        if not self._begun:
            self._begun = True
            self._end(kind if value is None else value)
        return self._inner.throw(kind if value is None else value)

    def close(self) -> None:
        self._inner.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)  # what debuggers look at


def always_ending_its_queue(
    door: Callable[P, Coroutine[Any, Any, T]],
) -> Callable[P, Coroutine[Any, Any, T]]:
    """A door whose ``queue`` ends also where the run never began."""

    @wraps(door)
    def watched(*args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
        begun, queue = door(*args, **kwargs), kwargs.get("queue")
        if queue is None:
            return begun
        return _Watched(begun, lambda error: end_unbegun(queue, kwargs.get("agent_id"), error))

    return watched
