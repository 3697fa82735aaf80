"""The manifest: which behaviours are promised, and which tests hold them.

Each ``requirements_*.py`` beside this file holds ``REQUIREMENTS``, a literal dict of id → one
sentence of ours that restates one line of the semantics contract. A test says which it holds:

    @requirement("turns.answer-verbatim")
    async def test_the_answer_is_the_reply_verbatim(): ...

``test_manifest.py`` holds both directions. All is read from the source, so it also holds for tests
that a selection (``-k``) or a broken import leaves out.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

HERE = Path(__file__).parent
MARKER = "requirement(*ids): the lines of the contract that this test holds (tests/behaviour)"


def requirement(*ids: str) -> pytest.MarkDecorator:
    """Ties a test to the ids that it holds; ids are written out, never computed."""
    return pytest.mark.requirement(*ids)


@dataclass(frozen=True)
class Requirement:
    """One promised behaviour."""

    id: str
    sentence: str
    where: str


@dataclass(frozen=True)
class Held:
    """One test, and the ids it names."""

    test: str
    ids: tuple[str, ...]
    where: str


class ManifestError(Exception):
    """A requirement or a marker is not written as ``manifest.py`` can read it."""


def requirements(folder: Path = HERE) -> list[Requirement]:
    """Every entry of every ``REQUIREMENTS``, repeated ids included."""
    found: list[Requirement] = []
    for path in sorted(folder.glob("requirements_*.py")):
        literal = _requirements_literal(path)
        for key, value in zip(literal.keys, literal.values, strict=True):
            where = f"{path.name}:{value.lineno}"
            found.append(Requirement(_text(key, where), _text(value, where), where))
    return found


def held(folder: Path = HERE) -> list[Held]:
    """Every test function of every ``test_*.py`` but the manifest's own, with the ids it names."""
    return [
        test
        for path in sorted(folder.glob("test_*.py"))
        if path.name != "test_manifest.py"
        for test in _tests_in(path)
    ]


def misplaced(folder: Path = HERE) -> list[str]:
    """Where ``@requirement`` decorates something that pytest does not collect as a test."""
    return [
        f"{path.name}:{node.lineno} {node.name}"
        for path in sorted(folder.glob("*.py"))
        for node in ast.walk(_parsed(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and any(True for _ in _marks(node))
        and not (path.name.startswith("test_") and node.name.startswith("test"))
    ]


def _requirements_literal(path: Path) -> ast.Dict:
    for node in _parsed(path).body:
        match node:
            case (
                ast.AnnAssign(target=ast.Name(id="REQUIREMENTS"), value=ast.Dict() as literal)
                | ast.Assign(targets=[ast.Name(id="REQUIREMENTS")], value=ast.Dict() as literal)
            ):
                return literal
            case _:
                pass
    msg = f"{path.name} has no module-level 'REQUIREMENTS: dict[str, str] = {{...}}'"
    raise ManifestError(msg)


def _tests_in(path: Path) -> Iterator[Held]:
    for node in ast.walk(_parsed(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith(
            "test"
        ):
            where = f"{path.name}:{node.lineno}"
            ids = [_text(arg, where) for mark in _marks(node) for arg in mark.args]
            yield Held(f"{path.name}::{node.name}", tuple(ids), where)


def _marks(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> Iterator[ast.Call]:
    for decorator in node.decorator_list:
        match decorator:
            case ast.Call(func=ast.Name(id="requirement") | ast.Attribute(attr="requirement")):
                yield decorator
            case _:
                pass


def _text(node: ast.expr | None, where: str) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    msg = f"{where}: write ids and sentences as plain string literals"
    raise ManifestError(msg)


def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"), str(path))
