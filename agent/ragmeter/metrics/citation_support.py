"""Citation precision, recall and F1 by lexical overlap of sentences and the passages they cite.

Sentences of the answer are the statements. Unlike the reference's judge metric (open-rag-eval), a
citation that resolves to no passage counts against the answer, and an undefined value is not 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ragmeter.metrics.answer_text import AnswerSentence
from ragmeter.metrics.citations import Citations
from ragmeter.metrics.cited_statements import attach_citations
from ragmeter.metrics.text_index import PassageIndex

_MAX_CITED = 50  # passages that one statement is compared with
MAX_PAIRS = 300  # (statement, citation) pairs that are judged; bounds the work on hostile answers
LOW = 0.2  # overlap of an unrelated sentence of the same topic
SPAN = 0.65  # from there to support
MISSING_NUMBER = 0.6  # factor for a statement with a number that its source doesn't have


@dataclass(slots=True)
class CitationSupport:
    """The citation support of one answer, each value 0..1 or None if undefined.

    Precision is undefined without a citation that can be judged, recall without a statement.
    `pairs` are (statement, passage or None, support); `unjudged` counts citations without text.
    """

    precision: float | None
    recall: float | None
    pairs: list[tuple[int, int | None, float]] = field(default_factory=list)
    unjudged: int = 0

    @property
    def f1(self) -> float | None:
        """The harmonic mean of precision and recall; 0 if both are 0."""
        if self.precision is None or self.recall is None:
            return None
        both = self.precision + self.recall
        return 2 * self.precision * self.recall / both if both else 0.0


def score_support(
    answer: str,
    pages: PassageIndex,
    claims: list[AnswerSentence],
    cited: Citations,
    measure: Callable[[AnswerSentence, list[int]], tuple[dict[int, float], float]],
) -> CitationSupport:
    """Score the citations of an answer that has at least one citation and one claim.

    Args:
        answer: Its text.
        pages: Its passages.
        claims: Its sentences.
        cited: Its citations.
        measure: Returns the support of a sentence by each of some passages, and by all together.
    """
    filled = {i for i, passage in enumerate(pages.passages) if passage.has_text}
    statements = attach_citations(answer, claims, cited)
    whole = frozenset(statements.whole)
    pairs: list[tuple[int, int | None, float]] = []
    unjudged = 0
    by_whole: dict[int, tuple[int, float]] = {}
    recall: list[float] = []
    for i, item in enumerate(statements.items):
        passages = item.passages + [p for p in statements.whole if p not in item.passages]
        dangling = item.dangling + statements.whole_dangling
        judged = [p for p in passages if p in filled][:_MAX_CITED]
        single, together = measure(item.claim, judged) if judged else ({}, 0.0)
        for passage, value in single.items():
            if passage in whole:
                # a citation of the whole answer is as good as the sentence it supports best
                best = by_whole.get(passage)
                if best is None or value > best[1]:
                    by_whole[passage] = (i, value)
            elif len(pairs) < MAX_PAIRS:
                pairs.append((i, passage, value))
        unjudged += sum(p not in filled for p in passages)
        pairs += [(i, None, 0.0)] * min(item.dangling, MAX_PAIRS)
        if passages and not judged:
            continue  # its sources have no text, so the support is unknown
        if passages or dangling or item.needs_citation:
            recall.append(together)
    pairs += [(i, passage, value) for passage, (i, value) in by_whole.items()]
    pairs += [(0, None, 0.0)] * min(statements.whole_dangling, MAX_PAIRS)
    return CitationSupport(
        sum(v for _, _, v in pairs) / len(pairs) if pairs else None,
        sum(recall) / len(recall) if recall else None,
        pairs,
        unjudged,
    )
