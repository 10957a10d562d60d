"""Grounding sentence by sentence: cut passages into windows, plan the pairs, conclude the value.

Grounding sentence by sentence, so that no text is cut off: what a pair scorer must be asked, and
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

from ragmeter.metrics.text import MAX_SENTENCES, find_sentence_spans
from ragmeter.metrics.text_index import MAX_ANSWER, parse_answer

CountTokens = Callable[[str], int]
"""Tokens of a text."""

_CharSpan = tuple[int, int]

# Where a sentence that is too long is cut, best place first: after a clause, between two words.
_BORDERS = (re.compile(r"[,;:)\]}|]\s+"), re.compile(r"\s+"))
_SURELY_LONG = (
    16  # characters a token: a text of more is cut in two before anyone counts its tokens
)


class TextTooLong(Exception):
    """A text that cannot be read whole within the bounds."""


def _middle_border(text: str, start: int, end: int) -> int:
    """Where to cut [start, end) in two: the border nearest to the middle, of the middle half."""
    middle, quarter = (start + end) // 2, (end - start) // 4
    for border in _BORDERS:
        found = border.finditer(text, middle - quarter, middle + quarter)
        places = [match.end() for match in found if start < match.end() < end]
        if places:
            return min(places, key=lambda place: abs(place - middle))
    return middle


def split_span(text: str, span: _CharSpan, most: int, count: CountTokens) -> list[_CharSpan]:
    """The span in pieces of at most `most` tokens that lie side by side.

    Raises `TooLong` where a single character has more.
    """
    todo, out = [span], []
    while todo:
        start, end = todo.pop()
        if end - start <= _SURELY_LONG * most and count(text[start:end]) <= most:
            out.append((start, end))
        elif end - start < 2:
            raise TextTooLong
        else:
            cut = _middle_border(text, start, end)
            todo += [(cut, end), (start, cut)]
    return out


def _contiguous_sentences(text: str) -> list[_CharSpan]:
    """Sentences with the space before them, side by side from the first character to the last."""
    ends: list[int] = []
    offset = 0
    while True:
        spans = find_sentence_spans(text[offset:])
        ends += [offset + end for _, end in spans]
        if len(spans) < MAX_SENTENCES:
            break
        offset = ends[-1]
    ends[-1:] = [len(text)]
    return list(zip([0, *ends[:-1]], ends, strict=True))


def cut_windows(
    text: str, most: int, overlap: int, count: CountTokens, fits: Callable[[str], bool]
) -> list[_CharSpan]:
    """Spans of at most `most` tokens that together hold every character, in order; all `fits`.

    A window ends where a sentence does, if one ends in it past its first `overlap` tokens, and the
    next one begins with its last `overlap` tokens or somewhat fewer. So any stretch of half of
    `overlap` is whole in some window, and any sentence of `most` less one and a half times
    `overlap`. `most` must be at least twice `overlap`.
    The text must not be blank. Raises `TooLong` where a piece does not fit though its size says so.
    """
    atoms: list[_CharSpan] = []
    sizes: list[int] = []
    closing: set[int] = set()  # atoms that end a sentence
    for sentence in _contiguous_sentences(text):
        for start, end in split_span(text, sentence, overlap // 2, count):
            atoms.append((start, end))
            sizes.append(count(text[start:end]))
        closing.add(len(atoms) - 1)
    out: list[_CharSpan] = []
    first = fresh = 0  # where the window begins, and what no window has held yet
    while True:
        last, total = first, sizes[first]
        while last + 1 < len(atoms) and total + sizes[last + 1] <= most:
            last += 1
            total += sizes[last]
        # a tokenizer may need more for the whole than for its parts
        while not fits(text[atoms[first][0] : atoms[last][1]]):
            last -= 1
            if last < fresh:
                raise TextTooLong
        if last + 1 == len(atoms):
            return [*out, (atoms[first][0], atoms[last][1])]
        # no window of less than the overlap: the next one would hold it all
        for at in range(last, fresh - 1, -1):
            if at in closing and sum(sizes[first : at + 1]) > overlap:
                last = at
                break
        out.append((atoms[first][0], atoms[last][1]))
        begun, first, shared = first, last + 1, 0
        while first - 1 > begun and shared + sizes[first - 1] <= overlap:
            first -= 1
            shared += sizes[first]
        fresh = last + 1


WINDOWING_VERSION = 1  # of the method: another one makes another series
TOKEN_BUDGET = (
    512  # tokens of sentence, window and prompt together: the length that T5 was trained on
)
MAX_SENTENCE_TOKENS = (
    128  # tokens; a longer "sentence" is a list or a table, and would crowd out the window
)
OVERLAP_TOKENS = (
    64  # tokens: two or three sentences, so that a fact told in two of them is in one window
)
MAX_PAIRS = 1_000  # of one trace: 50 kB of passages (some 35 windows) against 27 sentences
MAX_PASSAGE_CHARS = (
    1_000_000  # of all passages: more than MAX_PAIRS would hold, seen before any is cut
)
SUPPORTED_PROBABILITY = 0.5  # HHEM's larger logit; a sentence below it gets a second look
MAX_DETAIL_SENTENCES = 10
MAX_DETAIL_TEXT = 200  # characters of the worst sentence that a result carries

_MARKER_GAP = re.compile(r" (?=[.,;:!?](?: |\Z))")

_PairLength = Callable[[str, str], int]
"""Tokens of a (premise, hypothesis) pair as the scorer reads it, prompt included."""


@dataclass(frozen=True, slots=True)
class PlannedSentence:
    """A sentence of the answer at [start, end), or a part of one that is too long; `text` is
    without citation markers and list signs."""

    start: int
    end: int
    text: str
    tokens: int


@dataclass(frozen=True, slots=True)
class PassageWindow:
    """Characters [start, end) of the passage with that number (from 0)."""

    passage: int
    start: int
    end: int
    text: str
    tokens: int

    def overlaps(self, other: PassageWindow) -> bool:
        same = self.passage == other.passage
        return same and self.start < other.end and other.start < self.end


@dataclass(frozen=True, slots=True)
class WindowPair:
    """`hypothesis` held against a window, or two joined. `tokens` is what that costs."""

    premise: str
    hypothesis: str
    tokens: int


@dataclass(frozen=True, slots=True)
class JointCheck:
    """A second look at an unsupported sentence: its best two windows as one premise."""

    hypothesis: str
    windows: tuple[int, int]
    pair: WindowPair


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """`sentences` against `windows`; `frame` is the tokens of the prompt alone. No two windows have
    the same text, though two sentences may."""

    sentences: list[PlannedSentence]
    windows: list[PassageWindow]
    prompt_tokens: int

    @property
    def hypotheses(self) -> dict[str, int]:
        """The different texts of the sentences, in order, with their tokens."""
        return {sentence.text: sentence.tokens for sentence in self.sentences}

    def pairs(self) -> list[WindowPair]:
        """Every hypothesis with every window: hypotheses one after another, windows in order."""
        return [
            WindowPair(window.text, text, self.prompt_tokens + window.tokens + size)
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
class SentenceSupport:
    """What was found for one sentence: its support, and the windows that gave it (two if it takes
    both)."""

    sentence: PlannedSentence
    support: float
    windows: tuple[PassageWindow, ...]


@dataclass(frozen=True, slots=True)
class WindowedGrounding:
    """`value` is the mean support, in [0, 1]; `pairs` how many pairs were scored."""

    value: float
    findings: list[SentenceSupport]
    pairs: int


def _strip_marker_gaps(text: str) -> str:
    """Without the gaps that markers leave: "as here  ." is "as here."."""
    return _MARKER_GAP.sub("", " ".join(text.split()))


def _sentences(answer: str, count: CountTokens) -> list[PlannedSentence]:
    """Those with more than stop words: "It was so." claims nothing. Raises `TooLong`."""
    if len(answer) > MAX_ANSWER or len(find_sentence_spans(answer)) >= MAX_SENTENCES:
        raise TextTooLong
    out: list[PlannedSentence] = []
    for claim in parse_answer(answer).claims:
        text = _strip_marker_gaps(claim.text)
        if claim.content:
            for start, end in split_span(text, (0, len(text)), MAX_SENTENCE_TOKENS, count):
                part = text[start:end].strip()
                if part:
                    out.append(PlannedSentence(claim.start, claim.end, part, count(part)))
    return out


def plan_windows(
    answer: str,
    passages: Sequence[str],
    count: CountTokens,
    length: _PairLength,
    max_pairs: int = MAX_PAIRS,
    budget: int = TOKEN_BUDGET,
) -> WindowPlan:
    """What to ask for an answer and its passages' texts; blank passages are left out.

    The plan has no sentences where the answer claims nothing. Raises `TooLong` where the text
    cannot be read whole with `max_pairs` pairs, a second look at each sentence included.
    """
    sentences = _sentences(answer, count)
    frame = length("", "")
    if not sentences:
        return WindowPlan([], [], frame)
    texts = {sentence.text for sentence in sentences}
    most_windows = max_pairs // len(texts) - 1
    longest = max(sentences, key=lambda sentence: sentence.tokens)
    alone = length("", longest.text)
    if sum(map(len, passages)) > MAX_PASSAGE_CHARS or budget - alone < 2 * OVERLAP_TOKENS:
        raise TextTooLong
    found: dict[str, PassageWindow] = {}

    def fits(text: str) -> bool:
        return length(text, longest.text) <= budget

    for number, passage in enumerate(passages):
        if not passage or passage.isspace() or passage in found:
            continue
        for start, end in cut_windows(passage, budget - alone, OVERLAP_TOKENS, count, fits):
            text = passage[start:end]
            if text not in found:
                found[text] = PassageWindow(number, start, end, text, count(text))
        if len(found) > most_windows:
            raise TextTooLong
    return WindowPlan(sentences, list(found.values()), frame)


def plan_joint_checks(plan: WindowPlan, rows: Mapping[str, Sequence[float]]) -> list[JointCheck]:
    """For each hypothesis that no window supports, its best two windows that do not overlap, in the
    order of the text: a claim that takes two passages is in neither alone."""
    out: list[JointCheck] = []
    for text, size in plan.hypotheses.items():
        row = rows[text]
        best = max(range(len(row)), key=row.__getitem__)
        if row[best] >= SUPPORTED_PROBABILITY:
            continue
        windows = plan.windows
        others = [i for i in range(len(row)) if not windows[i].overlaps(windows[best])]
        if others:
            second = max(others, key=row.__getitem__)
            first, last = sorted((best, second))
            tokens = plan.prompt_tokens + windows[first].tokens + windows[last].tokens + size
            premise = f"{windows[first].text}\n{windows[last].text}"
            out.append(JointCheck(text, (first, last), WindowPair(premise, text, tokens)))
    return out


def conclude_grounding(
    plan: WindowPlan,
    rows: Mapping[str, Sequence[float]],
    looks: Sequence[JointCheck] = (),
    values: Sequence[float] = (),
) -> WindowedGrounding:
    """The trace's value and what it rests on; `values` are those of `looks`."""
    best: dict[str, tuple[float, tuple[int, ...]]] = {}
    for text, row in rows.items():
        at = max(range(len(row)), key=row.__getitem__)
        best[text] = (row[at], (at,))
    for look, value in zip(looks, values, strict=True):
        if value > best[look.hypothesis][0]:
            best[look.hypothesis] = (value, look.windows)
    findings = [
        SentenceSupport(sentence, support, tuple([plan.windows[i] for i in at]))
        for sentence in plan.sentences
        for support, at in [best[sentence.text]]
    ]
    value = sum(finding.support for finding in findings) / len(findings)
    return WindowedGrounding(value, findings, sum(map(len, rows.values())) + len(looks))


def grounding_detail(reading: WindowedGrounding, passage_ids: Sequence[str]) -> dict[str, Any]:
    """The evidence that a result carries: the worst sentence with the passage that supports it best
    and where in it, then the `MAX_DETAIL_SENTENCES` worst, lowest first."""

    def where(finding: SentenceSupport) -> dict[str, Any]:
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
        "unsupported": sum(finding.support < SUPPORTED_PROBABILITY for finding in reading.findings),
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
