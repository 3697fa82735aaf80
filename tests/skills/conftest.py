"""Every test here begins with an empty registry and leaves nothing behind in it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from untildone.skills import SkillRegistry


@pytest.fixture(autouse=True)
def _own_registry() -> Iterator[None]:
    with SkillRegistry.scoped():
        yield
