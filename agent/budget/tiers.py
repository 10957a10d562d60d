"""The controllers of the tiers, from their settings. Pure."""

from __future__ import annotations

from agent.budget.controller import BudgetController
from agent.budget.costs import JUDGE_PRIOR, MODEL_PRIOR
from agent.config import Budget, Hhem, Judge
from agent.tiers import Cost

__all__ = ["judge_controller", "model_controller"]

UTILISATION = 0.9
"""Part of the slots or cores that is planned for: at 1.0 the queue before them never empties."""


def judge_controller(settings: Judge) -> BudgetController:
    """The controller of the judge tier: its budget, and its slots as the capacity."""
    prior = JUDGE_PRIOR
    usd = (
        prior.input_tokens * settings.input_usd_per_million
        + prior.output_tokens * settings.output_usd_per_million
    ) / 1e6
    return BudgetController(
        settings.budget,
        capacity=UTILISATION * settings.concurrency,
        prior=Cost(prior.requests, prior.input_tokens, prior.output_tokens, usd, prior.seconds),
    )


def model_controller(settings: Hhem) -> BudgetController:
    """The controller of the model tier: its workers are the capacity, and nothing costs money."""
    return BudgetController(Budget(), capacity=UTILISATION * settings.workers, prior=MODEL_PRIOR)
