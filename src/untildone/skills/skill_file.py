"""``SKILL.md``: a skill as a text that other tools can read (agentskills.io).

Front matter between two lines of ``---``, then the instructions. What is written is YAML; read is
the part of YAML that tools write for such files: one line a key, and one level under ``metadata``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from untildone.domain.errors import SkillError

_FENCE: Final = "---"
_LINE: Final = re.compile(
    r"(?P<indent> *)(?P<key>[A-Za-z0-9_.-]+|\"[^\"]*\"):(?:\s+(?P<value>.*))?"
)
_NO_TEXTS: Final = frozenset(["y", "n", "yes", "no", "on", "off", "true", "false", "null"])
_SINGLE_QUOTED: Final = re.compile(r"'((?:[^']|'')*)'(?:\s+#.*)?")
_REST: Final = re.compile(r"(?:\s+#.*)?")
# What YAML refuses, or takes for a line break, inside quotes.
_NOT_PLAIN: Final = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillFile:
    """What stands in a ``SKILL.md``.

    Attributes:
        name: Lowercase letters, digits and hyphens, as its folder is named.
        description: What it does and when to use it, at most 1,024 characters.
        metadata: Further texts by key.
        body: The instructions, verbatim.
    """

    name: str
    description: str
    metadata: Mapping[str, str]
    body: str

    def to_text(self) -> str:
        """The file's text."""
        lines = [_FENCE, f"name: {_word(self.name)}", f"description: {_quoted(self.description)}"]
        if self.metadata:
            lines.append("metadata:")
            lines += [f"  {_word(key)}: {_quoted(value)}" for key, value in self.metadata.items()]
        return "\n".join((*lines, _FENCE, "", self.body, ""))

    @classmethod
    def from_text(cls, text: str) -> SkillFile:
        """Reads a file's text.

        Raises:
            SkillError: It has no front matter, or some that cannot be read; the text says where.
        """
        front, body = _parts(text.removeprefix("\ufeff"))
        fields: dict[str, str] = {}
        metadata: dict[str, str] = {}
        into = fields
        for number, line in enumerate(front, start=2):
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            found = _LINE.fullmatch(line)
            if found is None:
                raise SkillError(f"line {number} is not 'key: value': {line!r:.80}")
            key, value = found["key"].strip('"'), (found["value"] or "").strip()
            if not found["indent"]:
                into = metadata if key == "metadata" and not value else fields
                if into is metadata:
                    continue
            elif into is fields:
                raise SkillError(f"line {number} belongs to nothing that can be read: {line!r:.80}")
            into[key] = _unquoted(value, number)
        return cls(
            name=_field(fields, "name"),
            description=_field(fields, "description"),
            metadata=metadata,
            body=body,
        )


def _parts(text: str) -> tuple[list[str], str]:
    """The lines of the front matter, and what follows it."""
    lines = text.split("\n")
    if lines[0].rstrip() != _FENCE:
        raise SkillError("it does not begin with a line of '---'")
    for index, line in enumerate(lines[1:], start=1):
        if line.rstrip() == _FENCE:
            front = [line.rstrip("\r") for line in lines[1:index]]
            body = "\n".join(lines[index + 1 :])
            return front, body.removeprefix("\n").removesuffix("\n")
    raise SkillError("its front matter has no end: a second line of '---' is missing")


def _field(fields: Mapping[str, str], name: str) -> str:
    value = fields.get(name, "")
    if not value:
        raise SkillError(f"its front matter has no {name!r}")
    return value


def _word(text: str) -> str:
    """A name as it is, or in quotes where YAML would take it for a number, a date or a boolean."""
    return text if text[:1].isalpha() and text.lower() not in _NO_TEXTS else _quoted(text)


def _quoted(text: str) -> str:
    """A text in double quotes: JSON's form, which is YAML's too but for a few characters."""
    encoded = json.dumps(text, ensure_ascii=False)
    return _NOT_PLAIN.sub(lambda found: f"\\u{ord(found[0]):04x}", encoded)


def _unquoted(value: str, number: int) -> str:
    if value.startswith('"'):
        try:
            text, end = json.JSONDecoder().raw_decode(value)
        except ValueError as error:
            raise SkillError(f"line {number} has a text in quotes that cannot be read") from error
        if _REST.fullmatch(value, end):
            return str(text)
        raise SkillError(f"line {number} has something after its text in quotes")
    if value.startswith("'"):
        found = _SINGLE_QUOTED.fullmatch(value)
        if found is None:
            raise SkillError(f"line {number} has a text in quotes that does not end")
        return found[1].replace("''", "'")
    if value[:1] in ("|", ">", "[", "{", "&", "*", "!"):
        raise SkillError(f"line {number} has a form that is not read here; put it in double quotes")
    return value.partition(" #")[0].rstrip()
