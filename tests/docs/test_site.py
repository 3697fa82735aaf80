"""``make docs``: the site builds without a warning, is whole, fetches nothing from elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import untildone
from tests.docs.pages import DOCS, ROOT


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "properdocs", "build", "--strict", "--quiet"]
    done = subprocess.run(
        [*command, "-f", str(ROOT / "properdocs.yml"), "-d", str(folder)],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return folder


def test_every_page_is_built_and_stands_in_the_navigation(site: Path):
    home = (site / "index.html").read_text("utf-8")
    for page in DOCS.rglob("*.md"):
        target = page.relative_to(DOCS).with_suffix(".html")
        assert (site / target).is_file()
        assert target.as_posix() in home, f"properdocs.yml does not list {target}"


def test_every_public_name_can_be_linked(site: Path):
    reference = "".join(page.read_text("utf-8") for page in (site / "reference").glob("*.html"))
    anchors = set(re.findall(r'id="untildone\.(?:[\w.]+\.)?(\w+)"', reference))
    assert not sorted(set(untildone.__all__) - anchors)


def test_its_pages_fetch_nothing_from_elsewhere(site: Path):
    for page in site.rglob("*.html"):
        text = page.read_text("utf-8")
        fetched = re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="(\w*:?//[^"]+)"', text)
        assert not fetched, page
