from __future__ import annotations

from typing import Any

import pytest

from tests.metrics.help import outcome, score_of

RESET = "To reset the password, open Settings and click Forgot password"
REFUND = "Refunds take 14 days after the warehouse received the parcel"


def prf(answer: str, **fields: Any) -> tuple[float | None, float | None, float | None]:
    values = [
        score_of(f"citation_{name}", answer=answer, **fields).value
        for name in ("precision", "recall", "f1")
    ]
    return values[0], values[1], values[2]


def test_copied_statements_with_the_right_citations_are_perfect() -> None:
    assert prf(f"{RESET} [1]. {REFUND} [3].") == (1.0, 1.0, 1.0)


def test_markers_after_the_full_stop_belong_to_the_sentence_before() -> None:
    assert prf(f"{RESET}. [1] {REFUND}.[3]") == (1.0, 1.0, 1.0)


def test_a_wrong_citation_counts_0() -> None:
    assert prf(f"{RESET} [1]. {REFUND} [2].") == (0.5, 0.5, 0.5)


def test_an_uncited_statement_costs_recall_only() -> None:
    precision, recall, f1 = prf(f"{RESET} [1]. {REFUND}.")
    assert (precision, recall) == (1.0, 0.5)
    assert f1 == pytest.approx(2 / 3)


def test_a_dangling_citation_counts_against() -> None:
    precision, recall, f1 = prf(f"{RESET} [1][9].")
    assert (precision, recall) == (0.5, 1.0)
    assert f1 == pytest.approx(2 / 3)
    assert prf(f"{RESET} [9].") == (0.0, 0.0, 0.0)


def test_two_sources_support_together_and_each_for_itself() -> None:
    precision, recall, _ = prf(f"{RESET} [1][2].")
    assert precision == 0.5
    assert recall == 1.0


def test_small_talk_and_headings_need_no_citation() -> None:
    assert prf(f"Sure! Here is how:\n{RESET} [1].\nDoes that help?")[1] == 1.0


def test_a_list_of_sources_is_no_statement() -> None:
    answer = f"{RESET} [1].\n\nSources:\n[1] The big handbook of passwords\n[2] Another unread book"
    assert prf(answer) == (1.0, 1.0, 1.0)


def test_a_number_that_the_source_lacks_lowers_support() -> None:
    right, wrong = prf(f"{REFUND} [3].")[0], prf(f"{REFUND.replace('14', '30')} [3].")[0]
    assert right is not None
    assert wrong is not None
    assert wrong < 0.7 < right


def test_explicit_citations_attach_by_place_or_to_the_whole_answer() -> None:
    answer = f"{RESET}. {REFUND}."
    start = answer.index("Refunds")
    placed = [
        {"start": 0, "end": start - 1, "passage_ids": ["kb-1"]},
        {"start": start, "end": len(answer), "passage_ids": ["kb-3"]},
    ]
    assert prf(answer, citations=placed) == (1.0, 1.0, 1.0)
    assert prf(answer, citations=[{"passage_ids": ["kb-1", "kb-3"]}]) == (1.0, 1.0, 1.0)
    assert prf(answer, citations=[{"passage_ids": ["kb-1", "nope"]}])[0] == 0.5


@pytest.mark.parametrize("name", ["precision", "recall", "f1"])
def test_states_of_citation_support(name: str) -> None:
    metric = f"citation_{name}"
    assert outcome(metric, answer=f"{RESET}.") == ("not_applicable", None, "no_citations")
    assert outcome(metric, answer="I do not know [1].") == ("not_applicable", None, "no_answer")
    assert outcome(metric, passages=None) == ("unscored", None, "no_passages_captured")
    assert outcome(metric, passages=[{"id": "kb-1"}]) == ("unscored", None, "no_text")
    assert outcome(metric, answer=None) == ("unscored", None, "no_text")
    assert outcome(metric, status="error") == ("not_applicable", None, "error")
    assert outcome(metric, answer="[1]") == ("not_applicable", None, "no_claims")
    # nothing was retrieved, so what is cited was made up: known and bad
    assert outcome(metric, passages=[]) == ("scored", 0.0, None)


def test_a_cited_passage_without_text_is_left_out_of_the_means() -> None:
    passages = [{"id": "a", "text": RESET}, {"id": "b"}]
    assert prf(f"{RESET} [1]. {REFUND} [2].", passages=passages) == (1.0, 1.0, 1.0)
