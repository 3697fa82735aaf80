"""``Agent.response_model``, a pydantic model or any type pydantic knows, as an ``OutputReader``."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from untildone.domain.errors import ConfigError, OutputParseError, describe
from untildone.policy.json_reply import json_candidates

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError

_NO_NAME: Final = re.compile(r"[^A-Za-z0-9_-]")


class StructuredOutput:
    """Reads replies as a type; JSON alone, fenced, or with prose around one object."""

    def __init__(self, type_: Any) -> None:
        from pydantic import TypeAdapter
        from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError

        try:
            self._adapter: TypeAdapter[Any] = TypeAdapter(type_)
            self.json_schema: dict[str, Any] = self._adapter.json_schema()
        except (PydanticSchemaGenerationError, PydanticUserError) as error:
            raise ConfigError(
                f"Agent.response_model is {type_!r:.80}, which pydantic cannot describe"
                f" ({str(error).splitlines()[0]}); give a pydantic model or a dataclass"
            ) from error
        self.name = _NO_NAME.sub("_", getattr(type_, "__name__", "output"))[:64] or "output"

    def read(self, text: str) -> Any:
        """The reply as an object of the type.

        Raises:
            OutputParseError: No JSON in it fits; the text says what is wrong with the whole reply.
        """
        from pydantic import ValidationError

        first: ValidationError | None = None
        for candidate in json_candidates(text):
            try:
                return self._adapter.validate_json(candidate)
            except ValidationError as error:
                first = first or error
            except Exception as error:  # a validator of the type's own
                raise OutputParseError(f"the reply was refused: {describe(error)}", text) from error
        problem = "it is empty" if first is None else _in_words(first)
        raise OutputParseError(problem, text)


@lru_cache(maxsize=256)
def output_reader(type_: Any) -> StructuredOutput:
    """The reader for a type, made once.

    Raises:
        ConfigError: Pydantic cannot describe the type.
    """
    return StructuredOutput(type_)


def _in_words(error: ValidationError) -> str:
    """The first few problems with their paths, without addresses of a manual."""
    problems = error.errors(include_url=False, include_input=False)[:3]
    parts = [
        f"{'.'.join(str(step) for step in problem['loc']) or 'the reply'}: {problem['msg']}"
        for problem in problems
    ]
    return "; ".join(parts)
