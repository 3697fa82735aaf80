"""Every test here also shows that nothing is left behind: no task, no connection in use."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from untildone.models import http


@pytest.fixture(autouse=True)
async def _nothing_is_left_behind(request: pytest.FixtureRequest) -> AsyncGenerator[None]:
    before = asyncio.all_tasks()
    yield
    if request.node.path.name == "test_local.py":
        return
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    assert not left, f"tasks left behind: {left}"
    pool = http._pools.get(asyncio.get_running_loop())
    if pool is not None:
        connector = pool.session.connector
        assert connector is not None
        assert not connector._acquired, "connections left in use"
        await http.aclose()
