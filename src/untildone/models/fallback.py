"""A model that asks others when the first has failed for good.

It wraps models that already retry, so each failure that reaches it is final for that model.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from untildone.domain.errors import ConfigError
from untildone.domain.requests import DeltaSink, FallbackTriggered, ModelReply, ModelRequest
from untildone.models.tally import DeltaTally
from untildone.ports import Model

_logger = logging.getLogger(__name__)


class FallbackModel:
    """Calls models in order until one replies.

    A refused key or request falls back too: another provider may take it.

    Args:
        models: At least one.

    Raises:
        ConfigError: There is none.
    """

    __slots__ = ("_models",)

    def __init__(self, models: Sequence[Model]) -> None:
        if not models:
            raise ConfigError("FallbackModel needs at least one model")
        self._models = tuple(models)

    @property
    def name(self) -> str:
        """The first model's name; a reply tells which one gave it."""
        return self._models[0].name

    async def generate(
        self, request: ModelRequest, on_delta: DeltaSink | None = None
    ) -> ModelReply:
        """Gives the reply of the first model that has one.

        Raises:
            Exception: The last model's failure, the others' noted on it.
        """
        failures: list[str] = []
        for model, following in zip(self._models, self._models[1:], strict=False):
            tally = DeltaTally(on_delta) if on_delta is not None else None
            try:
                return await model.generate(request, tally)
            except Exception as error:
                if tally is not None and tally.reader_failed:
                    raise
                what = f"{type(error).__name__}: {error}"
            failures.append(what)
            _logger.info("%s failed, %s takes over: %s", model.name, following.name, what)
            if on_delta is not None and tally is not None:
                await on_delta(FallbackTriggered(model.name, following.name, tally.chars, what))
        try:
            return await self._models[-1].generate(request, on_delta)
        except Exception as error:
            for what in failures:
                error.add_note(f"before it failed: {what}")
            raise
