"""Settings of reporting: alerts, objectives, drift and the export of results."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr, field_validator, model_validator

from ragmeter.config.base import (
    BaseUrl,
    HttpUrl,
    NameList,
    SettingsSection,
    SplitList,
    check_exclusive,
    setting,
)


class AlertSettings(SettingsSection):
    """Alert rules and receivers of notifications."""

    profile: Literal["conservative", "balanced", "lenient"] = setting(
        "balanced", "which thresholds of the rules hold"
    )
    rules: Path | None = setting(None, "YAML file of rules, laid over the default ones by name")
    alertmanager_url: HttpUrl | None = setting(None, "base URL of an Alertmanager (API v2)")
    webhook_url: HttpUrl | None = setting(None, "URL that gets every notification as JSON")
    page_url: HttpUrl | None = setting(
        None, "public URL of the status page, for links in notifications"
    )
    runbook_url: HttpUrl | None = setting(
        None,
        "base URL under which docs/runbooks is published, for links in notifications and in the "
        "rules for Prometheus",
    )
    resend_seconds: float = setting(
        60, "seconds between two sendings of what still fires to Alertmanager", gt=0
    )
    evaluation_seconds: float = setting(
        15, "event-time seconds between two evaluations of the rules", ge=1
    )


class SloSettings(SettingsSection):
    """An objective: which events are bad, and the share that should be good."""

    name: str = Field(min_length=1, max_length=64, description="label value of the counters")
    objective: float = setting(0.99, "share of events that should be good", gt=0, lt=1)
    bad: Literal["failed", "error", "timeout", "slow", "low", "high"] = Field(
        description="`failed`: status is not ok; `error`, `timeout`: status is that one; "
        "`slow`: timings.total over `seconds`; `low`, `high`: the score of `metric` by `scorer` "
        "is below or above `threshold`"
    )
    seconds: float | None = setting(None, "for `slow`: the objective in seconds", gt=0)
    metric: str | None = setting(None, "for `low` and `high`", min_length=1)
    scorer: str | None = setting(None, "for `low` and `high`: `builtin`", min_length=1)
    threshold: float | None = setting(None, "for `low` and `high`")

    @model_validator(mode="after")
    def _complete(self) -> SloSettings:
        if self.bad == "slow" and self.seconds is None:
            raise ValueError("`slow` needs `seconds`")
        if self.bad in ("low", "high"):
            if self.metric is None or self.threshold is None:
                raise ValueError(f"`{self.bad}` needs `metric` and `threshold`")
        elif self.metric or self.scorer or self.threshold is not None:
            raise ValueError(f"`{self.bad}` takes no `metric`, `scorer` or `threshold`")
        return self


class DriftDetectionSettings(SettingsSection):
    """Detection of drift."""

    enabled: bool = setting(True, "watch every series for drift")
    false_alarm_days: float = setting(
        30, "days with one false alarm per service, over all its series together", gt=0
    )
    baseline_days: float = setting(
        7, "days a baseline is learned from; of a week or more by hour of the day", ge=0.25, le=28
    )
    promote_days: float | None = setting(
        None, "days until a new baseline is taken, in calm; none: never by itself", gt=0
    )
    max_series: int = setting(5_000, "series watched; those beyond it are not", ge=1)


class ResultsExportSettings(SettingsSection):
    """Export of results to an OTLP receiver."""

    endpoint: BaseUrl | None = setting(
        None, "base URL of an OTLP/HTTP receiver, without `/v1/logs`; none: nothing is sent"
    )
    headers: SecretStr | None = setting(
        None, "`name=value,name=value`, values percent-encoded; from the environment"
    )
    headers_file: Path | None = setting(
        None, "file of `name: value` lines, read anew for each request"
    )
    logs: bool = setting(True, "send `gen_ai.evaluation.result` log events")
    spans: bool = setting(
        False, "send OpenInference EVALUATOR spans for traces that name their span"
    )
    metrics: NameList = setting([], "only these metrics; empty: all")
    scorers: NameList = setting([], "only these scorers; empty: all")
    tiers: SplitList[Literal["cheap", "model", "judge"]] = setting(
        [], "only the scores of these tiers; empty: all"
    )
    states: SplitList[Literal["scored", "unscored", "not_applicable"]] = setting(
        ["scored", "unscored"], "results in these states", min_length=1
    )
    explanation_chars: int = setting(
        500, "longest explanation; it may quote the trace. 0: none is sent", ge=0, le=10_000
    )
    queue: int = setting(
        10_000, "results that wait; beyond it they are dropped", ge=1, le=1_000_000
    )
    batch: int = setting(512, "most results in one request", ge=1, le=10_000)
    linger_seconds: float = setting(2, "longest wait for a full batch", ge=0, le=60)
    timeout_seconds: float = setting(10, "longest time for one request", gt=0, le=120)
    retry_seconds: float = setting(
        120, "how long a batch is tried again before it is dropped", ge=0
    )

    @field_validator("endpoint")
    @classmethod
    def _check_endpoint(cls, value: str | None) -> str | None:
        if value is not None and re.search(r"/v1/(logs|traces|metrics)/*\Z", value):
            raise ValueError("the base URL is needed: `/v1/logs` and `/v1/traces` are added")
        return value

    @model_validator(mode="after")
    def _complete(self) -> ResultsExportSettings:
        if self.endpoint is None and (self.headers is not None or self.headers_file):
            raise ValueError("headers and headers_file need endpoint: without it nothing is sent")
        check_exclusive(self, "headers")
        if self.endpoint is not None and not (self.logs or self.spans):
            raise ValueError("endpoint needs logs or spans: with neither nothing is sent")
        return self
