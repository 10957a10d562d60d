"""Against the output of rouge-score 0.1.2, recorded in tests/data/peers.json, and by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ragmeter.metrics.consistency import (
    RougeOverlap,
    lcs_length,
    rouge,
    rouge_l,
    rouge_n,
)
from ragmeter.metrics.words import tokenize

from tests.metrics.peers import recorded

WORDS = st.lists(st.sampled_from("abcd"), max_size=20)
THEIR_NAME = {"rouge1": "rouge1", "rouge2": "rouge2", "rouge_l": "rougeL"}


def of_texts(text: str, reference: str) -> dict[str, RougeOverlap]:
    return rouge(tokenize(text), tokenize(reference))


def test_the_same_as_the_package() -> None:
    for case in recorded("texts"):
        for name, found in of_texts(case["text"], case["reference"]).items():
            theirs = case[THEIR_NAME[name]]
            assert found == pytest.approx(theirs, abs=1e-12), (name, case["text"])


def test_the_example_of_the_paper() -> None:
    # Lin (2004), section 3.1: the second is nearer to the reference, and only ROUGE-L sees it
    reference = tokenize("police killed the gunman")
    near, far = tokenize("police kill the gunman"), tokenize("the gunman kill police")
    assert rouge_l(near, reference).recall == 3 / 4
    assert rouge_l(far, reference).recall == 2 / 4
    assert rouge_n(near, reference, 2).recall == rouge_n(far, reference, 2).recall == 1 / 3


def test_by_hand() -> None:
    # reference: a b b c; text: b b b; common unigrams: b b
    assert rouge_n("bbb", "abbc", 1) == pytest.approx((2 / 3, 2 / 4, 4 / 7))
    # common bigrams: "b b" once, of two here and of three there
    assert rouge_n("bbb", "abbc", 2) == pytest.approx((1 / 2, 1 / 3, 2 / 5))
    assert rouge_l("bbb", "abbc") == pytest.approx((2 / 3, 2 / 4, 4 / 7))


def test_nothing_to_compare_is_nothing_in_common() -> None:
    none = RougeOverlap(0.0, 0.0, 0.0)
    assert set(of_texts("", "a b").values()) == set(of_texts("a", "...").values()) == {none}
    whole = RougeOverlap(1.0, 1.0, 1.0)
    assert of_texts("a", "a") == {"rouge1": whole, "rouge_l": whole}


def test_letters_of_any_script_count() -> None:
    assert of_texts("Η πολιτική επιστροφών", "η ΠΟΛΙΤΙΚΉ")["rouge1"].recall == 1.0
    assert of_texts("密码重置", "重置密码")["rouge1"].f == pytest.approx(2 / 3)  # pairs of signs


@given(WORDS, WORDS)
def test_the_longest_common_subsequence(first: list[str], second: list[str]) -> None:
    table = [[0] * (len(second) + 1) for _ in range(len(first) + 1)]
    for i, one in enumerate(first):
        for j, two in enumerate(second):
            longest = max(table[i][j + 1], table[i + 1][j])
            table[i + 1][j + 1] = table[i][j] + 1 if one == two else longest
    assert lcs_length(first, second) == lcs_length(second, first) == table[-1][-1]


@given(WORDS, WORDS, st.integers(1, 3))
def test_ranges_and_symmetry(first: list[str], second: list[str], n: int) -> None:
    for one, other in (
        (rouge_n(first, second, n), rouge_n(second, first, n)),
        (rouge_l(first, second), rouge_l(second, first)),
    ):
        assert all(0 <= part <= 1 for part in one)
        assert (one.precision, one.recall, one.f) == (other.recall, other.precision, other.f)
