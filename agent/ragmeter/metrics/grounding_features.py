"""Lexical features of an answer against its passages, of the whole answer and by sentence.

An answer that rests on its passages repeats their words, numbers and names, near to each other and
in their order; people find fault with what it adds. They fault an answer for one bad sentence, so
sentences have features of their own, fitted on the spans that people marked. All features are
linear in the text.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from ragmeter.metrics.answer_text import AnswerText
from ragmeter.metrics.english import ENGLISH, STOP_WORDS
from ragmeter.metrics.stems import stem_word
from ragmeter.metrics.structured import RecordConflicts, find_conflicts, read_record
from ragmeter.metrics.text_index import PassageIndex, QueryText

SENTENCE_FEATURES = (
    "novel_mass",  # idf mass, count and idf share of content stems found nowhere
    "novel",
    "novel_share",
    "length",
    "copied",  # adjacent stems that stand side by side in a passage
    "scattered",  # idf share not found in one stretch of passage
    "place",  # 0 for the first sentence, towards 1 for the last
    "first",
    "novel_names",
    "novel_numbers",
    "strayed_numbers",  # numbers of a passage with other words near them there
    "novel_times",
)
ANSWER_FEATURES = (
    "uncovered",  # idf share of the answer's content stems that neither passages nor query have
    "uncovered_by_passages",
    "worst_sentence",  # the same for the worst sentence, the two worst, and their mean
    "worst_two",
    "mean_sentence",
    "worst_local",  # idf share not found together in one stretch of passage
    "mean_local",
    "local_spread",
    "novel",  # log count, log idf mass and share of novel stems: additions, counted
    "novel_mass",
    "novel_share",
    "novel_common",
    "bigrams",  # share of adjacent stem pairs that are not copied
    "worst_bigrams",
    "density",  # length-weighted copied stretches (Grusky et al. 2018, extractive density), negated
    "copied5",  # share of content stems in copied stretches of at least five, three; negated
    "copied3",
    "novel_names",
    "novel_names_share",
    "novel_numbers",
    "novel_numbers_share",
    "numbers",
    "names",
    "length",
    "sentences",
    "order",  # share of copied stretches that follow the passages' order
    "hedges_share",
    "hedges",
    "about_passages",  # share of words that say what the passages do not mention
    "structured",
    "query_missing",  # idf share of the query that no passage has; that the answer repeats
    "query_repeated",
    "sentence_length",
    "novel_by_sentence",
    "denied",  # structured passages: flags contradicted, unknowns asserted, hours, agreement
    "unknown",
    "agreed",
    "hours",
    "hours_agreed",
    "novel_forms",  # share of the answer's distinct words, as written, that no passage has
)
CONTRADICTIONS = (
    "refuted_negations",  # log of the negations of what passages rather affirm
    "refuted_in_record",  # the same, of an answer from a record
    "strayed_numbers",  # log of the numbers whose neighbours stay away from them in the passages
    "lost_negations",  # log of the negations of passages whose words a sentence has without one
    "misplaced_numbers",  # log of the numbers beside words that have other numbers beside them
)
PREFIX = 5  # letters: "Nigeria" and "Nigerian", "explain" and "explanation" count as one word

_DIGITS = {
    stem_word(word): str(number)
    for number, word in enumerate(ENGLISH["digits"].split())
    if word != "one"
}
NUMERALS = _DIGITS | {digits: word for word, digits in _DIGITS.items()}
COUNTS = frozenset(map(stem_word, ENGLISH["counts"].split())).union(_DIGITS)
TIMES = frozenset(stem_word(word) for word in ENGLISH["times"].split() if word not in STOP_WORDS)
META_WORDS = frozenset(map(stem_word, ENGLISH["meta_words"].split()))
SAY_WORDS = META_WORDS.union(map(stem_word, ENGLISH["say_words"].split()))
# Without those that say nothing of a text by themselves: "not based on this".
TEXT_WORDS = META_WORDS.difference(map(stem_word, ("according", "based")))
HEDGES = frozenset(ENGLISH["hedges"].split())
_NO_CONFLICTS = RecordConflicts()


@dataclass(frozen=True, slots=True)
class WorstSentence:
    """The index of the sentence of least support, that support, and the passage nearest to it."""

    index: int
    support: float
    passage: int | None


@dataclass(slots=True)
class AnswerFeatures:
    """Features of an answer and the observations that explain them."""

    values: list[float]  # in the order of ANSWER_FEATURES
    sentences: list[
        list[float]
    ]  # by sentence, in the order of SENTENCE_FEATURES; empty for records
    contradictions: list[float]  # in the order of CONTRADICTIONS
    worst: WorstSentence | None  # None without sentences
    novel_numbers: list[str]
    novel_names: list[str]
    replaced: int = 0  # values in place of another one of the passages


def find_novel_numbers(
    pages: PassageIndex, answer: AnswerText, query: QueryText, words: Container[str]
) -> list[str]:
    """Return the numbers of an answer that neither its query nor a passage has, as written.

    `words` are the stems of all passages.
    """
    return [
        raw.strip()
        for form, raw in answer.read.numbers
        if form not in query.numbers and not pages.has_number(form, raw, words)
    ]


def compare_record(pages: PassageIndex, answer: AnswerText) -> RecordConflicts:
    """Compare an answer with the flags and hours of its structured passages, if there are any."""
    if not pages.structured:
        return _NO_CONFLICTS
    record = read_record([passage.record for passage in pages.passages])
    return find_conflicts(record, "\n".join([claim.text for claim in answer.claims]))
