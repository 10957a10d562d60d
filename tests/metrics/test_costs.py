"""Costs that are estimated from tokens, where a trace does not tell its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from ragmeter.config.scoring import CostSettings
from ragmeter.core.score import Score, ScoreState
from ragmeter.metrics.costs import PriceTable, list_prices
from ragmeter.reasons import Reason
from ragmeter.scoring.scorer import Scorer

from tests.tables import each_row
from tests.traces import make_trace

TOKENS = {"input_tokens": 10_000, "output_tokens": 1_000}


def costs(
    model: str | None, scorer: Scorer | None = None, usage: Mapping[str, Any] = TOKENS
) -> dict[str, Score]:
    trace = make_trace(model=model, usage=usage)
    results = (scorer or Scorer(builtin=False)).score(trace).trace.results
    return {score.scorer: score for score in results if score.metric == "cost_usd"}


@each_row(
    ("model", "usd"),
    [
        ("gpt-4o-mini", 0.0021),
        ("gpt-4o-mini-2024-07-18", 0.0021),
        ("us-gov.anthropic.claude-3-5-sonnet-20240620-v1:0", 0.045),
        ("ca.anthropic.claude-haiku-4-5-20251001-v1:0", 0.015),
        ("anthropic/claude-3.7-sonnet:thinking", 0.045),
        ("GPT-4o", 0.035),
        ("gpt-4.1", 0.028),
        ("gpt-4-1106-preview", 0.13),
        ("gpt-4-0125-preview", 0.13),
        ("gpt-4-32k-0613", 0.72),
        ("gpt-3.5-turbo-1106", 0.012),
        ("gpt-3.5-turbo-0125", 0.0065),
        ("gpt-35-turbo-16k-0613", 0.034),
        ("gpt-4o-2024-05-13", 0.065),
        ("openai:gpt-4o", 0.035),
        ("google-gla:gemini-2.5-flash", 0.0055),
        ("bedrock:us.anthropic.claude-haiku-4-5-20251001-v1:0", 0.015),
        ("gpt-4-0613", 0.36),
        ("openai/gpt-4.1-mini-2025-04-14", 0.0056),
        ("azure/gpt-4o-2024-08-06", 0.035),
        ("claude-sonnet-4-5-20250929", 0.045),
        ("anthropic.claude-3-5-sonnet-20241022-v2:0", 0.045),
        ("us.anthropic.claude-haiku-4-5-20251001-v1:0", 0.015),
        ("anthropic/claude-3.5-haiku", 0.012),
        ("claude-3-5-haiku-latest", 0.012),
        ("models/gemini-2.5-flash", 0.0055),
        ("gemini-2.5-flash-preview-05-20", 0.0055),
        ("publishers/google/models/gemini-2.0-flash-001", 0.0014),
        ("command-r-plus-08-2024", 0.035),
        ("amazon.nova-lite-v1:0", 0.00084),
        ("claude-sonnet-4@20250514", 0.045),
        ("gpt-5.1-2025-11-13", 0.0225),
        ("google/gemini-3-pro-preview", 0.032),
        ("x-ai/grok-4", 0.045),
        ("xai:grok-4-0709", 0.045),
        ("mistral-medium-latest", 0.006),
        ("mistral/mistral-large-2512", 0.0065),
        ("deepseek-v4-pro", 0.00522),
        ("claude-opus-4-6-20260205", 0.075),
    ],
)
def test_a_known_model_has_a_price(model: str, usd: float) -> None:
    found = costs(model)
    assert found["estimate"].value == pytest.approx(usd)
    assert found["builtin"].state is ScoreState.UNSCORED  # the trace tells none


@each_row(
    "model",
    [
        "gpt-5-pro",
        "gpt-4o-audio-preview",
        "gpt-5.9",
        "my-gpt-4o",
        "llama-3.1-70b",
        "gpt",
        "",
        "claude-sonnet-5",
        "gemini-2.5-flash-image",
        "x" * 10_000,
        "///",
        "ft:gpt-4o-2024-08-06:org::x",
        "gpt-4o:free",
        "openai:my-gpt-4o",
        "gpt-4o-mini-tts",
        "ollama/gpt-4o",
        "ollama_chat/deepseek-chat",
        "ollama:gpt-4o",
        "openai/ollama/gpt-4o",
        "hosted_vllm/mistral-large-latest",
        "lm_studio/gpt-4.1",
        "github_copilot/gpt-4o",
    ],
)
def test_another_model_has_none(model: str) -> None:
    score = costs(model)["estimate"]
    assert score.value is None
    assert score.reason == (Reason.NO_PRICE if model else Reason.NOT_REPORTED)


def test_a_cost_of_the_trace_wins() -> None:
    found = costs("gpt-4o", usage={**TOKENS, "cost_usd": 0.5})
    assert found["builtin"].value == 0.5
    assert found["estimate"].state is ScoreState.NOT_APPLICABLE
    assert found["estimate"].reason == Reason.REPORTED
    free = costs("gpt-4o", usage={**TOKENS, "cost_usd": 0.0})
    assert (free["builtin"].value, free["estimate"].value) == (0.0, None)


@pytest.mark.parametrize("usage", [{"input_tokens": 5}, {"output_tokens": 5}])
def test_half_of_the_tokens_tell_no_cost(usage: dict[str, int]) -> None:
    assert costs("gpt-4o", usage=usage)["estimate"].reason == Reason.NOT_REPORTED


@each_row(
    ("model", "cached", "usd"),
    [
        ("gpt-4o", 8_000, 0.025),
        ("gpt-4o", 0, 0.035),
        ("gpt-4o", 50_000, 0.0225),  # of 10,000 no more can be cached
        ("claude-sonnet-4-5", 8_000, 0.0234),
        ("gpt-4-turbo", 8_000, 0.13),  # has no price for them
    ],
)
def test_cached_tokens_have_their_own_price(model: str, cached: int, usd: float) -> None:
    found = costs(model, usage={**TOKENS, "cached_input_tokens": cached})
    assert found["estimate"].value == pytest.approx(usd)


def test_prices_of_the_settings_come_first() -> None:
    settings = CostSettings.model_validate(
        {"prices": {"my-llm": {"input": 1, "output": 2}, "gpt-4o": {"input": 0, "output": 1}}}
    )
    scorer = Scorer(builtin=False)
    scorer.prices = list_prices().with_own(settings.as_rows())
    assert costs("my-llm", scorer)["estimate"].value == pytest.approx(0.012)
    assert costs("vllm/my-llm", scorer)["estimate"].value == pytest.approx(0.012)
    assert costs("gpt-4o-2024-08-06", scorer)["estimate"].value == pytest.approx(0.001)
    assert costs("gpt-4o-mini", scorer)["estimate"].value == pytest.approx(0.0021)
    cached = {**TOKENS, "cached_input_tokens": 10_000}
    assert costs("my-llm", scorer, cached)["estimate"].value == pytest.approx(0.012)
    price = {"input": 1, "output": 2, "cached_input": 0.1}
    settings = CostSettings.model_validate({"prices": {"my-llm": price}})
    scorer.prices = list_prices().with_own(settings.as_rows())
    assert costs("my-llm", scorer, cached)["estimate"].value == pytest.approx(0.003)


def test_the_table_is_dated_and_sane() -> None:
    table = list_prices()
    assert isinstance(table, PriceTable)
    assert table.date >= "2026-01-01"
    assert 30 <= len(table.prices) <= 100
    assert all(0 < one.input <= one.output <= 120 for one in table.prices.values())
    assert all(one.cached is None or 0 < one.cached < one.input for one in table.prices.values())
