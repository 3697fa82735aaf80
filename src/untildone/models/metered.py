"""Every model call of a run passes here: it becomes events, and its tokens are counted.

Not a place for retries or time-outs: those are wrappers of their own, outside and inside of this
one, so that each try is metered, also the ones that failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from untildone.cancellation import stop_if_cancelled
from untildone.domain.errors import ConfigError, ConnectionFailedError, describe
from untildone.domain.log import (
    At,
    LogEvent,
    ModelCallFailed,
    ModelCallReplied,
    ModelCallStarted,
    Purpose,
)
from untildone.domain.requests import DeltaSink, ModelReply, ModelRequest
from untildone.domain.usage import UNKNOWN_USAGE, Usage
from untildone.models.fallback import FallbackModel
from untildone.ports import Model, RunModel


class Record(Protocol):
    """Where a run's events go."""

    def note(self, event: LogEvent) -> None:
        """Takes an event at once, also while the run is being cancelled."""
        ...

    def __call__(self, event: LogEvent) -> Awaitable[None]:
        """Takes an event and waits until live readers can have it."""
        ...


class EarlierReplies:
    """Replies that judges had before a run was resumed: they are used, not asked for again."""

    __slots__ = ("_replies",)

    def __init__(self, replies: Sequence[ModelCallReplied] = ()) -> None:
        self._replies = list(replies)

    def take(self, purpose: Purpose, at: At) -> ModelReply | None:
        """The next earlier reply for this purpose, iteration and candidate, if there is one."""
        for index, reply in enumerate(self._replies):
            same_place = (reply.at.iteration, reply.at.branch) == (at.iteration, at.branch)
            if reply.purpose == purpose and same_place:
                del self._replies[index]
                return ModelReply(
                    message=reply.message,
                    finish_reason=reply.finish_reason,
                    usage=reply.usage,
                    model=reply.model,
                )
        return None


class MeteredModel:
    """A model whose calls are recorded, each try by itself."""

    __slots__ = ("_at_now", "_earlier", "_inner", "_record")

    def __init__(
        self, inner: Model, record: Record, at_now: Callable[[], At], earlier: EarlierReplies
    ) -> None:
        self._inner = inner
        self._record = record
        self._at_now = at_now
        self._earlier = earlier

    @property
    def name(self) -> str:
        """The inner model's name."""
        return self._inner.name

    async def generate(
        self, request: ModelRequest, on_delta: DeltaSink | None = None
    ) -> ModelReply:
        """Calls the inner model; records the beginning and the reply or the failure."""
        at = request.at or self._at_now()
        purpose = request.purpose
        if purpose == "worker" and request.at is None:
            purpose = "judge"  # only the turn loop, which says where it is, makes turns
        if purpose != "worker":
            reply = self._earlier.take(purpose, at)
            if reply is not None:
                return reply
        name = self._inner.name
        await self._record(ModelCallStarted(at, purpose, name))
        try:
            reply = await self._inner.generate(request, on_delta)
        except BaseException as error:
            self._record.note(ModelCallFailed(at, purpose, describe(error), _cost_of(error)))
            # Neither may a client hide the run's cancellation from those who would try again, nor
            # may a cancellation inside it pass for the run's.
            stop_if_cancelled()
            if isinstance(error, asyncio.CancelledError):
                raise ConnectionFailedError(
                    f"the call to {name!r} was cancelled by something else than the run"
                ) from error
            raise
        if not isinstance(reply, ModelReply):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(
                f"the model {name!r} gave {reply!r:.80}; generate must give a ModelReply"
            )
        await self._record(
            ModelCallReplied(
                at,
                purpose,
                reply.message,
                reply.finish_reason,
                reply.usage or UNKNOWN_USAGE,
                reply.model or name,
            )
        )
        return reply


def _cost_of(error: BaseException) -> Usage:
    """What a failed call cost, as far as its error tells."""
    usage = getattr(error, "usage", None)
    return usage if isinstance(usage, Usage) else UNKNOWN_USAGE


class ModelPath:
    """How a run reaches models: the given one, or ``using`` any other, by the same way."""

    __slots__ = ("_model", "_resolve", "_wrap")

    def __init__(
        self,
        model: Model,
        wrap: Callable[[Model], Model],
        resolve: Callable[[str], Model],
        fallbacks: Sequence[str | Model] = (),
    ) -> None:
        self._wrap = wrap
        self._resolve = resolve
        self._model = wrap(model)
        if fallbacks:
            others = (resolve(m) if isinstance(m, str) else m for m in fallbacks)
            self._model = FallbackModel([self._model, *(wrap(other) for other in others)])

    @property
    def name(self) -> str:
        """The model's name."""
        return self._model.name

    async def generate(
        self, request: ModelRequest, on_delta: DeltaSink | None = None
    ) -> ModelReply:
        """Calls the model."""
        return await self._model.generate(request, on_delta)

    def using(self, model: str | Model) -> RunModel:
        """The same way to another model.

        Raises:
            ConfigError: A model string names no known provider, or its key is missing.
        """
        resolved = self._resolve(model) if isinstance(model, str) else model
        return ModelPath(resolved, self._wrap, self._resolve)
