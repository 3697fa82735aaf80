"""A playbook as data: entries with counters, changed a little at a time. No I/O.

After ACE (arXiv 2510.04618): a model that rewrites a whole playbook soon loses what was in it, so
what a run teaches is a delta: votes on entries it was shown, and a few new ones. Deltas add up, so
they can be applied in any order.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final, Literal, cast, get_args

from untildone.domain.errors import ConfigError, MemoryProviderError
from untildone.memory.relevance import words_of

Kind = Literal["helpful", "harmful"]
_KINDS: Final = get_args(Kind)

MOST_CHARS: Final = 500
"""How long an entry may be."""

FORMAT: Final = 1
_MOST_RUNS: Final = 500
_RUN_CHARS: Final = 12
_DROPPED_AT: Final = -2


@dataclass(slots=True)
class PlaybookEntry:
    """One lesson (S1).

    Attributes:
        content: The lesson, one sentence or two.
        kind: ``helpful`` for what to do, ``harmful`` for what to avoid.
        uses: How many curated runs were shown it.
        last_score: The score of the last of them, in [0, 1].
        helped: How many of them it helped, as the reflection saw it.
        hurt: How many of them it misled.

    Raises:
        ConfigError: ``kind`` is neither.
    """

    content: str
    kind: Kind
    uses: int = 0
    last_score: float | None = None
    helped: int = field(default=0, kw_only=True)
    hurt: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            raise ConfigError(
                f"PlaybookEntry.kind is {self.kind!r:.80}; use 'helpful' for what to do or"
                " 'harmful' for what to avoid"
            )

    @property
    def id(self) -> str:
        """Its name in prompts and votes: the same lesson in other spelling has the same one."""
        return _id_of(self.kind, self.content)


@lru_cache(4096)
def _id_of(kind: Kind, content: str) -> str:
    spelled = " ".join((kind, *(words_of(content) or [content])))
    return hashlib.sha256(spelled.encode("utf-8", "replace")).hexdigest()[:8]


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """What one run teaches.

    Attributes:
        score: The run's score.
        shown: The ids of the entries that the run was shown; None for all that are there.
        helped: The ids of those that helped.
        hurt: The ids of those that misled.
        lessons: New entries, the most important first.
        run_id: The run, so that it teaches only once; ``""`` where nobody says.
    """

    score: float = 0.0
    shown: frozenset[str] | None = None
    helped: frozenset[str] = frozenset()
    hurt: frozenset[str] = frozenset()
    lessons: tuple[PlaybookEntry, ...] = ()
    run_id: str = ""


@dataclass(slots=True)
class Playbook:
    """The entries under one tag, the oldest first, and the last runs that taught them."""

    entries: list[PlaybookEntry] = field(default_factory=list[PlaybookEntry])
    runs: list[str] = field(default_factory=list[str])

    def knows(self, run_id: str) -> bool:
        """Whether a run has taught already: it was cut off after that, and resumed."""
        return bool(run_id) and run_id[:_RUN_CHARS] in self.runs

    def learn(self, delta: Delta, most: int) -> None:
        """Applies what a run teaches; where there is no room, the least useful entries go.

        Args:
            delta: What it teaches.
            most: Most entries. The first new one always finds room, so that a full playbook still
                learns; the others push out nothing that helped more often than it misled.
        """
        if self.knows(delta.run_id):
            return
        if delta.run_id:
            self.runs = [*self.runs, delta.run_id[:_RUN_CHARS]][-_MOST_RUNS:]
        known = {entry.id: entry for entry in self.entries}
        for name, entry in known.items():
            if delta.shown is None or name in delta.shown:
                entry.uses += 1
                entry.last_score = delta.score
        for name in delta.helped & known.keys():
            known[name].helped += 1
        for name in delta.hurt & known.keys():
            known[name].hurt += 1
        taught: dict[str, PlaybookEntry] = {}
        for lesson in delta.lessons:
            taught.setdefault(lesson.id, lesson)
        for name in taught.keys() & known.keys() - delta.helped:
            known[name].helped += 1  # learned again: it holds
        self._make_room(taught, known, most)

    def _make_room(
        self, taught: Mapping[str, PlaybookEntry], known: Mapping[str, PlaybookEntry], most: int
    ) -> None:
        """Keeps the best. What was just taught comes before the rest, but after what has helped.

        Only the first lesson, and the first one that is new, come before all else.
        """
        new = [name for name in taught if name not in known]
        useful = sorted(known.values(), key=_usefulness)[::-1]
        ranked = [
            *[*taught][:1],
            *new[:1],
            *(entry.id for entry in useful if _balance(entry) > 0),
            *taught,
            *(entry.id for entry in useful if _balance(entry) > _DROPPED_AT),
        ]
        kept = [*dict.fromkeys(ranked)][:most]
        self.entries = [entry for name, entry in known.items() if name in kept]
        self.entries += [replace(taught[name]) for name in taught if name in kept and name in new]


def _balance(entry: PlaybookEntry) -> int:
    return entry.helped - entry.hurt


def _usefulness(entry: PlaybookEntry) -> tuple[int, float]:
    """What helped more often is more useful; then what was there when a run went well.

    Of equals the sort leaves the oldest first; one that nobody was shown yet stands in the middle.
    """
    return _balance(entry), 0.5 if entry.last_score is None else entry.last_score


def cleaned(content: str) -> str:
    """A lesson as it is kept: one line, not too long, and nothing that no store could take."""
    line = " ".join(content.encode("utf-8", "replace").decode().split())
    return line if len(line) <= MOST_CHARS else f"{line[: MOST_CHARS - 1]}…"


def playbook_to_text(playbook: Playbook) -> str:
    """The playbook as JSON."""
    entries = [
        {
            "content": entry.content,
            "kind": entry.kind,
            "uses": entry.uses,
            "last_score": entry.last_score,
            "helped": entry.helped,
            "hurt": entry.hurt,
        }
        for entry in playbook.entries
    ]
    form = {"format": FORMAT, "entries": entries, "runs": playbook.runs}
    return json.dumps(form, ensure_ascii=False)


def playbook_from_text(text: str | None, key: str) -> Playbook:
    """The playbook that ``playbook_to_text`` wrote; an empty one for None.

    Raises:
        MemoryProviderError: The text is none; it is left as it is.
    """
    if text is None:
        return Playbook()
    try:
        form: Any = json.loads(text)
        if form["format"] != FORMAT:
            raise ValueError(f"its format is {form['format']!r:.40}, not {FORMAT}")
        return Playbook(
            [_entry_from(fields) for fields in form["entries"]],
            [str(run) for run in form["runs"]],
        )
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise MemoryProviderError(
            f"the value of {key!r} is no playbook that this version can read ({error}); it was left"
            " as it is: mend it, or move it to another key"
        ) from error


def _entry_from(fields: Mapping[str, Any]) -> PlaybookEntry:
    score = fields["last_score"]
    return PlaybookEntry(
        str(fields["content"]),
        cast("Kind", fields["kind"]),
        int(fields["uses"]),
        None if score is None else float(score),
        helped=int(fields["helped"]),
        hurt=int(fields["hurt"]),
    )
