"""How much answers to one and the same query differ: pure formulas.

Every two answers are compared, and what is reported of the values is their mean, variance and
coefficient of variation, as open-rag-eval's METRICS.md promises (its code reports neither).
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

from agent.metrics.results import Gap
from agent.metrics.rouge import MAX_WORDS, lcs_length, rouge_n
from agent.metrics.words import tokens

__all__ = [
    "EMBEDDING",
    "LEXICAL",
    "MAX_ANSWERS",
    "SIMILARITIES",
    "Spread",
    "lexical",
    "normalised_query",
    "pairwise",
    "similarities",
    "spread",
]

MAX_ANSWERS = 20
"""Answers of one query that are compared: 190 pairs. With more, take the latest."""

LEXICAL = ("rouge1", "rouge2", "rouge_l")
EMBEDDING = "embedding"
"""Cosine of two embeddings, which are made elsewhere."""

SIMILARITIES = (*LEXICAL, EMBEDDING)


@dataclass(frozen=True, slots=True)
class Spread:
    """Of values: `variance` is that of the population, for all pairs there are were compared.
    `variation` is the standard deviation / the mean. Gaps where there is none."""

    mean: float
    variance: float | Gap
    variation: float | Gap


def normalised_query(query: str) -> str:
    """The form by which two queries are one: Unicode's compatibility form, without case, without
    differences of white space and of signs at the end. Signs within stay: C is not C++."""
    folded = " ".join(unicodedata.normalize("NFKC", query).casefold().split())
    return folded.rstrip("?!.…。 ") or folded


def spread(values: Sequence[float]) -> Spread | Gap:
    """Mean, variance and coefficient of variation of finite values.

    One value has no variance, and where the mean is 0 there is no coefficient of variation.
    """
    if not values:
        return Gap("too_few_answers", applies=False)
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        lone = Gap("too_few_answers", applies=False)
        return Spread(mean, lone, lone)
    variance = math.fsum((value - mean) ** 2 for value in values) / len(values)
    variation: float | Gap = Gap("no_mean", applies=False)
    if mean:
        variation = math.sqrt(variance) / abs(mean)
    return Spread(mean, variance, variation)


def pairwise(items: Sequence[str], similarity: Callable[[str, str], float]) -> list[float]:
    """The similarity of every two items; for an embedding or BERTScore, which are made elsewhere.

    Both orders are asked and averaged, as open-rag-eval does: BERTScore is not symmetrical.
    """
    return [(similarity(a, b) + similarity(b, a)) / 2 for a, b in combinations(items, 2)]


def lexical(answers: Iterable[str]) -> dict[str, list[float]] | Gap:
    """F of ROUGE-1, ROUGE-2 and ROUGE-L of every two answers, by name; F knows no order.

    Blank answers say nothing to compare and are left out, as there. A pair of answers of one word
    has no bigrams: its ROUGE-2 is left out.
    """
    words = [found for answer in answers if (found := tokens(answer)[:MAX_WORDS])][-MAX_ANSWERS:]
    if len(words) < 2:
        return Gap("too_few_answers", applies=False)
    out: dict[str, list[float]] = {name: [] for name in LEXICAL}
    for one, two in combinations(words, 2):
        for name, value in similarities(one, two).items():
            out[name].append(value)
    return out


def similarities(one: Sequence[str], two: Sequence[str]) -> dict[str, float]:
    """The same of two answers, given their words (or what stands for them): at least one each."""
    found = {"rouge1": rouge_n(one, two, 1).f}
    if len(one) > 1 or len(two) > 1:
        found["rouge2"] = rouge_n(one, two, 2).f
    found["rouge_l"] = 2 * lcs_length(one, two) / (len(one) + len(two))
    return found
