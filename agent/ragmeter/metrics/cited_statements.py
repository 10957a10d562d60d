"""Statements of an answer with the passages they cite, and formulas over their judged support.

Statements are the sentences of the answer without a list of sources at its end. Labels are those
of the TREC 2024 RAG track (arXiv 2504.15205): full 1, partial 0.5, none 0. Metrics per instance
follow the track, per passage open-rag-eval; unlike there, a citation that resolves to no passage
counts against the answer.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ragmeter.core.score import NoScore, find_answer_reason, most_common_reason
from ragmeter.metrics.answer_text import AnswerSentence
from ragmeter.metrics.citations import Citations
from ragmeter.metrics.kernel import IGNORE_CASE, Pattern
from ragmeter.reasons import Reason
from ragmeter.trace import Trace

_MIN_CONTENT_STEMS = 3  # of a statement that needs a citation; "Here is how:" has fewer
_LISTS = Pattern(r"[Ss](?:ource|OURCE)|[Rr]ef|REF|[Cc]itation|CITATION|[Bb]ibl|BIBL")
_BIBLIOGRAPHY = Pattern(
    r"(?:^|\n)[#*\s]{0,6}(?:sources?|references?|citations?|bibliography)[*\s]{0,4}:?[*\s]{0,4}(?:\n|$)",
    IGNORE_CASE,
)

_NO_TEXT = NoScore(Reason.NO_TEXT)
_NO_PASSAGES = NoScore(Reason.NO_PASSAGES_CAPTURED)
_NO_CITATIONS = NoScore(Reason.NO_CITATIONS, applies=False)
_NOT_READ = NoScore(Reason.CITATIONS_NOT_READ)
_LINE_HEAD = Pattern(r"[\s\d.)>#*•+-]")  # signs of lists, quotations and headings

WHOLE_ANSWER = -1  # in place of a statement's index

CITATION_METRICS = (
    "citation_precision",
    "citation_recall",
    "citation_f1",
    "citation_passage_precision",
    "citation_passage_f1",
)


@dataclass(slots=True)
class CitedStatement:
    """A sentence with the indices of the passages it cites, each once.

    `dangling` counts its citations that resolve to no passage; `unread` tells that it has a marker
    that cannot be resolved, so what it cites is not known.
    """

    claim: AnswerSentence
    passages: list[int] = field(default_factory=list)
    dangling: int = 0
    unread: bool = False

    @property
    def needs_citation(self) -> bool:
        """Whether the statement claims enough that a reader wants a source, and may have none."""
        if self.unread:
            return False
        text = self.claim.text.rstrip()
        return len(self.claim.content) >= _MIN_CONTENT_STEMS and not text.endswith((":", "?"))


@dataclass(slots=True)
class CitedStatements:
    """All statements of an answer in order.

    `whole` are the passages cited for the whole answer, each once; `whole_dangling` counts such
    citations that resolve to none.
    """

    items: list[CitedStatement]
    whole: list[int] = field(default_factory=list)
    whole_dangling: int = 0

    @property
    def dangling(self) -> int:
        """The number of citations that resolve to no passage."""
        return self.whole_dangling + sum(item.dangling for item in self.items)


@dataclass(frozen=True, slots=True)
class CitationInstance:
    """A citation: the index of the statement (or `WHOLE_ANSWER`) and of the passage."""

    statement: int
    passage: int


def attach_citations(
    answer: str, claims: Sequence[AnswerSentence], cited: Citations
) -> CitedStatements:
    """Attach citations to the sentences (at least one) of an answer.

    An inline marker belongs to the sentence that it is in or follows, an explicit citation to every
    sentence that its range overlaps.
    """
    cut = _BIBLIOGRAPHY.search(answer) if _LISTS.search(answer) else None
    marks = cited.marks
    if cut and cut.start() > 0:
        claims = [claim for claim in claims if claim.end <= cut.start() + 1] or claims
        marks = [mark for mark in marks if mark.start < cut.start()] or marks
    out = CitedStatements([CitedStatement(claim) for claim in claims])
    starts = [claim.start for claim in claims]
    for mark in marks:
        if mark.start < 0:
            out.whole += [p for p in mark.passages if p not in out.whole]
            out.whole_dangling += mark.dangling
            continue
        touched = [
            item
            for item in (out.items if cited.explicit else ())
            if item.claim.start < mark.end and item.claim.end > mark.start
        ]
        for item in touched or [out.items[_owner(answer, starts, mark.start)]]:
            item.passages += [p for p in mark.passages if p not in item.passages]
            item.dangling += mark.dangling
    for place in cited.unread:
        owners = [out.items[_owner(answer, starts, place)]] if place >= 0 else out.items
        for item in owners:
            item.unread = True
    return out


def _owner(answer: str, starts: Sequence[int], place: int) -> int:
    """Return the statement that a marker at `place` belongs to.

    It is the one that begins before; a marker that begins a line belongs to that line.
    """
    at = bisect_right(starts, place)
    if at < len(starts) and "\n" not in answer[place : starts[at]]:
        begin = answer.rfind("\n", 0, place) + 1
        if not _LINE_HEAD.sub("", answer[begin:place]):
            return at
    return max(0, at - 1)


def missing_citation_reason(
    trace: Trace, answered: float | None, cited: Citations
) -> NoScore | None:
    """Return the reason why the citations of a trace can't be judged, or None.

    An empty list of passages is no reason: every citation then dangles.
    """
    reason = find_answer_reason(trace, answered)
    if reason is not None:
        return reason
    if not cited.marks:
        if trace.answer is None:
            return _NO_TEXT
        return _NOT_READ if cited.unread else _NO_CITATIONS
    return _NO_PASSAGES if trace.passages is None else None


def list_citation_instances(statements: CitedStatements) -> list[CitationInstance]:
    """Return the citations to judge, in the order of the answer."""
    placed = [
        CitationInstance(index, passage)
        for index, item in enumerate(statements.items)
        for passage in item.passages
    ]
    return placed + [CitationInstance(WHOLE_ANSWER, passage) for passage in statements.whole]


def citation_scores(
    statements: CitedStatements, supports: Mapping[CitationInstance, float | NoScore]
) -> dict[str, float | NoScore]:
    """Return every metric of `CITATION_METRICS`.

    `supports` has a value 0..1 or a reason for each of `list_citation_instances(statements)`.
    Precision is a mean over the instances that were judged; if all failed, it is unknown.
    """
    by_passage: dict[int, list[float]] = {}
    reasons: list[NoScore] = []
    for instance, value in supports.items():
        if isinstance(value, NoScore):
            reasons.append(value)
        else:
            by_passage.setdefault(instance.passage, []).append(value)
    if reasons and not by_passage:
        return dict.fromkeys(CITATION_METRICS, most_common_reason(reasons))
    dangling = [0.0] * statements.dangling
    precision = _mean(
        [value for values in by_passage.values() for value in values] + dangling, _NO_CITATIONS
    )
    passage_precision = _mean(
        [sum(values) / len(values) for values in by_passage.values()] + dangling, _NO_CITATIONS
    )
    recall = _recall(statements, supports)
    return {
        "citation_precision": precision,
        "citation_recall": recall,
        "citation_f1": f1_score(precision, recall),
        "citation_passage_precision": passage_precision,
        "citation_passage_f1": f1_score(passage_precision, recall),
    }


def f1_score(precision: float | NoScore, recall: float | NoScore) -> float | NoScore:
    """Compute the harmonic mean, 0 if both are 0, or return the reason that either one is."""
    if isinstance(precision, NoScore):
        return precision
    if isinstance(recall, NoScore):
        return recall
    both = precision + recall
    return 2 * precision * recall / both if both else 0.0


def _mean(values: list[float], empty: NoScore) -> float | NoScore:
    return sum(values) / len(values) if values else empty


def _recall(
    statements: CitedStatements, supports: Mapping[CitationInstance, float | NoScore]
) -> float | NoScore:
    """Compute the mean over statements of the mean support of their citations.

    A statement whose citations all failed makes it unknown: without it uncited statements, which
    never fail, would weigh more and bias the mean down.
    """
    cites_whole = bool(statements.whole or statements.whole_dangling)
    parts = [
        (index, item.passages, item.dangling, item.needs_citation and not cites_whole)
        for index, item in enumerate(statements.items)
    ]
    parts.append((WHOLE_ANSWER, statements.whole, statements.whole_dangling, False))
    values: list[float] = []
    for index, passages, dangling, needed in parts:
        cited = [supports[CitationInstance(index, passage)] for passage in passages]
        known = [value for value in cited if not isinstance(value, NoScore)]
        if cited and not known:
            return most_common_reason([value for value in cited if isinstance(value, NoScore)])
        if known or dangling:
            values.append(sum(known) / (len(known) + dangling))
        elif needed:
            values.append(0.0)
    return _mean(values, NoScore(Reason.NO_CLAIMS, applies=False))
