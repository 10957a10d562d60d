"""An answer beside the right answer, by words and numbers: pure formulas.

Those of zesty (see the package), but for what they make of a reference that gives nothing to look
for: there 1, here not applicable.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from agent.metrics.canary.said import MAX_CHARS, Said, numbers
from agent.metrics.results import Gap
from agent.metrics.words import STOP, content_stems, scripts_apart, tokens

__all__ = [
    "CORRECTNESS_WEIGHTS",
    "answer_completeness",
    "answer_correctness",
    "exact_match",
    "extracted_keywords",
    "fact_coverage",
    "keyword_coverage",
    "list_coverage",
    "list_items",
    "number_match",
]

CORRECTNESS_WEIGHTS = (0.5, 0.3, 0.2)
"""Of semantic similarity, facts and completeness: RAG Guardian's metrics guide."""

MAX_KEYWORDS = 500  # of one reference; more tell nothing more, and it bounds the work
LEAST_LETTERS = 4  # of a keyword in ASCII; other scripts write shorter words

# "Rate Change", "Group Rating Group"; repeats are bounded, so a text of capitals is scanned once
_CAPITALISED = re.compile(r"\b[A-Z][a-z]{1,30}(?:[ \t\n]{1,3}[A-Z][a-z]{1,30}){1,6}\b")
_ITEM = re.compile(r"^[ \t]{0,12}(?:[-*•‣–]|\d{1,3}[.)])[ \t]{1,8}(\S.{0,500})$", re.MULTILINE)


def _normal(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).casefold().split())


def exact_match(answer: str, reference: str) -> float | Gap:
    """1 if both are the same but for case and white space, else 0."""
    right = _normal(reference)
    if not right:
        return Gap("no_reference_answer", applies=False)
    return float(_normal(answer) == right)


def extracted_keywords(reference: str) -> tuple[list[str], set[str]]:
    """What an answer should mention: (words and phrases, numbers).

    Words of four letters and more that are no stop words, phrases of capitalised words, numbers.
    """
    text = reference[:MAX_CHARS]
    found: dict[str, None] = {}
    for phrase in _CAPITALISED.findall(text):
        words = phrase.split()
        while words and words[0].lower() in STOP:  # the start of a sentence: "The Rate Change"
            del words[0]
        if len(words) > 1:
            found[" ".join(words).lower()] = None
    for word in tokens(scripts_apart(text)):
        least = LEAST_LETTERS if word.isascii() else 2
        if len(word) >= least and word.isalpha() and word not in STOP:
            found[word] = None
    return list(found)[:MAX_KEYWORDS], numbers(text)


def keyword_coverage(said: Said, reference: str | None, keywords: Sequence[str]) -> float | Gap:
    """Keywords that the answer holds / keywords. Those that are given, else those of the right
    answer."""
    if keywords:
        held = [said.holds(keyword) for keyword in keywords[:MAX_KEYWORDS]]
        known = [one for one in held if one is not None]
        return sum(known) / len(known) if known else Gap("no_keywords", applies=False)
    words, wanted = extracted_keywords(reference or "")
    total = len(words) + len(wanted)
    if not total:
        return Gap("no_keywords", applies=False)
    return (sum(bool(said.holds(word)) for word in words) + len(wanted & said.numbers)) / total


def number_match(said: Said, reference: str) -> float | Gap:
    """Numbers of the right answer that stand in the answer / numbers of the right answer, each
    different one once."""
    wanted = numbers(reference)
    if not wanted:
        return Gap("no_numbers", applies=False)
    return len(wanted & said.numbers) / len(wanted)


def answer_completeness(said: Said, reference: str, coverage: float | Gap) -> float | Gap:
    """(min(words of the answer / words of the right answer, 1) + keyword coverage) / 2."""
    right = Said(reference).length
    if not right:
        return Gap("no_reference_answer", applies=False)
    if isinstance(coverage, Gap):
        return coverage
    return (min(said.length / right, 1.0) + coverage) / 2


def list_items(reference: str) -> list[str]:
    """The items of the lists in a text: lines that begin with a bullet or a number."""
    return [item.strip() for item in _ITEM.findall(reference[:MAX_CHARS])][:MAX_KEYWORDS]


def list_coverage(said: Said, reference: str | None, items: Sequence[str]) -> float | Gap:
    """Items that the answer holds word by word / items. Those that are given, else those of the
    lists in the right answer."""
    wanted = list(items)[:MAX_KEYWORDS] or list_items(reference or "")
    held = [one for one in map(said.holds, wanted) if one is not None]
    return sum(held) / len(held) if held else Gap("no_list", applies=False)


def fact_coverage(said: Said, facts: Sequence[str]) -> float | Gap:
    """Facts that the answer holds / facts (key facts of helloworld-ai).

    By words: a fact is held where all its numbers and the stems of all its content words are in
    the answer, in whatever order. A fact in other words is missed: nuggets ask a judge instead.
    """
    stems = set(content_stems(list(said.words)))
    held: list[bool] = []
    for fact in facts[:MAX_KEYWORDS]:
        wanted = {
            stem for stem in content_stems(tokens(scripts_apart(fact))) if not stem[0].isdigit()
        }
        needed = numbers(fact)
        if wanted or needed:
            held.append(wanted <= stems and needed <= said.numbers)
        elif (found := said.holds(fact)) is not None:
            held.append(found)
    return sum(held) / len(held) if held else Gap("no_facts", applies=False)


def answer_correctness(
    semantic: float | Gap, factual: float | Gap, completeness: float | Gap
) -> float | Gap:
    """0.5 semantic + 0.3 factual + 0.2 completeness (RAG Guardian's metrics guide).

    A part that is missing is not made up for by the others: then there is none.
    """
    total = 0.0
    for weight, part in zip(CORRECTNESS_WEIGHTS, (semantic, factual, completeness), strict=True):
        if isinstance(part, Gap):
            return part
        total += weight * part
    return total
