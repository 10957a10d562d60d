"""Settings of reporting: alerts and the export of results."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, SecretStr, field_validator, model_validator

from ragmeter.config.base import (
    BaseUrl,
    SecretUrl,
    SettingsSection,
    check_base_url,
    check_exclusive,
    split_names,
)

RUNBOOK_PATH = "/runbooks"  # of the agent's copy of docs/runbooks, on the metrics port

_PATH_OF_API = re.compile(r"/api/v[12](/alerts)?/*$")
_OneOrMoreUrls = Annotated[
    list[SecretUrl], BeforeValidator(split_names, json_schema_input_type=str | list[SecretUrl])
]


class AlertSettings(SettingsSection):
    """Alert rules and receivers of notifications."""

    profile: Literal["sensitive", "balanced", "quiet"] = Field(
        "balanced", description="which thresholds of the rules hold"
    )
    rules: Path | None = Field(
        None, description="YAML file of rules, laid over the default ones by name"
    )
    alertmanager_url: _OneOrMoreUrls = Field(
        [],
        description=(
            "base URL of an Alertmanager (API v2), or of each one of a cluster: all are told, as"
            " Prometheus does it"
        ),
    )
    webhook_url: SecretUrl | None = Field(
        None, description="URL that gets every notification as JSON"
    )
    page_url: SecretUrl | None = Field(
        None, description="public URL of the status page, for links in notifications"
    )
    runbook_url: SecretUrl | None = Field(
        None,
        description=(
            "base URL under which docs/runbooks is published (else the status page's "
            "`/runbooks`), for links in notifications and in the rules for Prometheus"
        ),
    )
    trace_url: SecretUrl | None = Field(
        None,
        description=(
            "address of a trace in your tracing backend, for links on the page; `{trace_id}` and "
            "`{service}` stand for its own"
        ),
    )
    evaluation_seconds: float = Field(
        15, ge=1, description="event-time seconds between two evaluations of the rules"
    )

    @property
    def runbook_base(self) -> str:
        """Base URL of the runbooks: where they are published, else the agent's own copy, or ""."""
        if self.runbook_url is not None:
            return self.runbook_url.get_secret_value()
        if self.page_url is not None:
            return self.page_url.get_secret_value().rstrip("/") + RUNBOOK_PATH
        return ""

    @property
    def trace_template(self) -> str:
        """Address of a trace in the tracing backend, for links on the page, or ""."""
        return self.trace_url.get_secret_value() if self.trace_url is not None else ""

    @field_validator("alertmanager_url")
    @classmethod
    def _check_alertmanagers(cls, value: list[SecretUrl]) -> list[SecretUrl]:
        if len(set(value)) != len(value):
            raise ValueError("each URL once")
        for url in value:
            if _PATH_OF_API.search(check_base_url(url).get_secret_value()):
                raise ValueError("a base URL ends before /api/v2, which is added to it")
        return value

    @field_validator("trace_url")
    @classmethod
    def _check_trace_url(cls, value: SecretUrl | None) -> SecretUrl | None:
        if value is not None and "{trace_id}" not in value.get_secret_value():
            raise ValueError("the place of the id is needed: {trace_id}")
        return value


class ResultsExportSettings(SettingsSection):
    """Export of results to an OTLP receiver."""

    endpoint: BaseUrl | None = Field(
        None,
        description=(
            "base URL of an OTLP/HTTP receiver, without `/v1/logs`, for the extra `otel`; none: "
            "nothing is sent"
        ),
    )
    headers: SecretStr | None = Field(
        None, description="`name=value,name=value`, values percent-encoded; from the environment"
    )
    headers_file: Path | None = Field(
        None, description="file of `name: value` lines, read anew for each request"
    )

    @field_validator("endpoint")
    @classmethod
    def _check_endpoint(cls, value: SecretUrl | None) -> SecretUrl | None:
        signal = r"/v1/(logs|traces|metrics)/*\Z"
        if value is not None and re.search(signal, value.get_secret_value()):
            raise ValueError("the base URL is needed: `/v1/logs` is added")
        return value

    @model_validator(mode="after")
    def _complete(self) -> ResultsExportSettings:
        if self.endpoint is None and (self.headers is not None or self.headers_file):
            raise ValueError("headers and headers_file need endpoint: without it nothing is sent")
        check_exclusive(self, "headers")
        return self
