"""Compare an answer with the right answer: matches, numbers, keywords, lists, facts.

Formulas are those of zesty-assignment's evaluate.py, except that a reference with nothing to look
for makes a metric not applicable here, and 1 there.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from ragmeter.core.score import NoScore
from ragmeter.metrics.canary.searchable_answer import (
    MAX_ANSWER_CHARS,
    SearchableAnswer,
    signed_numbers,
)
from ragmeter.metrics.english import STOP_WORDS
from ragmeter.metrics.stems import content_stems
from ragmeter.metrics.words import separate_scripts, tokenize
from ragmeter.reasons import Reason
from ragmeter.trace import Trace

_MAX_KEYWORDS = 500  # of one reference; bounds the work
_MIN_KEYWORD_LETTERS = 4  # in ASCII; other scripts have shorter words
# of semantic similarity, facts and completeness, as in RAG Guardian's metrics guide
_CORRECTNESS_WEIGHTS = (0.5, 0.3, 0.2)

# "Rate Change", "Territory 118", "Rule C-1"; repeats are bounded, so a text of capitals is scanned
# once
_CAPITALISED = re.compile(
    r"\b[A-Z][a-z]{1,30}"
    r"(?:[ \t\n]{1,3}(?:[A-Z][a-z]{1,30}|(?:[A-Z]{1,3}-?)?\d{1,6})){1,6}\b(?![.,]\d)"
)
_ITEM = re.compile(r"^[ \t]{0,12}(?:[-*•‣–]|\d{1,3}[.)])[ \t]{1,8}(\S.{0,500})$", re.MULTILINE)


def _normalise_case(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).casefold().split())


def exact_match(answer: str, reference: str) -> float | NoScore:
    """Return 1 if both are equal but for case and white space, else 0."""
    expected = _normalise_case(reference)
    if not expected:
        return NoScore(Reason.NO_REFERENCE_ANSWER, applies=False)
    return float(_normalise_case(answer) == expected)


def extracted_keywords(reference: str) -> tuple[list[str], set[str]]:
    """Return what an answer should mention: (words and phrases, numbers).

    Words have at least four letters and are no stop words; phrases are of capitalised words, codes
    and whole numbers.
    """
    text = reference[:MAX_ANSWER_CHARS]
    keywords: dict[str, None] = {}
    for phrase in _CAPITALISED.findall(text):
        words = phrase.split()
        # "The Rate Change" begins a sentence, and so does "In 2024 Premiums"
        while words and (words[0].lower() in STOP_WORDS or words[0][0].isdigit()):
            del words[0]
        if len(words) > 1:
            keywords[" ".join(words).lower()] = None
    for word in tokenize(separate_scripts(text)):
        least = _MIN_KEYWORD_LETTERS if word.isascii() else 2
        if len(word) >= least and word.isalpha() and word not in STOP_WORDS:
            keywords[word] = None
    return list(keywords)[:_MAX_KEYWORDS], signed_numbers(text)


def keyword_coverage(
    answer: SearchableAnswer, reference: str | None, keywords: Sequence[str]
) -> float | NoScore:
    """Compute held keywords / keywords: those given, else those of the right answer."""
    if keywords:
        held = [answer.holds(keyword) for keyword in keywords[:_MAX_KEYWORDS]]
        known = [one for one in held if one is not None]
        return sum(known) / len(known) if known else NoScore(Reason.NO_KEYWORDS, applies=False)
    words, wanted = extracted_keywords(reference or "")
    total = len(words) + len(wanted)
    if not total:
        return NoScore(Reason.NO_KEYWORDS, applies=False)
    return (sum(bool(answer.holds(word)) for word in words) + len(wanted & answer.numbers)) / total


def answers_to_judge(trace: Trace) -> list[str]:
    """Return the right answers of a canary whose facts only a judge can find in its answer.

    They have neither keywords nor numbers ("No."), and the reference names no facts in their place.
    """
    reference = trace.reference
    if reference is None or reference.judged_facts is not None or reference.judge_failed:
        return []
    if reference.answerable is False or reference.facts or reference.checks or reference.keywords:
        return []
    if trace.status != "ok" or "answer" in trace.missing or not (trace.answer_text or "").strip():
        return []
    return [text for text in reference.right_answers if not any(extracted_keywords(text))]


def number_match(answer: SearchableAnswer, reference: str) -> float | NoScore:
    """Compute the share of the right answer's distinct numbers that the answer has."""
    wanted = signed_numbers(reference)
    if not wanted:
        return NoScore(Reason.NO_NUMBERS, applies=False)
    return len(wanted & answer.numbers) / len(wanted)


def answer_completeness(
    answer: SearchableAnswer, reference: str, coverage: float | NoScore
) -> float | NoScore:
    """Compute (min(words / words of the right answer, 1) + keyword coverage) / 2."""
    expected_length = SearchableAnswer(reference).length
    if not expected_length:
        return NoScore(Reason.NO_REFERENCE_ANSWER, applies=False)
    if isinstance(coverage, NoScore):
        return coverage
    return (min(answer.length / expected_length, 1.0) + coverage) / 2


def list_items(reference: str) -> list[str]:
    """Return the list items of a text: lines that begin with a bullet or a number."""
    return [item.strip() for item in _ITEM.findall(reference[:MAX_ANSWER_CHARS])][:_MAX_KEYWORDS]


def held_items(answer: SearchableAnswer, reference: str | None, items: Sequence[str]) -> list[bool]:
    """Return for each item, given or of the right answer, whether the answer holds it."""
    wanted = list(items)[:_MAX_KEYWORDS] or list_items(reference or "")
    return [one for one in map(answer.holds, wanted) if one is not None]


def list_coverage(
    answer: SearchableAnswer, reference: str | None, items: Sequence[str]
) -> float | NoScore:
    """Compute items held word by word / items: those given, else those of the right answer."""
    held = held_items(answer, reference, items)
    return sum(held) / len(held) if held else NoScore(Reason.NO_LIST, applies=False)


def fact_coverage(answer: SearchableAnswer, facts: Sequence[str]) -> float | NoScore:
    """Compute held facts / facts (key facts of helloworld-ai).

    The answer holds a fact if it has all its numbers and the stems of all its content words, in any
    order. It misses a fact in other words, unlike nuggets, which ask a judge.
    """
    stems = set(content_stems(list(answer.words)))
    held: list[bool] = []
    for fact in facts[:_MAX_KEYWORDS]:
        wanted = {
            stem
            for stem in content_stems(tokenize(separate_scripts(fact)))
            if not stem[0].isdigit()
        }
        needed = signed_numbers(fact)
        if wanted or needed:
            held.append(wanted <= stems and needed <= answer.numbers)
        elif (in_text := answer.holds(fact)) is not None:
            held.append(in_text)
    return sum(held) / len(held) if held else NoScore(Reason.NO_FACTS, applies=False)


def answer_correctness(
    semantic: float | None, factual: float | NoScore, completeness: float | NoScore
) -> float | NoScore:
    """Compute 0.5 semantic + 0.3 factual + 0.2 completeness (RAG Guardian's metrics guide).

    Without a similarity `semantic` is None, and the other two keep the ratio of their weights. It
    is unknown if `factual` or `completeness` is.
    """
    total = weights = 0.0
    for weight, value in zip(_CORRECTNESS_WEIGHTS, (semantic, factual, completeness), strict=True):
        if isinstance(value, NoScore):
            return value
        if value is not None:
            total += weight * value
            weights += weight
    return total / weights
