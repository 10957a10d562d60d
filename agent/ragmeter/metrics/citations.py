"""The citations of an answer, resolved to passages, and the citation metrics that need no model.

Explicit `citations` of the trace win. Without them markers are read from the answer
(`ragmeter.metrics.citation_markers`). One that is seen and names nothing that can be resolved
leaves the metrics without a value: neither "cites" nor "cites not" is known.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ragmeter.core.score import NoScore, Score, find_answer_reason, make_plain_score, make_scored
from ragmeter.metrics.citation_markers import MAX_MARKS, find_markers
from ragmeter.metrics.citation_targets import Resolver
from ragmeter.metrics.kernel import Words
from ragmeter.metrics.language import NOT_MEASURED, READ_BY_ENGLISH
from ragmeter.reasons import Reason
from ragmeter.trace import Citation, Trace

__all__ = ["MAX_MARKS", "CitationMark", "Citations", "resolve_citations", "score_citations"]

_NO_TEXT = NoScore(Reason.NO_TEXT)
_NO_PASSAGES = NoScore(Reason.NO_PASSAGES_CAPTURED)
_NO_CITATIONS = NoScore(Reason.NO_CITATIONS, applies=False)
_NOT_READ = NoScore(Reason.CITATIONS_NOT_READ)

# Those of zesty-assignment, which looks for them anywhere in the text: "from" is in many answers.
_SOURCE_INDICATORS = Words(
    ("source:", "table:", "page", "document", "pdf", "according to", "based on", "from")
)


@dataclass(slots=True)
class CitationMark:
    """One marker or explicit citation over answer characters [start, end).

    `passages` are indices into `trace.passages`; `dangling` counts targets that resolve to none.
    `start` is -1 for an explicit citation without a place: it stands for the whole answer.
    """

    start: int
    end: int
    passages: list[int] = field(default_factory=list)
    dangling: int = 0


@dataclass(slots=True)
class Citations:
    """The citations of an answer in order; explicit ones come from `trace.citations`.

    `unread` are the places of markers that name what cannot be resolved; -1 is the whole answer.
    """

    marks: list[CitationMark]
    explicit: bool
    unread: list[int] = field(default_factory=list)

    @property
    def dangling(self) -> int:
        """The number of targets that resolve to no passage."""
        return sum(mark.dangling for mark in self.marks)


def resolve_citations(trace: Trace) -> Citations:
    """Return the citations of an answer; if passages were not captured, every target dangles."""
    answer = trace.answer or ""
    resolver = Resolver(trace.passages or (), answer)
    given = None
    if trace.citations:
        given = _explicit(trace.citations, resolver, captured=trace.passages is not None)
    if given is not None and (
        any(mark.start >= 0 for mark in given.marks)
        or any(citation.passage_ids for citation in trace.citations or ())
    ):
        return given
    # what is named for the whole answer, or cannot be resolved, tells less than its markers
    out = Citations([], explicit=False)
    for marker in find_markers(answer, resolver) if answer else ():
        targets = marker.targets
        if targets.passages or targets.dangling:
            passages = list(dict.fromkeys(targets.passages))
            out.marks.append(CitationMark(marker.start, marker.end, passages, targets.dangling))
        if targets.unread:
            out.unread.append(marker.start)
    return given if given is not None and not out.marks else out


def _explicit(given: list[Citation], resolver: Resolver, *, captured: bool) -> Citations:
    marks = []
    unread = []
    for citation in given[:MAX_MARKS]:
        start, end = citation.start, citation.end
        has_range = start is not None and end is not None and end > start
        mark = CitationMark(start or 0, end or 0) if has_range else CitationMark(-1, -1)
        for target in citation.passage_ids:
            index = resolver.by_id(target)
            bare = target.strip().strip("[]")
            if index is None and bare.isdecimal() and len(bare) < 7:
                index = resolver.by_number(int(bare))
            if index is None:
                index = resolver.by_name(bare, end or 0)
            if index is None:
                mark.dangling += 1
            elif index not in mark.passages:
                mark.passages.append(index)
        unknown = 0
        for source in citation.sources:
            index = resolver.by_source(source, end or 0)
            if index is None:
                unknown += 1
            elif index not in mark.passages:
                mark.passages.append(index)
        if not resolver.count and unknown and not captured:
            mark.dangling += unknown
        if mark.passages or mark.dangling:
            marks.append(mark)
        elif unknown:
            unread.append(mark.start)
    return Citations(marks, explicit=True, unread=unread)


def score_citations(
    trace: Trace, answered: float | None, cited: Citations, language: str
) -> list[Score]:
    """Return the scores of presence, fabrication and source indicators, in this order.

    `language` is that of the answer, by `ragmeter.metrics.language`.
    """
    probability = trace.probability
    answer = trace.answer
    cites = bool(cited.marks)
    names = ("citation_presence", "citation_fabricated", "source_indicators")
    gap = find_answer_reason(trace, answered)
    if gap is not None:
        return [make_plain_score(name, probability, gap) for name in names]
    presence: float | NoScore = float(cites)
    if answer is None and not cited.explicit:
        presence = _NO_TEXT
    elif cited.unread and not cites:
        presence = _NOT_READ

    dangling = cited.dangling
    fabricated: float | NoScore = float(dangling > 0)
    if not cites:
        fabricated = _NOT_READ if cited.unread else _NO_CITATIONS
    elif trace.passages is None:
        fabricated = _NO_PASSAGES

    indicators: float | NoScore = _NO_TEXT
    if answer is not None:
        read = language in READ_BY_ENGLISH
        indicators = source_indicator_quality(answer) if read else NOT_MEASURED
    values = (presence, fabricated, indicators)
    scores = [make_plain_score(name, probability, v) for name, v in zip(names, values, strict=True)]
    if fabricated == 1.0:
        scores[1] = make_scored(names[1], trace, 1.0, {"dangling": dangling})
    return scores


def source_indicator_quality(answer: str) -> float:
    """Compute min(indicators in the text / 3, 1) (zesty-assignment's evaluate.py)."""
    return min(len(_SOURCE_INDICATORS.find(answer.lower())) / 3.0, 1.0)
