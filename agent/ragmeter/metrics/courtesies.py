"""Find what an answer says out of courtesy or caution, which claims nothing about its subject.

Greetings and thanks come before the answer proper; offers, wishes, signatures and disclaimers
behind it. Only what stands at one of both ends counts, and only whole sentences: "Hi Anna, thanks
for asking!" and "AI-generated content may be incorrect.", but not "AI may be incorrect in one of
ten answers, so that …".
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ragmeter.metrics.english import ENGLISH
from ragmeter.metrics.kernel import IGNORE_CASE, Pattern
from ragmeter.metrics.words import tokenize

_WORDS = ENGLISH["courtesies"]


def _fill(rule: str) -> str:
    return re.sub("<([A-Z]+)>", lambda name: "|".join(_WORDS["alternatives"][name[1]]), rule)


def _widen(rule: str) -> str:
    """Take several blanks for one: markup has been replaced by blanks."""
    return re.sub(r" (\??)", lambda blank: " {0,6}" if blank[1] else " {1,6}", rule)


_OPENING = Pattern(
    f"(?:{_widen('|'.join(map(_fill, _WORDS['openings'])))})[^\\w\\s]{{0,3}}\\s?"
    r"(?:(?<=[.!…:])|[.!…:]|\n|\Z)[^\w\n]{0,12}\n?\s*",
    IGNORE_CASE,
)
_LEAD = Pattern(_widen(_WORDS["leads"]) + r"\s+", IGNORE_CASE)
_GREETING = Pattern(f"{_widen(_WORDS['greetings'])}\\W*")
_CLOSING = Pattern(
    r"(?:(?:please )?(?:note|remember|disclaimer|important|nb|caution|warning|reminder|legal notice"
    r"|notice)(?: that)?[^\w\n]{0,4})?"
    f"(?:{'|'.join(map(_fill, _WORDS['closings']))})",
    IGNORE_CASE,
)
_FOOTER = Pattern("|".join(_WORDS["footers"]), IGNORE_CASE)
_CUES = frozenset(_WORDS["cues"].split())
_FAREWELL = Pattern(_fill(_WORDS["farewells"]), IGNORE_CASE)
_FURTHER = Pattern(_fill(_WORDS["further_questions"]), IGNORE_CASE)
_MAX_OPENINGS = 4
_MAX_CLOSINGS = 6  # sentences that are looked at, from the last one back
_LONGEST = 260  # characters of such a sentence
_LONGEST_HEADING = 80
_SIGNATURE_WORDS = 6  # of a line below "Best regards,"


def find_opening(text: str, start: int) -> int:
    """Return where the answer proper begins in a text without markup, at or behind `start`."""
    text = text.replace("’", "'")
    begin = start
    while start < len(text) and not text[start].isalnum():
        start += 1
    first = start
    for _ in range(_MAX_OPENINGS):
        found = (
            _GREETING.match(text, start) or _OPENING.match(text, start) or _LEAD.match(text, start)
        )
        if found is None or found.end() == start:
            break
        start = found.end()
    return begin if start == first else start


def count_closings(sentences: Sequence[str]) -> int:
    """Return how many of the last sentences are courtesies."""
    count = 0
    below: list[str] = []
    for sentence in reversed(sentences[-_MAX_CLOSINGS:]):
        if count < len(below) and len(sentence) > _LONGEST_HEADING:
            below.insert(0, sentence)
            continue
        text = _trim(" ".join(sentence.replace("’", "'").split()))
        if (count == len(below) and (not text or _closes(text))) or _heads(text, below):
            count = len(below) + 1
        below.insert(0, text)
    return count


def _trim(text: str) -> str:
    """Return a sentence without the signs, pictures and quotation marks around it."""
    start, end = 0, len(text)
    while start < end and not text[start].isalnum():
        start += 1
    while start < end and not (text[end - 1].isalnum() or text[end - 1] in "?%"):
        end -= 1
    return text[start:end]


def _heads(text: str, below: Sequence[str]) -> bool:
    """Return whether the answer proper ends above a line: a signature or questions follow."""
    if len(text) > _LONGEST_HEADING:
        return False
    if _FAREWELL.fullmatch(text):
        return all(len(one.split()) <= _SIGNATURE_WORDS for one in below)
    return (
        bool(below)
        and all(one.endswith("?") for one in below)
        and _FURTHER.fullmatch(text) is not None
    )


def _closes(text: str) -> bool:
    if len(text) > _LONGEST:
        return False
    if not text.endswith("?") and _CUES.isdisjoint(tokenize(text)):
        return False
    if _FOOTER.fullmatch(text):
        return True
    # with a number it claims something
    return not any(map(str.isdigit, text)) and _CLOSING.fullmatch(text) is not None
