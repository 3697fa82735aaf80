"""A model that tries again. Which failures are worth it is the ``RetryPolicy``'s.

Not a fallback to other models and not a time-out: those are wrappers of their own.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import Final

from untildone.agent import RetryPolicy
from untildone.domain.errors import AuthenticationError, BadRequestError, ModelError
from untildone.domain.requests import DeltaSink, ModelReply, ModelRequest, RetryAttempt
from untildone.models.tally import DeltaTally
from untildone.ports import Clock, Model

_logger = logging.getLogger(__name__)
_NEVER: Final = (AuthenticationError, BadRequestError)
_MOST_DOUBLINGS: Final = 60


class RetryingModel:
    """Calls the inner model, and again as the policy says.

    A stream that broke is asked for anew, whole; ``RetryAttempt`` tells a live reader how much of
    what it has seen is void.

    Args:
        inner: The model.
        policy: What is tried again, how often, and how long is waited.
        clock: What is waited with.
        dice: Gives numbers in [0, 1) for the jitter.
    """

    __slots__ = ("_clock", "_dice", "_inner", "_policy")

    def __init__(
        self,
        inner: Model,
        policy: RetryPolicy,
        clock: Clock,
        *,
        dice: Callable[[], float] = random.random,
    ) -> None:
        self._inner = inner
        self._policy = policy
        self._clock = clock
        self._dice = dice

    @property
    def name(self) -> str:
        """The inner model's name."""
        return self._inner.name

    async def generate(
        self, request: ModelRequest, on_delta: DeltaSink | None = None
    ) -> ModelReply:
        """Gives the first whole reply.

        Raises:
            Exception: The last failure, or the first one that is not worth another try. A note on
                it says how often was tried, where that was more than once.
        """
        policy = self._policy
        attempt = 0
        while True:
            tally = DeltaTally(on_delta) if on_delta is not None else None
            try:
                return await self._inner.generate(request, tally)
            except _NEVER:
                raise
            except Exception as error:
                attempt += 1
                if attempt > policy.max_retries or not isinstance(error, policy.retry_on):
                    _note_tries(error, attempt)
                    raise
                if tally is not None and tally.reader_failed:
                    raise
                failed = error
            delay_s = self._delay_s(attempt, failed)
            what = f"{type(failed).__name__}: {failed}"
            _logger.info("%s: retry %d in %.2f s after %s", self.name, attempt, delay_s, what)
            if on_delta is not None and tally is not None:
                await on_delta(RetryAttempt(attempt, self.name, delay_s, tally.chars, what))
            await self._clock.sleep(delay_s)

    def _delay_s(self, attempt: int, error: Exception) -> float:
        """The wait before a retry: the policy's, shortened by chance; never less than asked for."""
        policy = self._policy
        doublings = min(attempt - 1, _MOST_DOUBLINGS) if policy.exponential else 0
        longest = policy.max_backoff_seconds
        wait = min(policy.backoff_seconds * 2.0**doublings, longest)
        wait *= 1 - policy.jitter * self._dice()
        asked = error.retry_after_s if isinstance(error, ModelError) else None
        if asked is not None and asked > wait:
            wait = min(asked * (1 + policy.jitter * self._dice()), longest)
        return wait


def _note_tries(error: Exception, tries: int) -> None:
    note = f"tried {tries} times"
    if tries > 1 and note not in getattr(error, "__notes__", ()):
        error.add_note(note)
