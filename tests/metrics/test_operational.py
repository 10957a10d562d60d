from __future__ import annotations

import pytest

from tests.metrics.help import outcome, score_of


@pytest.mark.parametrize(
    ("status", "error", "timeout"), [("ok", 0.0, 0.0), ("error", 1.0, 0.0), ("timeout", 0.0, 1.0)]
)
def test_error_and_timeout_are_ratios_over_all_traces(
    status: str, error: float, timeout: float
) -> None:
    assert outcome("error", status=status) == ("scored", error, None)
    assert outcome("timeout", status=status) == ("scored", timeout, None)


def test_empty_answer_counts_among_successful_traces_only() -> None:
    assert outcome("empty_answer") == ("scored", 0.0, None)
    assert outcome("empty_answer", answer=" \n\t") == ("scored", 1.0, None)
    assert outcome("empty_answer", answer="", status="error") == ("not_applicable", None, "error")


def test_an_answer_that_was_not_captured_is_no_empty_answer() -> None:
    assert outcome("empty_answer", answer=None) == ("unscored", None, "no_text")
    assert outcome("empty_answer", answer=None, usage={"output_tokens": 0})[1] == 1.0


def test_usage_is_taken_as_reported_and_its_absence_is_no_zero() -> None:
    usage = {"input_tokens": 0, "output_tokens": 96, "cost_usd": 0.0031}
    assert outcome("input_tokens", usage=usage) == ("scored", 0.0, None)
    assert outcome("output_tokens", usage=usage) == ("scored", 96.0, None)
    assert outcome("cost_usd", usage=usage) == ("scored", 0.0031, None)
    for metric in ("input_tokens", "output_tokens", "cost_usd"):
        assert outcome(metric) == ("unscored", None, "not_reported")


def test_scores_carry_the_upstream_probability() -> None:
    assert score_of("error", sampling={"probability": 0.25}).probability == 0.25
    assert score_of("grounding", sampling={"probability": 0.25}).probability == 0.25
