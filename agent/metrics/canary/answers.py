"""Compare an answer with the right answer: matches, numbers, keywords, lists, facts, abstention.

An answer beside the right answer, by words and numbers: pure formulas.

Those of zesty (see the package), but for what they make of a reference that gives nothing to look
for: there 1, here not applicable.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from ragmeter.core.score import NoScore
from ragmeter.metrics.abstention import is_english
from ragmeter.metrics.text import (
    NUMBER_PATTERN,
    STOP_WORDS,
    canonical_number,
    content_stems,
    normalise_text,
    separate_scripts,
    split_words,
    tokenize,
)
from ragmeter.trace import Reference, Trace

_MAX_ANSWER_CHARS = 60_000  # characters of a text that are read: bounds the work on hostile answers

_CURRENCY = "$€£¥"
_MINUS = "-−"


def signed_numbers(text: str) -> set[str]:
    """The numbers of a text in canonical form, with their sign: "$1,204.50" is "1204.5".

    A minus counts where no letter, digit or bracket stands before it: "5-10" and "C-1" are no
    negative numbers. A percent sign is not looked at. Times are as in `canonical_number`.
    """
    lower = separate_scripts(text[:_MAX_ANSWER_CHARS]).lower()
    out: set[str] = set()
    for found in NUMBER_PATTERN.finditer(lower):
        form = canonical_number(found.group())
        before = found.start() - 1
        if before >= 0 and lower[before] in _CURRENCY:
            before -= 1
        if before >= 0 and lower[before] in _MINUS and form != "0":
            earlier = lower[before - 1] if before else " "
            if not earlier.isalnum() and earlier not in _MINUS + ")]":
                form = f"-{form}"
        out.add(form)
    return out


def number_values(forms: set[str]) -> list[float]:
    """The numbers as numbers; times of day are none."""
    return [float(form) for form in forms if "t" not in form]


def _normalise_words(text: str) -> str:
    return separate_scripts(unicodedata.normalize("NFC", text))


class SearchableAnswer:
    """A text, read once."""

    def __init__(self, text: str) -> None:
        self.text = text[:_MAX_ANSWER_CHARS]
        self._plain, self._unspaced = normalise_text(_normalise_words(self.text))
        words = split_words(self._plain, self._unspaced)
        self.words = frozenset(words)
        self.length = len(words) if self._unspaced else len(self.text.split())
        """Words, by white space where the text has any."""
        self._line = f" {' '.join(words)} "
        self._run = "".join(self._plain.split()) if self._unspaced else ""
        self._numbers: set[str] | None = None

    @property
    def numbers(self) -> set[str]:
        if self._numbers is None:
            self._numbers = signed_numbers(self.text)
        return self._numbers

    def holds(self, phrase: str) -> bool | None:
        """Whether the words of the phrase stand in the text in a row, whatever the case and the
        signs between them; None where the phrase has no word."""
        bare, unspaced = normalise_text(_normalise_words(phrase[:_MAX_ANSWER_CHARS]))
        words = split_words(bare, unspaced)
        if not words:
            return None
        if unspaced:
            # pairs of signs miss a phrase of one sign
            return "".join(bare.split()) in self._run
        return f" {' '.join(words)} " in self._line


_CORRECTNESS_WEIGHTS = (0.5, 0.3, 0.2)
"""Of semantic similarity, facts and completeness: RAG Guardian's metrics guide."""

_MAX_KEYWORDS = 500  # of one reference; more tell nothing more, and it bounds the work
_LEAST_LETTERS = 4  # of a keyword in ASCII; other scripts write shorter words

# "Rate Change", "Group Rating Group"; repeats are bounded, so a text of capitals is scanned once
_CAPITALISED = re.compile(r"\b[A-Z][a-z]{1,30}(?:[ \t\n]{1,3}[A-Z][a-z]{1,30}){1,6}\b")
_ITEM = re.compile(r"^[ \t]{0,12}(?:[-*•‣–]|\d{1,3}[.)])[ \t]{1,8}(\S.{0,500})$", re.MULTILINE)


def _normalise_case(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).casefold().split())


def exact_match(answer: str, reference: str) -> float | NoScore:
    """1 if both are the same but for case and white space, else 0."""
    right = _normalise_case(reference)
    if not right:
        return NoScore("no_reference_answer", applies=False)
    return float(_normalise_case(answer) == right)


def extracted_keywords(reference: str) -> tuple[list[str], set[str]]:
    """What an answer should mention: (words and phrases, numbers).

    Words of four letters and more that are no stop words, phrases of capitalised words, numbers.
    """
    text = reference[:_MAX_ANSWER_CHARS]
    found: dict[str, None] = {}
    for phrase in _CAPITALISED.findall(text):
        words = phrase.split()
        while (
            words and words[0].lower() in STOP_WORDS
        ):  # the start of a sentence: "The Rate Change"
            del words[0]
        if len(words) > 1:
            found[" ".join(words).lower()] = None
    for word in tokenize(separate_scripts(text)):
        least = _LEAST_LETTERS if word.isascii() else 2
        if len(word) >= least and word.isalpha() and word not in STOP_WORDS:
            found[word] = None
    return list(found)[:_MAX_KEYWORDS], signed_numbers(text)


def keyword_coverage(
    said: SearchableAnswer, reference: str | None, keywords: Sequence[str]
) -> float | NoScore:
    """Keywords that the answer holds / keywords. Those that are given, else those of the right
    answer."""
    if keywords:
        held = [said.holds(keyword) for keyword in keywords[:_MAX_KEYWORDS]]
        known = [one for one in held if one is not None]
        return sum(known) / len(known) if known else NoScore("no_keywords", applies=False)
    words, wanted = extracted_keywords(reference or "")
    total = len(words) + len(wanted)
    if not total:
        return NoScore("no_keywords", applies=False)
    return (sum(bool(said.holds(word)) for word in words) + len(wanted & said.numbers)) / total


def number_match(said: SearchableAnswer, reference: str) -> float | NoScore:
    """Numbers of the right answer that stand in the answer / numbers of the right answer, each
    different one once."""
    wanted = signed_numbers(reference)
    if not wanted:
        return NoScore("no_numbers", applies=False)
    return len(wanted & said.numbers) / len(wanted)


def answer_completeness(
    said: SearchableAnswer, reference: str, coverage: float | NoScore
) -> float | NoScore:
    """(min(words of the answer / words of the right answer, 1) + keyword coverage) / 2."""
    right = SearchableAnswer(reference).length
    if not right:
        return NoScore("no_reference_answer", applies=False)
    if isinstance(coverage, NoScore):
        return coverage
    return (min(said.length / right, 1.0) + coverage) / 2


def list_items(reference: str) -> list[str]:
    """The items of the lists in a text: lines that begin with a bullet or a number."""
    return [item.strip() for item in _ITEM.findall(reference[:_MAX_ANSWER_CHARS])][:_MAX_KEYWORDS]


def list_coverage(
    said: SearchableAnswer, reference: str | None, items: Sequence[str]
) -> float | NoScore:
    """Items that the answer holds word by word / items. Those that are given, else those of the
    lists in the right answer."""
    wanted = list(items)[:_MAX_KEYWORDS] or list_items(reference or "")
    held = [one for one in map(said.holds, wanted) if one is not None]
    return sum(held) / len(held) if held else NoScore("no_list", applies=False)


def fact_coverage(said: SearchableAnswer, facts: Sequence[str]) -> float | NoScore:
    """Facts that the answer holds / facts (key facts of helloworld-ai).

    By words: a fact is held where all its numbers and the stems of all its content words are in
    the answer, in whatever order. A fact in other words is missed: nuggets ask a judge instead.
    """
    stems = set(content_stems(list(said.words)))
    held: list[bool] = []
    for fact in facts[:_MAX_KEYWORDS]:
        wanted = {
            stem
            for stem in content_stems(tokenize(separate_scripts(fact)))
            if not stem[0].isdigit()
        }
        needed = signed_numbers(fact)
        if wanted or needed:
            held.append(wanted <= stems and needed <= said.numbers)
        elif (found := said.holds(fact)) is not None:
            held.append(found)
    return sum(held) / len(held) if held else NoScore("no_facts", applies=False)


def answer_correctness(
    semantic: float | NoScore, factual: float | NoScore, completeness: float | NoScore
) -> float | NoScore:
    """0.5 semantic + 0.3 factual + 0.2 completeness (RAG Guardian's metrics guide).

    A part that is missing is not made up for by the others: then there is none.
    """
    total = 0.0
    for weight, part in zip(_CORRECTNESS_WEIGHTS, (semantic, factual, completeness), strict=True):
        if isinstance(part, NoScore):
            return part
        total += weight * part
    return total


_CONFLICT = re.compile(
    r"\b(?:conflict(?:s|ing)?|contradict(?:s|ory|ions?)?|disagree(?:s|ments?)?|inconsisten\w{1,3}"
    r"|discrepanc(?:y|ies)|differ(?:s|ent|ing)?|supersede[sd]?|replace[sd]|outdated|out of date"
    r"|no longer|previously|formerly|earlier|older|newer|updated|in contrast|whereas|however"
    r"|on the other hand)\b"
)
_MAX_CONFLICT_CHARS = 20_000


def abstention_accuracy(
    trace: Trace, reference: Reference, answered: float | None
) -> float | NoScore:
    """1 if the service abstained from a question that can't be answered, else 0 (helloworld-ai).

    `answered` is the verdict of `ragmeter.metrics.abstention.verdict`. Questions that can be answered
    have none: how many of them were is what `answered` measures.
    """
    if reference.answerable is not False:
        return NoScore("answerable", applies=False)
    if answered is None:
        return NoScore("no_text")
    if answered and trace.abstained is None and not is_english(trace.answer or ""):
        return NoScore("unsupported_language")
    return 1.0 - answered


def unanswerable_hallucination(accuracy: float | NoScore) -> float | NoScore:
    """1 if a question that can't be answered was answered all the same, else 0."""
    return accuracy if isinstance(accuracy, NoScore) else 1.0 - accuracy


def acknowledges_conflict(answer: str) -> bool | NoScore:
    """Whether the answer says, in words that one uses for it, that its sources disagree."""
    if not is_english(answer):
        return NoScore("unsupported_language")
    return _CONFLICT.search(answer[:_MAX_CONFLICT_CHARS].lower()) is not None
