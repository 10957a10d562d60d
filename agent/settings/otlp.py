"""Settings of OTLP in: when a trace is taken for complete, and what open traces may cost."""

from __future__ import annotations

from pydantic import Field, SecretStr, model_validator

from agent.settings.section import Names, Section

__all__ = ["Otlp"]


class Otlp(Section):
    grace_seconds: float = Field(
        2,
        ge=0,
        description="quiet time that closes a trace whose root has come, or idle_seconds if less",
    )
    logs_grace_seconds: float = Field(
        6,
        ge=0,
        description="the same while log events carry content: exporters send them up to 5 s later",
    )
    idle_seconds: float = Field(
        30, gt=0, description="quiet time after which a trace without its root is closed"
    )
    max_age_seconds: float = Field(
        300, gt=0, description="a trace is closed so long after its first span, whatever comes"
    )
    remember_seconds: float = Field(
        3600, gt=0, description="how long a closed trace is known: spans that come later are late"
    )
    max_remembered: int = Field(
        100_000, ge=1, description="closed traces known at a time; the oldest are forgotten"
    )
    max_trace_spans: int = Field(
        10_000, ge=1, description="a trace is closed at so many spans and log events"
    )
    max_trace_bytes: int = Field(
        16 * 2**20, ge=1024, description="a trace is closed at so many bytes of spans"
    )
    max_open_traces: int = Field(
        10_000, ge=1, description="open traces; beyond it the oldest are closed early"
    )
    max_open_bytes: int = Field(
        256 * 2**20,
        ge=1024,
        description="spans of all open traces on the disk; beyond it the oldest are closed early",
    )
    max_copy_bytes: int = Field(
        64 * 2**20,
        ge=0,
        description="spans of open traces kept in memory too, which are not read from the disk",
    )
    tool_names: Names = Field(
        [], description="tools whose results are passages, by name: without it only retrievers are"
    )
    hash_ids: bool = Field(
        True, description="keep sessions and users as keyed hashes; false keeps them as they come"
    )
    session_salt: SecretStr = Field(
        SecretStr("ragmeter"), description="key of the hashes of sessions and users; set your own"
    )
    text_limit: int | None = Field(
        None,
        ge=1,
        description="the senders' limit of attribute values: text of just this length was cut",
    )

    @model_validator(mode="after")
    def _order(self) -> Otlp:
        if self.remember_seconds < self.max_age_seconds:
            raise ValueError("remember_seconds must not be under max_age_seconds")
        return self
