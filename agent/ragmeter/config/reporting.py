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
)

RUNBOOK_PATH = "/runbooks"  # of the agent's copy of docs/runbooks, on the metrics port


class AlertSettings(SettingsSection):
    """Alert rules and receivers of notifications."""

    profile: Literal["conservative", "balanced", "lenient"] = "balanced"
    rules: Path | None = None
    alertmanager_url: HttpUrl | None = None
    webhook_url: HttpUrl | None = None
    page_url: HttpUrl | None = None
    runbook_url: HttpUrl | None = None
    trace_url: HttpUrl | None = None
    resend_seconds: float = Field(60, gt=0)
    evaluation_seconds: float = Field(15, ge=1)

    @property
    def runbook_base(self) -> str:
        """Base URL of the runbooks: where they are published, else the agent's own copy, or ""."""
        copy = f"{self.page_url.rstrip('/')}{RUNBOOK_PATH}" if self.page_url else ""
        return self.runbook_url or copy

    @field_validator("trace_url")
    @classmethod
    def _check_trace_url(cls, value: str | None) -> str | None:
        if value is not None and "{trace_id}" not in value:
            raise ValueError("the place of the id is needed: {trace_id}")
        return value


class SloSettings(SettingsSection):
    """An objective: which events are bad, and the share that should be good."""

    name: str = Field(min_length=1, max_length=64)  # label value of the counters
    objective: float = Field(0.99, gt=0, lt=1)  # share of events that should be good
    # `failed`: status is not ok; `error`, `timeout`: status is that one; `slow`: timings.total over
    # `seconds`; `low`, `high`: the score of `metric` by `scorer` is below or above `threshold`
    bad: Literal["failed", "error", "timeout", "slow", "low", "high"]
    seconds: float | None = Field(None, gt=0)  # for `slow`: the objective in seconds
    metric: str | None = Field(None, min_length=1)  # for `low` and `high`
    scorer: str | None = Field(None, min_length=1)  # for `low` and `high`: `builtin`
    threshold: float | None = None  # for `low` and `high`

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

    enabled: bool = True
    false_alarm_days: float = Field(30, gt=0)
    baseline_days: float = Field(14, ge=0.25, le=28)
    promote_days: float | None = Field(None, gt=0)
    max_series: int = Field(5_000, ge=1)


class ResultsExportSettings(SettingsSection):
    """Export of results to an OTLP receiver."""

    endpoint: BaseUrl | None = None
    headers: SecretStr | None = None
    headers_file: Path | None = None
    logs: bool = True
    spans: bool = False
    metrics: NameList = Field([])
    scorers: NameList = Field([])
    tiers: SplitList[Literal["cheap", "model", "judge"]] = Field([])
    states: SplitList[Literal["scored", "unscored", "not_applicable"]] = Field(
        ["scored", "unscored"], min_length=1
    )
    explanation_chars: int = Field(500, ge=0, le=10_000)
    queue: int = Field(10_000, ge=1, le=1_000_000)
    batch: int = Field(512, ge=1, le=10_000)
    linger_seconds: float = Field(2, ge=0, le=60)
    timeout_seconds: float = Field(10, gt=0, le=120)
    retry_seconds: float = Field(120, ge=0)

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
