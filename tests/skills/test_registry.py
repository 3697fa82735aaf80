"""The registry: one for the process, safe from any thread, and put aside for tests."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from untildone import ConfigError
from untildone.skills import SkillRegistry, skill


def made(name: str):
    @skill(name=name)
    async def do() -> str:
        """Does it."""
        return name

    return do


def names() -> list[str]:
    return [each.name for each in SkillRegistry.list_all()]


def test_what_is_registered_is_found_by_name_and_listed_in_order():
    first, second = made("first"), made("second")
    SkillRegistry.register(first)
    SkillRegistry.register(second)
    assert SkillRegistry.get("first") is first
    assert SkillRegistry.get("third") is None
    assert SkillRegistry.list_all() == [first, second]


def test_registering_a_name_again_replaces_the_skill_in_its_place():
    new = made("a")
    for each in (made("a"), made("b"), new):
        SkillRegistry.register(each)
    assert SkillRegistry.get("a") is new
    assert names() == ["a", "b"]


def test_the_list_is_a_copy():
    SkillRegistry.register(made("a"))
    SkillRegistry.list_all().clear()
    assert names() == ["a"]
    SkillRegistry.clear()
    assert names() == []


@pytest.mark.parametrize("wrong", [None, "a", lambda: "a", {"name": "a"}])
def test_what_is_no_skill_is_refused(wrong: Any):
    with pytest.raises(ConfigError, match="@skill"):
        SkillRegistry.register(wrong)


def test_a_scope_begins_empty_and_ends_as_it_was_also_after_an_error():
    SkillRegistry.register(made("outer"))
    with pytest.raises(ZeroDivisionError), SkillRegistry.scoped():  # noqa: PT012
        assert names() == []
        SkillRegistry.register(made("inner"))
        with SkillRegistry.scoped():
            SkillRegistry.register(made("innermost"))
            assert names() == ["innermost"]
        assert names() == ["inner"]
        raise ZeroDivisionError
    assert names() == ["outer"]


def test_a_scope_holds_in_other_threads_too():
    with SkillRegistry.scoped():
        thread = threading.Thread(target=lambda: SkillRegistry.register(made("there")))
        thread.start()
        thread.join()
        assert names() == ["there"]
    assert names() == []


def test_scopes_that_overlap_each_take_away_their_own():
    first, second = SkillRegistry.scoped(), SkillRegistry.scoped()
    first.__enter__()
    SkillRegistry.register(made("first"))
    second.__enter__()
    SkillRegistry.register(made("second"))
    first.__exit__(None, None, None)
    assert names() == ["second"]
    second.__exit__(None, None, None)
    assert names() == []


def test_many_threads_lose_nothing():
    skills = [made(f"s{number}") for number in range(200)]

    def work(each: Any) -> int:
        SkillRegistry.register(each)
        assert SkillRegistry.get(each.name) is each
        return len(SkillRegistry.list_all())

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(work, skills))
    assert sorted(names()) == sorted(each.name for each in skills)
