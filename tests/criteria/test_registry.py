"""Kinds written in code: registered by name, by hand or by entry point."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.criteria.kit import context
from untildone import (
    ConfigError,
    CriterionVerdict,
    ExitReason,
    Verifier,
    VerifierConfig,
    VerifierFeedback,
    run_agent,
)
from untildone.app.definitions import DefinitionError, build_agent
from untildone.criteria import CompletionMarker
from untildone.criteria.registry import BUILT_IN_KINDS, CriterionRegistry
from untildone.testing import ScriptedModel


def is_polite(ctx) -> tuple[bool, str]:
    return "please" in ctx.result.text, "Say please."


class AtLeast:
    """A kind with settings."""

    def __init__(self, characters: int) -> None:
        self.characters = characters

    @classmethod
    def from_options(cls, options):
        if not isinstance(options.get("characters"), int):
            raise ConfigError("characters must be a whole number")
        return cls(options["characters"])

    def evaluate(self, ctx) -> bool:
        return len(ctx.result.text) >= self.characters


def definition(*criteria: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": "a",
        "model": {"provider": "openai", "model": "gpt-5"},
        "harness": {"loop": {"criteria": list(criteria)}},
    }


def built(registry: CriterionRegistry, *criteria: dict[str, Any]):
    loop = build_agent(definition(*criteria), registry=registry).loop_config
    assert loop is not None
    return loop.criteria


def with_kinds(**kinds: Any) -> CriterionRegistry:
    registry = CriterionRegistry()
    for kind, criterion in kinds.items():
        registry.register(kind, criterion)
    return registry


async def test_a_registered_callable_judges_under_the_name_of_its_kind():
    (criterion,) = built(with_kinds(isPolite=is_polite), {"kind": "isPolite"})
    assert criterion.kind == "isPolite"
    assert (await criterion.evaluate(context("please"))).satisfied
    refusal = await criterion.evaluate(context("now"))
    assert refusal == CriterionVerdict(satisfied=False, feedback="Say please.")


async def test_kinds_are_matched_without_regard_to_case_and_named_as_registered():
    for spelled in ("isPolite", "ISPOLITE", "ispolite"):
        (criterion,) = built(with_kinds(isPolite=is_polite), {"kind": spelled})
        assert criterion.kind == "isPolite"


async def test_objects_with_evaluate_and_verifiers_can_be_registered():
    def grade(_query, result):
        return VerifierFeedback(0.9 if "good" in result.text else 0.1)

    verifier = Verifier(VerifierConfig(evaluate_fn=grade))
    registry = with_kinds(marked=CompletionMarker("OK"), graded=verifier)
    marked, graded = built(registry, {"kind": "marked"}, {"kind": "graded"})
    assert (await marked.evaluate(context("OK"))).satisfied
    assert (await graded.evaluate(context("good"))).satisfied
    assert not (await graded.evaluate(context("bad"))).satisfied


async def test_a_kind_with_settings_makes_one_for_each_definition():
    registry = with_kinds(atLeast=AtLeast)
    three, five = built(
        registry,
        {"kind": "atLeast", "options": {"characters": 3}},
        {"kind": "atLeast", "options": {"characters": 5}},
    )
    assert (await three.evaluate(context("abcd"))).satisfied
    assert not (await five.evaluate(context("abcd"))).satisfied


@pytest.mark.parametrize(
    ("criterion", "said"),
    [
        ({"kind": "atLeast"}, "options: characters must be a whole number"),
        ({"kind": "atLeast", "options": {"characters": "3"}}, "options: characters must be"),
        ({"kind": "atLeast", "marker": "x"}, "marker: has no effect with atLeast"),
        ({"kind": "isPolite", "options": {}}, "options: has no effect with isPolite"),
        ({"kind": "isPolite", "marker": "x"}, "marker: has no effect with isPolite"),
        ({"kind": "broken"}, "options: broken cannot be made: ZeroDivisionError: oops"),
        ({"kind": "odd"}, "options: what odd made is 3; give a callable or an object"),
    ],
)
def test_settings_that_cannot_work_are_told_when_the_agent_is_built(criterion, said: str):
    class Broken:
        def from_options(self, options):
            raise ZeroDivisionError("oops")

    class Odd:
        def from_options(self, options):
            return 3

    registry = with_kinds(isPolite=is_polite, atLeast=AtLeast, broken=Broken(), odd=Odd())
    with pytest.raises(DefinitionError) as caught:
        built(registry, criterion)
    assert said in str(caught.value)


async def test_in_a_run_events_carry_the_name_of_the_kind():
    from dataclasses import replace

    agent = build_agent(definition({"kind": "ispolite"}), registry=with_kinds(isPolite=is_polite))
    result = await run_agent(
        replace(agent, model=ScriptedModel(["now", "please"])),
        [{"role": "user", "content": "ask"}],
    )
    assert (result.exit_reason, result.loop_iterations) == (ExitReason.CONVERGED, 2)


# ── What is refused ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", [*BUILT_IN_KINDS, "COMPLETIONMARKER", "aijudge", "NOT"])
def test_built_in_names_are_refused(kind: str):
    with pytest.raises(ConfigError, match=f"the kind '{kind}' is built in"):
        CriterionRegistry().register(kind, is_polite)


def test_a_name_is_given_once_whatever_its_case():
    registry = with_kinds(isPolite=is_polite)
    with pytest.raises(ConfigError, match=r"'ispolite' is registered already, as 'isPolite'"):
        registry.register("ispolite", is_polite)
    assert registry.kinds == ("isPolite",)


@pytest.mark.parametrize(
    "kind", ["", " ", "two words", "1st", "os:system", "a/b", "x" * 65, 3, None]
)
def test_names_that_no_definition_could_write_are_refused(kind: Any):
    with pytest.raises(ConfigError, match="cannot be used: a kind has a letter"):
        CriterionRegistry().register(kind, is_polite)


@pytest.mark.parametrize("criterion", [None, 3, "contains:done", CompletionMarker])
def test_what_cannot_judge_is_refused(criterion: Any):
    with pytest.raises(ConfigError, match=r"register\('mine', criterion\) is"):
        CriterionRegistry().register("mine", criterion)


def test_an_unknown_kind_lists_the_known_ones_and_how_to_register_one():
    with pytest.raises(DefinitionError) as caught:
        built(with_kinds(isPolite=is_polite), {"kind": "is_polite"})
    text = str(caught.value)
    assert "criteria[0].kind: unknown kind 'is_polite'. Did you mean 'isPolite'?" in text
    assert ", ".join((*BUILT_IN_KINDS, "isPolite")) in text
    assert "registry.register(kind, criterion)" in text


# ── Entry points ─────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def plug_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Installs a package that offers kinds, in a folder on the path."""

    def install(entries: str, code: str, name: str = "manners") -> None:
        (tmp_path / "manners_plugin.py").write_text(code, "utf-8")
        info = tmp_path / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[untildone.criteria]\n{entries}\n")
        monkeypatch.syspath_prepend(str(tmp_path))

    yield install
    sys.modules.pop("manners_plugin", None)


CODE = """
def is_polite(ctx):
    return "please" in ctx.result.text
"""


async def test_an_installed_package_offers_a_kind_by_entry_point(plug_in):
    plug_in("isPolite = manners_plugin:is_polite", CODE)
    registry = CriterionRegistry.installed()
    assert registry.kinds == ("isPolite",)
    (criterion,) = built(registry, {"kind": "isPolite"})
    assert (await criterion.evaluate(context("please"))).satisfied


def test_entry_points_are_loaded_when_asked_for_and_never_on_a_definitions_word(plug_in):
    plug_in("isPolite = manners_plugin:is_polite", CODE)
    with pytest.raises(DefinitionError, match="unknown kind 'isPolite'"):
        build_agent(definition({"kind": "isPolite"}))
    assert "manners_plugin" not in sys.modules


def wheel_of(folder: Path, entries: str, code: str) -> Path:
    """A package as it is published, which has one module and these entry points."""
    info = "manners-1.0.dist-info"
    files = {
        "manners_plugin.py": code,
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: manners\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[untildone.criteria]\n{entries}\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    wheel = folder / "manners-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return wheel


YAML = """\
name: butler
model: {provider: openai, model: m}
harness: {loop: {criteria: [{kind: ispolite}]}}
"""


def test_a_kind_of_an_installed_distribution_is_there_for_a_new_process(tmp_path: Path):
    """Installed by pip, found by ``untildone check``; gone again, it is unknown."""
    definition = tmp_path / "butler.yaml"
    definition.write_text(YAML, "utf-8")
    site = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--no-index"]
    wheel = wheel_of(tmp_path, "isPolite = manners_plugin:is_polite", CODE)
    subprocess.run(
        [*pip, "--no-deps", "--quiet", "--target", str(site), str(wheel)],
        check=True,
        capture_output=True,
    )

    def check(path: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "untildone", "check", str(definition)],
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=False,
        )

    known = check(str(site))
    assert (known.returncode, known.stdout) == (0, ""), known.stdout + known.stderr
    unknown = check("")
    assert unknown.returncode == 2
    assert "criteria[0].kind: unknown kind 'ispolite'" in unknown.stdout


BAD_ENTRIES = [
    (
        "isPolite = manners_plugin:nothing",
        "'isPolite', which is 'manners_plugin:nothing' of the package manners, cannot be loaded",
    ),
    ("isPolite = no_such_module:x", "cannot be loaded: ModuleNotFoundError"),
    ("isPolite = manners_plugin:leaves.x", "cannot be loaded: SystemExit: 7"),
    (
        "isPolite = builtins:bool",
        "the kind 'isPolite', which is 'builtins:bool' of the package manners is the class bool;",
    ),
    (
        "is polite = manners_plugin:is_polite",
        "of the package manners, cannot be used: a kind has a letter, then letters, digits, _, .",
    ),
]
LEAVES = """
class Leaves:
    def __getattr__(self, name):
        raise SystemExit(7)
leaves = Leaves()
"""


@pytest.mark.parametrize(("entry", "said"), BAD_ENTRIES)
def test_a_bad_entry_point_costs_the_definitions_that_use_its_kind_and_no_others(
    plug_in, entry: str, said: str
):
    plug_in(entry, CODE + LEAVES)
    registry = CriterionRegistry.installed()
    assert build_agent(definition({"kind": "regex", "pattern": "a"}), registry=registry)
    for _ in range(2):
        with pytest.raises(DefinitionError) as caught:
            built(registry, {"kind": entry.partition(" =")[0].upper()})
        assert caught.value.problems[0].path == "harness.loop.criteria[0].kind"
        assert said in caught.value.problems[0].message


def test_a_package_cannot_take_the_place_of_a_built_in_kind(plug_in):
    plug_in("completionMarker = manners_plugin:is_polite", CODE)
    registry = CriterionRegistry.installed()
    (criterion,) = built(registry, {"kind": "completionMarker", "marker": "DONE"})
    assert type(criterion) is CompletionMarker


def test_a_kind_that_two_packages_offer_names_both_and_costs_only_those_who_use_it(plug_in):
    plug_in("isPolite = manners_plugin:is_polite\natLeast = builtins:callable", CODE, "manners")
    plug_in("ISPOLITE = builtins:callable", CODE, "more_manners")
    registry = CriterionRegistry.installed()
    assert built(registry, {"kind": "atLeast"})
    with pytest.raises(
        DefinitionError, match=r"is offered by the packages .*; uninstall all but"
    ) as caught:
        built(registry, {"kind": "isPolite"})
    assert re.search(r"\bmanners\b", str(caught.value))
    assert "more_manners" in str(caught.value)


def test_what_a_package_offers_is_not_registered_once_more(plug_in):
    plug_in("isPolite = manners_plugin:is_polite", CODE)
    registry = CriterionRegistry.installed()
    with pytest.raises(ConfigError, match="already, as 'isPolite' of the package manners;"):
        registry.register("ispolite", is_polite)


def test_a_package_is_imported_when_its_kind_is_used(plug_in):
    plug_in("isPolite = manners_plugin:is_polite", CODE)
    registry = CriterionRegistry.installed()
    assert registry.kinds == ("isPolite",)
    assert "manners_plugin" not in sys.modules
    assert built(registry, {"kind": "isPolite"})
    assert "manners_plugin" in sys.modules


@pytest.mark.parametrize("kind", ["j\u017fon\u017fchema", "completionMar\u212aer", "\u0130sPolite"])
def test_only_the_case_of_ascii_letters_does_not_matter(kind: str):
    """A long s and the sign for kelvin look like other letters, and are none of them."""
    with pytest.raises(DefinitionError, match="unknown kind"):
        built(with_kinds(isPolite=is_polite), {"kind": kind, "marker": "x"})
