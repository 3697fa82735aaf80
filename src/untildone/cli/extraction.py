"""The job of ``untildone demo``: twenty sentences, from each a name, a city and an age as JSON.

Pure data and functions: no model, no loop, no terminal. The loop's check knows only the sentence
(every value must stand in it); the hand-written truth serves the report alone, so that the report
can say how often the check was satisfied by a wrong answer.

The few-shot prompt was chosen on other sentences; the ones below were set aside before any model
saw them, and only ``also_right`` came after. The blank that begins each text in the few-shot
replies is the one trick that matters: a small model copies the token it read, and that token is
" Oslo", not "Oslo". Of 40 tries on the other sentences it lifted SmolLM2-135M from 31 right ones
to 36.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, cast

TEMPERATURE: Final = 0.7
"""High enough that a fresh try differs: the loop has nothing else to change its luck with."""

MAX_TOKENS: Final = 48
"""A reply is about 24 tokens; a runaway text is cut, which the check then finds."""

MAX_ROUNDS: Final = 4
CONCURRENCY: Final = 2
"""Sentences at once. The batch takes 19 s with one or two on a quiet machine of two cores, and 20 s
with four: each slot of the server must first read the few-shot messages."""

REPLY_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "city": {"type": "string"},
        "age": {"type": "integer"},
    },
    "required": ["name", "city", "age"],
    "additionalProperties": False,
}
"""The JSON Schema that constrains the reply."""

SYSTEM_PROMPT: Final = (
    "Extract the person's name, the city and the age from the sentence."
    " Copy them exactly as written. Answer with JSON only."
)


@dataclass(frozen=True, slots=True)
class Person:
    """What is to be found in a sentence; ``age`` in years."""

    name: str
    city: str
    age: int


@dataclass(frozen=True, slots=True)
class Example:
    """A sentence and its hand-written true answer, exactly as it stands there.

    The city is where the person lives or works now; where two people are named, the one whose age
    is told is meant.

    Attributes:
        sentence: What the model reads.
        truth: The answer.
        also_right: Another reading that nobody could call wrong.
    """

    sentence: str
    truth: Person
    also_right: Person | None = None

    def is_right(self, reply_text: str) -> bool:
        """Whether a reply gives the true answer; for the report, never for the loop."""
        person = person_in(reply_text)
        return person is not None and person in (self.truth, self.also_right)


_SHOTS: Final = (
    Example(
        "Peter Lindqvist is 62 years old and lives in Malmo.",
        Person("Peter Lindqvist", "Malmo", 62),
    ),
    Example(
        "In Lima, 24-year-old Carmen Torres sells flowers at the market.",
        Person("Carmen Torres", "Lima", 24),
    ),
    Example(
        "Robert, 48, left London and now lives in Bristol with his 3 dogs.",
        Person("Robert", "Bristol", 48),
    ),
    Example(
        "The museum in Kyoto is run by Yuki Mori, who is 53.", Person("Yuki Mori", "Kyoto", 53)
    ),
    Example(
        "At the age of 80, Hugo Blanc won a race in Marseille.",
        Person("Hugo Blanc", "Marseille", 80),
    ),
    Example("Amina Diallo drives bus 12 in Dakar; she is 35.", Person("Amina Diallo", "Dakar", 35)),
)

EXAMPLES: Final = (
    Example(
        "Maria Keller, 34, moved to Hamburg last spring to open a bakery.",
        Person("Maria Keller", "Hamburg", 34),
    ),
    Example(
        "Dr. Priya Nair is 45 years old and works at a hospital in Chennai.",
        Person("Priya Nair", "Chennai", 45),
        also_right=Person("Dr. Priya Nair", "Chennai", 45),
    ),
    Example(
        "Our new neighbour Fatima comes from Tunis and is 29 years old.",
        Person("Fatima", "Tunis", 29),
    ),
    Example("Kenji Sato (38) teaches piano in Osaka.", Person("Kenji Sato", "Osaka", 38)),
    Example(
        "Lucia turned 8 yesterday and had a party at her home in Seville.",
        Person("Lucia", "Seville", 8),
    ),
    Example(
        "Nurse Helen Brandt, aged 41, cycled from her flat in Utrecht to work.",
        Person("Helen Brandt", "Utrecht", 41),
    ),
    Example(
        "Ingrid Larsen lives at 14 Harbour Street in Bergen and is 66.",
        Person("Ingrid Larsen", "Bergen", 66),
    ),
    Example(
        "The 5 finalists met in Vienna, where Anna Hofer, 22, took first prize.",
        Person("Anna Hofer", "Vienna", 22),
    ),
    Example(
        "Mark wrote to his aunt Olga Petrova, 58, who lives in Sofia.",
        Person("Olga Petrova", "Sofia", 58),
    ),
    Example(
        "Carlos Mendes, a 49-year-old fisherman, was born in Natal but lives in Recife.",
        Person("Carlos Mendes", "Recife", 49),
    ),
    Example(
        "Grace Mbeki from Durban is 33 and speaks 6 languages.", Person("Grace Mbeki", "Durban", 33)
    ),
    Example("Hana Novak studies law in Brno; she is 21.", Person("Hana Novak", "Brno", 21)),
    Example(
        "Yusuf Demir opened his third restaurant in Izmir at the age of 47.",
        Person("Yusuf Demir", "Izmir", 47),
    ),
    Example(
        "A 39-year-old nurse, Rosa Delgado, saved a swimmer in Valencia.",
        Person("Rosa Delgado", "Valencia", 39),
    ),
    Example(
        "Aisha Khan lives in Lahore with her 2 cats, and she is 30.",
        Person("Aisha Khan", "Lahore", 30),
    ),
    Example(
        "Emma is only 10 but she already codes in her bedroom in Helsinki.",
        Person("Emma", "Helsinki", 10),
    ),
    Example(
        "My friend Leila, who is 36, runs a bookshop in Beirut.", Person("Leila", "Beirut", 36)
    ),
    Example(
        "Viktor Horvat, a 74-year-old painter from Zagreb, sold his first picture.",
        Person("Viktor Horvat", "Zagreb", 74),
    ),
    Example(
        "Tunde Bello and his brother opened a gym in Lagos; Tunde is 32.",
        Person("Tunde Bello", "Lagos", 32),
    ),
    Example(
        "Mei Lin turned 50 last week and still swims every day in Singapore.",
        Person("Mei Lin", "Singapore", 50),
    ),
)
"""The batch. Some sentences hold a second name, city or number that is not the answer."""


def messages_for(sentence: str) -> list[dict[str, str]]:
    """The whole conversation to send for one sentence, few-shot examples included.

    All but the last message is the same for every sentence, so that a server computes it once.
    """
    messages = [{"role": "system", "content": SYSTEM_PROMPT}]
    for shot in _SHOTS:
        messages += [
            {"role": "user", "content": shot.sentence},
            {"role": "assistant", "content": _shot_reply(shot.truth)},
        ]
    return [*messages, {"role": "user", "content": sentence}]


def grounding_problems(sentence: str, reply_text: str) -> list[str]:
    """What the loop's check finds wrong with a reply; empty where every value stands in the text.

    It knows the sentence only, not the answer: a value of the wrong person passes.

    Args:
        sentence: The text the values were taken from.
        reply_text: The model's reply, as it came.
    """
    fields = _object_in(reply_text)
    if fields is None:
        return ["the reply is no JSON object"]
    problems: list[str] = []
    for key in ("name", "city"):
        value = fields.get(key)
        if not isinstance(value, str) or not value.strip():
            problems.append(f"{key} is missing")
        elif not _stands_in(sentence, value.strip()):
            problems.append(f"{key} {value.strip()!r} does not stand in the sentence")
    age = fields.get("age")
    if not isinstance(age, int) or isinstance(age, bool):
        problems.append("age is no whole number")
    elif not _stands_in(sentence, str(age)):
        problems.append(f"age {age} does not stand in the sentence")
    return problems


def person_in(reply_text: str) -> Person | None:
    """The answer that a reply gives, blanks around its texts dropped; None where it gives none."""
    match _object_in(reply_text):
        case {"name": str(name), "city": str(city), "age": int(age)} if not isinstance(age, bool):
            return Person(name.strip(), city.strip(), age)
        case _:
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one sentence.

    Attributes:
        example: The sentence, with its truth.
        replies: The reply of each round, in order; at least one.
    """

    example: Example
    replies: tuple[str, ...]

    @property
    def right_at_first(self) -> bool:
        """Whether the first reply is the truth."""
        return self.example.is_right(self.replies[0])

    @property
    def right_at_last(self) -> bool:
        """Whether the last reply is the truth."""
        return self.example.is_right(self.replies[-1])

    @property
    def passed(self) -> bool:
        """Whether the last reply satisfies the check."""
        return not grounding_problems(self.example.sentence, self.replies[-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """The honest report of a batch, in sentences but for ``replies``.

    Attributes:
        sentences: How many there were.
        right_at_first: Right at the first try.
        right_after_loop: Right in the end.
        passed_but_wrong: Accepted by the check, and wrong.
        never_passed: Still refused by the check in the last round.
        replies: Model calls made.
    """

    sentences: int
    right_at_first: int
    right_after_loop: int
    passed_but_wrong: int
    never_passed: int
    replies: int


def tally(outcomes: Iterable[Outcome]) -> Tally:
    """Counts the outcomes of a batch against the truth."""
    batch = list(outcomes)
    return Tally(
        sentences=len(batch),
        right_at_first=sum(outcome.right_at_first for outcome in batch),
        right_after_loop=sum(outcome.right_at_last for outcome in batch),
        passed_but_wrong=sum(outcome.passed and not outcome.right_at_last for outcome in batch),
        never_passed=sum(not outcome.passed for outcome in batch),
        replies=sum(len(outcome.replies) for outcome in batch),
    )


def _shot_reply(truth: Person) -> str:
    """The truth in the form to imitate: each text begins with the blank it has in a sentence."""
    return json.dumps({"name": f" {truth.name}", "city": f" {truth.city}", "age": truth.age})


def _object_in(reply_text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(reply_text)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def _stands_in(sentence: str, value: str) -> bool:
    """Whether the value stands there as whole words, and as a whole number: not the 34 of 1,034."""
    pattern = rf"(?<!\w)(?<!\d[.,]){re.escape(value)}(?!\w)(?![.,]\d)"
    return re.search(pattern, sentence) is not None
