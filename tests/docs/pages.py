"""The pages of the documentation as data: their blocks of code, their tables and their words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
README = ROOT / "README.md"

_FENCE = re.compile(r"^(?P<indent> *)(?P<fence>```+|~~~+)(?P<info>[^\n`]*)$")
_CODE_SPAN = re.compile(r"`([^`\n]+)`")


@dataclass(frozen=True)
class Block:
    """A fenced block: what stands in it, and whether it shows what the block before it prints."""

    page: Path
    line: int
    language: str
    code: str
    follows_code: bool

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages() -> list[Path]:
    """The README and every page of ``docs/``."""
    return [README, *sorted(DOCS.rglob("*.md"))]


def name_of(page: Path) -> str:
    """How tests name a page."""
    return page.relative_to(ROOT).as_posix()


def blocks_of(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    return list(_blocks(page))


def _blocks(page: Path) -> Iterator[Block]:
    lines = page.read_text("utf-8").splitlines()
    number, after_python = 0, False
    while number < len(lines):
        opened = _FENCE.match(lines[number])
        if opened is None:
            after_python = after_python and not lines[number].strip()
            number += 1
            continue
        first = number + 1
        end = next(
            i for i in range(first, len(lines)) if lines[i].strip() == opened["fence"].strip()
        )
        language = opened["info"].strip().split(" ")[0]
        indent = len(opened["indent"])
        code = "".join(f"{line[indent:]}\n" for line in lines[first:end])
        yield Block(page, first + 1, language, code, after_python and language == "text")
        after_python = language == "python"
        number = end + 1


def prose_of(page: Path) -> str:
    """A page without what only stands there for the generator of the reference."""
    lines = page.read_text("utf-8").splitlines()
    return "\n".join(line for line in lines if not line.startswith(("::: ", "    ")))


def words_in_code(page: Path) -> set[str]:
    """Every name that a page shows as code: in a code span, or in a block of Python."""
    prose = prose_of(page)
    words: set[str] = set()
    for span in _CODE_SPAN.findall(prose):
        words.update(re.findall(r"[A-Za-z_][A-Za-z0-9_-]*", span))
    for block in blocks_of(page):
        if block.language == "python":
            words.update(re.findall(r"\w+", block.code))
    return words


def tables_of(page: Path) -> list[list[list[str]]]:
    """The tables of a page: rows of cells, without the line of dashes."""
    tables: list[list[list[str]]] = []
    rows: list[list[str]] = []
    for line in [*page.read_text("utf-8").splitlines(), ""]:
        if line.startswith("|"):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip()[1:-1])]
            if not all(re.fullmatch(r":?-+:?", cell) for cell in cells):
                rows.append(cells)
        elif rows:
            tables.append(rows)
            rows = []
    return tables


def table_headed(page: Path, *head: str) -> list[list[str]]:
    """The rows of the one table whose first cells are these."""
    found = [rows[1:] for rows in tables_of(page) if tuple(rows[0][: len(head)]) == head]
    assert len(found) == 1, f"{name_of(page)} has {len(found)} tables headed {head}"
    return found[0]


def spans(cell: str) -> list[str]:
    """The code spans of a cell."""
    return _CODE_SPAN.findall(cell)
