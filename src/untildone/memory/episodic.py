"""Past attempts at requests, and those of them that matter for a new one."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import Any, Final

from untildone.cancellation import is_being_cancelled
from untildone.domain.bounds import check_count
from untildone.domain.episodes import Episode
from untildone.domain.errors import ConfigError, GradingError, describe
from untildone.memory.episodes_text import check_episode, episode_from_text, episode_to_text, utc
from untildone.memory.reflection import (
    checked_reflect_model,
    reflect,
    reflecting_model,
)
from untildone.memory.relevance import words_of, words_of_query
from untildone.memory.scoped import Found, check_search, checked_backend
from untildone.memory.shelf import shelf_in
from untildone.policy.cutting import cut_text
from untildone.policy.framing import framed
from untildone.ports import MemoryProvider, Model

_log = logging.getLogger("untildone")

_CANDIDATES: Final = 20
_CANDIDATES_EACH: Final = 5
_RECENCY: Final = 0.25
_FLOOR: Final = 0.2
_MOST_CHARS: Final = 8_000

_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"lesson": {"type": "string"}},
    "required": ["lesson"],
    "additionalProperties": False,
}
_TASK: Final = (
    "Say in one sentence what to do differently, or the same way again, when a request like this"
    " one comes next time. Quote no names, secrets or figures."
)


class EpisodicMemory:
    """Remembers attempts and recalls those that matter for a request (S1).

    Relevance decides: words in common, the rare ones weighing more, in any script. Of episodes that
    are about equally relevant the newer comes first; one that has nothing in common with the
    request, or far less than the best one, is not recalled. It holds no state of its own: one
    serves any number of runs at once.

    Args:
        backend: Where the episodes are kept.
        namespace: Keeps the episodes of one purpose apart from those of another in one backend.
        max_episodes: Most episodes kept; 1 or more. The ones recorded longest ago go first.
        recall_k: Most episodes recalled where nobody says; 1 or more.
        reflect_model: Who draws a lesson from each recorded episode; None: nobody does.

    Raises:
        ConfigError: A value cannot work.
    """

    def __init__(
        self,
        backend: MemoryProvider,
        *,
        namespace: str = "default",
        max_episodes: int = 100,
        recall_k: int = 3,
        reflect_model: str | Model | None = None,
    ) -> None:
        checked_backend("EpisodicMemory.backend", backend)
        if not isinstance(namespace, str) or not namespace:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(
                f"EpisodicMemory.namespace must be a non-empty text, not {namespace!r:.80}"
            )
        check_count("EpisodicMemory.max_episodes", max_episodes)
        check_count("EpisodicMemory.recall_k", recall_k)
        self._shelf = shelf_in(backend, namespace, max_episodes)
        self._recall_k = recall_k
        self.reflect_model = checked_reflect_model("EpisodicMemory.reflect_model", reflect_model)

    async def record(self, episode: Episode, *, model: Any = None) -> None:
        """Keeps an episode; one with the same ``id`` is replaced.

        An empty ``id`` or ``timestamp`` is set on the given object. Where a ``reflect_model`` is
        set and the episode has no ``reflection``, one is drawn; if that fails, it is reported in
        the log and the episode is kept without.

        Args:
            episode: The episode.
            model: The run's model, by whose metered path the ``reflect_model`` is reached.

        Raises:
            ConfigError: A field cannot be kept; the text names it.
            MemoryProviderError: The backend failed.
        """
        check_episode(episode)
        episode.timestamp = utc(episode.timestamp)
        episode.id = episode.id or os.urandom(16).hex()
        if self.reflect_model is not None and episode.reflection is None:
            episode.reflection = await self._lesson_of(episode, model)
        await self._shelf.put(episode.id, episode_to_text(episode))

    async def recall(self, query: str, *, top_k: int | None = None) -> list[Episode]:
        """Past episodes that matter for a query, the most relevant first.

        Args:
            query: The request.
            top_k: Most episodes; 1 or more; default: ``recall_k``.

        Raises:
            ConfigError: ``top_k`` is out of bounds.
            MemoryProviderError: The backend failed.
        """
        most = self._recall_k if top_k is None else top_k
        check_search(query, most)
        found = await self._shelf.find(query, max(_CANDIDATES, _CANDIDATES_EACH * most))
        return _chosen(query, found)[:most]

    async def recall_others(self, query: str, own: str) -> list[Episode]:
        """What ``recall`` would give were there no episodes whose ``id`` begins with ``own``.

        Args:
            query: The request.
            own: How the ids begin of the episodes to leave out, such as ``"<run id>:"``.

        Raises:
            ConfigError: ``query`` is no text.
            MemoryProviderError: The backend failed.
        """
        most = self._recall_k
        check_search(query, most)
        wanted = candidates = max(_CANDIDATES, _CANDIDATES_EACH * most)
        while True:
            found = await self._shelf.find(query, candidates)
            others = [each for each in found if not each.key.startswith(own)]
            if len(others) >= wanted or len(found) < candidates:
                return _chosen(query, others[:wanted])[:most]
            candidates *= 2

    async def load(self) -> list[Episode]:
        """All episodes, the oldest first.

        Raises:
            MemoryProviderError: The backend failed.
        """
        read = [episode_from_text(name, text) for name, text in await self._shelf.all()]
        return sorted((episode for episode in read if episode is not None), key=_age)

    async def clear(self) -> None:
        """Forgets the episodes of this namespace, and nothing else.

        Raises:
            MemoryProviderError: The backend failed.
        """
        await self._shelf.clear()

    async def _lesson_of(self, episode: Episode, of_run: Any) -> str | None:
        score = "" if episode.score is None else f", score {episode.score:g} of 1"
        prompt = (
            f"{_TASK}\n\n{framed('request', cut_text(episode.query, _MOST_CHARS))}\n\n"
            f"{framed('answer', cut_text(episode.response, _MOST_CHARS))}\n\n"
            f"Outcome: {episode.outcome}{score}."
        )
        try:
            model = reflecting_model(self.reflect_model, of_run)
            return None if model is None else await reflect(model, prompt, _SCHEMA, _lesson_from)
        except (Exception, asyncio.CancelledError) as error:
            if is_being_cancelled():
                raise
            _log.warning(
                "an episode is kept without a lesson, since the reflection failed: %s",
                describe(error),
            )
            return None


def _lesson_from(fields: dict[str, Any]) -> str:
    lesson = fields.get("lesson")
    if not isinstance(lesson, str) or not lesson.strip():
        raise GradingError(f"lesson is {lesson!r:.80}; it must be one sentence")
    return " ".join(lesson.split())


def _age(episode: Episode) -> tuple[str, str]:
    return episode.timestamp, episode.id


def _chosen(query: str, found: list[Found]) -> list[Episode]:
    """What was found, by relevance and recency; what only its field names matched is left out."""
    wanted = set(words_of_query(query))
    read = [(episode_from_text(each.key, each.value), each.score) for each in found]
    scored = [
        (episode, score)
        for episode, score in read
        if episode is not None and not wanted.isdisjoint(words_of(_said_in(episode)))
    ]
    best = max((score for _, score in scored), default=0.0)
    by_age = sorted((episode for episode, _ in scored), key=_age)
    recency = {episode.id: place / len(by_age) for place, episode in enumerate(by_age, 1)}
    ranked = [
        (-score * (1 + _RECENCY * recency[episode.id]), index, episode)
        for index, (episode, score) in enumerate(scored)
        if score >= _FLOOR * best
    ]
    return [episode for _, _, episode in sorted(ranked, key=lambda each: each[:2])]


def _said_in(episode: Episode) -> str:
    texts = (episode.query, episode.response, episode.reflection or "", *episode.tags)
    return "\n".join(texts)
