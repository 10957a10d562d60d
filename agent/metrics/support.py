"""Citation precision, recall and F1: do the cited passages support the sentences that cite them.

Sentences of the answer are the statements. Unlike the reference's judge metric (open-rag-eval), a
citation that resolves to no passage counts against the answer, and what is undefined is no 0.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field

from agent.metrics.evidence import Claim, Pages
from agent.metrics.markers import Cited
from agent.metrics.results import BUILTIN
from agent.metrics.spec import MetricSpec
from agent.metrics.words import clock_and_plain_numbers

__all__ = ["SPECS", "Verdict", "judge", "supports"]

SPECS = tuple(
    MetricSpec(
        name=f"citation_{name}",
        kind="mean",
        tier="cheap",
        scorers=(BUILTIN,),
        meaning=meaning,
        formula=formula,
        source="answer sentences and the passages that they cite",
    )
    for name, meaning, formula in (
        (
            "precision",
            "how well cited passages support the statements that cite them",
            "mean support over (statement, citation) pairs; a dangling citation counts 0",
        ),
        (
            "recall",
            "how far statements are supported by what they cite",
            "mean over statements of the support by all they cite; an uncited one counts 0",
        ),
        ("f1", "balance of citation precision and recall", "2PR / (P + R); 0 where both are 0"),
    )
)

HALF = 15
LEAST = 3  # content stems that make a sentence a statement: "Here is how:" needs no citation
MAX_PAIRS = 300  # (statement, citation) pairs that are judged; bounds the work on hostile answers
LOW, SPAN = 0.2, 0.65  # overlap of an unrelated sentence of the same topic; from there to support
MISSING_NUMBER = 0.6  # factor for a statement with a number that its source doesn't have
_BIBLIOGRAPHY = re.compile(
    r"(?:^|\n)[#*\s]{0,6}(?:sources?|references?|citations?|bibliography)[*\s]{0,4}:?[*\s]{0,4}(?:\n|$)",
    re.IGNORECASE,
)


@dataclass(slots=True)
class Verdict:
    """None where undefined: precision without a citation that can be judged, recall without a
    statement. `unjudged` counts citations of passages without text."""

    precision: float | None
    recall: float | None
    pairs: list[tuple[int, int | None, float]] = field(default_factory=list)
    unjudged: int = 0

    @property
    def f1(self) -> float | None:
        if self.precision is None or self.recall is None:
            return None
        both = self.precision + self.recall
        return 2 * self.precision * self.recall / both if both else 0.0


class _Sources:
    """Words, places and numbers of single passages, read when first cited."""

    def __init__(self, pages: Pages) -> None:
        self.pages = pages
        self.words: dict[int, list[str]] = {}
        self.numbers: dict[int, set[str]] = {}

    def of(self, passage: int) -> list[str]:
        words = self.words.get(passage)
        if words is None:
            starts = self.pages.starts
            if passage >= len(starts):
                words = []
            else:
                last = passage + 1 == len(starts)
                end = len(self.pages.stream) if last else starts[passage + 1]
                words = self.pages.stream[starts[passage] : end - 1]
            self.words[passage] = words
        return words

    def has_number(self, passage: int, form: str) -> bool:
        found = self.numbers.get(passage)
        if found is None:
            text = self.pages.texts[passage].lower()
            found = {f for f, _, _ in clock_and_plain_numbers(text)}
            self.numbers[passage] = found
        return form in found


def supports(sources: _Sources, claim: Claim, passages: Iterable[int]) -> float:
    """0..1: how far the passages hold the claim's content, in all and in one stretch."""
    content = claim.content
    mass = sum(content.values())
    if not mass:
        return 1.0
    found: set[str] = set()
    best = 0.0
    chosen = list(passages)
    for passage in chosen:
        stretches: dict[int, set[str]] = {}
        for i, word in enumerate(sources.of(passage)):
            if word in content:
                found.add(word)
                bucket = i // HALF
                stretches.setdefault(bucket, set()).add(word)
                stretches.setdefault(bucket - 1, set()).add(word)
        for stretch in stretches.values():
            best = max(best, sum(map(content.__getitem__, stretch)))
    overlap = (sum(map(content.__getitem__, found)) + best) / (2 * mass)
    value = min(1.0, max(0.0, (overlap - LOW) / SPAN))
    for form in claim.numbers:
        if not any(sources.has_number(p, form) for p in chosen if p < len(sources.pages.texts)):
            return value * MISSING_NUMBER
    return value


def _attach(cited: Cited, claims: list[Claim]) -> list[tuple[list[int], int]]:
    """By claim: the passages it cites, and how many of its citations dangle."""
    attached: list[tuple[list[int], int]] = [([], 0) for _ in claims]
    starts = [claim.start for claim in claims]
    for mark in cited.marks:
        if mark.start < 0:
            touched = list(range(len(claims)))
        elif cited.explicit:
            touched = [i for i, c in enumerate(claims) if c.start < mark.end and c.end > mark.start]
        else:
            touched = []
        if not touched:
            touched = [max(0, bisect_right(starts, mark.start) - 1)]
        for i in touched:
            passages, dangling = attached[i]
            passages += [p for p in mark.passages if p not in passages]
            attached[i] = (passages, dangling + mark.dangling)
    return attached


def judge(answer: str, pages: Pages, claims: list[Claim], cited: Cited) -> Verdict:
    """Citation support of an answer that cites at least once and has at least one claim."""
    sources = _Sources(pages)
    cut = _BIBLIOGRAPHY.search(answer)
    if cut and cut.start() > 0:
        claims = [claim for claim in claims if claim.end <= cut.start() + 1] or claims
        inside = [mark for mark in cited.marks if mark.start < cut.start()]
        if inside:
            cited = Cited(inside, cited.explicit)
    whole = [mark for mark in cited.marks if mark.start < 0]
    attached = _attach(cited, claims)
    pairs: list[tuple[int, int | None, float]] = []
    unjudged = 0
    by_whole: dict[int, tuple[int, float]] = {}
    whole_passages = {p for mark in whole for p in mark.passages}
    recall: list[float] = []
    for i, (claim, (passages, dangling)) in enumerate(zip(claims, attached, strict=True)):
        judged = [p for p in passages if sources.of(p)]
        for passage in judged[:MAX_PAIRS]:
            value = supports(sources, claim, (passage,))
            if passage in whole_passages:
                # a citation of the whole answer is as good as the sentence it supports best
                best = by_whole.get(passage)
                if best is None or value > best[1]:
                    by_whole[passage] = (i, value)
            elif len(pairs) < MAX_PAIRS:
                pairs.append((i, passage, value))
        unjudged += len(passages) - len(judged)
        if not whole:
            pairs += [(i, None, 0.0)] * min(dangling, MAX_PAIRS)
        if passages and not judged:
            continue  # its sources have no text: nobody can tell
        if passages or dangling or _needs_citation(claim):
            recall.append(supports(sources, claim, judged) if judged else 0.0)
    pairs += [(i, passage, value) for passage, (i, value) in by_whole.items()]
    if whole:
        pairs += [(0, None, 0.0)] * min(sum(mark.dangling for mark in cited.marks), MAX_PAIRS)
    return Verdict(
        sum(v for _, _, v in pairs) / len(pairs) if pairs else None,
        sum(recall) / len(recall) if recall else None,
        pairs,
        unjudged,
    )


def _needs_citation(claim: Claim) -> bool:
    text = claim.text.rstrip()
    return len(claim.content) >= LEAST and not text.endswith((":", "?"))
