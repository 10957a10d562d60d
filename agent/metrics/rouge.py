"""ROUGE-1, ROUGE-2 and ROUGE-L of two texts, as in Lin (2004), "ROUGE: a package for automatic
evaluation of summaries".

The same numbers as the package `rouge-score` 0.1.2 (without its stemmer) for English, tested
against its output. Not that package itself: it brings numpy, nltk and absl (40 MB), knows only
the letters a to z, so that an answer in Greek is an empty one, and takes seconds for a long text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from agent.metrics.words import tokens

__all__ = ["MAX_WORDS", "Overlap", "lcs_length", "rouge", "rouge_l", "rouge_n"]

MAX_WORDS = 5_000
"""Words read of one text: some ten pages, and a bound on the work, which is quadratic."""


class Overlap(NamedTuple):
    """Each 0 to 1. `precision` is of the text, `recall` of the reference. Where a text has nothing
    to compare all three are 0, as in the package: decide before whether to ask."""

    precision: float
    recall: float
    f: float


def _overlap(common: int, text: int, reference: int) -> Overlap:
    precision = common / text if text else 0.0
    recall = common / reference if reference else 0.0
    both = precision + recall
    return Overlap(precision, recall, 2 * precision * recall / both if both else 0.0)


def rouge_n(text: Sequence[str], reference: Sequence[str], n: int) -> Overlap:
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


def rouge_l(text: Sequence[str], reference: Sequence[str]) -> Overlap:
    """ROUGE-L on the level of sentences, section 3.1 of the paper, with beta 1: the whole text is
    one sequence of words."""
    return _overlap(lcs_length(text, reference), len(text), len(reference))


def rouge(text: str, reference: str) -> dict[str, Overlap]:
    """`rouge1`, `rouge2` and `rouge_l` of the first `MAX_WORDS` words of each."""
    ours, theirs = tokens(text)[:MAX_WORDS], tokens(reference)[:MAX_WORDS]
    return {
        "rouge1": rouge_n(ours, theirs, 1),
        "rouge2": rouge_n(ours, theirs, 2),
        "rouge_l": rouge_l(ours, theirs),
    }
