"""Relevance of retrieved passages to the query, by rarity-weighted overlap of their words."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain, pairwise

from agent.metrics.evidence import Pages
from agent.metrics.results import BUILTIN
from agent.metrics.spec import MetricSpec
from agent.metrics.words import idf

__all__ = ["SPECS", "grades"]

SPECS = (
    MetricSpec(
        name="relevance",
        kind="mean",
        tier="cheap",
        scorers=(BUILTIN,),
        meaning="mean grade of the retrieved passages, 0 (off topic) to 3 (answers the query)",
        formula="mean over passages of 3 * clip((s - 0.25) / 0.7, 0, 1); s mixes idf coverage of"
        " the query in the passage, in its best stretch, by frequency and by pairs",
        source="query and passage texts",
        high=3.0,
    ),
)

HALF = 8  # content stems of half a stretch: words that stand within two sentences belong together
SATURATION = 1.2  # BM25's k1: the second occurrence of a word says less than the first
LENGTH = 0.75  # BM25's b
# The weights are by hand: eleven judged queries are too few to fit anything.
COVERAGE, STRETCH, FREQUENCY, PAIRS = 0.35, 0.35, 0.2, 0.1
LOW, SPAN = 0.25, 0.7  # s of a passage that only shares the topic; from there to a full match


def grades(
    pages: Pages, query: list[str], places: Mapping[str, list[int]] | None = None
) -> list[float | None]:
    """A grade 0..3 by passage; None where it has no text. `query`: stems in order, with content.

    `places` are all positions of the query's stems, where the caller knows them already.
    """
    rarity = {word: idf[word] for word in query}
    if places is None:
        places = pages.locate(set(rarity))
    total = sum(rarity.values())
    pairs = set(pairwise(query))
    stream, owner, starts = pages.stream, pages.owner, pages.starts
    sizes = [end - start - 1 for start, end in pairwise([*starts, len(stream)])]
    average = max(1.0, sum(sizes) / max(1, len(sizes)))
    hits: list[list[int]] = [[] for _ in starts]
    for at in sorted(chain.from_iterable([places[word] for word in rarity if word in places])):
        hits[owner[at]].append(at)
    out: list[float | None] = []
    for start, size, found in zip(starts, sizes, hits, strict=True):
        if size <= 0:
            out.append(None)
            continue
        if not found:
            out.append(0.0)
            continue
        counts: dict[str, int] = {}
        stretches: dict[int, float] = {}
        last: dict[str, int] = {}
        followed: set[tuple[str, str]] = set()
        before, previous = -2, ""
        for at in found:
            word = stream[at]
            counts[word] = counts.get(word, 0) + 1
            bucket = (at - start) // HALF
            if last.get(word) != bucket:
                last[word] = bucket
                stretches[bucket] = stretches.get(bucket, 0.0) + rarity[word]
            if before == at - 1 and (previous, word) in pairs:
                followed.add((previous, word))
            before, previous = at, word
        coverage = sum([rarity[word] for word in counts]) / total
        # two halves make a stretch; a word in both counts twice, which the bound forgives
        near = stretches.get
        stretch = min(total, max([v + near(b + 1, 0.0) for b, v in stretches.items()]))
        norm = SATURATION * (1 - LENGTH + LENGTH * size / average)
        frequency = sum([rarity[w] * n / (n + norm) for w, n in counts.items()]) / total
        mixed = (
            COVERAGE * coverage
            + STRETCH * stretch / total
            + FREQUENCY * min(1.0, frequency * (SATURATION + 1) / 1.5)
            + PAIRS * len(followed) / max(1, len(pairs))
        )
        out.append(3.0 * min(1.0, max(0.0, (mixed - LOW) / SPAN)))
    return out
