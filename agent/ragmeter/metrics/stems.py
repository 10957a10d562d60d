"""Stems of words, and how rare a stem is."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from importlib import resources
from sys import intern

from ragmeter.metrics import kernel
from ragmeter.metrics.english import ENGLISH, STOP_WORDS

_STEM_CACHE_LIMIT = 200_000  # words (about 30 MB); beyond it the cache is cleared
_STEM_CACHE_WORD_CHARS = 40  # longer words hardly come back

# by their last letter, as most words end in none of them
_SUFFIXES: dict[str, list[tuple[str, int]]] = {}
for _suffix, _keep in ENGLISH["suffixes"].items():
    _SUFFIXES.setdefault(_suffix[-1], []).append((_suffix, _keep))


kernel.read_english(STOP_WORDS, ENGLISH["suffixes"].items())


def stem_word(word: str) -> str:
    """Return a light stem of a lower-case word: one for "parks", "parked" and "parking"."""
    if len(word) < 4 or word[0].isdigit():
        return word
    for suffix, keep in _SUFFIXES.get(word[-1], ()):
        if word.endswith(suffix) and len(word) - len(suffix) >= keep:
            word = word[: -len(suffix)]
            break
    if word[-1] == word[-2] and len(word) > 4:
        word = word[:-1]
    return word[:9]


class _StemCache(dict[str, str]):
    """Maps a word to its stem, one of `skipped` to "". Words repeat, so most are looked up in C."""

    def __init__(self, skipped: frozenset[str] = frozenset()) -> None:
        super().__init__()
        self.skipped = skipped

    def __missing__(self, word: str) -> str:
        stem = "" if word in self.skipped else intern(stem_word(word))
        if len(word) <= _STEM_CACHE_WORD_CHARS:
            if len(self) >= _STEM_CACHE_LIMIT:
                self.clear()
            self[word] = stem
        return stem


_CONTENT_STEMS = _StemCache(STOP_WORDS)
_ALL_STEMS = _StemCache()


def content_stems(words: Iterable[str]) -> list[str]:
    """Return the stems of the words that are no stop words, in order."""
    return list(filter(None, map(_CONTENT_STEMS.__getitem__, words)))


def stem_set(words: Iterable[str]) -> set[str]:
    """Return the stems of the words, stop words included."""
    return set(map(_ALL_STEMS.__getitem__, words))


class _Idf(dict[str, float]):
    """log(N / df) by stem, from the background table; a stem outside it counts as the rarest."""

    def __init__(self) -> None:
        super().__init__()
        table = json.loads(resources.files(__package__).joinpath("background.json").read_text())
        total = float(table["documents"])
        self.rarest = round(math.log(total / 2), 3)
        for df, words in table["stems"].items():
            value = round(math.log(total / float(df)), 3)
            self.update(dict.fromkeys(words.split(), value))

    def __missing__(self, word: str) -> float:
        return self.rarest


# Background rarity of a stem: 0 for a stop word, about 8 for an unknown word.
idf = _Idf()
