"""Grounding sentence by sentence: cut passages into windows, plan the pairs, conclude the value.

Every passage is cut into windows whole, so that no text is cut off. Each of the answer's sentences
is held against the windows that share most of its words. Its support is the best that any of them
gives it, the trace's value the mean over the sentences, as AlignScore (arXiv 2305.16739) and
SummaC-ZS (arXiv 2111.09525) combine theirs. See docs/grounding.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ragmeter.core.errors import DataError
from ragmeter.metrics.answer_text import MAX_ANSWER, parse_answer
from ragmeter.metrics.sentences import MAX_SENTENCES, find_sentence_spans
from ragmeter.metrics.stems import content_stems, idf
from ragmeter.metrics.words import tokenize

WINDOWING_VERSION = 2  # of the method: another one makes another series
# Tokens of sentence, window and prompt together: the length that T5 was trained on.
TOKEN_BUDGET = 512
# Tokens; a longer "sentence" is a list or a table, and would crowd out the window.
MAX_SENTENCE_TOKENS = 128
# Tokens: two or three sentences, so that a fact told in two of them is in one window.
OVERLAP_TOKENS = 64
# Pairs of one trace, 250 sentences with a joint look at each: some minutes of a core.
MAX_PAIRS = 1_000
# Of all passages, some 800 windows: to cut and rank them takes as long as a few long pairs.
MAX_PASSAGE_CHARS = 1_000_000
# The point where HHEM's logits are equal; a sentence below it gets a second look.
SUPPORTED_PROBABILITY = 0.5
# Windows that a sentence is held against: the three that share most of its words, and the second
# and third only with at least this part of what the first one shares. That halves the tokens of
# traces of 5.3 kB; with a sentence encoder in HHEM's place, the values of 80 % of them stay within
# 0.01, and the mean falls by 0.010 (benchmarks/hhem_windows.py of commit 5d72b3a0).
MAX_WINDOWS = 3
MIN_SHARED = 0.4
# Weight of the words of the whole answer beside those of the sentence: "It opened in May." has few
# words of its own, and its passage is the one that the sentences around it rest on.
_ANSWER_WEIGHT = 0.3
# A support that further windows could raise by 0.01 at most.
FULL_SUPPORT = 0.99
MAX_DETAIL_SENTENCES = 10
MAX_DETAIL_TEXT = 200  # characters of the worst sentence that a result carries

# Characters a token: a text of more is cut in two before anyone counts its tokens.
_CHARS_PER_TOKEN = 16

# Where a sentence that is too long is cut, best first: after a clause, between two words.
_BORDERS = (re.compile(r"[,;:)\]}|]\s+"), re.compile(r"\s+"))

# The gap that a citation marker leaves before a sign: "as here  ." is "as here.".
_MARKER_GAP = re.compile(r" (?=[.,;:!?](?: |\Z))")

CountTokens = Callable[[str], int]
_CharSpan = tuple[int, int]
# Tokens of a (premise, hypothesis) pair as the scorer reads it, prompt included.
_PairLength = Callable[[str, str], int]


class TextTooLong(DataError):
    """A text that cannot be read whole within the bounds."""


@dataclass(frozen=True, slots=True)
class PlannedSentence:
    """A sentence of the answer at [start, end), or a part of one that is too long.

    `text` is without citation markers and list signs.
    """

    start: int
    end: int
    text: str
    tokens: int


@dataclass(frozen=True, slots=True)
class PassageWindow:
    """Characters [start, end) of the passage with that number, from 0."""

    passage: int
    start: int
    end: int
    text: str
    tokens: int

    def overlaps(self, other: PassageWindow) -> bool:
        """Return whether both hold a character of the same passage."""
        same = self.passage == other.passage
        return same and self.start < other.end and other.start < self.end


@dataclass(frozen=True, slots=True)
class WindowCheck:
    """A sentence to hold against a window, or two joined; `tokens` is its cost."""

    hypothesis: str
    windows: tuple[int, ...]
    premise: str
    tokens: int


# By hypothesis, the support by the windows of each check so far.
Supports = dict[str, dict[tuple[int, ...], float]]


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """Sentences to hold against windows; `prompt_tokens` are those of the prompt alone.

    No two windows have the same text, though two sentences may. `choices` has for each text of a
    sentence the windows that may support it, best first.
    """

    sentences: list[PlannedSentence]
    windows: list[PassageWindow]
    prompt_tokens: int
    choices: Mapping[str, Sequence[int]]

    def next_checks(self, supports: Supports) -> list[WindowCheck]:
        """Return the checks to make next, none at the end; each round's results decide the next.

        The first holds every sentence against its best window, the second against the others
        where these could raise its support, the third an unsupported one against the best two that
        do not overlap, joined: a claim that takes two passages is in neither alone.
        """
        sizes = {sentence.text: sentence.tokens for sentence in self.sentences}
        return [
            self._check(text, size, windows)
            for text, size in sizes.items()
            for windows in self._next_windows(self.choices[text], supports.get(text, {}))
        ]

    def _next_windows(
        self, choices: Sequence[int], done: Mapping[tuple[int, ...], float]
    ) -> Iterator[tuple[int, ...]]:
        best = max(done, key=done.__getitem__, default=())
        if not done:
            yield from [(index,) for index in choices[:1]]
        elif done[best] >= FULL_SUPPORT:
            return
        elif len(done) < len(choices):
            yield from [(index,) for index in choices[1:]]
        elif done[best] < SUPPORTED_PROBABILITY and len(done) == len(choices):
            others = [
                index
                for index in choices
                if not self.windows[index].overlaps(self.windows[best[0]])
            ]
            if others:
                second = max(others, key=lambda index: done[index,])
                yield (min(best[0], second), max(best[0], second))  # in the order of the text

    def _check(self, text: str, size: int, numbers: tuple[int, ...]) -> WindowCheck:
        windows = [self.windows[number] for number in numbers]
        tokens = self.prompt_tokens + size + sum(window.tokens for window in windows)
        return WindowCheck(text, numbers, "\n".join(window.text for window in windows), tokens)


@dataclass(frozen=True, slots=True)
class SentenceSupport:
    """The support of a sentence, and the one or two windows that give it."""

    sentence: PlannedSentence
    support: float
    windows: tuple[PassageWindow, ...]


@dataclass(frozen=True, slots=True)
class WindowedGrounding:
    """The mean support, in [0, 1], with that of each sentence, from so many pairs."""

    value: float
    findings: list[SentenceSupport]
    pairs: int


def _middle_border(text: str, start: int, end: int) -> int:
    """Return the border nearest to the middle of [start, end), in its middle half, to cut it at."""
    middle = (start + end) // 2
    quarter = (end - start) // 4
    for border in _BORDERS:
        matches = border.finditer(text, middle - quarter, middle + quarter)
        cuts = [match.end() for match in matches if start < match.end() < end]
        if cuts:
            return min(cuts, key=lambda cut: abs(cut - middle))
    return middle


def split_span(text: str, span: _CharSpan, most: int, count: CountTokens) -> list[_CharSpan]:
    """Return the span in adjacent pieces of at most `most` tokens.

    Raises:
        TextTooLong: A single character has more.
    """
    todo = [span]
    out = []
    while todo:
        start, end = todo.pop()
        if end - start <= _CHARS_PER_TOKEN * most and count(text[start:end]) <= most:
            out.append((start, end))
        elif end - start < 2:
            raise TextTooLong
        else:
            cut = _middle_border(text, start, end)
            todo += [(cut, end), (start, cut)]
    return out


def _contiguous_sentences(text: str) -> list[_CharSpan]:
    """Sentences with the space before them, adjacent from the first character to the last."""
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
    """Return overlapping spans that together hold every character, in order.

    A window ends where a sentence does, if one ends in it past its first `overlap` tokens, and the
    next one begins with its last `overlap` tokens or somewhat fewer. So any stretch of half of
    `overlap` is whole in some window, and any sentence of `most` less one and a half times
    `overlap`.

    Args:
        text: Text that is not blank.
        most: Most tokens of a window, at least twice `overlap`.
        overlap: Tokens that two windows share.
        count: Tokens of a text.
        fits: Whether a text fits into a window, prompt and sentence included.

    Raises:
        TextTooLong: A piece does not fit though its size says so.
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
    first = fresh = 0  # the first atom of the window, and the first that no window has held yet
    while True:
        last = first
        total = sizes[first]
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
        begun = first
        first = last + 1
        shared = 0
        while first - 1 > begun and shared + sizes[first - 1] <= overlap:
            first -= 1
            shared += sizes[first]
        fresh = last + 1


def _plan_sentences(answer: str, count: CountTokens) -> list[PlannedSentence]:
    """Sentences with more than stop words: "It was so." claims nothing."""
    if len(answer) > MAX_ANSWER or len(find_sentence_spans(answer)) >= MAX_SENTENCES:
        raise TextTooLong
    out: list[PlannedSentence] = []
    for claim in parse_answer(answer).claims:
        if not claim.content:
            continue
        text = _MARKER_GAP.sub("", " ".join(claim.text.split()))
        for start, end in split_span(text, (0, len(text)), MAX_SENTENCE_TOKENS, count):
            if piece := text[start:end].strip():
                out.append(PlannedSentence(claim.start, claim.end, piece, count(piece)))
    return out


def _choose_windows(
    sentences: Sequence[PlannedSentence], windows: Sequence[PassageWindow]
) -> dict[str, list[int]]:
    """Return for each text of a sentence the windows that share most of its words, best first."""
    stems = [frozenset(content_stems(tokenize(window.text))) for window in windows]
    texts = {s.text: frozenset(content_stems(tokenize(s.text))) for s in sentences}
    answer = frozenset[str]().union(*texts.values())

    def part(wanted: frozenset[str], words: frozenset[str]) -> float:
        """Return the part of the wanted stems among the words, each weighed by its rarity."""
        return sum(idf[stem] for stem in wanted & words) / (sum(idf[stem] for stem in wanted) or 1)

    whole = [_ANSWER_WEIGHT * part(answer, words) for words in stems]
    out: dict[str, list[int]] = {}
    for text, wanted in texts.items():
        shared = [part(wanted, words) + also for words, also in zip(stems, whole, strict=True)]
        order = sorted(range(len(windows)), key=lambda index: -shared[index])[:MAX_WINDOWS]
        least = MIN_SHARED * max(shared, default=0.0)
        out[text] = [index for index in order if shared[index] >= least]
    return out


def plan_windows(
    answer: str,
    passages: Sequence[str],
    count: CountTokens,
    length: _PairLength,
    max_pairs: int = MAX_PAIRS,
    budget: int = TOKEN_BUDGET,
) -> WindowPlan:
    """Plan the pairs for an answer and its passages; blank passages are left out.

    At least one passage is not blank. `budget` is in tokens of a pair.

    Returns:
        A plan without sentences where the answer claims nothing.

    Raises:
        TextTooLong: The text cannot be read whole within these bounds.
    """
    sentences = _plan_sentences(answer, count)
    prompt_tokens = length("", "")
    if not sentences:
        return WindowPlan([], [], prompt_tokens, {})
    longest = max(sentences, key=lambda sentence: sentence.tokens)
    alone = length("", longest.text)
    most = len({sentence.text for sentence in sentences}) * (MAX_WINDOWS + 1)
    if (
        most > max_pairs
        or sum(map(len, passages)) > MAX_PASSAGE_CHARS
        or budget - alone < 2 * OVERLAP_TOKENS
    ):
        raise TextTooLong
    windows: dict[str, PassageWindow] = {}

    def fits(text: str) -> bool:
        return length(text, longest.text) <= budget

    for number, passage in enumerate(passages):
        if not passage or passage.isspace() or passage in windows:
            continue
        for start, end in cut_windows(
            text=passage, most=budget - alone, overlap=OVERLAP_TOKENS, count=count, fits=fits
        ):
            text = passage[start:end]
            if text not in windows:
                windows[text] = PassageWindow(
                    passage=number, start=start, end=end, text=text, tokens=count(text)
                )
    found = list(windows.values())
    return WindowPlan(sentences, found, prompt_tokens, _choose_windows(sentences, found))


def conclude_grounding(plan: WindowPlan, supports: Supports) -> WindowedGrounding:
    """Return the trace's value and what it rests on; the plan has a sentence."""
    findings = []
    for sentence in plan.sentences:
        done = supports[sentence.text]
        best = max(done, key=done.__getitem__)
        windows = tuple([plan.windows[number] for number in best])
        findings.append(SentenceSupport(sentence, done[best], windows))
    value = sum(finding.support for finding in findings) / len(findings)
    return WindowedGrounding(value, findings, sum(map(len, supports.values())))


def grounding_detail(grounding: WindowedGrounding, passage_ids: Sequence[str]) -> dict[str, Any]:
    """Return the evidence that a result carries.

    It has the worst sentence with the place in a passage that supports it best, and then the
    `MAX_DETAIL_SENTENCES` worst, lowest first.
    """

    def where(finding: SentenceSupport) -> dict[str, Any]:
        windows = [
            {"passage_id": passage_ids[w.passage], "start": w.start, "end": w.end}
            for w in finding.windows
        ]
        joined = {"joined_with": windows[1]} if len(windows) > 1 else {}
        return {"support": round(finding.support, 3), **windows[0], **joined}

    findings = grounding.findings
    order = sorted(range(len(findings)), key=lambda index: findings[index].support)
    worst = findings[order[0]]
    return {
        "worst_sentence": {
            "index": order[0],
            "text": worst.sentence.text[:MAX_DETAIL_TEXT],
            **where(worst),
        },
        "unsupported": sum(finding.support < SUPPORTED_PROBABILITY for finding in findings),
        "of": len(findings),
        "pairs": grounding.pairs,
        "sentences": [
            {"from": finding.sentence.start, "to": finding.sentence.end, **where(finding)}
            for finding in [findings[index] for index in order[:MAX_DETAIL_SENTENCES]]
        ],
    }
