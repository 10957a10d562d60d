"""Compare an answer with structured passages (JSON records): flags, unknowns, opening hours.

Word overlap does not help here: "offers outdoor seating" overlaps fully with
`"OutdoorSeating": false`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, zip_longest
from typing import NamedTuple

from ragmeter.metrics.english import STOP_WORDS
from ragmeter.metrics.numbers import extract_numbers
from ragmeter.metrics.stems import idf, stem_set, stem_word
from ragmeter.metrics.words import WordCutter, tokenize

# begins with the class of one character, which the engine looks for fast
_CAMEL = re.compile(r"[A-Z](?<=[a-z].)")
_PAIR = re.compile(
    r"[\"']([A-Za-z][\w ]{1,39})[\"']\s{0,3}:\s{0,3}"
    r"(?:[\"']([^\"'{}]{0,24})[\"']|([Tt]rue|[Ff]alse|[Nn]ull|[Nn]one)\b)"
)
_CLAUSE = re.compile(
    r"([,;.!?\s](?:(?<=\s)(?:(?:but|however|although|though|while|whereas)\s|(?<=\n))"
    r"|(?<=,)\s(?:(?:but|however|although|though|while|whereas)\s)?|(?<=[;.!?])\s))"
)
_NO = re.compile(
    r"\b(?:not|no|never|without|none|neither|nor|unavailable|lacks?|cannot)\b|n't\b|n’t\b"
)
_HOURS = re.compile(r"\d{1,2}:\d{1,2}\s?-\s?\d{1,2}:\d{1,2}\Z")
_TIME = re.compile(r"\d\s?[:ap]")  # in each time of day
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_DAY = re.compile(
    r"(monday|tuesday|wednesday|thursday|friday|saturday|sunday)s?"
    r"(?:\s?(?:to|through|thru|until|-|–)\s?"
    r"(monday|tuesday|wednesday|thursday|friday|saturday|sunday)s?)?"
    r"|(weekdays?)|(weekends?)|(daily|every ?day|seven days|all week|7 days|throughout the week)"
)
_VERDICTS = {"true": "yes", "false": "no", "no": "no"}
_RARE = 4.0  # idf: a key word more common than this ("good", "lot") says nothing on its own
MAX_PAIRS = 400
_MAX_ANSWER = 20_000
_MAX_CACHED = 4_096  # keys and opening hours, of 40 characters at most: records share them


class RecordEntries(NamedTuple):
    """The entries of one passage: (key words, verdict) of flags, (weekday, times) of hours."""

    flags: Sequence[tuple[tuple[str, ...], str]] = ()
    hours: Sequence[tuple[int, frozenset[str]]] = ()


@dataclass(slots=True)
class RecordFacts:
    """Flags and opening hours of structured passages.

    `flags` maps the stems that name a flag to "no", "yes" or "unknown", or "" where the passages
    disagree; `hours` has the canonical times by weekday.
    """

    flags: dict[tuple[str, ...], str] = field(default_factory=dict)
    hours: dict[int, set[str]] = field(default_factory=dict)


@dataclass(slots=True)
class RecordConflicts:
    """Counts of claims that the record denies, does not know, confirms or times otherwise."""

    denied: int = 0
    unknown: int = 0
    agreed: int = 0
    hours: int = 0
    hours_agreed: int = 0


def spread_camel_case(text: str) -> str:
    """Split "OutdoorSeating" into "Outdoor Seating", so that keys of records are words."""
    return _CAMEL.sub(r" \g<0>", text)


def looks_structured(text: str) -> bool:
    """Return whether a passage is JSON or the like rather than prose."""
    head = text[:400]
    return head.count('":') + head.count("':") >= 3


@lru_cache(_MAX_CACHED)
def _key_words(key: str) -> tuple[str, ...]:
    return tuple([w for w in tokenize(key.replace("_", " ")) if w not in STOP_WORDS])


@lru_cache(_MAX_CACHED)
def _flag_names(own: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """Return the stems by each of which an answer may name the flag of these words."""
    names: list[tuple[str, ...]] = []
    parts = tuple([stem_word(word) for word in own])
    best = max(parts, key=idf.__getitem__, default="")
    if best and idf[best] >= _RARE:
        names.append((best,))
    elif len(parts) > 1:
        names.append(parts)
    if len(own) > 1:
        names.append((stem_word("".join(own)),))
    return tuple(names)


@lru_cache(_MAX_CACHED)
def _times(hours: str) -> frozenset[str]:
    return frozenset([form for form, _ in extract_numbers(hours.replace("-", " "))])


def read_entries(text: str) -> RecordEntries:
    """Read the entries of a passage that `spread_camel_case` returned."""
    flags: list[tuple[tuple[str, ...], str]] = []
    hours: list[tuple[int, frozenset[str]]] = []
    for key, quoted, literal in _PAIR.findall(text):
        words = _key_words(key)
        value = (literal or quoted).lower()
        if words and words[0] in _DAYS and _HOURS.match(value):
            hours.append((_DAYS.index(words[0]), _times(value)))
        elif literal or value in ("no", "none", "null"):
            flags.append((words, _VERDICTS.get(value, "unknown")))
            if len(flags) == MAX_PAIRS:
                break
    return RecordEntries(flags, hours)


def read_record(entries: Iterable[RecordEntries]) -> RecordFacts:
    """Merge the entries of all passages; of their flags the first 400 count."""
    flags: list[tuple[tuple[str, ...], str]] = []
    record = RecordFacts()
    for entry in entries:
        flags += entry.flags
        for day, times in entry.hours:
            record.hours.setdefault(day, set()).update(times)
    del flags[MAX_PAIRS:]
    counts = Counter(chain.from_iterable([words for words, _ in flags]))
    verdicts = record.flags
    for words, verdict in flags:
        # a word shared by several keys ("Restaurants…") names the record, not the flag
        own = tuple([word for word in words if counts[word] == 1]) or words[-1:]
        for name in _flag_names(own):
            verdicts[name] = verdict if verdicts.get(name, verdict) == verdict else ""
    return record


def _days(clause: str) -> set[int]:
    days: set[int] = set()
    if "day" not in clause and "week" not in clause and "daily" not in clause:
        return days
    for first, last, week, weekend, every in _DAY.findall(clause):
        if every:
            days.update(range(7))
        elif week:
            days.update(range(5))
        elif weekend:
            days.update((5, 6))
        else:
            low = _DAYS.index(first)
            high = _DAYS.index(last) if last else low
            days.update(d % 7 for d in range(low, high + 1 + (7 if high < low else 0)))
    return days


def find_conflicts(record: RecordFacts, answer: str) -> RecordConflicts:
    """Compare the answer, clause by clause, with the record."""
    out = RecordConflicts()
    by_first: dict[str, list[tuple[tuple[str, ...], str]]] = {}
    for name, verdict in record.flags.items():
        if verdict:
            by_first.setdefault(name[0], []).append((name, verdict))
    text = spread_camel_case(answer)[:_MAX_ANSWER].lower()
    timed = bool(record.hours) and _TIME.search(text) is not None
    if not by_first and not timed:
        return out
    firsts = by_first.keys()
    no = False  # whether a clause denies what follows
    unread = []
    days: set[int] = set()
    pieces = _CLAUSE.split(text)
    words = WordCutter(text)
    start = 0
    for clause, border in zip_longest(pieces[::2], pieces[1::2], fillvalue=""):
        end = start + len(clause)
        stems = stem_set(words.cut(start, end))
        start = end + len(border)
        # "does not offer valet, music or parking": a no holds through a list, not beyond "but"
        unread.append(clause)
        if not firsts.isdisjoint(stems):
            no = no or any(map(_NO.search, unread))
            unread.clear()
            for first in firsts & stems:
                for name, verdict in by_first[first]:
                    if len(name) > 1 and not stems.issuperset(name):
                        continue
                    if verdict == "unknown":
                        out.unknown += 1
                    elif no == (verdict == "no"):
                        out.agreed += 1
                    else:
                        out.denied += 1
        if border != ", ":
            no = False
            unread.clear()
        if timed:
            days = _days(clause) or days
            times = {form for form, raw in extract_numbers(clause) if ":" in raw or raw[-1] == "m"}
            if times:
                for day in days:
                    if times & record.hours.get(day, set()):
                        out.hours_agreed += 1
                    else:
                        out.hours += 1
                days = set()
    return out
