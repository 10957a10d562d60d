"""Settings of scoring: sampling, the judge and the local model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr, model_validator

from ragmeter.config.base import BaseUrl, SettingsSection, Share, SplitList

_RankCutoff = Annotated[int, Field(ge=1, le=100)]
JudgeFamily = Literal[
    "relevance",
    "answered",
    "citations",
    "nuggets",
    "claims",
    "facts",
    "context",
    "context_recall",
    "annotation",
]


class ModelPrice(SettingsSection):
    """What a million tokens of a model cost, in US dollars."""

    input: float = Field(ge=0, description="of a million tokens in")
    output: float = Field(ge=0, description="of a million tokens out")
    cached_input: float | None = Field(
        None, ge=0, description="of a million tokens in from the provider's cache; null: as others"
    )


class CostSettings(SettingsSection):
    """How the cost of a trace is estimated that reports tokens and no cost."""

    prices: dict[str, ModelPrice] = Field(
        {},
        description=(
            "prices of models by the start of their name, as "
            "`{my-model: {input: 0.2, output: 0.6, cached_input: 0.02}}`, before the bundled list "
            "prices"
        ),
    )

    def as_rows(self) -> dict[str, tuple[float, float, float | None]]:
        """Return the prices as (input, output, input from the cache)."""
        return {
            name: (price.input, price.output, price.cached_input)
            for name, price in self.prices.items()
        }


class SamplingRates(SettingsSection):
    """Shares of traces that the sampled tiers score."""

    builtin: Share = Field(
        1.0,
        description=(
            "share of traces for the built-in scorers of relevance, grounding and citations; less "
            "by itself while the queue is over half full"
        ),
    )
    model: Share = Field(0.05, description="share of traces for local models")
    judge: Share = Field(0.05, description="share of traces for LLM judges")
    people: float = Field(
        0,
        ge=0,
        le=1,
        description=(
            "share of traces from which `ragmeter label` draws; their texts are kept, and a local "
            "model scores them (0 = none)"
        ),
    )


class SamplingSettings(SamplingRates):
    """Sampling of traces for models and judges."""

    model: float = Field(
        0.05,
        ge=0,
        le=1,
        description=(
            "share of traces for local models; 0: none is loaded, whatever the rates of services"
        ),
    )
    services: dict[str, SamplingRates] = Field(
        {}, description="other rates for single services, by name"
    )

    @property
    def draws_people(self) -> bool:
        """Whether traces are drawn to be labelled by people, of any service."""
        return any(rates.people for rates in (self, *self.services.values()))


class HhemSettings(SettingsSection):
    """The local model HHEM."""

    path: Path | None = Field(
        None,
        description="folder of a model made by `python -m training.hhem convert`; none: no HHEM",
    )
    workers: int = Field(1, ge=1, le=64, description="single-threaded workers")
    int8: bool = Field(False, description="use the quantised graph: faster, less exact")
    fulltext: bool = Field(
        False, description="also score as the reference does: one pair, premise cut"
    )


class ModelSettings(SettingsSection):
    """The embedded grounding model, or one of your own in its place."""

    path: Path | None = Field(
        None,
        description="folder of a model of your own, with a `model.json`; none: the embedded `mini`",
    )
    cpu_share: float = Field(
        0.2,
        ge=0,
        le=1,
        description=(
            "share of one core that the model may take, by its measured CPU time; in a replay "
            "of the CPU time of the whole agent; 0: no model"
        ),
    )


class ModelEndpoint(SettingsSection):
    """An OpenAI-compatible endpoint."""

    base_url: BaseUrl | None = Field(
        None, description="base URL of an OpenAI-compatible API, with its `/v1`"
    )
    model: str | None = Field(None, description="name of the model to ask")
    api_key: SecretStr | None = Field(None, description="key of the API; from the environment")
    api_key_file: Path | None = Field(
        None, description="file with the key, read anew when the API refuses the old one"
    )


class JudgeCacheSettings(SettingsSection):
    """The cache of verdicts."""

    entries: int = Field(200_000, ge=0, description="verdicts kept; 0 keeps none")


class JudgeBudgetSettings(SettingsSection):
    """Bounds on the use of the judge."""

    requests_per_minute: float | None = Field(
        None, gt=0, description="calls a minute on average over an hour; none: any"
    )
    tokens_per_minute: float | None = Field(
        None,
        gt=0,
        description="tokens a minute on average over an hour, in and out together; none: any",
    )
    usd_per_day: float | None = Field(None, gt=0, description="USD a day (UTC); none: any")
    shares: dict[str, Share] = Field(
        {}, description="largest part of the budget for single services, by name"
    )
    canaries: float = Field(
        0.1, ge=0, le=1, description="largest part of the budget for canaries; 0: none is judged"
    )


class SecondJudgeSettings(ModelEndpoint):
    """A second judge that judges a part of the traces again."""

    share: float = Field(0.05, ge=0, le=1, description="part of the judged traces judged again")
    input_usd_per_million: float | None = Field(
        None, ge=0, description="price of a million tokens in; none: as the first judge's"
    )
    output_usd_per_million: float | None = Field(
        None, ge=0, description="price of a million tokens out; none: as the first judge's"
    )


class JudgeProbeSettings(SettingsSection):
    """The frozen probe set that shows changes of the judge."""

    enabled: bool = Field(True, description="judge the probe set while a judge is configured")


class JudgeSettings(ModelEndpoint):
    """The LLM judge."""

    metrics: SplitList[JudgeFamily] = Field(
        ["relevance", "answered", "citations", "nuggets"],
        min_length=1,
        description="what the judge is asked for",
    )
    k: SplitList[_RankCutoff] = Field(
        [5], max_length=5, description="cut-offs of precision, average precision and nDCG"
    )
    structured: Literal["auto", "schema", "prompt"] = Field(
        "auto", description="JSON schema by the server, in the prompt, or found out by trying"
    )
    temperature: float | None = Field(0, ge=0, le=2, description="none: the model's own")
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high"] | None = Field(
        None, description="sent as `reasoning_effort` to a model that thinks; none: not sent"
    )
    max_output_tokens: int = Field(
        16_384,
        ge=64,
        le=200_000,
        description=(
            "most tokens of one answer, thoughts included; a question takes some 200 of them"
            " unless the model thinks"
        ),
    )
    timeout_seconds: float = Field(60, gt=0, description="longest time for one attempt")
    concurrency: int = Field(
        64,
        ge=1,
        le=512,
        description=(
            "most calls in flight; the client begins with 16 and looks for what the judge takes"
        ),
    )
    input_usd_per_million: float = Field(0, ge=0, description="price of a million tokens in")
    output_usd_per_million: float = Field(0, ge=0, description="price of a million tokens out")
    cache: JudgeCacheSettings = JudgeCacheSettings()
    budget: JudgeBudgetSettings = JudgeBudgetSettings()
    second: SecondJudgeSettings = SecondJudgeSettings()
    probes: JudgeProbeSettings = JudgeProbeSettings()

    @model_validator(mode="after")
    def _complete(self) -> JudgeSettings:
        for name, endpoint in (("", self), ("second.", self.second)):
            if endpoint.base_url is not None and not endpoint.model:
                raise ValueError(f"{name}base_url needs {name}model: the name of the model to ask")
        if self.base_url is None and (self.model or self.api_key_file):
            raise ValueError("model and api_key_file need base_url: without it no judge is asked")
        priced = self.input_usd_per_million or self.output_usd_per_million
        if self.budget.usd_per_day is not None and not priced:
            # without prices every call would count as free
            raise ValueError(
                "budget.usd_per_day needs input_usd_per_million or output_usd_per_million"
            )
        return self
