"""What the behaviour tests share."""

from __future__ import annotations

import pytest

from tests.behaviour.manifest import MARKER


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)
