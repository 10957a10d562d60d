"""Settings of scoring: sampling, the judge, the local model and answer consistency."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr, model_validator

from ragmeter.config.base import BaseUrl, NameList, SettingsSection, Share, SplitList, setting

_SamplingRatio = Annotated[float, Field(ge=1, le=5)]
_RankCutoff = Annotated[int, Field(ge=1, le=100)]
JudgeFamily = Literal[
    "relevance", "answered", "citations", "nuggets", "claims", "facts",
    "context", "context_recall", "annotation",
]  # fmt: skip

# Questions remembered if similar ones are matched: a new one is compared with each of them, which
# takes 0.15 ms apiece for vectors of 1,536 numbers (benchmarks/consistency.py).
_MAX_NEAR_QUERIES = 500


class SamplingRates(SettingsSection):
    """Shares of traces that the sampled tiers score."""

    model: Share = setting(1.0, "share of traces for local models")
    judge: Share = setting(0.05, "share of traces for LLM judges")


class SamplingRatios(SettingsSection):
    """How much more often a stratum is drawn than the rest."""

    error: _SamplingRatio = setting(3, "traces that failed or have no answer")
    new: _SamplingRatio = setting(3, "traces of a model or prompt version that is new")
    low: _SamplingRatio = setting(2, "traces with the lowest cheap scores")
    rare: _SamplingRatio = setting(3, "traces of segments with little traffic")


class SamplingSettings(SamplingRates):
    """Sampling of traces for models and judges."""

    salt: str = setting("ragmeter", "key of the sampling hash; not shared with upstream samplers")
    services: dict[str, SamplingRates] = setting({}, "other rates for single services, by name")
    ratios: SamplingRatios = SamplingRatios()
    low: NameList = setting(
        ["grounding", "relevance"], "metrics whose lowest built-in scores are `low`"
    )
    low_share: float = setting(
        0.2, "share of traces below the cuts of `low`, all together", gt=0, le=0.5
    )
    new_seconds: float = setting(3600, "how long a model or prompt version is `new`", ge=0)
    rare_share: float = setting(0.02, "a segment with less of the traffic is `rare`", ge=0, le=0.2)


class HhemSettings(SettingsSection):
    """The local model HHEM."""

    path: Path | None = setting(
        None, "folder of a model made by `ragmeter model convert`; none: no HHEM"
    )
    workers: int = setting(1, "single-threaded workers", ge=1, le=64)
    int8: bool = setting(False, "use the quantised graph: faster, less exact")
    fulltext: bool = setting(False, "also score as the reference does: one pair, premise cut")


class ModelEndpoint(SettingsSection):
    """An OpenAI-compatible endpoint."""

    base_url: BaseUrl | None = setting(None, "base URL of an OpenAI-compatible API, with its `/v1`")
    model: str | None = setting(None, "name of the model to ask")
    api_key: SecretStr | None = setting(None, "key of the API; from the environment")
    api_key_file: Path | None = setting(
        None, "file with the key, read anew when the API refuses the old one"
    )


class JudgeCacheSettings(SettingsSection):
    """The cache of verdicts."""

    entries: int = setting(200_000, "verdicts kept; 0 keeps none", ge=0)
    days: float = setting(30, "how long a verdict is kept", gt=0)


class JudgeBudgetSettings(SettingsSection):
    """Bounds on the use of the judge."""

    requests_per_minute: float | None = setting(None, "calls a minute; none: any", gt=0)
    tokens_per_minute: float | None = setting(
        None, "tokens a minute, in and out together; none: any", gt=0
    )
    usd_per_day: float | None = setting(None, "USD a day (UTC); none: any", gt=0)
    shares: dict[str, Share] = setting(
        {}, "largest part of the budget for single services, by name"
    )
    canaries: float = setting(
        0.1, "largest part of the budget for canaries; 0: none is judged", ge=0, le=1
    )


class SecondJudgeSettings(ModelEndpoint):
    """A second judge that judges a part of the traces again."""

    share: float = setting(0.05, "part of the judged traces judged again", ge=0, le=1)
    input_usd_per_million: float | None = setting(
        None, "price of a million tokens in; none: as the first judge's", ge=0
    )
    output_usd_per_million: float | None = setting(
        None, "price of a million tokens out; none: as the first judge's", ge=0
    )


class JudgeProbeSettings(SettingsSection):
    """The frozen probe set that shows changes of the judge."""

    hours: float = setting(24, "hours between two runs of the frozen probe set", gt=0)
    file: Path | None = setting(None, "JSON lines of probes in place of the bundled ones")
    enabled: bool = setting(True, "judge the probe set while a judge is configured")


class JudgeSettings(ModelEndpoint):
    """The LLM judge."""

    metrics: SplitList[JudgeFamily] = setting(
        ["relevance", "answered", "citations", "nuggets"],
        "what the judge is asked for",
        min_length=1,
    )
    k: SplitList[_RankCutoff] = setting(
        [5], "cut-offs of precision, average precision and nDCG", max_length=5
    )
    passages_per_call: int = setting(
        1, "passages graded in one call; above 1 changes the grades", ge=1, le=10
    )
    structured: Literal["auto", "schema", "prompt"] = setting(
        "auto", "JSON schema by the server, in the prompt, or found out by trying"
    )
    temperature: float | None = setting(0, "none: the model's own", ge=0, le=2)
    seed: int | None = setting(42, "none: not sent")
    timeout_seconds: float = setting(60, "longest time for one attempt", gt=0)
    concurrency: int = setting(16, "most calls in flight", ge=1, le=512)
    retries: int = setting(3, "most retries of one call that failed", ge=0, le=10)
    input_usd_per_million: float = setting(0, "price of a million tokens in", ge=0)
    output_usd_per_million: float = setting(0, "price of a million tokens out", ge=0)
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

    dimensions: int | None = setting(
        None,
        "length of the vectors to ask for, of models that know shorter ones; none: the model's own",
        ge=2,
        le=4096,
    )
    near: float | None = setting(
        None,
        "cosine from which two questions are taken for one; none: only the same words",
        ge=0.5,
        le=1,
    )
    timeout_seconds: float = setting(20, "longest time for one attempt", gt=0)
    concurrency: int = setting(4, "most calls in flight", ge=1, le=64)
    retries: int = setting(2, "most retries of one call that failed", ge=0, le=10)

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

    enabled: bool = setting(
        True, "compare answers to the same question; with `privacy.content: none` it is off"
    )
    queries: int = setting(
        200,
        "different questions of a service that are remembered, up to 5 kB each, and with "
        "embeddings five vectors more",
        ge=10,
        le=2_000,
    )
    tags: NameList = setting(
        [],
        "tags that must be equal, too, for two questions to be the same: `tenant`, where each has "
        "documents of its own",
    )
    embeddings: EmbeddingSettings = EmbeddingSettings()

    @model_validator(mode="after")
    def _bound_queries(self) -> ConsistencySettings:
        if self.embeddings.near is not None and self.queries > _MAX_NEAR_QUERIES:
            raise ValueError(
                f"with embeddings.near at most {_MAX_NEAR_QUERIES} queries are remembered"
            )
        return self
