"""Statements of an answer with the passages they cite, and the formulas over their judged support.

Which statements of an answer cite which passages: what the built-in scorer and the judge share.

The statements are the sentences of the answer. A list of sources at its end is none of them.

Citation support of judged (statement, passage) instances: pure formulas.

The labels are those of the TREC 2024 RAG track (arXiv 2504.15205): full 1, partial 0.5, none 0.
Per instance follows the track, per passage follows open-rag-eval. Unlike there, a citation that
resolves to no passage counts against the answer.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ragmeter.core.metric_specs import MetricSpec
from ragmeter.core.score import JUDGE_SCORER, NoScore, find_answer_reason, most_common_reason
from ragmeter.metrics.citations import Citations
from ragmeter.metrics.text_index import AnswerSentence
from ragmeter.trace import Trace

_MIN_CONTENT_STEMS = (
    3  # content stems that make a sentence a statement: "Here is how:" needs no citation
)
_LISTS = re.compile(r"[Ss](?:ource|OURCE)|[Rr]ef|REF|[Cc]itation|CITATION|[Bb]ibl|BIBL")
_BIBLIOGRAPHY = re.compile(
    r"(?:^|\n)[#*\s]{0,6}(?:sources?|references?|citations?|bibliography)[*\s]{0,4}:?[*\s]{0,4}(?:\n|$)",
    re.IGNORECASE,
)


@dataclass(slots=True)
class CitedStatement:
    """A sentence with the passages (indices, each once) that are cited at its place, and how many
    of the citations there resolve to none."""

    claim: AnswerSentence
    passages: list[int] = field(default_factory=list)
    dangling: int = 0

    @property
    def needs_citation(self) -> bool:
        """Whether it claims anything that a reader would want a source for."""
        text = self.claim.text.rstrip()
        return len(self.claim.content) >= _MIN_CONTENT_STEMS and not text.endswith((":", "?"))


@dataclass(slots=True)
class CitedStatements:
    """All statements in order. `whole` are the passages that are cited for the answer as a whole,
    without a place in it, each once; `whole_dangling` counts such citations that resolve to none.
    """

    items: list[CitedStatement]
    whole: list[int] = field(default_factory=list)
    whole_dangling: int = 0

    @property
    def dangling(self) -> int:
        """All citations that resolve to no passage."""
        return self.whole_dangling + sum(item.dangling for item in self.items)


def attach_citations(
    answer: str, claims: Sequence[AnswerSentence], cited: Citations
) -> CitedStatements:
    """The statements with what they cite. `claims`: at least one.

    A marker belongs to the sentence that it stands in or follows, a citation with a stretch to
    every sentence that the stretch touches.
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
        for item in touched or [out.items[max(0, bisect_right(starts, mark.start) - 1)]]:
            item.passages += [p for p in mark.passages if p not in item.passages]
            item.dangling += mark.dangling
    return out


def missing_citation_reason(
    trace: Trace, answered: float | None, cited: Citations
) -> NoScore | None:
    """Why the citations of this trace can't be judged, before any text is read.

    Passages that were captured and are none are no hindrance: every citation dangles, which is
    known and bad, not unknown.
    """
    gap = find_answer_reason(trace, answered)
    if gap is not None:
        return gap
    if not cited.marks:
        return (
            NoScore("no_text") if trace.answer is None else NoScore("no_citations", applies=False)
        )
    return NoScore("no_passages_captured") if trace.passages is None else None


WHOLE_ANSWER = -1
"""In place of a statement's index: the answer as a whole."""

CITATION_METRICS = (
    "citation_precision",
    "citation_recall",
    "citation_f1",
    "citation_passage_precision",
    "citation_passage_f1",
)

CITED_SPECS = (
    MetricSpec(
        name="citation_passage_precision",
        kind="mean",
        tier="judge",
        scorers=(JUDGE_SCORER,),
        meaning="how well each cited passage supports the statements that cite it",
        formula="mean over cited passages of their mean support; a dangling citation counts as a"
        " passage with 0",
        needs="answer sentences and the passages that they cite",
        source="open-rag-eval",
    ),
    MetricSpec(
        name="citation_passage_f1",
        kind="mean",
        tier="judge",
        scorers=(JUDGE_SCORER,),
        meaning="balance of citation precision per passage and citation recall",
        formula="2PR / (P + R) of citation_passage_precision and citation_recall; 0 where both"
        " are 0",
        needs="answer sentences and the passages that they cite",
        source="open-rag-eval",
    ),
)


@dataclass(frozen=True, slots=True)
class CitationInstance:
    """One citation: the index of the statement, or `WHOLE`, and of the passage."""

    statement: int
    passage: int


def list_citation_instances(statements: CitedStatements) -> list[CitationInstance]:
    """What has to be judged, in the order of the answer."""
    placed = [
        CitationInstance(index, passage)
        for index, item in enumerate(statements.items)
        for passage in item.passages
    ]
    return placed + [CitationInstance(WHOLE_ANSWER, passage) for passage in statements.whole]


def f1_score(precision: float | NoScore, recall: float | NoScore) -> float | NoScore:
    """Harmonic mean, 0 where both are 0; with a gap in either: the gap."""
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
    """Mean over statements, each the mean of the support of its citations.

    A statement whose citations all failed makes it unknown: to leave it out would shift the
    weight to uncited statements, which never fail, and so bend the mean down.
    """
    cites_whole = bool(statements.whole or statements.whole_dangling)
    parts = [
        (index, item.passages, item.dangling, item.needs_citation and not cites_whole)
        for index, item in enumerate(statements.items)
    ]
    parts.append((WHOLE_ANSWER, statements.whole, statements.whole_dangling, False))
    values: list[float] = []
    for index, passages, dangling, needed in parts:
        found = [supports[CitationInstance(index, passage)] for passage in passages]
        known = [value for value in found if not isinstance(value, NoScore)]
        if found and not known:
            return most_common_reason([value for value in found if isinstance(value, NoScore)])
        if known or dangling:
            values.append(sum(known) / (len(known) + dangling))
        elif needed:
            values.append(0.0)
    return _mean(values, NoScore("no_claims", applies=False))


def citation_scores(
    statements: CitedStatements, supports: Mapping[CitationInstance, float | NoScore]
) -> dict[str, float | NoScore]:
    """Every metric of `NAMES`. `supports` has a value 0..1 or a gap for each of `instances`.

    Means of precision stand over the instances that were judged; where none of several was,
    the precision is not that of the dangling ones alone but unknown.
    """
    known: dict[int, list[float]] = {}
    gaps: list[NoScore] = []
    for instance, value in supports.items():
        if isinstance(value, NoScore):
            gaps.append(value)
        else:
            known.setdefault(instance.passage, []).append(value)
    if gaps and not known:
        return dict.fromkeys(CITATION_METRICS, most_common_reason(gaps))
    none = NoScore("no_citations", applies=False)
    lost = [0.0] * statements.dangling
    precision = _mean([value for values in known.values() for value in values] + lost, none)
    by_passage = _mean([sum(values) / len(values) for values in known.values()] + lost, none)
    recall = _recall(statements, supports)
    return {
        "citation_precision": precision,
        "citation_recall": recall,
        "citation_f1": f1_score(precision, recall),
        "citation_passage_precision": by_passage,
        "citation_passage_f1": f1_score(by_passage, recall),
    }
