"""Distilled skills in a folder, so that another process has them too."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from untildone.agent import AgentHooks
from untildone.assembly import collect
from untildone.domain.errors import ConfigError, SkillError, UntildoneError, describe
from untildone.ports import Model
from untildone.skills.base import Skill
from untildone.skills.distilled import DistilledSkill
from untildone.skills.recipe import Bindings, Recipe, is_ours
from untildone.skills.registry import SkillRegistry
from untildone.skills.skill_file import SkillFile

_FILE: Final = "SKILL.md"
_MOST_BYTES: Final = 1_000_000
_LONGEST_FOLDER: Final = 64
_PLAIN_NAME: Final = re.compile(r"[a-z0-9]+(?:_[a-z0-9]+)*")
_OTHER: Final = re.compile(r"[^a-z0-9]+")


class SkillLibrary:
    """Keeps distilled skills in a folder, each as ``<name>/SKILL.md`` in the Agent Skills form.

    Other tools read name, description and instructions there; the rest stands in the metadata. Code
    is not kept: tools, servers, hooks and the like are given again, and found by name, when skills
    are loaded. Skills that other tools put into the folder are left alone.

    What is loaded decides which instructions go to which model: load from a folder you trust.

    Args:
        path: The folder; made when the first skill is saved.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def __repr__(self) -> str:
        return f"SkillLibrary({str(self.path)!r})"

    def save(self, skill: DistilledSkill) -> Path:
        """Writes a skill; one of the same name is replaced. Readers see the old file or the new.

        Args:
            skill: A distilled skill.

        Returns:
            The file.

        Raises:
            ConfigError: It is no distilled skill, or something in it cannot or must not be written.
            SkillError: Its folder is a link, or its text is no valid Unicode.
            OSError: The folder cannot be written to.
        """
        if not isinstance(skill, DistilledSkill):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(
                f"{skill!r:.80} is no distilled skill; skills written in Python are kept as Python"
            )
        recipe = Recipe.of(skill)
        folder = self._folder(recipe.name)
        text = recipe.to_file(folder.name).to_text()
        if folder.is_symlink():
            raise SkillError(f"{str(folder)!r} is a link; it is not written through")
        folder.mkdir(parents=True, exist_ok=True)
        _replace_file(folder / _FILE, text)
        return folder / _FILE

    def names(self) -> list[str]:
        """The names of the skills in it, in order.

        Raises:
            SkillError: A file of ours cannot be read.
        """
        return [found.recipe.name for found in self._read(None)]

    def remove(self, name: str) -> bool:
        """Deletes a skill; False where there is none of this name."""
        folder = self._folder(name)
        try:
            (folder / _FILE).unlink()
        except (FileNotFoundError, NotADirectoryError):
            return False
        with suppress(OSError):  # something else is in it
            folder.rmdir()
        return True

    def load(
        self,
        *,
        tools: Sequence[Any] = (),
        mcps: Sequence[Any] = (),
        skills: Sequence[Skill] = (),
        response_models: Sequence[type[Any]] = (),
        hooks: AgentHooks | None = None,
        model: str | Model | None = None,
        only: Sequence[str] | None = None,
        registry: Any = SkillRegistry,
    ) -> list[DistilledSkill]:
        """Builds the skills again and registers them, all of them or, if one cannot be, none.

        Args:
            tools: Functions and tools that the skills' agents may need.
            mcps: MCP servers, found by their ``name``.
            skills: Skills; those in this library and in the registry are found as well.
            response_models: pydantic models, found by their names.
            hooks: For the agents, each of which gets those that it had; needed where one had some.
            model: For agents whose model was an object.
            only: The names of the skills to load; None: all.
            registry: What they are registered in; None: nothing.

        Returns:
            The skills.

        Raises:
            SkillError: Something is missing or cannot be read; the text lists all of it.
        """
        wanted = self._read(None if only is None else set(only))
        if only is not None:
            known = {found.recipe.name for found in wanted}
            for name in only:
                if name not in known:
                    raise SkillError(f"there is no skill {name!r} in {str(self.path)!r}")
        given = {skill.name: skill for skill in skills}
        bindings = Bindings(
            tools=collect(tools),
            mcps={server.name: server for server in mcps},
            response_models={kind.__qualname__: kind for kind in response_models},
            hooks=hooks,
            model=model,
        )

        def elsewhere(name: str) -> Skill | None:
            known = None if registry is None else registry.get(name)
            return given.get(name) or known

        built = _built(wanted, bindings, elsewhere)
        if registry is not None:
            for skill in built:
                registry.register(skill)
        return built

    def _folder(self, name: str) -> Path:
        """Where a skill stands: a name of lowercase letters, digits and hyphens, whatever its own.

        A name that would not be the same again gets a part of its hash, so no two share a folder.
        """
        plain = _OTHER.sub("-", name.lower()).strip("-")
        if not _PLAIN_NAME.fullmatch(name):
            digest = hashlib.sha256(name.encode("utf-8", "surrogatepass"), usedforsecurity=False)
            mark = digest.hexdigest()[:8]
            plain = f"{plain[: _LONGEST_FOLDER - 9].strip('-')}-{mark}".strip("-")
        return self.path / plain

    def _read(self, only: set[str] | None) -> list[_Found]:
        """The skills of ours in the folder; all that is wrong with any is told at once."""
        if not self.path.is_dir():
            return []
        wanted = None if only is None else {self._folder(name).name for name in only}
        found: list[_Found] = []
        problems: list[str] = []
        for folder in sorted(self.path.iterdir()):
            path = folder / _FILE
            if wanted is not None and folder.name not in wanted:
                continue
            if not self._holds(path):
                continue
            try:
                text = _text_of(path)
                recipe = None if text is None else Recipe.from_file(SkillFile.from_text(text))
                if recipe is None:
                    continue
                if self._folder(recipe.name).name != folder.name:
                    raise SkillError(f"it is named {recipe.name!r}, which belongs elsewhere")
            except (UntildoneError, OSError, ValueError) as error:
                problems.append(f"{path}: {error}")
            else:
                found.append(_Found(path, recipe))
        _refuse(problems)
        return found

    def _holds(self, path: Path) -> bool:
        """Whether it is a file that stands in the folder itself, not somewhere a link leads to."""
        try:
            return path.is_file() and path.resolve().is_relative_to(self.path.resolve())
        except OSError:
            return False


@dataclass(frozen=True, slots=True)
class _Found:
    path: Path
    recipe: Recipe


def _built(wanted: Sequence[_Found], bindings: Bindings, elsewhere: Any) -> list[DistilledSkill]:
    """The skills; one that another needs is built before it."""
    ours = {found.recipe.name for found in wanted}
    built: dict[str, DistilledSkill] = {}

    def skill_of(name: str) -> Skill | None:
        return built[name] if name in built else None if name in ours else elsewhere(name)

    bindings = replace(bindings, skills=skill_of)
    left = list(wanted)
    problems: list[str] = []
    while left:
        ready = [
            found
            for found in left
            if not any(skill_of(name) is None for name in found.recipe.skills)
        ] or left
        for found in ready:
            problems += _build_one(found, bindings, built)
        if ready is left:
            break
        left = [found for found in left if found not in ready]
    _refuse(problems)
    return [built[found.recipe.name] for found in wanted]


def _build_one(found: _Found, bindings: Bindings, built: dict[str, DistilledSkill]) -> list[str]:
    """Builds one skill into ``built``, or says what stands against it."""
    missing = found.recipe.missing(bindings)
    if not missing:
        try:
            built[found.recipe.name] = found.recipe.build(bindings)
        except (UntildoneError, TypeError, ValueError) as error:
            missing = [describe(error)]
    return [f"{found.path}: {problem}" for problem in missing]


def _refuse(problems: Sequence[str]) -> None:
    if problems:
        listed = "\n".join(f"- {problem}" for problem in problems)
        raise SkillError(f"skills cannot be loaded:\n{listed}")


def _text_of(path: Path) -> str | None:
    """The text of a file of ours, or None: what others wrote may have any form and size."""
    with path.open("rb") as file:
        data = file.read(_MOST_BYTES + 1)
    if not is_ours(data.decode("utf-8", "replace")):
        return None
    if len(data) > _MOST_BYTES:
        size = path.stat().st_size
        raise SkillError(f"it has {size:,} bytes; the most that is read is {_MOST_BYTES:,}")
    return data.decode("utf-8")


def _replace_file(path: Path, text: str) -> None:
    """Writes a file beside the old one, then puts it in its place in one step."""
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise SkillError(f"the skill has text that is no valid Unicode: {error}") from error
    draft = path.with_name(f".{path.name}.{os.urandom(6).hex()}")
    try:
        with draft.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
