"""Episodes as text and back: what a provider keeps of one."""

from __future__ import annotations

import json
import logging
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any, Final, cast, get_args

from untildone.domain.episodes import Episode, Outcome
from untildone.domain.errors import ConfigError

_log = logging.getLogger("untildone")

_FIELDS: Final = tuple(field.name for field in fields(Episode))


def episode_to_text(episode: Episode) -> str:
    """An episode as JSON that every store can take."""
    form = {name: getattr(episode, name) for name in _FIELDS}
    text = json.dumps(form, ensure_ascii=False)
    return text.encode("utf-8", "replace").decode()


def episode_from_text(key: str, text: str) -> Episode | None:
    """The episode that ``episode_to_text`` wrote; None, and a warning, for anything else."""
    try:
        form: Any = json.loads(text)
        return _checked(Episode(**{name: form[name] for name in _FIELDS}))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        _log.warning("the value of %r is no episode and is passed over: %s", key, error)
        return None


def check_episode(episode: object) -> Episode:
    """An episode whose fields can be kept.

    Raises:
        ConfigError: They cannot; the text names the field and the value.
    """
    if not isinstance(episode, Episode):
        raise ConfigError(f"record takes an Episode(query, response, …), not {episode!r:.80}")
    try:
        return _checked(episode)
    except ValueError as error:
        raise ConfigError(f"the episode cannot be kept: {error}") from error


def _checked(episode: Episode) -> Episode:
    for name in ("query", "response", "timestamp", "agent_id", "id"):
        _check(isinstance(getattr(episode, name), str), episode, name, "a str")
    outcomes = get_args(Outcome)
    _check(episode.outcome in outcomes, episode, "outcome", f"one of {', '.join(outcomes)}")
    _check(_is_score(episode.score), episode, "score", "a number from 0 to 1, or None")
    _check(_is_text_or_none(episode.reflection), episode, "reflection", "a str or None")
    for name in ("tools_used", "tags"):
        _check(_is_list_of_text(getattr(episode, name)), episode, name, "a list of str")
    return episode


def _check(fits: bool, episode: Episode, name: str, what: str) -> None:  # noqa: FBT001
    if not fits:
        raise ValueError(f"{name} is {getattr(episode, name)!r:.80}; it must be {what}")


def _is_text_or_none(value: object) -> bool:
    return value is None or isinstance(value, str)


def _is_score(value: object) -> bool:
    if value is None:
        return True
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1


def _is_list_of_text(value: object) -> bool:
    if not isinstance(value, list):
        return False
    return all(isinstance(item, str) for item in cast("list[object]", value))


def utc(timestamp: str) -> str:
    """A time as ISO 8601 in UTC, always of one length, so that times compare as texts.

    Args:
        timestamp: A time in ISO 8601, taken as UTC where it names no zone; ``""`` for now.

    Raises:
        ConfigError: It is none.
    """
    if not timestamp:
        moment = datetime.now(UTC)
    else:
        try:
            moment = datetime.fromisoformat(timestamp)
        except ValueError as error:
            raise ConfigError(
                f"Episode.timestamp is {timestamp!r:.80}; use ISO 8601 like"
                " '2026-01-31T12:00:00+00:00', or leave it empty for now"
            ) from error
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return moment.isoformat(timespec="microseconds")
