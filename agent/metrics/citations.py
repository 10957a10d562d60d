"""Cheap citation metrics: are there citations, do they exist, does the answer name sources."""

from __future__ import annotations

import re

from agent.metrics.markers import Cited
from agent.metrics.results import BUILTIN, not_applicable, scored, standing, unscored
from agent.metrics.spec import MetricSpec
from agent.trace import Score, Trace

__all__ = ["SPECS", "indicators", "score"]

_SOURCE = "pragmata, metrics taxonomy"

SPECS = (
    MetricSpec(
        name="citation_presence",
        kind="ratio",
        tier="cheap",
        scorers=(BUILTIN,),
        meaning="share of answers that cite at least once",
        formula="1 if the answer has a citation else 0, over traces that answered",
        needs="trace.citations, else inline markers",
        source=_SOURCE,
    ),
    MetricSpec(
        name="citation_fabricated",
        kind="ratio",
        tier="cheap",
        scorers=(BUILTIN,),
        meaning="share of citing answers with a citation that resolves to no passage",
        formula="1 if any citation dangles else 0, over answers that cite",
        needs="trace.citations, else inline markers, resolved against the passages",
        source=_SOURCE,
        good="lower",
    ),
    MetricSpec(
        name="source_indicators",
        kind="mean",
        tier="cheap",
        scorers=(BUILTIN,),
        meaning="how far the answer names its sources in words or by address",
        formula="min(found / 3, 1); found = phrases that name a source, plus web addresses",
        needs="answer text",
        source="zesty-assignment, evaluate.py",
    ),
)

# Each pattern with a text that it can't do without (or ""), and plain words of which one must be
# there before the pattern is tried: most answers have none, and looking for a plain word is far
# quicker.
_INDICATORS: tuple[tuple[str, tuple[str, ...], re.Pattern[str]], ...] = tuple(
    (first, words, re.compile(pattern))
    for first, words, pattern in (
        ("", ("http", "www."), r"https?://|www\.\w"),
        ("", ("according to",), r"according to\b"),
        ("", ("based on",), r"based on (?:the|this|these|your|our|\w+'s) "),
        (
            "",
            ("as stated", "as described", "as mentioned", "as noted", "as reported", "as shown"),
            r"as (?:stated|described|mentioned|noted|outlined|explained|reported|shown"
            r"|documented) (?:in|by|on|at)\b",
        ),
        (":", ("source", "reference", "citation"), r"(?:source|reference|citation)s?\s?:"),
        (
            "",
            ("see ", "refer to", "found in", "cited in", "documented in"),
            r"(?:see|refer to|found in|cited in|documented in)"
            r" (?:the|section|page|chapter|document|table|figure)\b",
        ),
        (
            "",
            ("document", "passage", "article", "source", "manual", "guide", "report", "study"),
            r"(?:documents?|documentation|passages?|articles?|sources?|manual|guide|report|study"
            r"|paper|policy|context) (?:states?|says?|notes?|mentions?|explains?|describes?"
            r"|indicates?|shows?|reports?|provides?|suggests?|lists?|specif(?:y|ies))\b",
        ),
        ("", ("page ", "section ", "chapter "), r"(?:page|section|chapter) \d"),
    )
)
MAX_TEXT = 20_000  # characters: three indicators are enough, and a long answer shows them early


def indicators(answer: str) -> int:
    """How many source indicators the answer has, counted up to three."""
    text = answer[:MAX_TEXT].lower()
    found = 0
    for first, words, pattern in _INDICATORS:
        if first not in text:
            continue
        for word in words:
            if word in text:
                found += len(pattern.findall(text))
                break
        if found >= 3:
            return 3
    return found


def indicator_quality(text: str) -> float:
    """How far a text names its sources: three times is enough."""
    return min(indicators(text) / 3.0, 1.0)


def score(trace: Trace, answered: float | None, cited: Cited) -> list[Score]:
    """Scores of every metric in `SPECS`, in their order."""
    out: list[Score] = []
    stop = standing("citation_presence", trace, answered)
    cites = bool(cited.marks)
    if stop is None and trace.answer is None and not cited.explicit:
        stop = unscored("citation_presence", trace, "no_text")
    out.append(stop or scored("citation_presence", trace, 1.0 if cites else 0.0))

    stop = standing("citation_fabricated", trace, answered)
    if stop is None and not cites:
        stop = not_applicable("citation_fabricated", trace, "no_citations")
    if stop is None and trace.passages is None:
        stop = unscored("citation_fabricated", trace, "no_passages_captured")
    if stop is None:
        dangling = cited.dangling
        detail = {"dangling": dangling} if dangling else None
        stop = scored("citation_fabricated", trace, 1.0 if dangling else 0.0, detail)
    out.append(stop)

    stop = standing("source_indicators", trace, answered)
    if stop is None and trace.answer is None:
        stop = unscored("source_indicators", trace, "no_text")
    if stop is None:
        stop = scored("source_indicators", trace, indicator_quality(trace.answer or ""))
    out.append(stop)
    return out
