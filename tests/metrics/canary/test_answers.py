"""By hand, and by the examples of zesty's own page on its metrics."""

from __future__ import annotations

import time

import pytest
from ragmeter.core.score import NoScore
from ragmeter.metrics.canary.answers import (
    answer_completeness,
    answer_correctness,
    exact_match,
    extracted_keywords,
    fact_coverage,
    keyword_coverage,
    list_coverage,
    list_items,
    number_match,
)
from ragmeter.metrics.canary.searchable_answer import SearchableAnswer


def absent(reason: str) -> NoScore:
    return NoScore(reason, applies=False)


@pytest.mark.parametrize(
    ("answer", "right", "value"),
    [
        ("  Refunds take\n14 DAYS.", "refunds take 14 days.", 1.0),
        ("Refunds take 14 days", "Refunds take 14 days.", 0.0),
        ("", "x", 0.0),
        ("cafe\u0301", "café", 1.0),
    ],
)
def test_exact_match(answer: str, right: str, value: float) -> None:
    assert exact_match(answer, right) == value


def test_an_exact_match_needs_a_right_answer() -> None:
    assert exact_match("", " ") == absent("no_reference_answer")


def test_keywords_are_words_phrases_and_numbers() -> None:
    words, wanted = extracted_keywords("The Rate Change of Group Rating is 0.305% for GRG 51.")
    # "GRG" has three letters; "Change of Group" is no phrase, for "of" is small
    assert words == ["rate change", "group rating", "rate", "change", "group", "rating"]
    assert wanted == {".305", "51"}


def test_keyword_coverage_of_the_example() -> None:
    right = "Territory 118 has a rate change of 0.305%"
    # territory 118, territory, rate, change, 118, 0.305
    assert (
        keyword_coverage(SearchableAnswer("The rate change for Territory 118 is 0.305%"), right, [])
        == 1.0
    )
    assert keyword_coverage(SearchableAnswer("It changes by 0.305 %."), right, []) == 1 / 6
    assert keyword_coverage(SearchableAnswer(""), right, []) == 0.0


def test_phrases_with_numbers_match_as_phrases() -> None:
    assert extracted_keywords("Rule C-1 of Territory 118")[0][:2] == ["rule c-1", "territory 118"]
    assert extracted_keywords("In 2024 Premiums rose")[0] == ["premiums", "rose"]
    # both numbers and the word are there, and yet it is another territory
    apart = SearchableAnswer("In territory 117 there are 118 policies")
    assert keyword_coverage(apart, "Territory 118", []) == 2 / 3
    assert keyword_coverage(SearchableAnswer("Rule C-2"), "Rule C-1", []) == 1 / 3


def test_given_keywords_win_over_those_of_the_answer() -> None:
    reported = SearchableAnswer("The Rate Change is small.")
    assert keyword_coverage(reported, "Nothing else", ["rate change", "large", "!"]) == 1 / 2
    assert keyword_coverage(reported, "Nothing else", ["!"]) == absent("no_keywords")
    assert keyword_coverage(reported, "It is so.", []) == absent("no_keywords")
    assert keyword_coverage(reported, None, []) == absent("no_keywords")


def test_number_match_of_the_example() -> None:
    assert number_match(SearchableAnswer("The premium is $604"), "$604") == 1.0
    assert number_match(SearchableAnswer("51 - 15 is 36, or 36.0"), "51, 15, 36 and 30") == 3 / 4
    assert number_match(SearchableAnswer("0.133"), "-0.133%") == 0.0
    assert number_match(SearchableAnswer("604"), "no number") == absent("no_numbers")


def test_completeness_by_hand() -> None:
    right = "Refunds take fourteen days after arrival"  # 6 words
    assert (
        answer_completeness(SearchableAnswer("Refunds take fourteen"), right, 0.4)
        == (3 / 6 + 0.4) / 2
    )
    assert (
        answer_completeness(SearchableAnswer("word " * 60), right, 1.0) == 1.0
    )  # a long one is no better
    assert answer_completeness(SearchableAnswer(""), right, 0.0) == 0.0
    assert answer_completeness(SearchableAnswer("x"), " ", 1.0) == absent("no_reference_answer")
    assert answer_completeness(SearchableAnswer("x"), right, absent("no_keywords")) == absent(
        "no_keywords"
    )


LIST = """The rules are:
* Rule C-1: Limits
- Deductibles
  3) Multi-Policy Discount
Not an item * neither
"""


def test_list_coverage() -> None:
    assert list_items(LIST) == ["Rule C-1: Limits", "Deductibles", "Multi-Policy Discount"]
    reported = SearchableAnswer("1. **deductibles** 2. Rule C-1 (limits)")
    assert list_coverage(reported, LIST, []) == pytest.approx(2 / 3)
    assert list_coverage(reported, LIST, ["Deductibles"]) == 1.0
    assert list_coverage(reported, "no list", []) == absent("no_list")


def test_fact_coverage_is_by_content_words_and_numbers() -> None:
    reported = SearchableAnswer(
        "Once the warehouse has received your parcel, refunding takes 14 days."
    )
    facts = ["refund takes 14 days", "after the parcel was received", "takes 15 days"]
    assert fact_coverage(reported, facts[:1]) == 1.0
    assert fact_coverage(reported, facts) == pytest.approx(2 / 3)
    assert fact_coverage(reported, ["O(1) operations"]) == 0.0
    assert fact_coverage(reported, ["?", ""]) == absent("no_facts")
    assert fact_coverage(reported, []) == absent("no_facts")


def test_correctness_is_the_example_of_rag_guardian() -> None:
    assert answer_correctness(0.92, 0.85, 0.90) == pytest.approx(0.895)
    assert answer_correctness(1.0, 1.0, 1.0) == 1.0


def test_correctness_without_embeddings_keeps_the_ratio_of_the_other_weights() -> None:
    assert answer_correctness(None, 1.0, 0.5) == pytest.approx(0.8)
    assert answer_correctness(None, 1.0, 1.0) == 1.0


def test_correctness_with_an_unknown_part_is_unknown() -> None:
    timeout = NoScore("pattern_timeout")
    assert answer_correctness(0.9, timeout, 1.0) == timeout
    assert answer_correctness(None, 1.0, timeout) == timeout


def test_hostile_references_are_bounded() -> None:
    before = time.process_time()
    for text in ("Aa " * 100_000, "* a\n" * 100_000, "A" * 300_000, "1 " * 150_000):
        reported = SearchableAnswer(text)
        keyword_coverage(reported, text, [])
        list_coverage(reported, text, [])
        number_match(reported, text)
        fact_coverage(reported, [text[:600]] * 500)
    assert time.process_time() - before < 10
