"""Every provider of ours passes the suite that is offered for those of others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.memory.places import EVERYWHERE, FourMethods, Place, needs
from untildone.memory import InMemoryProvider, ScopedMemoryProvider
from untildone.testing.memory_conformance import (
    MEMORY_CHECKS,
    SCOPED_MEMORY_CHECKS,
    MemoryCheck,
    concurrent_stores_lose_nothing,
    concurrent_updates_lose_nothing,
    keys_are_told_apart_exactly,
    search_breaks_ties_by_the_latest,
    search_reads_any_script,
    trim_keeps_the_latest,
    values_come_back_as_they_were,
)


def name(check: MemoryCheck) -> str:
    return getattr(check, "__name__", repr(check))


@EVERYWHERE
@pytest.mark.parametrize("check", MEMORY_CHECKS + SCOPED_MEMORY_CHECKS, ids=name)
async def test_ours_conform(place: Place, check: MemoryCheck, tmp_path: Path):
    async with place(tmp_path) as provider:
        await check(provider)


@EVERYWHERE
async def test_ours_are_scoped_and_one_with_four_methods_is_not(place: Place, tmp_path: Path):
    async with place(tmp_path) as provider:
        assert isinstance(provider, ScopedMemoryProvider)
    assert not isinstance(FourMethods(), ScopedMemoryProvider)


def test_a_service_that_is_missing_fails_in_ci_and_is_skipped_by_name_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
):
    told = "Nobody does not answer on 127.0.0.1:1"
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match=told):
        needs("Nobody", 1)
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match=told):
        needs("Nobody", 1)


# The suite is worth what it finds: providers with one fault each.


class Folding(InMemoryProvider):
    """Takes upper for lower case."""

    async def store(self, key: str, value: str) -> None:
        await super().store(key.lower(), value)

    async def retrieve(self, key: str) -> str | None:
        return await super().retrieve(key.lower())


class Stripping(InMemoryProvider):
    """Loses spaces."""

    async def store(self, key: str, value: str) -> None:
        await super().store(key, value.strip())


class Racing(InMemoryProvider):
    """Reads, lets others go ahead, writes."""

    async def update(self, key: str, change: Any) -> str | None:
        import asyncio

        value = change(await self.retrieve(key))
        await asyncio.sleep(0)
        await self.store(key, value)
        return value


class Forgetful(InMemoryProvider):
    """Has room for few."""

    async def store(self, key: str, value: str) -> None:
        await super().store(key, value)
        await super().trim("", 20)


class EnglishOnly(InMemoryProvider):
    """Looks for words between spaces."""

    async def search(self, query: str, top_k: int = 5) -> list[tuple[str, str]]:
        words = query.lower().split()
        found = [(k, v) for k, v in await self.entries() if any(w in v.lower() for w in words)]
        return found[:top_k]


class OldestFirst(InMemoryProvider):
    """Sorts equal values the wrong way round."""

    async def search(self, query: str, top_k: int = 5) -> list[tuple[str, str]]:
        return (await super().search(query, 99))[::-1][:top_k]


class TrimsTheLatest(InMemoryProvider):
    """Forgets the new instead of the old."""

    async def trim(self, prefix: str, keep: int) -> int:
        listed = await self.entries(prefix)
        for key, _ in listed[keep:]:
            await self.update(key, lambda _: None)
        return len(listed[keep:])


@pytest.mark.parametrize(
    ("provider", "check"),
    [
        (Folding, keys_are_told_apart_exactly),
        (Stripping, values_come_back_as_they_were),
        (Racing, concurrent_updates_lose_nothing),
        (Forgetful, concurrent_stores_lose_nothing),
        (EnglishOnly, search_reads_any_script),
        (OldestFirst, search_breaks_ties_by_the_latest),
        (TrimsTheLatest, trim_keeps_the_latest),
    ],
)
async def test_the_suite_finds_a_provider_with_a_fault(provider: type[Any], check: MemoryCheck):
    with pytest.raises(AssertionError, match=r"got .*, wanted "):
        await check(provider())
