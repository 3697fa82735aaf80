"""What the tests of memories around a run share: memories that keep count, and ones that fail."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, Final

import pytest

from untildone import Agent, LoopConfig
from untildone.domain.episodes import Episode
from untildone.memory import EpisodicMemory, InMemoryProvider, PlaybookEntry, ProceduralMemory
from untildone.testing import ScriptedModel, SeenRequest

LESSON: Final = "Name a source."


def reflection(*lessons: str, kind: str = "helpful", **votes: list[str]) -> str:
    """What a reflecting model replies."""
    listed = [{"kind": kind, "content": lesson} for lesson in lessons]
    return json.dumps({"helped": [], "hurt": [], **votes, "lessons": listed})


def speaking(seen: SeenRequest) -> str:
    """A whole script: iteration n is answered with ``answer n``, and each run teaches a lesson.

    It goes by what it is asked and never by how often, so that memories, resumed and concurrent
    runs change nothing of it.
    """
    request = seen.request
    if request.purpose == "worker":
        assert request.at is not None
        return f"answer {request.at.iteration}"
    return reflection(LESSON)


def agent_with(loop: LoopConfig | None = None, script: Any = speaking, **settings: Any) -> Agent:
    """An agent on a scripted model."""
    return Agent("tester", ScriptedModel(script), loop_config=loop, **settings)


def worker_requests(agent: Agent) -> list[SeenRequest]:
    """What the agent's model was asked by the turn loop."""
    model = agent.model
    assert isinstance(model, ScriptedModel)
    return [seen for seen in model.requests if seen.request.purpose == "worker"]


def system_prompts(agent: Agent) -> list[str]:
    """The system messages of all worker requests, ``""`` where there was none."""
    texts: list[str] = []
    for seen in worker_requests(agent):
        systems = [m["content"] for m in seen.messages if m["role"] == "system"]
        assert len(systems) <= 1, "not every model takes two system messages"
        texts.append(systems[0] if systems else "")
    return texts


class Playbook(ProceduralMemory):
    """A playbook that notes what it is asked."""

    def __init__(self, *entries: str, backend: Any = None, **settings: Any) -> None:
        self.backend = backend or InMemoryProvider()
        super().__init__(self.backend, **settings)
        self.known = [PlaybookEntry(entry, "helpful") for entry in entries]
        self.loaded: list[str] = []
        self.curated: list[tuple[str, Any, Any]] = []

    async def load(self, task_tag: str) -> list[PlaybookEntry]:
        self.loaded.append(task_tag)
        return [*self.known, *await super().load(task_tag)]

    async def curate(
        self, task_tag: str, feedback: Any, trajectory: Any, *, model: Any = None
    ) -> int:
        self.curated.append((task_tag, feedback, trajectory))
        return await super().curate(task_tag, feedback, trajectory, model=model)


class Past(EpisodicMemory):
    """Episodes that note what they are asked."""

    def __init__(self, backend: Any = None, **settings: Any) -> None:
        super().__init__(backend or InMemoryProvider(), **settings)
        self.asked: list[str] = []
        self.recorded: list[Episode] = []

    async def recall(self, query: str, *, top_k: int | None = None) -> list[Episode]:
        self.asked.append(query)
        return await super().recall(query, top_k=top_k)

    async def record(self, episode: Episode, *, model: Any = None) -> None:
        await super().record(episode, model=model)
        self.recorded.append(episode)


async def provider_with(**entries: str) -> InMemoryProvider:
    """A provider that knows something."""
    provider = InMemoryProvider()
    for key, value in entries.items():
        await provider.store(key, value)
    return provider


# --- Memories that fail ---------------------------------------------------------------------------


class Broken:
    """A playbook, past episodes and a provider in one, all of whose methods do the same."""

    def __init__(self, do: Callable[[], Any]) -> None:
        self._do = do

    async def load(self, *_: Any, **__: Any) -> Any:
        return self._do()

    def render(self, *_: Any, **__: Any) -> Any:
        return self._do()

    async def curate(self, *_: Any, **__: Any) -> Any:
        return self._do()

    async def recall(self, *_: Any, **__: Any) -> Any:
        return self._do()

    async def record(self, *_: Any, **__: Any) -> Any:
        return self._do()

    async def search(self, *_: Any, **__: Any) -> Any:
        return self._do()


class BrokenHalfway(Broken):
    """One whose entries can be loaded and then not shown."""

    async def load(self, *_: Any, **__: Any) -> Any:
        return [PlaybookEntry("x", "helpful")]


class NotAsync:
    """One that somebody wrote without async."""

    def load(self, *_: Any, **__: Any) -> Any:
        return []

    render = curate = recall = record = search = load


class Hanging:
    """One that never answers."""

    async def load(self, *_: Any, **__: Any) -> Any:
        await asyncio.Event().wait()

    def render(self, *_: Any, **__: Any) -> str:
        return ""

    curate = recall = record = search = load


def raising(error: BaseException) -> Callable[[], Any]:
    """Raises an error."""

    def do() -> Any:
        raise error

    return do


def giving(value: Any) -> Callable[[], Any]:
    """Gives a value."""
    return lambda: value


class BadText:
    """A text that cannot be made."""

    def __str__(self) -> str:
        raise ZeroDivisionError("no text")

    __repr__ = __str__


FAILING: Final[dict[str, Callable[[], Any]]] = {
    "raises": lambda: Broken(raising(OSError("disk full"))),
    "raises halfway": lambda: BrokenHalfway(raising(OSError("disk full"))),
    "raises a cancellation": lambda: Broken(raising(asyncio.CancelledError())),
    "raises what has no text": lambda: Broken(raising(RuntimeError(BadText()))),
    "gives a number": lambda: Broken(giving(5.5)),
    "gives bytes": lambda: Broken(giving(b"text")),
    "gives nothing": lambda: Broken(giving(None)),
    "gives odd entries": lambda: Broken(giving([None, 5, ("key",), {}, Episode("q", "a", id="x")])),
    "gives odd episodes": lambda: Broken(giving([Episode(None, 5, score="x")])),  # pyright: ignore[reportArgumentType]
    "gives what has no text": lambda: Broken(giving([BadText()])),
    "is not async": NotAsync,
}
"""Memories that fail in every way but one: see ``Hanging``."""

EACH_FAILURE = pytest.mark.parametrize(
    "failing", [pytest.param(m, id=n) for n, m in FAILING.items()]
)
