"""Similarity of the answers to one question: ROUGE overlap and the spread of similarities.

ROUGE is that of Lin (2004), "ROUGE: a package for automatic evaluation of summaries"; values equal
those of the package `rouge-score` 0.1.2 without its stemmer for English. The package itself brings
numpy, nltk and absl (40 MB), knows only the letters a to z and takes seconds for a long text.

Of the similarities of all pairs of answers the mean, variance and coefficient of variation are
reported, as open-rag-eval's METRICS.md promises (its code reports neither of the latter two).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

from ragmeter.core.score import NoScore
from ragmeter.metrics.words import tokenize
from ragmeter.reasons import Reason


class RougeOverlap(NamedTuple):
    """Precision (of the text), recall (of the reference) and F, each 0..1.

    All three are 0 if a text has nothing to compare, as in the package.
    """

    precision: float
    recall: float
    f: float


def _overlap(common: int, text: int, reference: int) -> RougeOverlap:
    precision = common / text if text else 0.0
    recall = common / reference if reference else 0.0
    both = precision + recall
    return RougeOverlap(precision, recall, 2 * precision * recall / both if both else 0.0)


def rouge_n(text: Sequence[str], reference: Sequence[str], n: int) -> RougeOverlap:
    """Compute ROUGE-N (section 2 of the paper) with precision and F (beta 1).

    Common n-grams, each as often as in both, / n-grams of the text or of the reference.
    """
    ours, theirs = (
        Counter(zip(*(words[at:] for at in range(n)), strict=False)) for words in (text, reference)
    )
    return _overlap((ours & theirs).total(), ours.total(), theirs.total())


def lcs_length(first: Sequence[str], second: Sequence[str]) -> int:
    """Return the length of the longest common subsequence.

    A row of the table is one integer with a bit for each word of `first` (Hyyrö 2004,
    "Bit-parallel LCS-length computation revisited").
    """
    positions: dict[str, int] = {}
    for index, word in enumerate(first):
        positions[word] = positions.get(word, 0) | 1 << index
    every = (1 << len(first)) - 1
    row = every
    for word in second:
        hits = row & positions.get(word, 0)
        row = (row + hits | row - hits) & every
    return len(first) - row.bit_count()


def rouge_l(text: Sequence[str], reference: Sequence[str]) -> RougeOverlap:
    """Compute ROUGE-L of two word sequences (section 3.1 of the paper) with beta 1."""
    return _overlap(lcs_length(text, reference), len(text), len(reference))


def rouge(text: Sequence[str], reference: Sequence[str]) -> dict[str, RougeOverlap]:
    """Compute `rouge1`, `rouge2` and `rouge_l` of two word sequences.

    Two texts of one word have no bigrams and so no ROUGE-2.
    """
    overlaps = {"rouge1": rouge_n(text, reference, 1)}
    if len(text) > 1 or len(reference) > 1:
        overlaps["rouge2"] = rouge_n(text, reference, 2)
    overlaps["rouge_l"] = rouge_l(text, reference)
    return overlaps


@dataclass(frozen=True, slots=True)
class SimilaritySpread:
    """The spread of similarities.

    `variance` is that of the population, as all pairs are compared; `variation` is the standard
    deviation / mean.
    """

    mean: float
    variance: float | NoScore
    variation: float | NoScore


def similarity_spread(values: Sequence[float]) -> SimilaritySpread | NoScore:
    """Compute mean, variance and coefficient of variation of finite values.

    One value has no variance, and a mean of 0 no coefficient of variation.
    """
    if not values:
        return NoScore(Reason.TOO_FEW_ANSWERS, applies=False)
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        lone = NoScore(Reason.TOO_FEW_ANSWERS, applies=False)
        return SimilaritySpread(mean, lone, lone)
    variance = math.fsum((value - mean) ** 2 for value in values) / len(values)
    variation: float | NoScore = NoScore(Reason.NO_MEAN, applies=False)
    if mean:
        variation = math.sqrt(variance) / abs(mean)
    return SimilaritySpread(mean, variance, variation)


@dataclass(frozen=True, slots=True)
class AnswerConsistency:
    """The likeness of answers to the same question, over the questions with several answers.

    Args:
        questions: Questions with at least two answers.
        answers: Answers that were compared.
        overlaps: By ROUGE and by `RougeOverlap` field, the means over the questions of mean,
            variance and coefficient of variation of their pairs of answers; None without any.
    """

    questions: int
    answers: int
    overlaps: dict[str, dict[str, dict[str, float | None]]]


def answer_consistency(questions: Iterable[Sequence[str]]) -> AnswerConsistency | None:
    """Compare each answer to a question with each one before it, which is the reference.

    Returns:
        None if no question has two answers with words.
    """
    worded = [list(filter(None, map(tokenize, answers))) for answers in questions]
    compared = [answers for answers in worded if len(answers) > 1]
    if not compared:
        return None
    spreads: dict[tuple[str, str], list[SimilaritySpread]] = {}
    for answers in compared:
        values: dict[tuple[str, str], list[float]] = {}
        for earlier, later in combinations(answers, 2):
            for measure, overlap in rouge(later, earlier).items():
                for field in RougeOverlap._fields:
                    values.setdefault((measure, field), []).append(getattr(overlap, field))
        for key, each in values.items():
            spread = similarity_spread(each)
            if not isinstance(spread, NoScore):
                spreads.setdefault(key, []).append(spread)
    overlaps: dict[str, dict[str, dict[str, float | None]]] = {}
    for (measure, field), found in spreads.items():
        overlaps.setdefault(measure, {})[field] = {
            name: _mean_known([getattr(spread, name) for spread in found])
            for name in ("mean", "variance", "variation")
        }
    return AnswerConsistency(len(compared), sum(map(len, compared)), overlaps)


def _mean_known(values: Sequence[float | NoScore]) -> float | None:
    known = [value for value in values if not isinstance(value, NoScore)]
    return math.fsum(known) / len(known) if known else None
