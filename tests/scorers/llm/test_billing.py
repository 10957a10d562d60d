from __future__ import annotations

import pytest
from ragmeter.core.tiers import ScoringCost
from ragmeter.scorers.llm.billing import Attempt, AttemptBilling, TokenUsage


def billed(usage: TokenUsage | None, characters: int = 400) -> tuple[Attempt, ScoringCost]:
    seen: list[Attempt] = []
    cost = ScoringCost()
    AttemptBilling("j", 1.0, 10.0, seen.append).add(cost, "ok", (characters, 40), usage, 0.5)
    return seen[0], cost


def test_tokens_are_those_of_the_reply() -> None:
    attempt, cost = billed(TokenUsage(90, 5))
    assert (attempt.input_tokens, attempt.output_tokens, attempt.estimated) == (90, 5, False)
    assert attempt.usd == pytest.approx(140e-6)
    assert (cost.requests, cost.usd, cost.seconds) == (1, attempt.usd, 0.5)


@pytest.mark.parametrize("usage", [None, TokenUsage(100_000_000, 5), TokenUsage(90, 10**9)])
def test_a_count_that_is_missing_or_cannot_be_true_is_estimated(usage: TokenUsage | None) -> None:
    attempt, _ = billed(usage)
    assert (attempt.input_tokens, attempt.output_tokens, attempt.estimated) == (100, 10, True)
