"""The citations of an answer, resolved to passages, and the citation metrics that need no model.

Explicit `citations` of the trace win. Without them inline markers are read from the answer:
`[1]`, `[1, 3]`, `[1-3]`, `[1][2]`, `【1†source】`, `[doc-3]`, and `[id]` where the id is one of a
passage. Code, markdown links, footnotes, list indices and years are not citations.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from ragmeter.core.score import NoScore, Score, find_answer_reason, make_plain_score, make_scored
from ragmeter.metrics.english import ENGLISH
from ragmeter.metrics.language import NOT_MEASURED, READ_BY_ENGLISH
from ragmeter.reasons import Reason
from ragmeter.trace import Passage, Trace

MAX_MARKS = 1000  # an answer with more is no answer; bounds the work on hostile text
_MAX_RANGE = 50  # [1-999999] must not become a million citations

# Candidates only: what stands between the brackets is judged in Python. Every repetition is
# bounded, so a text of nothing but brackets is scanned in linear time.
_MARK = re.compile(r"\[([^\[\]\n]{1,80})\]|【([^【】\n]{1,80})】")
_NUMBERS = re.compile(r"\s*\d{1,4}\s*(?:(?:[,;]|[-–—]|\band\b|&)\s*\d{1,4}\s*){0,40}\Z")
_PIECE = re.compile(r"(\d+)\s*[-–—]\s*(\d+)|(\d+)")
_NAMED = re.compile(
    r"\s*(?:doc(?:ument)?|passage|source|src|ref(?:erence)?|chunk|context|cit(?:e|ation)|kb)"
    r"[\s_#:.\-]{0,3}(\d{1,6})\s*\Z",
    re.IGNORECASE,
)
_OPENAI = re.compile(r"\s*(?:(\d{1,4}):)?(\d{1,4})\s*†")
_CODE = re.compile(r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)|`[^`\n]{1,300}`", re.DOTALL)
_INDEXED = re.compile(r"[A-Za-z_]\w{0,30}\Z")
_CODE_AFTER = re.compile(r"\s?(?:[-+*/]?=[^=]|==|\.[a-z_]\w*|\(|\[\d+\]\s?=)")
_LINKED = re.compile(r"\((?:https?:|/|#|www\.)", re.IGNORECASE)
_DIGITS = re.compile(r"\d+")
_NO_TEXT = NoScore(Reason.NO_TEXT)
_NO_PASSAGES = NoScore(Reason.NO_PASSAGES_CAPTURED)
_NO_CITATIONS = NoScore(Reason.NO_CITATIONS, applies=False)
_INDEX_NAMES = frozenset(ENGLISH["index_names"].split())

# Those of zesty-assignment, which looks for them anywhere in the text: "from" is in many answers.
_SOURCE_INDICATORS = (
    "source:",
    "table:",
    "page",
    "document",
    "pdf",
    "according to",
    "based on",
    "from",
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
    """The citations of an answer in order; explicit ones come from `trace.citations`."""

    marks: list[CitationMark]
    explicit: bool

    @property
    def dangling(self) -> int:
        """The number of targets that resolve to no passage."""
        return sum(mark.dangling for mark in self.marks)


def resolve_citations(trace: Trace) -> Citations:
    """Return the citations of an answer; if passages were not captured, every target dangles."""
    passages = trace.passages or ()
    if trace.citations:
        resolver = _Resolver(passages)
        marks = []
        for citation in trace.citations[:MAX_MARKS]:
            start, end = citation.start, citation.end
            has_range = start is not None and end is not None and end > start
            mark = CitationMark(start or 0, end or 0) if has_range else CitationMark(-1, -1)
            for target in citation.passage_ids:
                index = resolver.by_id(target)
                bare = target.strip().strip("[]")
                if index is None and bare.isdecimal() and len(bare) < 7:
                    index = resolver.by_number(int(bare))
                if index is None:
                    mark.dangling += 1
                elif index not in mark.passages:
                    mark.passages.append(index)
            if mark.passages or mark.dangling:
                marks.append(mark)
        return Citations(marks, explicit=True)
    if not trace.answer or ("[" not in trace.answer and "【" not in trace.answer):
        return Citations([], explicit=False)
    return Citations(_inline(trace.answer, _Resolver(passages)), explicit=False)


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

    dangling = cited.dangling
    fabricated: float | NoScore = float(dangling > 0)
    if not cites:
        fabricated = _NO_CITATIONS
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
    text = answer.lower()
    return min(sum([indicator in text for indicator in _SOURCE_INDICATORS]) / 3.0, 1.0)


def _inline(answer: str, resolver: _Resolver) -> list[CitationMark]:
    if "`" in answer or "~~~" in answer:
        answer = _CODE.sub(lambda code: " " * len(code.group()), answer)
    marks: list[CitationMark] = []
    for match in _MARK.finditer(answer):
        start, end = match.span()
        text, lenticular = match.groups()
        step = _OPENAI.match(lenticular) if lenticular else None
        if step:
            # 【n†…】 counts from 1; in 【step:n†…】 n counts from 0
            targets = [resolver.by_number(int(step.group(2)) + (step.group(1) is not None))]
        elif lenticular:
            targets = _read_targets(lenticular, resolver)
        elif _is_markdown(answer, text, start, end) or _is_index(answer, start, end):
            continue
        else:
            targets = _read_targets(text, resolver)
        if targets:
            passages = [index for index in targets if index is not None]
            marks.append(CitationMark(start, end, passages, len(targets) - len(passages)))
            if len(marks) == MAX_MARKS:
                break
    return marks


def _read_targets(text: str, resolver: _Resolver) -> list[int | None]:
    """Resolve the targets between brackets, dangling ones to None; empty if it is no citation."""
    index = resolver.by_id(text)
    if index is not None:
        return [index]
    if _NUMBERS.match(text):
        numbers = _numbers(text)
        indices = [resolver.by_number(number) for number in numbers]
        if None in indices:
            # 0 is an index or the end of an interval, 1000 and more a year
            pairs = zip(numbers, indices, strict=True)
            if any(index is None and not 0 < number < 1000 for number, index in pairs):
                return []
        return indices
    if resolver.like_an_id(text):
        return [None]
    named = _NAMED.match(text)
    if named:
        return [resolver.by_number(int(named.group(1)))]
    indices = [resolver.by_id(piece) for piece in re.split(r"[,;]", text)]
    return indices if any(index is not None for index in indices) else []


def _is_markdown(answer: str, text: str, start: int, end: int) -> bool:
    """Return whether `[text]` at [start, end) is a footnote, a link or the definition of one."""
    if text[0] in "^!":
        return True
    if (start == 0 or answer[start - 1] == "\n") and answer.startswith(":", end):
        return True  # "[1]: https://…"
    if not answer.startswith("(", end):
        return False
    return not (text.strip().isdigit() and _LINKED.match(answer, end))  # "[1](https://…)" cites


class _Resolver:
    """Resolves targets to passage indices: by id, then by rank, then by 1-based position."""

    __slots__ = ("count", "ids", "ranks", "shapes")

    def __init__(self, passages: Sequence[Passage]) -> None:
        self.count = len(passages)
        self.ids: dict[str, int] = {}
        self.ranks: dict[int, int] = {}
        for index, passage in enumerate(passages):
            self.ids.setdefault(passage.id.casefold(), index)
            if passage.rank is not None:
                self.ranks.setdefault(passage.rank, index)
        if 0 in self.ranks:  # ranks from 0: prompts still number from 1
            self.ranks = {}
        self.shapes: set[str] | None = None

    def by_id(self, text: str) -> int | None:
        key = text.strip().casefold()
        index = self.ids.get(key)
        return index if index is not None else self.ids.get(f"[{key}]")

    def by_number(self, number: int) -> int | None:
        index = self.ids.get(str(number))
        if index is None:
            index = self.ranks.get(number)
        if index is None and 1 <= number <= self.count:
            index = number - 1
        return index

    def like_an_id(self, text: str) -> bool:
        """Return whether the text equals a passage id but for its digits."""
        if self.shapes is None:
            self.shapes = {_DIGITS.sub("0", key) for key in self.ids if _DIGITS.search(key)}
        return _DIGITS.sub("0", text.strip().casefold()) in self.shapes


def _numbers(text: str) -> list[int]:
    numbers: list[int] = []
    for low, high, single in _PIECE.findall(text):
        if single:
            numbers.append(int(single))
        elif int(low) <= int(high) < int(low) + _MAX_RANGE:
            numbers.extend(range(int(low), int(high) + 1))
        else:
            numbers += [int(low), int(high)]
    return numbers


def _is_index(answer: str, start: int, end: int) -> bool:
    """Return whether `[n]` at [start, end) indexes a variable, as in `arr[1]`."""
    if start == 0 or not (answer[start - 1].isalnum() or answer[start - 1] in "_)"):
        return False
    if _CODE_AFTER.match(answer, end):
        return True
    word = _INDEXED.search(answer, max(0, start - 32), start)
    if word is None:
        return False
    name = word.group()
    return (
        len(name) == 1
        or "_" in name
        or name in _INDEX_NAMES
        or (name[0].islower() and name != name.lower())
    )
