"""What a judge was asked and has cost, as counters."""

from __future__ import annotations

from typing import Protocol

from agent.judge.attempt import Attempt
from agent.tiers import Cost

__all__ = ["Add", "count_attempt", "count_canary", "count_verdict"]


class Add(Protocol):
    def __call__(
        self, name: str, labels: tuple[tuple[str, str], ...], by: float = 1, /
    ) -> object: ...


def count_attempt(add: Add, attempt: Attempt) -> None:
    judge = ("judge", attempt.judge)
    add("ragmeter_judge_requests_total", (judge, ("outcome", attempt.outcome)))
    for direction, tokens in (("input", attempt.input_tokens), ("output", attempt.output_tokens)):
        if tokens:
            add("ragmeter_judge_tokens_total", (judge, ("direction", direction)), tokens)
    if attempt.usd:
        add("ragmeter_judge_cost_usd_total", (judge,), attempt.usd)


def count_verdict(add: Add, judge: str, source: str) -> None:
    """Where a verdict came from: `source` is the judge itself or what is remembered of it."""
    add("ragmeter_judge_verdicts_total", (("judge", judge), ("source", source)))


def count_canary(add: Add, cost: Cost) -> None:
    """What a canary has cost of all that the judge was asked."""
    for name, by in (
        ("requests", cost.requests),
        ("tokens", cost.input_tokens + cost.output_tokens),
        ("cost_usd", cost.usd),
    ):
        if by:
            add(f"ragmeter_canary_judge_{name}_total", (), by)
