"""Which intervals leave out the scorer's own error."""

from __future__ import annotations

import pytest
from ragmeter.metrics.registry import metric_specs


@pytest.mark.parametrize(
    ("scorer", "own"),
    [
        ("builtin", True),
        ("mini", True),
        ("hhem", False),
        ("people", False),
    ],
)
def test_a_scorer_that_only_estimates_peoples_verdicts_has_an_error_of_its_own(
    scorer: str, own: bool
) -> None:
    assert metric_specs()["grounding"].has_own_error(scorer) is own


def test_a_fact_about_an_answer_has_none() -> None:
    assert not metric_specs()["citation_presence"].has_own_error("builtin")
