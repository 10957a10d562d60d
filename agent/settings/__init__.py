"""The settings: every key with its type, default and one line of meaning.

`agent.config` reads them from a file and the environment. The configuration reference is made of
these descriptions.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    Field,
    field_validator,
    model_validator,
)

from agent.settings.consistency import Consistency
from agent.settings.feedback import Feedback
from agent.settings.http import Http, Tls
from agent.settings.judge import Budget, Cache, Endpoint, Judge, Probes, Second
from agent.settings.kafka import Kafka
from agent.settings.otlp import Otlp
from agent.settings.privacy import Privacy
from agent.settings.resolvers import Resolvers
from agent.settings.results import ResultsExport
from agent.settings.section import Names, Section, Share, distinct, http_url
from agent.windows.periods import grain_of, seconds_of

__all__ = [
    "Alerts",
    "Budget",
    "Cache",
    "Consistency",
    "Drift",
    "Endpoint",
    "Feedback",
    "Hhem",
    "Http",
    "Judge",
    "Limits",
    "Probes",
    "Rates",
    "Ratios",
    "Sampling",
    "Second",
    "Section",
    "Settings",
    "Slo",
    "StateFile",
    "Tls",
]


class StateFile(Section):
    path: Path = Field(
        Path(".ragmeter/state.sqlite"), description="SQLite file of queue, windows and progress"
    )
    dead_letters: Path = Field(
        Path(".ragmeter/dead-letters.jsonl"), description="file for what could not be read"
    )
    synchronous: Literal["full", "normal"] = Field(
        "full",
        description="`full` survives a power cut; `normal` survives a killed process only",
    )


class Rates(Section):
    model: Share = Field(1.0, description="share of traces for local models")
    judge: Share = Field(0.05, description="share of traces for LLM judges")


Ratio = Annotated[float, Field(ge=1, le=5)]


class Ratios(Section):
    error: Ratio = Field(3, description="traces that failed or have no answer")
    new: Ratio = Field(3, description="traces of a model or prompt version that is new")
    low: Ratio = Field(3, description="traces with the lowest cheap scores")
    rare: Ratio = Field(3, description="traces of segments with little traffic")


class Sampling(Rates):
    salt: str = Field(
        "ragmeter", description="key of the sampling hash; not shared with upstream samplers"
    )
    services: dict[str, Rates] = Field({}, description="other rates for single services, by name")
    ratios: Ratios = Ratios()
    low: Names = Field(
        ["grounding", "relevance"], description="metrics whose lowest built-in scores are `low`"
    )
    low_share: float = Field(
        0.2, gt=0, le=0.5, description="share of traces below the cuts of `low`, all together"
    )
    new_seconds: float = Field(
        3600, ge=0, description="how long a model or prompt version is `new`"
    )
    rare_share: float = Field(
        0.02, ge=0, le=0.2, description="a segment with less of the traffic is `rare`"
    )


class Hhem(Section):
    path: Path | None = Field(
        None, description="folder of a model made by `ragmeter model convert`; none: no HHEM"
    )
    workers: int = Field(1, ge=1, le=64, description="single-threaded workers")
    int8: bool = Field(False, description="use the quantised graph: faster, less exact")
    fulltext: bool = Field(
        False, description="also score as the reference does: one pair, premise cut"
    )


class Alerts(Section):
    profile: Literal["conservative", "balanced", "lenient"] = Field(
        "balanced", description="which thresholds of the rules hold"
    )
    rules: Path | None = Field(
        None, description="YAML file of rules, laid over the default ones by name"
    )
    alertmanager_url: str | None = Field(None, description="base URL of an Alertmanager (API v2)")
    webhook_url: str | None = Field(None, description="URL that gets every notification as JSON")
    page_url: str | None = Field(
        None, description="public URL of the status page, for links in notifications"
    )
    runbook_url: str | None = Field(
        None,
        description="base URL under which docs/runbooks is published, for links in notifications "
        "and in the rules for Prometheus",
    )
    resend_seconds: float = Field(
        60, gt=0, description="seconds between two sendings of what still fires to Alertmanager"
    )
    evaluation_seconds: float = Field(
        15, ge=1, description="event-time seconds between two evaluations of the rules"
    )

    _urls = field_validator("alertmanager_url", "webhook_url", "page_url", "runbook_url")(http_url)


class Slo(Section):
    name: str = Field(min_length=1, max_length=64, description="label value of the counters")
    objective: float = Field(0.99, gt=0, lt=1, description="share of events that should be good")
    bad: Literal["failed", "error", "timeout", "slow", "low", "high"] = Field(
        description="`failed`: status is not ok; `error`, `timeout`: status is that one; "
        "`slow`: timings.total over `seconds`; `low`, `high`: the score of `metric` by `scorer` "
        "is below or above `threshold`"
    )
    seconds: float | None = Field(None, gt=0, description="for `slow`: the objective in seconds")
    metric: str | None = Field(None, min_length=1, description="for `low` and `high`")
    scorer: str | None = Field(None, min_length=1, description="for `low` and `high`: `builtin`")
    threshold: float | None = Field(None, description="for `low` and `high`")

    @model_validator(mode="after")
    def _complete(self) -> Slo:
        if self.bad == "slow" and self.seconds is None:
            raise ValueError("`slow` needs `seconds`")
        if self.bad in ("low", "high"):
            if self.metric is None or self.threshold is None:
                raise ValueError(f"`{self.bad}` needs `metric` and `threshold`")
        elif self.metric or self.scorer or self.threshold is not None:
            raise ValueError(f"`{self.bad}` takes no `metric`, `scorer` or `threshold`")
        return self


class Drift(Section):
    enabled: bool = Field(True, description="watch every series for drift")
    false_alarm_days: float = Field(
        30, gt=0, description="days with one false alarm per service, over all its series together"
    )
    baseline_days: float = Field(
        7,
        ge=0.25,
        le=28,
        description="days a baseline is learned from; of a week or more by hour of the day",
    )
    promote_days: float | None = Field(
        None, gt=0, description="days until a new baseline is taken, in calm; none: never by itself"
    )
    max_series: int = Field(5_000, ge=1, description="series watched; those beyond it are not")


class Limits(Section):
    body_bytes: int = Field(
        20 * 2**20, ge=1024, description="largest request body, also after decompression"
    )
    trace_bytes: int = Field(2 * 2**20, ge=1024, description="largest single trace")
    connections: int = Field(
        400, ge=8, description="open connections of a port; beyond it the idlest one is closed"
    )
    queue: int = Field(10_000, ge=1, description="traces waiting before HTTP answers 429")
    drawn: int = Field(
        5_000,
        ge=1,
        description="traces waiting for a judge, a model or an embedding; beyond it they are shed",
    )
    services: int = Field(100, ge=1, description="services with series of their own")
    segment_values: int = Field(20, ge=1, description="values a segment tag may have per service")
    label_chars: int = Field(128, ge=8, description="longest label value in characters")
    min_samples: int = Field(5, ge=1, description="fewer scored traces than this show no gauge")
    dedupe_hours: float = Field(
        48, gt=0, description="event-time hours in which the same trace id counts once"
    )
    future_seconds: float = Field(
        300, ge=0, description="a trace further in the future than this is set to its arrival time"
    )
    evidence_bytes: int = Field(64 * 2**10, ge=1024, description="kept of one worst trace")
    drain_seconds: float = Field(10, gt=0, description="longest time to finish after SIGTERM")
    stalled_seconds: float = Field(
        120,
        gt=0,
        description="work waits and nothing moves for so long: exit 1; readiness is off after a "
        "quarter of it. With Kafka not below the 60 s that a rebalance may take",
    )


class Settings(Section):
    """The whole configuration."""

    windows: Names = Field(
        ["5m", "1h", "24h"], min_length=1, description="rolling windows, 60s to 90d"
    )
    segments: Names = Field(
        [],
        description="tags that windows are also kept for; `model`, `prompt_version` and"
        " `answerable` count as tags",
    )
    builtin_scorers: bool = Field(
        True, description="score relevance, grounding and citations with the built-in scorers"
    )
    http: Http = Http()
    otlp: Otlp = Otlp()
    feedback: Feedback = Feedback()
    consistency: Consistency = Consistency()
    state: StateFile = StateFile()
    privacy: Privacy = Privacy()
    resolvers: Resolvers = Resolvers()
    sampling: Sampling = Sampling()
    judge: Judge = Judge()
    hhem: Hhem = Hhem()
    alerts: Alerts = Alerts()
    slos: list[Slo] = Field(
        [
            Slo(name="availability", bad="failed"),
            Slo(name="latency", bad="slow", seconds=10, objective=0.95),
        ],
        description="objectives with an error budget",
    )
    drift: Drift = Drift()
    kafka: Kafka = Kafka()
    results_export: ResultsExport = ResultsExport()
    limits: Limits = Limits()

    @field_validator("windows")
    @classmethod
    def _durations(cls, value: list[str]) -> list[str]:
        for name in value:
            grain_of(seconds_of(name))
        distinct(value)
        return sorted(value, key=seconds_of)

    @field_validator("segments")
    @classmethod
    def _tags(cls, value: list[str]) -> list[str]:
        if not all(name.strip() for name in value):
            raise ValueError("the name of a tag is needed")
        distinct(value)
        return value

    @field_validator("slos")
    @classmethod
    def _names(cls, value: list[Slo]) -> list[Slo]:
        distinct([slo.name for slo in value])
        return value
