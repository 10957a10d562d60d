"""Compare an answer with structured passages (JSON records): flags, unknowns, opening hours.

Word overlap does not help here: "offers outdoor seating" overlaps fully with
`"OutdoorSeating": false`.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from itertools import zip_longest

from ragmeter.metrics.text import STOP_WORDS, extract_numbers, idf, stem_word, tokenize

_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_PAIR = re.compile(
    r"[\"']([A-Za-z][\w ]{1,39})[\"']\s{0,3}:\s{0,3}"
    r"(?:[\"']([^\"'{}]{0,24})[\"']|([Tt]rue|[Ff]alse|[Nn]ull|[Nn]one)\b)"
)
_CLAUSE = re.compile(r"(,?\s(?:but|however|although|though|while|whereas)\s|,\s|;\s|[.!?]\s|\n)")
_NO = re.compile(
    r"\b(?:not|no|never|without|none|neither|nor|unavailable|lacks?|cannot)\b|n't\b|n’t\b"
)
_HOURS = re.compile(r"\d{1,2}:\d{1,2}\s?-\s?\d{1,2}:\d{1,2}\Z")
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_DAY = re.compile(
    r"(monday|tuesday|wednesday|thursday|friday|saturday|sunday)s?"
    r"(?:\s?(?:to|through|thru|until|-|–)\s?"
    r"(monday|tuesday|wednesday|thursday|friday|saturday|sunday)s?)?"
    r"|(weekdays?)|(weekends?)|(daily|every ?day|seven days|all week|7 days|throughout the week)"
)
_RARE = 4.0  # idf: a key word more common than this ("good", "lot") says nothing on its own
MAX_PAIRS = 400
_MAX_ANSWER = 20_000


@dataclass(slots=True)
class RecordFacts:
    """Flags of structured passages as (key words, "no", "yes" or "unknown"); hours by weekday."""

    flags: list[tuple[tuple[str, ...], str]] = field(default_factory=list)
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
    return _CAMEL.sub(" ", text)


def looks_structured(text: str) -> bool:
    """Return whether a passage is JSON or the like rather than prose."""
    head = text[:400]
    return head.count('":') + head.count("':") >= 3


def read_record(texts: list[str]) -> RecordFacts:
    """Read flags and opening hours of passages that `spread_camel_case` returned."""
    pairs: list[tuple[list[str], str]] = []
    record = RecordFacts()
    for text in texts:
        for match in _PAIR.finditer(text):
            key, quoted, literal = match.groups()
            words = [w for w in tokenize(key.replace("_", " ")) if w not in STOP_WORDS]
            value = (literal or quoted).lower()
            if _HOURS.match(value) and words and words[0] in _DAYS:
                forms = {form for form, _ in extract_numbers(value.replace("-", " "))}
                record.hours.setdefault(_DAYS.index(words[0]), set()).update(forms)
            elif literal or value in ("no", "none", "null"):
                pairs.append((words, value))
            if len(pairs) == MAX_PAIRS:
                break
    counts = Counter(word for words, _ in pairs for word in words)
    verdicts = {"true": "yes", "false": "no", "no": "no"}
    for words, value in pairs:
        # a word shared by several keys ("Restaurants…") names the record, not the flag
        own = [word for word in words if counts[word] == 1] or words[-1:]
        verdict = verdicts.get(value, "unknown")
        parts = tuple(stem_word(word) for word in own)
        best = max(parts, key=lambda s: idf[s], default="")
        if best and idf[best] >= _RARE:
            record.flags.append(((best,), verdict))
        elif len(parts) > 1:
            record.flags.append((parts, verdict))
        if len(own) > 1:
            record.flags.append(((stem_word("".join(own)),), verdict))
    return record


def _days(clause: str) -> set[int]:
    days: set[int] = set()
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
    if not record.flags and not record.hours:
        return out
    flags: dict[tuple[str, ...], set[str]] = {}
    for words, verdict in record.flags:
        flags.setdefault(words, set()).add(verdict)
    days: set[int] = set()
    no = False
    pieces = _CLAUSE.split(spread_camel_case(answer)[:_MAX_ANSWER].lower())
    for clause, border in zip_longest(pieces[::2], pieces[1::2], fillvalue=""):
        # "does not offer valet, music or parking": a no holds through a list, not beyond "but"
        no = no or _NO.search(clause) is not None
        stems = {stem_word(w) for w in tokenize(clause)}
        for words, verdicts in flags.items():
            if words[0] not in stems or len(verdicts) > 1 or not stems.issuperset(words):
                continue
            if "unknown" in verdicts:
                out.unknown += 1
            elif no == ("no" in verdicts):
                out.agreed += 1
            else:
                out.denied += 1
        if border != ", ":
            no = False
        if record.hours:
            days = _days(clause) or days
            times = {f for f, _ in extract_numbers(clause) if f[0] == "t"}
            if times:
                for day in days:
                    if times & record.hours.get(day, set()):
                        out.hours_agreed += 1
                    else:
                        out.hours += 1
                days = set()
    return out
