"""Reads what a docstring says of a function and its parameters: Google, NumPy and Sphinx style.

Not a parser of these styles: types, returns, raises and examples are passed over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from inspect import cleandoc
from typing import Final


@dataclass(frozen=True, slots=True)
class Docstring:
    """What a docstring says.

    Attributes:
        description: The text before and between its sections.
        parameters: Descriptions by parameter name, without stars.
    """

    description: str = ""
    parameters: dict[str, str] = field(default_factory=dict[str, str])


_PARAMETER_SECTIONS: Final = frozenset(
    {
        "args",
        "arguments",
        "parameters",
        "params",
        "keyword args",
        "keyword arguments",
        "other args",
        "other arguments",
        "other parameters",
    }
)
_OTHER_SECTIONS: Final = frozenset(
    {
        "attributes",
        "example",
        "examples",
        "note",
        "notes",
        "raises",
        "references",
        "return",
        "returns",
        "see also",
        "todo",
        "warning",
        "warnings",
        "warns",
        "yield",
        "yields",
    }
)
_SECTIONS: Final = _PARAMETER_SECTIONS | _OTHER_SECTIONS

_GOOGLE_HEADER: Final = re.compile(r"([A-Za-z][A-Za-z ]*):\s*$")
_GOOGLE_ITEM: Final = re.compile(r"\*{0,2}(\w+)\s*(?:\(.*?\))?\s*:(?:\s+(.*)|$)")
_NUMPY_RULE: Final = re.compile(r"-{3,}\s*$")
_NUMPY_ITEM: Final = re.compile(r"(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?$")
_SPHINX_FIELD: Final = re.compile(r":(\w+)(?:\s+([^:]*))?:(?:\s+(.*)|$)")
_SPHINX_PARAMETER: Final = frozenset(
    {"param", "parameter", "arg", "argument", "key", "keyword", "kwarg", "kwparam"}
)
_SPHINX_FIELDS: Final = _SPHINX_PARAMETER | {
    "type",
    "return",
    "returns",
    "rtype",
    "raise",
    "raises",
    "except",
    "exception",
    "yield",
    "yields",
    "var",
    "ivar",
    "cvar",
    "vartype",
    "meta",
}
_BULLET: Final = re.compile(r"(?:[-*+•]|\d+[.)])\s")


def read_docstring(text: str | None) -> Docstring:
    """Reads a docstring of any of the three styles; one in no style is all description."""
    if not text or not text.strip():
        return Docstring()
    lines = cleandoc(text).splitlines()
    description: list[str] = []
    parameters: dict[str, str] = {}
    at = 0
    while at < len(lines):
        section = _section_at(lines, at)
        if section is None:
            description.append(lines[at])
            at += 1
        else:
            parameters.update(section.parameters)
            at = section.end
    return Docstring(re.sub(r"\n{3,}", "\n\n", "\n".join(description)).strip(), parameters)


@dataclass(frozen=True, slots=True)
class _Section:
    end: int
    parameters: dict[str, str]


def _section_at(lines: Sequence[str], at: int) -> _Section | None:
    line = lines[at]
    if not line or line[0].isspace():
        return None
    return _sphinx(lines, at) or _google(lines, at) or _numpy(lines, at)


def _google(lines: Sequence[str], at: int) -> _Section | None:
    header = _GOOGLE_HEADER.match(lines[at])
    if header is None or header[1].lower() not in _SECTIONS:
        return None
    end = _end_of_indented(lines, at + 1)
    body = lines[at + 1 : end]
    if not any(line.strip() for line in body):
        return None
    if header[1].lower() not in _PARAMETER_SECTIONS:
        return _Section(end, {})
    parameters: dict[str, str] = {}
    for head, rest in _items(body):
        item = _GOOGLE_ITEM.match(head)
        if item is not None:
            parameters[item[1]] = _unwrapped([item[2] or "", *rest])
    return _Section(end, parameters)


def _numpy(lines: Sequence[str], at: int) -> _Section | None:
    title = lines[at].strip().lower()
    if title not in _SECTIONS or at + 1 >= len(lines) or not _NUMPY_RULE.match(lines[at + 1]):
        return None
    end = at + 2
    while end < len(lines) and not (end + 1 < len(lines) and _NUMPY_RULE.match(lines[end + 1])):
        end += 1
    if title not in _PARAMETER_SECTIONS:
        return _Section(end, {})
    parameters: dict[str, str] = {}
    for head, rest in _items(lines[at + 2 : end]):
        item = _NUMPY_ITEM.match(head)
        names = item[1].split(",") if item is not None else ()
        parameters.update({name.strip().lstrip("*"): _unwrapped(rest) for name in names})
    return _Section(end, parameters)


def _sphinx(lines: Sequence[str], at: int) -> _Section | None:
    found = _SPHINX_FIELD.match(lines[at])
    if found is None or found[1] not in _SPHINX_FIELDS:
        return None
    end = _end_of_indented(lines, at + 1)
    words = (found[2] or "").split()
    if found[1] not in _SPHINX_PARAMETER or not words:
        return _Section(end, {})
    name = words[-1].lstrip("*\\")
    return _Section(end, {name: _unwrapped([found[3] or "", *lines[at + 1 : end]])})


def _end_of_indented(lines: Sequence[str], at: int) -> int:
    while at < len(lines) and (not lines[at].strip() or lines[at][0].isspace()):
        at += 1
    return at


def _items(body: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Lines that stand as far left as the first, each with the further indented ones after it."""
    indent: int | None = None
    head: str | None = None
    rest: list[str] = []
    for line in body:
        stripped = line.strip()
        depth = len(line) - len(line.lstrip())
        if stripped and indent is None:
            indent = depth
        if stripped and indent is not None and depth <= indent:
            if head is not None:
                yield head, rest
            head, rest = stripped, []
        else:
            rest.append(line)
    if head is not None:
        yield head, rest


def _unwrapped(lines: Sequence[str]) -> str:
    """Lines joined to paragraphs, as they were before somebody wrapped them; lists stay lists."""
    text = ""
    for line in lines:
        stripped = line.strip()
        if not stripped:
            text = text.rstrip() + "\n\n" if text else ""
        elif not text or text.endswith("\n"):
            text += stripped
        else:
            text += ("\n" if _BULLET.match(stripped) else " ") + stripped
    return text.strip()
