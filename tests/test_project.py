"""What a clone of this repository promises before a line of the package runs."""

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import untildone

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))

# Joined at run time, so that this file may hold itself to its own rule.
REGISTRY_HOSTS = ["pypi" + ".org", "python" + "hosted.org", "npmjs" + ".org", "npmjs" + ".com"]
MACHINE_PATH = re.compile(rb"(?<![\w.$~-])/(?:" + b"|".join([b"root", b"work"]) + rb")/")


def files_of_the_project() -> list[Path]:
    """Every file that is tracked, or would be with `git add .`; outside a clone there are none."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listing.returncode and "CI" not in os.environ:
        pytest.skip("not a git clone")
    assert listing.returncode == 0, listing.stderr.decode()
    paths = [ROOT / name for name in listing.stdout.decode().split("\0") if name]
    return [path for path in paths if path.is_file()]


def pins() -> list[str]:
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    return [line for line in lines if not line.startswith("#")]


def closure(requirements: list[str]) -> Iterator[str]:
    """Yield the canonical name of every distribution that these requirements bring in here."""
    todo = [Requirement(text) for text in requirements]
    seen: set[str] = set()
    while todo:
        requirement = todo.pop()
        name = canonicalize_name(requirement.name)
        if str(requirement) in seen:
            continue
        seen.add(str(requirement))
        yield name
        for text in metadata.requires(name) or []:
            child = Requirement(text)
            extras = requirement.extras or {""}
            if not child.marker or any(child.marker.evaluate({"extra": e}) for e in extras):
                todo.append(child)


def test_no_file_names_a_registry_host_or_a_path_of_one_machine():
    offences = [
        f"{path.relative_to(ROOT)}: {found!r}"
        for path in files_of_the_project()
        for found in _offences(path.read_bytes())
    ]
    assert not offences


def _offences(content: bytes) -> list[bytes]:
    hosts = [host.encode() for host in REGISTRY_HOSTS if host.encode() in content]
    return hosts + MACHINE_PATH.findall(content)


def test_constraints_are_names_and_exact_versions_only():
    assert [line for line in pins() if not re.fullmatch(r"[\w.-]+==[\w.]+", line)] == []
    names = [canonicalize_name(line.split("==")[0]) for line in pins()]
    assert len(names) == len(set(names))


def test_constraints_pin_everything_that_setup_installs():
    project = PROJECT["project"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (extras,) = re.findall(r"^EXTRAS\s*:= (.*)$", makefile, flags=re.MULTILINE)
    installed = extras.split(",")
    assert set(project["optional-dependencies"]) - set(installed) == {"litellm"}
    wanted = [
        "pip",
        *PROJECT["build-system"]["requires"],
        *project["dependencies"],
        *(line for name in installed for line in project["optional-dependencies"][name]),
        *PROJECT["dependency-groups"]["dev"],
        *PROJECT["dependency-groups"]["docs"],
    ]
    pinned = {canonicalize_name(line.split("==")[0]) for line in pins()}
    assert set(closure(wanted)) - pinned == set()


def test_the_version_is_said_once():
    assert untildone.__version__ == PROJECT["project"]["version"]


def test_the_wheel_holds_the_package_its_types_and_its_licence(tmp_path: Path):
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "untildone/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert {name.split("/")[0].split("-")[0] for name in names} == {"untildone"}
