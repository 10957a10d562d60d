"""What a single sentence of an answer is judged by, on stems alone.

People fault an answer for one bad sentence, so a model of sentences, fitted on the spans that
people marked, sees what features of whole answers blur.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence

from agent.metrics.coverage import Coverage
from agent.metrics.evidence import Answer, Pages
from agent.metrics.words import STOP, stem, tokens

__all__ = ["FEATURES", "nearly", "read_sentences"]

FEATURES = (
    "novel_mass",  # idf mass, count and idf share of content stems found nowhere
    "novel",
    "novel_share",
    "length",
    "copied",  # adjacent stems that stand side by side in a passage
    "scattered",  # idf share not found in one stretch of passage
    "place",  # 0 for the first sentence, towards 1 for the last
    "first",
    "novel_names",
    "novel_numbers",
    "moved_numbers",  # numbers of a passage with other neighbours there
    "novel_times",
)
NEAR = 3  # content stems: within a clause
PREFIX = 5  # letters: "Nigeria" and "Nigerian", "explain" and "explanation" count as one word

_DIGITS = {
    stem(word): str(number)
    for number, word in enumerate(
        tokens(
            "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen"
            " fifteen sixteen seventeen eighteen nineteen twenty"
        )
    )
    if word != "one"
}
_WORDS = {digits: word for word, digits in _DIGITS.items()}
_COUNTS = frozenset(
    map(
        stem,
        tokens(
            "thirty forty fifty sixty seventy eighty ninety hundred hundreds thousand thousands"
            " million millions billion dozen dozens third fourth fifth half"
        ),
    )
).union(_DIGITS)
_TIMES = frozenset(
    stem(word)
    for word in tokens(
        "monday tuesday wednesday thursday friday saturday sunday january february march april"
        " june july august september october november december yesterday today tomorrow tonight"
        " recently currently later earlier ago previously since soon last next morning afternoon"
        " evening night week month year following"
    )
    if word not in STOP
)
# words about the passages themselves, as in "based on the provided article"
_FRAME = frozenset(
    map(
        stem,
        tokens(
            "article author passage passages provided given text summary summarize context document"
            " information mentioned mention according stated states based"
        ),
    )
)


def nearly(pages: Pages, words: Iterable[str]) -> set[str]:
    """Those of the stems that a passage has in another form, or as a number in words or digits."""
    text = pages.flat
    return {
        word
        for word in words
        if (len(word) >= PREFIX and f" {word[:PREFIX]}" in text)
        or (word in _DIGITS and f" {_DIGITS[word]} " in text)
        or (word in _WORDS and f" {_WORDS[word]} " in text)
    }


def _numbers(
    stems: Sequence[str],
    numbers: Container[str],
    novel: Container[str],
    places: Mapping[str, list[int]],
    stream: Sequence[str],
) -> tuple[int, int]:
    """Numbers that no passage has, and those that stand with other neighbours there."""
    missing = moved = 0
    for i, word in enumerate(stems):
        if word not in numbers:
            continue
        if word in novel:
            missing += 1
        elif found := places.get(word):
            around = {w for w in stems[max(0, i - 1) : i + 2] if w != word}
            moved += bool(around) and not any(
                not around.isdisjoint(stream[max(0, p - NEAR) : p + NEAR + 1]) for p in found
            )
    return missing, moved


def read_sentences(
    pages: Pages,
    answer: Answer,
    places: Mapping[str, list[int]],
    asked: Container[str],
    found: Coverage,
) -> list[list[float]]:
    """The features of each sentence in the order of `FEATURES`.

    `asked`: stems of the query; `found`: the coverage of the same sentences.
    """
    claims, every = answer.claims, answer.content
    numbers = {word for word in every if word[0] <= "9"}.union(every & _COUNTS)
    left = every.difference(places, _FRAME)
    novel = {word for word in left if word not in asked}
    if novel:
        novel -= nearly(pages, novel)
    novel_names, novel_times = novel.intersection(answer.names), novel & _TIMES
    stream, log, size = pages.stream, math.log1p, len(claims)
    rows = []
    for at, (claim, copied, support) in enumerate(zip(claims, found.copied, found.support)):  # noqa: B905
        stems, content = claim.stems, claim.content
        # in the order of the text, so that the same answer always gives the same digits
        new = list(filter(novel.__contains__, content)) if novel else ()
        new_mass = mass = 0.0
        names_here = times_here = missing = moved = 0
        if new:
            mass = sum(content.values())
            new_mass = sum(map(content.__getitem__, new))
            if novel_names:
                names_here = len(novel_names.intersection(new))
            if novel_times:
                times_here = len(novel_times.intersection(new))
        if numbers and not numbers.isdisjoint(content):
            missing, moved = _numbers(stems, numbers, new, places, stream)
        rows.append(
            [
                log(new_mass),
                log(len(new)),
                new_mass / mass if mass else 0.0,
                log(len(stems)),
                log(copied),
                1 - support,
                at / size,
                0.0 if at else 1.0,
                float(names_here),
                float(missing),
                float(moved),
                float(times_here),
            ]
        )
    return rows
