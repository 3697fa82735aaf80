"""``local/…``: a model that this machine serves itself, started on first use.

Which weights and which server is ``local.py``'s; here it only becomes a ``Model``.
"""

from __future__ import annotations

from untildone.domain.requests import DeltaSink, ModelReply, ModelRequest
from untildone.models.openai_chat import OpenAIChatModel


class LocalModel:
    """An embedded model by name, such as ``smollm2``.

    Args:
        model: The name after ``local/``.
    """

    __slots__ = ("_model", "_wires")

    def __init__(self, model: str) -> None:
        self._model = model
        self._wires: dict[str, OpenAIChatModel] = {}

    @property
    def name(self) -> str:
        """How logs and results name the model."""
        return f"local/{self._model}"

    def __repr__(self) -> str:
        return f"LocalModel({self._model!r})"

    async def generate(
        self, request: ModelRequest, on_delta: DeltaSink | None = None
    ) -> ModelReply:
        """Starts the server where it does not run yet, and sends one request.

        Raises:
            ConfigError: The extra or the weights are missing; the text says how to get them.
            ModelError: What went wrong, by its kind.
        """
        from untildone.models.local import local_base_url

        base_url = await local_base_url(self._model)
        wire = self._wires.get(base_url)
        if wire is None:
            wire = self._wires[base_url] = OpenAIChatModel(
                self._model,
                base_url=base_url,
                name=self.name,
                advice="the embedded server has ended; the next call starts it again",
            )
        return await wire.generate(request, on_delta)
