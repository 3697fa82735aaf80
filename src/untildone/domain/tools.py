"""What a model is told of a tool, and how a call of it counts."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

TOOL_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What providers take as the name of a tool, as a whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolTraits:
    """How calls of a tool are to be read by the stuck detector and by a resume.

    Attributes:
        polling: An unchanged answer is not a repeat.
        idempotent: Running a call twice does what running it once does; a resumed run may run a
            call again of which it does not know whether it was finished.
        nondeterministic: Only the call counts for novelty, not the wording of its result.
        volatile: Fields of the arguments or of a JSON result that comparing leaves out.
    """

    polling: bool = False
    idempotent: bool = False
    nondeterministic: bool = False
    volatile: tuple[str, ...] = ()


PLAIN_TRAITS = ToolTraits()


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """What a call gave, where text alone is not all of it.

    Attributes:
        text: All of it in words, with a note for each attachment: what logs, events and the stuck
            detector see, and all that a model without eyes gets.
        attachments: Images and files as content parts in OpenAI form, such as ``image()`` and
            ``pdf()`` make.
    """

    text: str
    attachments: tuple[dict[str, Any], ...] = ()


def output_text(output: str | ToolOutput) -> str:
    """What a call gave, in words."""
    return output if isinstance(output, str) else output.text


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """A tool as a model sees it.

    Attributes:
        name: Unique in a run; letters, digits, ``_`` and ``-``, at most 64.
        description: What it does and when to use it.
        parameters: JSON Schema of the arguments, an object.
        traits: How its calls count.
    """

    name: str
    description: str
    parameters: dict[str, Any]
    traits: ToolTraits = PLAIN_TRAITS

    def to_dict(self) -> dict[str, Any]:
        """The tool in OpenAI form."""
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": self.parameters,
            },
        }


@dataclass(slots=True, eq=False)
class ToolSpecs:
    """The tools of one run, encoded once."""

    specs: Sequence[ToolSpec] = ()
    _wire_json: bytes | None = field(default=None, init=False, repr=False)
    _wire_forms: dict[str, bytes] | None = field(
        default=None, init=False, repr=False, compare=False
    )

    def wire_json(self) -> bytes:
        """All tools as a JSON array in OpenAI form."""
        if self._wire_json is None:
            forms = [spec.to_dict() for spec in self.specs]
            self._wire_json = json.dumps(forms, separators=(",", ":")).encode()
        return self._wire_json

    def wire_form(self, name: str, encode: Callable[[ToolSpecs], bytes]) -> bytes:
        """The tools as ``encode`` makes them for the protocol ``name``, encoded once."""
        forms = self._wire_forms
        if forms is None:
            forms = self._wire_forms = {}
        form = forms.get(name)
        if form is None:
            form = forms[name] = encode(self)
        return form


NO_TOOLS = ToolSpecs()
