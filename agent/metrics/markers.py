"""Which passages an answer cites, and where: the one resolver that every citation metric uses.

Explicit `citations` of the trace win. Without them inline markers are read from the answer:
`[1]`, `[1, 3]`, `[1-3]`, `[1][2]`, `【1†source】`, `[doc-3]`, and `[id]` where the id is one of a
passage. Code, markdown links, footnotes, list indices and years are not citations.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from agent.trace import Passage, Trace

__all__ = ["Cited", "Mark", "resolve"]

MAX_MARKS = 1000  # an answer with more is no answer; bounds the work on hostile text
MAX_RANGE = 50  # [1-999999] must not become a million citations

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
_INDEX_NAMES = frozenset(
    re.findall(
        r"\w+",
        "arr array args argv list items values data row rows col cols buf vec tuple dict map matrix"
        " nums str params results",
    )
)


@dataclass(slots=True)
class Mark:
    """One marker or explicit citation over answer characters [start, end).

    `passages` are indices into `trace.passages`; `dangling` counts targets that resolve to none.
    `start` is -1 for an explicit citation without a place: it stands for the whole answer.
    """

    start: int
    end: int
    passages: list[int] = field(default_factory=list)
    dangling: int = 0


@dataclass(slots=True)
class Cited:
    """All citations of an answer in order. `explicit`: they come from `trace.citations`."""

    marks: list[Mark]
    explicit: bool

    @property
    def dangling(self) -> int:
        return sum(mark.dangling for mark in self.marks)


class _Resolver:
    """Targets to passage indices: by id, then by rank, then by 1-based position."""

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
        found = self.ids.get(key)
        return found if found is not None else self.ids.get(f"[{key}]")

    def by_number(self, number: int) -> int | None:
        found = self.ids.get(str(number))
        if found is None:
            found = self.ranks.get(number)
        if found is None and 1 <= number <= self.count:
            found = number - 1
        return found

    def like_an_id(self, text: str) -> bool:
        """Whether the text has the shape of a passage id: equal but for its digits."""
        if self.shapes is None:
            self.shapes = {_DIGITS.sub("0", key) for key in self.ids if _DIGITS.search(key)}
        return _DIGITS.sub("0", text.strip().casefold()) in self.shapes


def _numbers(text: str) -> list[int]:
    numbers: list[int] = []
    for low, high, single in _PIECE.findall(text):
        if single:
            numbers.append(int(single))
        elif int(low) <= int(high) < int(low) + MAX_RANGE:
            numbers.extend(range(int(low), int(high) + 1))
        else:
            numbers += [int(low), int(high)]
    return numbers


def _is_index(answer: str, start: int, end: int) -> bool:
    """Whether `[n]` at [start, end) indexes a variable, as in `arr[1]`, rather than cites."""
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


def _read(text: str, resolver: _Resolver, mark: Mark) -> bool:
    """Fill `mark` from what stands between the brackets; False where it is no citation."""
    found = resolver.by_id(text)
    if found is not None:
        mark.passages.append(found)
        return True
    if _NUMBERS.match(text):
        numbers = _numbers(text)
        for number in numbers:
            found = resolver.by_number(number)
            if found is not None:
                mark.passages.append(found)
            elif number == 0 or number >= 1000:  # an index or interval; a year
                return False
            else:
                mark.dangling += 1
        return bool(numbers)
    if resolver.like_an_id(text):
        mark.dangling += 1
        return True
    named = _NAMED.match(text)
    if named:
        found = resolver.by_number(int(named.group(1)))
        if found is None:
            mark.dangling += 1
        else:
            mark.passages.append(found)
        return True
    if re.search(r"[,;]", text):
        known = [resolver.by_id(part) for part in re.split(r"[,;]", text)]
        if any(index is not None for index in known):
            mark.passages += [index for index in known if index is not None]
            mark.dangling += sum(index is None for index in known)
            return True
    return False


def _inline(answer: str, resolver: _Resolver) -> list[Mark]:
    if "[" not in answer and "【" not in answer:
        return []
    if "`" in answer or "~~~" in answer:
        answer = _CODE.sub(lambda code: " " * len(code.group()), answer)
    marks: list[Mark] = []
    for match in _MARK.finditer(answer):
        start, end = match.span()
        mark = Mark(start, end)
        if match.group(2) is not None:
            text = match.group(2)
            step = _OPENAI.match(text)
            if step:
                # 【n†…】 counts from 1; in 【step:n†…】 n counts from 0
                number = int(step.group(2)) + (step.group(1) is not None)
                found = resolver.by_number(number)
                if found is None:
                    mark.dangling = 1
                else:
                    mark.passages.append(found)
            elif not _read(text, resolver, mark):
                continue
        else:
            text = match.group(1)
            if text[0] in "^!":
                continue
            if (start == 0 or answer[start - 1] == "\n") and answer.startswith(":", end):
                continue  # a link definition, "[1]: https://…"
            if answer.startswith("(", end) and not (
                text.strip().isdigit() and _LINKED.match(answer, end)
            ):
                continue  # a markdown link; "[1](https://…)" still cites
            if _is_index(answer, start, end) or not _read(text, resolver, mark):
                continue
        marks.append(mark)
        if len(marks) == MAX_MARKS:
            break
    return marks


def resolve(trace: Trace) -> Cited:
    """The citations of the trace's answer. With passages not captured every target dangles."""
    passages = trace.passages or ()
    if trace.citations:
        resolver = _Resolver(passages)
        marks = []
        for citation in trace.citations[:MAX_MARKS]:
            start, end = citation.start, citation.end
            placed = start is not None and end is not None and end > start
            mark = Mark(start or 0, end or 0) if placed else Mark(-1, -1)
            for target in citation.passage_ids:
                found = resolver.by_id(target)
                bare = target.strip().strip("[]")
                if found is None and bare.isdecimal() and len(bare) < 7:
                    found = resolver.by_number(int(bare))
                if found is None:
                    mark.dangling += 1
                elif found not in mark.passages:
                    mark.passages.append(found)
            if mark.passages or mark.dangling:
                marks.append(mark)
        return Cited(marks, explicit=True)
    if not trace.answer or ("[" not in trace.answer and "【" not in trace.answer):
        return Cited([], explicit=False)
    return Cited(_inline(trace.answer, _Resolver(passages)), explicit=False)
