"""Similarity of the answers to one query: ROUGE overlap and the spread of similarities.

ROUGE-1, ROUGE-2 and ROUGE-L of two texts, as in Lin (2004), "ROUGE: a package for automatic
evaluation of summaries".

The same numbers as the package `rouge-score` 0.1.2 (without its stemmer) for English, tested
against its output. Not that package itself: it brings numpy, nltk and absl (40 MB), knows only
the letters a to z, so that an answer in Greek is an empty one, and takes seconds for a long text.

How much answers to one and the same query differ: pure formulas.

Every two answers are compared, and what is reported of the values is their mean, variance and
coefficient of variation, as open-rag-eval's METRICS.md promises (its code reports neither).
"""

from __future__ import annotations

import math
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

from ragmeter.core.score import NoScore
from ragmeter.metrics.text import tokenize

MAX_ROUGE_WORDS = 5_000
"""Words read of one text: some ten pages, and a bound on the work, which is quadratic."""


class RougeOverlap(NamedTuple):
    """Each 0 to 1. `precision` is of the text, `recall` of the reference. Where a text has nothing
    to compare all three are 0, as in the package: decide before whether to ask."""

    precision: float
    recall: float
    f: float


def _overlap(common: int, text: int, reference: int) -> RougeOverlap:
    precision = common / text if text else 0.0
    recall = common / reference if reference else 0.0
    both = precision + recall
    return RougeOverlap(precision, recall, 2 * precision * recall / both if both else 0.0)


def rouge_n(text: Sequence[str], reference: Sequence[str], n: int) -> RougeOverlap:
    """ROUGE-N, section 2 of the paper, with precision and F (beta 1) as packages give them:
    common n-grams, each at most as often as in both, / n-grams of one of them."""
    ours, theirs = (
        Counter(zip(*(words[at:] for at in range(n)), strict=False)) for words in (text, reference)
    )
    return _overlap((ours & theirs).total(), ours.total(), theirs.total())


def lcs_length(first: Sequence[str], second: Sequence[str]) -> int:
    """The length of the longest common subsequence.

    A row of the table is one integer, a bit for each word of `first`, and one step a word of
    `second` (Hyyrö 2004, "Bit-parallel LCS-length computation revisited").
    """
    places: dict[str, int] = {}
    for at, word in enumerate(first):
        places[word] = places.get(word, 0) | 1 << at
    every = (1 << len(first)) - 1
    row = every
    for word in second:
        hits = row & places.get(word, 0)
        row = (row + hits | row - hits) & every
    return len(first) - row.bit_count()


def rouge_l(text: Sequence[str], reference: Sequence[str]) -> RougeOverlap:
    """ROUGE-L on the level of sentences, section 3.1 of the paper, with beta 1: the whole text is
    one sequence of words."""
    return _overlap(lcs_length(text, reference), len(text), len(reference))


def rouge(text: str, reference: str) -> dict[str, RougeOverlap]:
    """`rouge1`, `rouge2` and `rouge_l` of the first `MAX_WORDS` words of each."""
    ours, theirs = tokenize(text)[:MAX_ROUGE_WORDS], tokenize(reference)[:MAX_ROUGE_WORDS]
    return {
        "rouge1": rouge_n(ours, theirs, 1),
        "rouge2": rouge_n(ours, theirs, 2),
        "rouge_l": rouge_l(ours, theirs),
    }


MAX_ANSWERS = 20
"""Answers of one query that are compared: 190 pairs. With more, take the latest."""

_LEXICAL_SIMILARITIES = ("rouge1", "rouge2", "rouge_l")
EMBEDDING_SIMILARITY = "embedding"
"""Cosine of two embeddings, which are made elsewhere."""

SIMILARITIES = (*_LEXICAL_SIMILARITIES, EMBEDDING_SIMILARITY)


@dataclass(frozen=True, slots=True)
class SimilaritySpread:
    """Of values: `variance` is that of the population, for all pairs there are were compared.
    `variation` is the standard deviation / the mean. Gaps where there is none."""

    mean: float
    variance: float | NoScore
    variation: float | NoScore


def normalise_query(query: str) -> str:
    """The form by which two queries are one: Unicode's compatibility form, without case, without
    differences of white space and of signs at the end. Signs within stay: C is not C++."""
    folded = " ".join(unicodedata.normalize("NFKC", query).casefold().split())
    return folded.rstrip("?!.…。 ") or folded


def similarity_spread(values: Sequence[float]) -> SimilaritySpread | NoScore:
    """Mean, variance and coefficient of variation of finite values.

    One value has no variance, and where the mean is 0 there is no coefficient of variation.
    """
    if not values:
        return NoScore("too_few_answers", applies=False)
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        lone = NoScore("too_few_answers", applies=False)
        return SimilaritySpread(mean, lone, lone)
    variance = math.fsum((value - mean) ** 2 for value in values) / len(values)
    variation: float | NoScore = NoScore("no_mean", applies=False)
    if mean:
        variation = math.sqrt(variance) / abs(mean)
    return SimilaritySpread(mean, variance, variation)


def pairwise_similarities(
    items: Sequence[str], similarity: Callable[[str, str], float]
) -> list[float]:
    """The similarity of every two items; for an embedding or BERTScore, which are made elsewhere.

    Both orders are asked and averaged, as open-rag-eval does: BERTScore is not symmetrical.
    """
    return [(similarity(a, b) + similarity(b, a)) / 2 for a, b in combinations(items, 2)]


def lexical_similarities(answers: Iterable[str]) -> dict[str, list[float]] | NoScore:
    """F of ROUGE-1, ROUGE-2 and ROUGE-L of every two answers, by name; F knows no order.

    Blank answers say nothing to compare and are left out, as there. A pair of answers of one word
    has no bigrams: its ROUGE-2 is left out.
    """
    words = [found for answer in answers if (found := tokenize(answer)[:MAX_ROUGE_WORDS])][
        -MAX_ANSWERS:
    ]
    if len(words) < 2:
        return NoScore("too_few_answers", applies=False)
    out: dict[str, list[float]] = {name: [] for name in _LEXICAL_SIMILARITIES}
    for one, two in combinations(words, 2):
        for name, value in answer_similarities(one, two).items():
            out[name].append(value)
    return out


def answer_similarities(one: Sequence[str], two: Sequence[str]) -> dict[str, float]:
    """The same of two answers, given their words (or what stands for them): at least one each."""
    found = {"rouge1": rouge_n(one, two, 1).f}
    if len(one) > 1 or len(two) > 1:
        found["rouge2"] = rouge_n(one, two, 2).f
    found["rouge_l"] = 2 * lcs_length(one, two) / (len(one) + len(two))
    return found
