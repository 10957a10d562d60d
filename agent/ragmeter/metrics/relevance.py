"""Lexical relevance: grade passages by the rarity-weighted overlap with the words of the query."""

from __future__ import annotations

from ragmeter.core.score import NoScore
from ragmeter.metrics.language import NOT_MEASURED, READ_BY_ENGLISH, identify_language
from ragmeter.metrics.text_index import PassageIndex, QueryText
from ragmeter.reasons import Reason
from ragmeter.trace import Trace

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
