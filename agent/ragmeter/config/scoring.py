"""Settings of scoring: sampling, the judge, the local model and answer consistency."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr, model_validator

from ragmeter.config.base import BaseUrl, NameList, SettingsSection, Share, SplitList

_SamplingRatio = Annotated[float, Field(ge=1, le=5)]
_RankCutoff = Annotated[int, Field(ge=1, le=100)]
JudgeFamily = Literal[
    "relevance", "answered", "citations", "nuggets", "claims", "facts",
    "context", "context_recall", "annotation",
]  # fmt: skip

# Questions remembered if similar ones are matched: a new one is compared with each of them, which
# takes 0.15 ms apiece for vectors of 1,536 numbers (benchmarks/consistency.py).
_MAX_NEAR_QUERIES = 500


class ScorerSettings(SettingsSection):
    """The scorers that need no model."""

    processes: int | None = Field(None, ge=0, le=64)


class SamplingRates(SettingsSection):
    """Shares of traces that the sampled tiers score."""

    builtin: Share = 1.0
    model: Share = 0.05
    judge: Share = 0.05
    people: float = Field(0, ge=0, le=1)


class SamplingRatios(SettingsSection):
    """How much more often a stratum is drawn than the rest."""

    error: _SamplingRatio = 3
    new: _SamplingRatio = 3
    low: _SamplingRatio = 2
    rare: _SamplingRatio = 3


class SamplingSettings(SamplingRates):
    """Sampling of traces for models and judges."""

    salt: str = "ragmeter"
    services: dict[str, SamplingRates] = Field({})
    ratios: SamplingRatios = SamplingRatios()
    low: NameList = Field(["grounding", "relevance"])
    low_share: float = Field(0.2, gt=0, le=0.5)
    new_seconds: float = Field(3600, ge=0)
    rare_share: float = Field(0.02, ge=0, le=0.2)

    @property
    def draws_people(self) -> bool:
        """Whether traces are drawn to be labelled by people, of any service."""
        return any(rates.people for rates in (self, *self.services.values()))


class HhemSettings(SettingsSection):
    """The local model HHEM."""

    path: Path | None = None
    workers: int = Field(1, ge=1, le=64)
    int8: bool = False
    fulltext: bool = False


class ModelSettings(SettingsSection):
    """The embedded grounding model, or one of your own in its place."""

    path: Path | None = None
    cpu_share: float = Field(0.2, ge=0, le=1)


class ModelEndpoint(SettingsSection):
    """An OpenAI-compatible endpoint."""

    base_url: BaseUrl | None = None
    model: str | None = None
    api_key: SecretStr | None = None
    api_key_file: Path | None = None


class JudgeCacheSettings(SettingsSection):
    """The cache of verdicts."""

    entries: int = Field(200_000, ge=0)
    days: float = Field(30, gt=0)


class JudgeBudgetSettings(SettingsSection):
    """Bounds on the use of the judge."""

    requests_per_minute: float | None = Field(None, gt=0)
    tokens_per_minute: float | None = Field(None, gt=0)
    usd_per_day: float | None = Field(None, gt=0)
    shares: dict[str, Share] = Field({})
    canaries: float = Field(0.1, ge=0, le=1)


class SecondJudgeSettings(ModelEndpoint):
    """A second judge that judges a part of the traces again."""

    share: float = Field(0.05, ge=0, le=1)
    input_usd_per_million: float | None = Field(None, ge=0)
    output_usd_per_million: float | None = Field(None, ge=0)


class JudgeProbeSettings(SettingsSection):
    """The frozen probe set that shows changes of the judge."""

    hours: float = Field(24, gt=0)
    file: Path | None = None
    enabled: bool = True


class JudgeSettings(ModelEndpoint):
    """The LLM judge."""

    metrics: SplitList[JudgeFamily] = Field(
        ["relevance", "answered", "citations", "nuggets"], min_length=1
    )
    k: SplitList[_RankCutoff] = Field([5], max_length=5)
    passages_per_call: int = Field(1, ge=1, le=10)
    structured: Literal["auto", "schema", "prompt"] = "auto"
    temperature: float | None = Field(0, ge=0, le=2)
    seed: int | None = 42
    timeout_seconds: float = Field(60, gt=0)
    concurrency: int = Field(64, ge=1, le=512)
    retries: int = Field(3, ge=0, le=10)
    input_usd_per_million: float = Field(0, ge=0)
    output_usd_per_million: float = Field(0, ge=0)
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


class EmbeddingSettings(ModelEndpoint):
    """An OpenAI-compatible embeddings endpoint; without its `base_url` nothing is embedded."""

    dimensions: int | None = Field(None, ge=2, le=4096)
    near: float | None = Field(None, ge=0.5, le=1)
    timeout_seconds: float = Field(20, gt=0)
    concurrency: int = Field(4, ge=1, le=64)
    retries: int = Field(2, ge=0, le=10)

    @model_validator(mode="after")
    def _complete(self) -> EmbeddingSettings:
        if self.base_url is not None and not self.model:
            raise ValueError("base_url needs model: the name of the embedding model to ask")
        if self.base_url is None and (self.model or self.api_key_file or self.near is not None):
            raise ValueError(
                "model, api_key_file and near need base_url: without it nobody is asked"
            )
        return self


class ConsistencySettings(SettingsSection):
    """Comparison of the answers to one question."""

    enabled: bool = True
    queries: int = Field(200, ge=10, le=2_000)
    tags: NameList = Field([])
    embeddings: EmbeddingSettings = EmbeddingSettings()

    @model_validator(mode="after")
    def _bound_queries(self) -> ConsistencySettings:
        if self.embeddings.near is not None and self.queries > _MAX_NEAR_QUERIES:
            raise ValueError(
                f"with embeddings.near at most {_MAX_NEAR_QUERIES} queries are remembered"
            )
        return self
