"""Lexical relevance: grade passages by the rarity-weighted overlap with the words of the query."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from ragmeter.core.score import NoScore
from ragmeter.metrics.language import NOT_MEASURED, READ_BY_ENGLISH, identify_language
from ragmeter.metrics.stems import idf
from ragmeter.metrics.text_index import PassageIndex, QueryText
from ragmeter.reasons import Reason
from ragmeter.trace import Trace

_HALF_PROXIMITY = 8  # content stems of half a stretch; a stretch is about two sentences
SATURATION = 1.2  # BM25's k1: a second occurrence of a word counts less than the first
LENGTH = 0.75  # BM25's b
# The weights are by hand: eleven judged queries are too few to fit anything.
COVERAGE = 0.35
STRETCH = 0.35
FREQUENCY = 0.2
PAIRS = 0.1
LOW = 0.25  # s of a passage that only shares the topic
SPAN = 0.7  # from there to a full match


def find_relevance_reason(
    trace: Trace, pages: PassageIndex | None, query: QueryText
) -> NoScore | None:
    """Return why a scorer of English can't compare the passages with the query, None if it can."""
    if trace.passages is None:
        return NoScore(Reason.NO_PASSAGES_CAPTURED)
    if not trace.passages or pages is None:
        return NoScore(Reason.NO_PASSAGES, applies=False)
    if not query.words:  # blank, or stop words alone
        return NoScore(Reason.NO_QUERY)
    if not pages.has_text:
        return NoScore(Reason.NO_TEXT)
    spoken = {identify_language(query.text), pages.language}
    return None if spoken <= READ_BY_ENGLISH else NOT_MEASURED


def grade_passages(
    pages: PassageIndex, query: list[str], positions: Mapping[str, list[int]] | None = None
) -> list[float | None]:
    """Grade each passage from 0 to 3; None if it has no text.

    `query` has the content stems in order, at least one; `positions` has all positions of these
    stems, if the caller has them already.
    """
    rarity = {word: idf[word] for word in query}
    if positions is None:
        positions = pages.locate(set(rarity))
    total = sum(rarity.values())
    pairs = set(pairwise(query))
    stream = pages.stream
    owner = pages.owner
    starts = pages.starts
    sizes = [end - start - 1 for start, end in pairwise([*starts, len(stream)])]
    average = max(1.0, sum(sizes) / max(1, len(sizes)))
    norms = [SATURATION * (1 - LENGTH + LENGTH * size / average) for size in sizes]
    coverage = [0.0] * len(starts)
    frequency = [0.0] * len(starts)
    stretches: list[dict[int, float]] = [{} for _ in starts]
    for word, weight in rarity.items():
        passage = -1
        count = 0
        for at in positions.get(word, ()):
            if owner[at] != passage:
                if count:
                    frequency[passage] += weight * count / (count + norms[passage])
                passage = owner[at]
                start = starts[passage]
                count = 0
                last = -1
                near = stretches[passage]
                coverage[passage] += weight
            count += 1
            half = (at - start) // _HALF_PROXIMITY
            if half != last:
                near[half] = near.get(half, 0.0) + weight
                last = half
        if count:
            frequency[passage] += weight * count / (count + norms[passage])
    followed = [0] * len(starts)
    for first in rarity:
        for passage, second in {(owner[at], stream[at + 1]) for at in positions.get(first, ())}:
            followed[passage] += (first, second) in pairs
    out: list[float | None] = []
    for passage, near in enumerate(stretches):
        if not near:
            out.append(0.0 if sizes[passage] > 0 else None)
            continue
        # two halves make a stretch; a word in both counts twice, hence the bound
        stretch = min(total, max([v + near.get(b + 1, 0.0) for b, v in near.items()]))
        mixed = (
            COVERAGE * coverage[passage] / total
            + STRETCH * stretch / total
            + FREQUENCY * min(1.0, frequency[passage] / total * (SATURATION + 1) / 1.5)
            + PAIRS * followed[passage] / max(1, len(pairs))
        )
        out.append(3.0 * min(1.0, max(0.0, (mixed - LOW) / SPAN)))
    return out
