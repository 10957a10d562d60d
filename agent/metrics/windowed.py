"""Grounding sentence by sentence, so that no text is cut off: what a pair scorer must be asked, and
what its answers amount to.

The answer's sentences are each held against windows of every passage. A sentence's support is
the best that any window gives it, the trace's value the mean over the sentences: as AlignScore
(arXiv 2305.16739) and SummaC-ZS (arXiv 2111.09525) combine theirs. See docs/grounding.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent.metrics.cutting import Count, TooLong, pieces, windows
from agent.metrics.evidence import MAX_ANSWER, read_answer
from agent.metrics.sentences import MAX_SENTENCES, sentence_spans

__all__ = [
    "BUDGET",
    "MAX_PAIRS",
    "OVERLAP",
    "SENTENCE",
    "SUPPORTED",
    "VERSION",
    "Finding",
    "Joint",
    "Pair",
    "Plan",
    "Reading",
    "Sentence",
    "Window",
    "conclude",
    "detail",
    "joints",
    "make_plan",
]

VERSION = 1  # of the method: another one makes another series
BUDGET = 512  # tokens of sentence, window and prompt together: the length that T5 was trained on
SENTENCE = 128  # tokens; a longer "sentence" is a list or a table, and would crowd out the window
OVERLAP = 64  # tokens: two or three sentences, so that a fact told in two of them is in one window
MAX_PAIRS = 1_000  # of one trace: 50 kB of passages (some 35 windows) against 27 sentences
MAX_CHARS = 1_000_000  # of all passages: more than MAX_PAIRS would hold, seen before any is cut
SUPPORTED = 0.5  # HHEM's larger logit; a sentence below it gets a second look
MAX_DETAIL_SENTENCES = 10
MAX_DETAIL_TEXT = 200  # characters of the worst sentence that a result carries

_GAP = re.compile(r" (?=[.,;:!?](?: |\Z))")

Length = Callable[[str, str], int]
"""Tokens of a (premise, hypothesis) pair as the scorer reads it, prompt included."""


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of the answer at [start, end), or a part of one that is too long; `text` is
    without citation markers and list signs."""

    start: int
    end: int
    text: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Window:
    """Characters [start, end) of the passage with that number (from 0)."""

    passage: int
    start: int
    end: int
    text: str
    tokens: int

    def overlaps(self, other: Window) -> bool:
        same = self.passage == other.passage
        return same and self.start < other.end and other.start < self.end


@dataclass(frozen=True, slots=True)
class Pair:
    """`hypothesis` held against a window, or two joined. `tokens` is what that costs."""

    premise: str
    hypothesis: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Joint:
    """A second look at an unsupported sentence: its best two windows as one premise."""

    hypothesis: str
    windows: tuple[int, int]
    pair: Pair


@dataclass(frozen=True, slots=True)
class Plan:
    """`sentences` against `windows`; `frame` is the tokens of the prompt alone. No two windows have
    the same text, though two sentences may."""

    sentences: list[Sentence]
    windows: list[Window]
    frame: int

    @property
    def hypotheses(self) -> dict[str, int]:
        """The different texts of the sentences, in order, with their tokens."""
        return {sentence.text: sentence.tokens for sentence in self.sentences}

    def pairs(self) -> list[Pair]:
        """Every hypothesis with every window: hypotheses one after another, windows in order."""
        return [
            Pair(window.text, text, self.frame + window.tokens + size)
            for text, size in self.hypotheses.items()
            for window in self.windows
        ]

    def rows(self, values: Sequence[float]) -> dict[str, list[float]]:
        """By hypothesis, P(consistent) with each window, from one value for each of `pairs`."""
        width, texts = len(self.windows), list(self.hypotheses)
        if len(values) != width * len(texts):
            raise ValueError(f"{len(values)} values for {width * len(texts)} pairs")
        return {text: list(values[i * width : (i + 1) * width]) for i, text in enumerate(texts)}


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found for one sentence: its support, and the windows that gave it (two if it takes
    both)."""

    sentence: Sentence
    support: float
    windows: tuple[Window, ...]


@dataclass(frozen=True, slots=True)
class Reading:
    """`value` is the mean support, in [0, 1]; `pairs` how many pairs were scored."""

    value: float
    findings: list[Finding]
    pairs: int


def _tidy(text: str) -> str:
    """Without the gaps that markers leave: "as here  ." is "as here."."""
    return _GAP.sub("", " ".join(text.split()))


def _sentences(answer: str, count: Count) -> list[Sentence]:
    """Those with more than stop words: "It was so." claims nothing. Raises `TooLong`."""
    if len(answer) > MAX_ANSWER or len(sentence_spans(answer)) >= MAX_SENTENCES:
        raise TooLong
    out: list[Sentence] = []
    for claim in read_answer(answer).claims:
        text = _tidy(claim.text)
        if claim.content:
            for start, end in pieces(text, (0, len(text)), SENTENCE, count):
                part = text[start:end].strip()
                if part:
                    out.append(Sentence(claim.start, claim.end, part, count(part)))
    return out


def make_plan(
    answer: str,
    passages: Sequence[str],
    count: Count,
    length: Length,
    max_pairs: int = MAX_PAIRS,
    budget: int = BUDGET,
) -> Plan:
    """What to ask for an answer and its passages' texts; blank passages are left out.

    The plan has no sentences where the answer claims nothing. Raises `TooLong` where the text
    cannot be read whole with `max_pairs` pairs, a second look at each sentence included.
    """
    sentences = _sentences(answer, count)
    frame = length("", "")
    if not sentences:
        return Plan([], [], frame)
    texts = {sentence.text for sentence in sentences}
    most_windows = max_pairs // len(texts) - 1
    longest = max(sentences, key=lambda sentence: sentence.tokens)
    alone = length("", longest.text)
    if sum(map(len, passages)) > MAX_CHARS or budget - alone < 2 * OVERLAP:
        raise TooLong
    found: dict[str, Window] = {}

    def fits(text: str) -> bool:
        return length(text, longest.text) <= budget

    for number, passage in enumerate(passages):
        if not passage or passage.isspace() or passage in found:
            continue
        for start, end in windows(passage, budget - alone, OVERLAP, count, fits):
            text = passage[start:end]
            if text not in found:
                found[text] = Window(number, start, end, text, count(text))
        if len(found) > most_windows:
            raise TooLong
    return Plan(sentences, list(found.values()), frame)


def joints(plan: Plan, rows: Mapping[str, Sequence[float]]) -> list[Joint]:
    """For each hypothesis that no window supports, its best two windows that do not overlap, in the
    order of the text: a claim that takes two passages is in neither alone."""
    out: list[Joint] = []
    for text, size in plan.hypotheses.items():
        row = rows[text]
        best = max(range(len(row)), key=row.__getitem__)
        if row[best] >= SUPPORTED:
            continue
        windows = plan.windows
        others = [i for i in range(len(row)) if not windows[i].overlaps(windows[best])]
        if others:
            second = max(others, key=row.__getitem__)
            first, last = sorted((best, second))
            tokens = plan.frame + windows[first].tokens + windows[last].tokens + size
            premise = f"{windows[first].text}\n{windows[last].text}"
            out.append(Joint(text, (first, last), Pair(premise, text, tokens)))
    return out


def conclude(
    plan: Plan,
    rows: Mapping[str, Sequence[float]],
    looks: Sequence[Joint] = (),
    values: Sequence[float] = (),
) -> Reading:
    """The trace's value and what it rests on; `values` are those of `looks`."""
    best: dict[str, tuple[float, tuple[int, ...]]] = {}
    for text, row in rows.items():
        at = max(range(len(row)), key=row.__getitem__)
        best[text] = (row[at], (at,))
    for look, value in zip(looks, values, strict=True):
        if value > best[look.hypothesis][0]:
            best[look.hypothesis] = (value, look.windows)
    findings = [
        Finding(sentence, support, tuple([plan.windows[i] for i in at]))
        for sentence in plan.sentences
        for support, at in [best[sentence.text]]
    ]
    value = sum(finding.support for finding in findings) / len(findings)
    return Reading(value, findings, sum(map(len, rows.values())) + len(looks))


def detail(reading: Reading, passage_ids: Sequence[str]) -> dict[str, Any]:
    """The evidence that a result carries: the worst sentence with the passage that supports it best
    and where in it, then the `MAX_DETAIL_SENTENCES` worst, lowest first."""

    def where(finding: Finding) -> dict[str, Any]:
        support = round(finding.support, 3)
        places = [
            {"passage_id": passage_ids[w.passage], "start": w.start, "end": w.end}
            for w in finding.windows
        ]
        more = {"joined_with": places[1]} if len(places) > 1 else {}
        return {"support": support, **places[0], **more}

    order = sorted(range(len(reading.findings)), key=lambda index: reading.findings[index].support)
    worst = reading.findings[order[0]]
    return {
        "worst_sentence": {
            "index": order[0],
            "text": worst.sentence.text[:MAX_DETAIL_TEXT],
            **where(worst),
        },
        "unsupported": sum(finding.support < SUPPORTED for finding in reading.findings),
        "of": len(reading.findings),
        "pairs": reading.pairs,
        "sentences": [
            {
                "from": reading.findings[index].sentence.start,
                "to": reading.findings[index].sentence.end,
                **where(reading.findings[index]),
            }
            for index in order[:MAX_DETAIL_SENTENCES]
        ],
    }
