"""Relevance of retrieved passages to the query, by rarity-weighted overlap of their words."""

from __future__ import annotations

from itertools import compress, pairwise

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


def grades(pages: Pages, query: list[str]) -> list[float | None]:
    """A grade 0..3 by passage; None where it has no text. `query`: stems in order, with content."""
    rarity = {word: idf[word] for word in query}
    total = sum(rarity.values())
    pairs = set(pairwise(query))
    ends = [*pages.starts[1:], len(pages.stream)]
    sizes = [end - start - 1 for start, end in zip(pages.starts, ends, strict=True)]
    average = max(1.0, sum(sizes) / max(1, len(sizes)))
    out: list[float | None] = []
    for start, end, size in zip(pages.starts, ends, sizes, strict=True):
        if size <= 0:
            out.append(None)
            continue
        words = pages.stream[start:end]
        counts: dict[str, int] = {}
        stretches: dict[int, float] = {}
        last: dict[str, int] = {}
        followed: set[tuple[str, str]] = set()
        before = -2
        for i in compress(range(size), map(rarity.__contains__, words)):
            word = words[i]
            counts[word] = counts.get(word, 0) + 1
            bucket = i // HALF
            if last.get(word) != bucket:
                last[word] = bucket
                stretches[bucket] = stretches.get(bucket, 0.0) + rarity[word]
            if before == i - 1 and (words[before], word) in pairs:
                followed.add((words[before], word))
            before = i
        coverage = sum(rarity[word] for word in counts) / total
        # two halves make a stretch; a word in both counts twice, which the bound forgives
        stretch = 0.0
        for bucket, value in stretches.items():
            stretch = max(stretch, value + stretches.get(bucket + 1, 0.0))
        stretch = min(stretch, total)
        norm = SATURATION * (1 - LENGTH + LENGTH * size / average)
        frequency = sum(rarity[w] * n / (n + norm) for w, n in counts.items()) / total
        mixed = (
            COVERAGE * coverage
            + STRETCH * stretch / total
            + FREQUENCY * min(1.0, frequency * (SATURATION + 1) / 1.5)
            + PAIRS * len(followed) / max(1, len(pairs))
        )
        out.append(3.0 * min(1.0, max(0.0, (mixed - LOW) / SPAN)))
    return out
