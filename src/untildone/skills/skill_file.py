"""``SKILL.md``: a skill as a text that other tools can read (agentskills.io).

Front matter between two lines of ``---``, then the instructions. What is written is YAML; read is
the part of YAML that tools write for such files: one line a key, texts over several lines after
``>`` and ``|``, and one level under ``metadata``. What else may stand there is passed over.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from untildone.domain.errors import SkillError

_FENCE: Final = "---"
_LINE: Final = re.compile(
    r"(?P<indent> *)(?P<key>[A-Za-z0-9_.-]+|\"[^\"]*\"):(?:\s+(?P<value>.*))?"
)
_NO_TEXTS: Final = frozenset(["y", "n", "yes", "no", "on", "off", "true", "false", "null"])
_FORMS: Final = ("[", "{", "&", "*", "!")
"""How values begin that are no plain text."""
_BLOCK: Final = re.compile(r"[|>][-+0-9]{0,2}(?:\s+#.*)?")
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
        unread: Keys of metadata whose values have a form that is not read here.
    """

    name: str
    description: str
    metadata: Mapping[str, str]
    body: str
    unread: frozenset[str] = frozenset()

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
        front, body = _parts(text)
        entries = {entry.key: entry for entry in _entries(front)}
        metadata: dict[str, str] = {}
        unread: set[str] = set()
        known = entries.get("metadata")
        for entry in [] if known is None else _entries(known.below):
            if entry.has_other_form:
                unread.add(entry.key)
            else:
                metadata[entry.key] = entry.text()
        return cls(
            name=_field(entries, "name"),
            description=_field(entries, "description"),
            metadata=metadata,
            body=body,
            unread=frozenset(unread),
        )


_Numbered = tuple[int, str]
"""A line and its number."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """A key, what stands behind it, and the lines that belong to it."""

    key: str
    number: int
    value: str
    below: list[_Numbered]

    @property
    def has_other_form(self) -> bool:
        """Whether it is a list, a mapping or the like, of which nothing is read here."""
        if _BLOCK.fullmatch(self.value):
            return False
        return bool(self._said_below()) or self.value.startswith(_FORMS)

    def text(self) -> str:
        """Its value.

        Raises:
            SkillError: It is no text that can be read.
        """
        if _BLOCK.fullmatch(self.value):
            return self._block()
        said = self._said_below()
        if said:
            number, line = said[0]
            raise SkillError(f"line {number} belongs to nothing that can be read: {line!r:.80}")
        return _unquoted(self.value, self.number)

    def _said_below(self) -> list[_Numbered]:
        return [(number, line) for number, line in self.below if not _is_empty(line)]

    def _block(self) -> str:
        """The lines below as one text: as they are after ``|``, joined by spaces after ``>``."""
        lines = textwrap.dedent("\n".join(line for _, line in self.below)).strip("\n")
        if self.value.startswith("|"):
            return lines
        paragraphs = re.split(r"\n\s*\n", lines)
        return "\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _entries(lines: Sequence[_Numbered]) -> list[_Entry]:
    """The entries that are as deep as the first of them, each with the lines below it.

    Raises:
        SkillError: A line is none and belongs to none.
    """
    found: list[_Entry] = []
    depth: int | None = None
    for number, line in lines:
        indent = len(line) - len(line.lstrip(" "))
        depth = indent if depth is None and not _is_empty(line) else depth
        if found and (_is_empty(line) or indent > (depth or 0) or _is_item_of(found[-1], line)):
            found[-1].below.append((number, line))
            continue
        if _is_empty(line):
            continue
        read = _LINE.fullmatch(line)
        if read is None:
            raise SkillError(f"line {number} is not 'key: value': {line!r:.80}")
        found.append(_Entry(read["key"].strip('"'), number, (read["value"] or "").strip(), []))
    return found


def _is_empty(line: str) -> bool:
    return not line.strip() or line.lstrip().startswith("#")


def _is_item_of(entry: _Entry, line: str) -> bool:
    """Whether a line is an item of a list that may stand as deep as its key."""
    return not entry.value and line.lstrip(" ").startswith("- ")


def front_of(text: str) -> str:
    """The front matter as it stands there; all of it where there is no such part."""
    lines = text.removeprefix("\ufeff").splitlines()
    if lines and lines[0].rstrip() == _FENCE:
        ends = (index for index, line in enumerate(lines[1:], 1) if line.rstrip() == _FENCE)
        lines = lines[: next(ends, None)]
    return "\n".join(lines)


def _parts(text: str) -> tuple[list[_Numbered], str]:
    """The lines of the front matter, and what follows it."""
    text = text.removeprefix("\ufeff")
    if text.partition("\n")[0].endswith("\r"):  # somebody wrote it again with line ends of Windows
        text = text.replace("\r\n", "\n")
    lines = text.split("\n")
    if lines[0].rstrip() != _FENCE:
        raise SkillError("it does not begin with a line of '---'")
    for index, line in enumerate(lines[1:], start=1):
        if line.rstrip() == _FENCE:
            front = list(enumerate((line.rstrip("\r") for line in lines[1:index]), start=2))
            body = "\n".join(lines[index + 1 :])
            return front, body.removeprefix("\n").removesuffix("\n")
    raise SkillError("its front matter has no end: a second line of '---' is missing")


def _field(entries: Mapping[str, _Entry], name: str) -> str:
    value = entries[name].text() if name in entries else ""
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
    if value.startswith(("|", ">", *_FORMS)):
        raise SkillError(f"line {number} has a form that is not read here; put it in double quotes")
    return value.partition(" #")[0].rstrip()
