"""Settings of results out: where each score goes as OpenTelemetry, and what that may cost."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, SecretStr, field_validator, model_validator

from agent.settings.section import Names, Section, base_url, listed

__all__ = ["ResultsExport"]

Tier = Literal["cheap", "model", "judge"]
Exported = Literal["scored", "unscored", "not_applicable"]


class ResultsExport(Section):
    endpoint: str | None = Field(
        None,
        description="base URL of an OTLP/HTTP receiver, without `/v1/logs`; none: nothing is sent",
    )
    headers: SecretStr | None = Field(
        None,
        description="`name=value,name=value`, values percent-encoded; from the environment",
    )
    headers_file: Path | None = Field(
        None, description="file of `name: value` lines, read anew for each request"
    )
    logs: bool = Field(True, description="send `gen_ai.evaluation.result` log events")
    spans: bool = Field(
        False, description="send OpenInference EVALUATOR spans for traces that name their span"
    )
    metrics: Names = Field([], description="only these metrics; empty: all")
    scorers: Names = Field([], description="only these scorers; empty: all")
    tiers: Annotated[list[Tier], BeforeValidator(listed)] = Field(
        [], description="only the scores of these tiers; empty: all"
    )
    states: Annotated[list[Exported], BeforeValidator(listed)] = Field(
        ["scored", "unscored"], min_length=1, description="results in these states"
    )
    explanation_chars: int = Field(
        500,
        ge=0,
        le=10_000,
        description="longest explanation; it may quote the trace. 0: none is sent",
    )
    queue: int = Field(
        10_000, ge=1, le=1_000_000, description="results that wait; beyond it they are dropped"
    )
    batch: int = Field(512, ge=1, le=10_000, description="most results in one request")
    linger_seconds: float = Field(2, ge=0, le=60, description="longest wait for a full batch")
    timeout_seconds: float = Field(10, gt=0, le=120, description="longest time for one request")
    retry_seconds: float = Field(
        120, ge=0, description="how long a batch is tried again before it is dropped"
    )

    @field_validator("endpoint")
    @classmethod
    def _base(cls, value: str | None) -> str | None:
        value = base_url(value)
        if value is not None and re.search(r"/v1/(logs|traces|metrics)/*\Z", value):
            raise ValueError("the base URL is needed: `/v1/logs` and `/v1/traces` are added")
        return value

    @model_validator(mode="after")
    def _complete(self) -> ResultsExport:
        if self.endpoint is None and (self.headers is not None or self.headers_file):
            raise ValueError("headers and headers_file need endpoint: without it nothing is sent")
        if self.headers is not None and self.headers_file is not None:
            raise ValueError("headers or headers_file, not both")
        if self.endpoint is not None and not (self.logs or self.spans):
            raise ValueError("endpoint needs logs or spans: with neither nothing is sent")
        return self
