"""How well texts fit a query: words of any script, weighed by BM25. No I/O.

Upper case, accents and vowel points do not count. Scripts that put no spaces between words, such as
Chinese, Japanese and Thai, are read by neighbouring pairs of characters, as search engines do.
"""

from __future__ import annotations

import math
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache
from itertools import pairwise
from typing import Final

MOST_CHARS: Final = 50_000
"""How much of a text is read: its first so many characters."""

_K1: Final = 1.2
_B: Final = 0.75

_ASCII_WORD: Final = re.compile(r"[a-z0-9]+")
# Accents of Latin, Greek and Cyrillic; Hebrew and Arabic points; tatweel; joiners and variants.
_NOT_COUNTED: Final = re.compile(
    "[\u0300-\u036f\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7"
    "\u0610-\u061a\u064b-\u065f\u0670\u0640\u200b-\u200d\u2060\ufe00-\ufe0f\ufeff]"
)
# Letters that people type without their stroke; Unicode does not take them apart.
_PLAIN: Final = str.maketrans(
    {"ł": "l", "ø": "o", "đ": "d", "ħ": "h", "ŧ": "t", "\u0131": "i", "æ": "ae", "œ": "oe"}
)
# Thai, Lao, Myanmar, Khmer, Tai Tham, Javanese, kana, Bopomofo, Han, Yi, Hangul.
_UNSPACED: Final = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1a20-\u1aaf\ua980-\ua9df\u3040-\u30ff\u3100-\u312f"
    "\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua000-\ua4cf\uac00-\ud7af\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
_LAST_SCANNED: Final = 0x1FFFF


def words_of(text: str) -> list[str]:
    """The words of a text as it is kept, in order, repeats included."""
    return _words(text, single_characters=True)


def words_of_query(text: str) -> list[str]:
    """The different words of a query, in order.

    A text is kept with the single characters of unspaced scripts as well, so that a query of one
    character finds something; a longer one is better told by its pairs alone.
    """
    return list(dict.fromkeys(_words(text, single_characters=False)))


def _words(text: str, *, single_characters: bool) -> list[str]:
    text = text[:MOST_CHARS]
    if text.isascii():
        return _ASCII_WORD.findall(text.lower())
    text = unicodedata.normalize("NFKD", text.casefold())
    text = unicodedata.normalize("NFC", _NOT_COUNTED.sub("", text.translate(_PLAIN)))
    word, unspaced, character = _patterns()
    found: list[str] = []
    for spaced in word.findall(text):
        for part in unspaced.split(spaced):
            if not part:
                continue
            if not unspaced.fullmatch(part):
                found.append(part)
                continue
            characters = character.findall(part)
            if single_characters or len(characters) == 1:
                found += characters
            found += [a + b for a, b in pairwise(characters)]
    return found


@cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    """What a word is, a stretch of unspaced script, and one character of it with its marks.

    ``re`` knows no classes of characters, so marks (the vowels of Thai and Devanagari are some) and
    symbols such as emoji are looked up once: 20 ms, and only where a text is not plain ASCII.
    """
    marks: list[str] = []
    symbols: list[str] = []
    for code in range(0x80, min(_LAST_SCANNED, sys.maxunicode) + 1):
        category = unicodedata.category(chr(code))
        if category[0] == "M":
            marks.append(chr(code))
        elif category == "So":
            symbols.append(chr(code))
    mark, symbol = _ranges(marks), _ranges(symbols)
    return (
        re.compile(rf"(?:[^\W_]|[{mark}])+|[{symbol}]"),
        re.compile(rf"((?:[{_UNSPACED}][{mark}]*)+)"),
        re.compile(rf".[{mark}]*"),
    )


def _ranges(characters: Iterable[str]) -> str:
    """Sorted characters as the inside of a character class."""
    parts: list[str] = []
    first = last = ""
    for character in characters:
        if last and ord(character) == ord(last) + 1:
            last = character
            continue
        if first:
            parts.append(f"{first}-{last}")
        first = last = character
    return "".join([*parts, f"{first}-{last}"])


class Index:
    """Texts by key and how well each fits a query; kept up to date a text at a time."""

    __slots__ = ("_lengths", "_postings", "_total", "_words")

    def __init__(self) -> None:
        self._words: dict[str, tuple[str, ...]] = {}
        self._lengths: dict[str, int] = {}
        self._postings: dict[str, dict[str, int]] = {}
        self._total = 0

    def put(self, key: str, text: str) -> None:
        """Takes a text; what the key had before is forgotten."""
        self.drop(key)
        counts = Counter(words_of(text))
        self._words[key] = tuple(counts)
        for word, count in counts.items():
            self._postings.setdefault(word, {})[key] = count
        self._lengths[key] = counts.total()
        self._total += counts.total()

    def drop(self, key: str) -> None:
        """Forgets a text, if it is known."""
        words = self._words.pop(key, None)
        if words is None:
            return
        self._total -= self._lengths.pop(key)
        for word in words:
            postings = self._postings[word]
            del postings[key]
            if not postings:
                del self._postings[word]

    def scores(self, query: str, accepts: Callable[[str], bool]) -> dict[str, float]:
        """A score above 0 for each accepted key that shares a word with the query (BM25)."""
        scores: dict[str, float] = {}
        lengths = self._lengths
        texts = len(lengths)
        mean = self._total / texts if texts else 0.0
        for word in words_of_query(query):
            postings = self._postings.get(word)
            if postings is None:
                continue
            rarity = math.log(1 + (texts - len(postings) + 0.5) / (len(postings) + 0.5))
            for key, count in postings.items():
                if key in scores or accepts(key):
                    length = _K1 * (1 - _B + _B * lengths[key] / mean)
                    gain = rarity * count * (_K1 + 1) / (count + length)
                    scores[key] = scores.get(key, 0.0) + gain
        return scores
