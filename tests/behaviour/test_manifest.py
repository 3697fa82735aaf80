"""Every line of the contract has a test, and every behaviour test names its line."""

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.behaviour import manifest

ID = re.compile(r"[a-z]+(\.[a-z0-9]+(-[a-z0-9]+)*)+")


def listed(lines: list[str], what: str) -> str:
    return f"{what}:\n  " + "\n  ".join(lines) if lines else ""


def problems(folder: Path = manifest.HERE) -> list[str]:
    """All that is wrong between the requirements and the tests, one text for each kind."""
    required = manifest.requirements(folder)
    held = manifest.held(folder)
    known = {each.id for each in required}
    named = {name for each in held for name in each.ids}
    found = [
        listed(
            [f"{each.id} ({each.where})" for each in required if each.id not in named],
            'no test has @requirement("…") with this id',
        ),
        listed(
            [
                f"{name!r} at {each.where}"
                for each in held
                for name in each.ids
                if name not in known
            ],
            "no requirements_*.py has this id",
        ),
        listed(
            [f"{each.test} ({each.where})" for each in held if not each.ids],
            "a behaviour test names the line of the contract it holds: @requirement(id)",
        ),
        listed(manifest.misplaced(folder), "@requirement is for test functions in test_*.py"),
        listed(repeated([each.id for each in required]), "an id stands twice"),
        listed(repeated([each.sentence for each in required]), "a sentence stands twice"),
        listed(repeated([each.test for each in held]), "two tests of one file share a name"),
        listed(
            [each.test for each in held if len(set(each.ids)) < len(each.ids)],
            "a test names an id twice",
        ),
        listed(
            [f"{each.id!r} ({each.where})" for each in required if not ID.fullmatch(each.id)],
            "an id reads like 'events.end-mark'",
        ),
        listed(
            [
                f"{each.id}: {each.sentence!r}"
                for each in required
                if not each.sentence.endswith(".") or len(each.sentence.split()) < 3
            ],
            "a requirement is a sentence, with a full stop at its end",
        ),
    ]
    return [text for text in found if text]


def repeated(names: list[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


def test_every_requirement_has_a_test_and_every_test_a_requirement():
    assert not (found := problems()), "\n\n" + "\n\n".join(found)


def test_the_manifest_is_not_empty():
    assert manifest.requirements()
    assert manifest.held()


GOOD = {
    "requirements_x.py": 'REQUIREMENTS: dict[str, str] = {"x.one": "One is one."}\n',
    "test_x.py": '@requirement("x.one")\ndef test_one(): ...\n',
}


@pytest.mark.parametrize(
    ("name", "source", "complaint"),
    [
        ("requirements_y.py", 'REQUIREMENTS = {"y.lonely": "It stands alone."}\n', "y.lonely"),
        (
            "requirements_y.py",
            'REQUIREMENTS = {"x.one": "One more than one."}\n',
            "an id stands twice",
        ),
        (
            "requirements_y.py",
            'REQUIREMENTS = {"x.one": "One is one."}\n',
            "a sentence stands twice",
        ),
        ("requirements_y.py", 'REQUIREMENTS = {"Y one": "This one is odd."}\n', "an id reads like"),
        (
            "requirements_y.py",
            'REQUIREMENTS = {"y.one": "Not a sentence"}\n',
            "a requirement is a sentence",
        ),
        ("test_y.py", '@requirement("x.two")\nasync def test_two(): ...\n', "'x.two' at test_y.py"),
        ("test_y.py", "def test_two(): ...\n", "test_y.py::test_two"),
        ("test_y.py", '@requirement("x.one", "x.one")\ndef test_y(): ...\n', "names an id twice"),
        ("test_y.py", '@requirement("x.one")\ndef check(): ...\n', "test_y.py:2 check"),
        ("conftest.py", '@requirement("x.one")\ndef test_z(): ...\n', "conftest.py:2 test_z"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, name: str, source: str, complaint: str):
    write(tmp_path, GOOD)
    assert problems(tmp_path) == []
    write(tmp_path, {name: source})
    assert any(complaint in problem for problem in problems(tmp_path))


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("requirements_y.py", "OTHER = {}\n"),
        ("requirements_y.py", 'REQUIREMENTS = {NAME: "Computed."}\n'),
        ("test_y.py", "@requirement(NAME)\ndef test_y(): ...\n"),
    ],
)
def test_what_cannot_be_read_is_an_error(tmp_path: Path, name: str, source: str):
    write(tmp_path, {**GOOD, name: source})
    with pytest.raises(manifest.ManifestError, match=name):
        problems(tmp_path)


def write(folder: Path, files: dict[str, str]) -> None:
    for name, source in files.items():
        (folder / name).write_text(source, "utf-8")
