"""Settings of Kafka: brokers, topics, retention, security and workers."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, SecretStr, field_validator, model_validator

from ragmeter.config.base import NameList, SettingsSection

log = logging.getLogger(__name__)

TOPIC_KINDS = ("traces", "spans", "scores", "dead", "feedback", "control")
TracesEncoding = Literal["auto", "native", "otlp_proto", "otlp_json"]
_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")  # Kafka's rule
_TOPIC_PREFIX = r"^[A-Za-z0-9._-]{0,200}$"
_NAME = r"^[A-Za-z0-9._-]{1,200}$"
_SERVER_ADDRESS = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(\d{1,5})")


def _check_topic(value: str) -> str:
    if not _TOPIC_NAME.fullmatch(value) or value in (".", ".."):
        raise ValueError("1 to 249 letters, digits, dots, underscores and hyphens are needed")
    return value


class KafkaTopics(SettingsSection):
    """Names of the topics."""

    prefix: str = Field("rag.", pattern=_TOPIC_PREFIX)
    traces: str = "rag.traces"
    spans: str = "rag.spans"
    scores: str = "rag.scores"
    dead: str = "rag.dead"
    feedback: str = "rag.feedback"
    control: str = "rag.control"

    @model_validator(mode="before")
    @classmethod
    def _add_prefix(cls, data: Any) -> Any:
        prefix = data.get("prefix") if isinstance(data, dict) else None
        if isinstance(prefix, str) and re.match(_TOPIC_PREFIX, prefix):
            return {kind: f"{prefix}{kind}" for kind in TOPIC_KINDS} | data
        return data

    _check = field_validator(*TOPIC_KINDS)(_check_topic)

    @model_validator(mode="after")
    def _distinct(self) -> KafkaTopics:
        if len({getattr(self, kind) for kind in TOPIC_KINDS}) < len(TOPIC_KINDS):
            raise ValueError("six different topics are needed")
        return self


_RetentionHours = Annotated[float, Field(ge=1, le=24 * 3650)]


class KafkaRetention(SettingsSection):
    """How long the brokers keep each topic."""

    traces_hours: _RetentionHours = 72
    spans_hours: _RetentionHours = 72
    scores_hours: _RetentionHours = 72
    dead_hours: _RetentionHours = 336
    feedback_hours: _RetentionHours = 336


class KafkaSecurity(SettingsSection):
    """Encryption and authentication towards the brokers."""

    protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "SCRAM-SHA-512"
    username: str | None = Field(None, min_length=1)
    password: SecretStr | None = None
    password_file: Path | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    check_hostname: bool = True

    @property
    def sasl(self) -> bool:
        """Whether clients authenticate."""
        return self.protocol.startswith("SASL_")

    @property
    def tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.protocol.endswith("SSL")

    @model_validator(mode="after")
    def _complete(self) -> KafkaSecurity:
        credentials = ("username", "password", "password_file")
        files = ("ca_file", "cert_file", "key_file")
        if self.sasl:
            if self.username is None or (self.password is None) == (self.password_file is None):
                raise ValueError(
                    f"protocol {self.protocol} needs username, and either password or password_file"
                )
        elif given := [name for name in credentials if getattr(self, name) is not None]:
            other = "SASL_SSL" if self.tls else "SASL_PLAINTEXT or SASL_SSL"
            raise ValueError(f"protocol {self.protocol} has no {given[0]}; is {other} meant?")
        if not self.tls and (given := [name for name in files if getattr(self, name) is not None]):
            other = "SASL_SSL" if self.sasl else "SSL or SASL_SSL"
            raise ValueError(f"protocol {self.protocol} has no {given[0]}; is {other} meant?")
        if self.key_file is not None and self.cert_file is None:
            raise ValueError("key_file needs cert_file")
        return self


class KafkaSettings(SettingsSection):
    """Brokers, topics and workers."""

    bootstrap_servers: NameList = Field(["127.0.0.1:9092"], min_length=1)
    client_id: str = Field("ragmeter", pattern=_NAME)
    group: str = Field("ragmeter", pattern=_NAME)
    topics: KafkaTopics = KafkaTopics()
    partitions: int = Field(8, ge=1, le=10_000)
    replication: int | None = Field(None, ge=1, le=100)
    retention: KafkaRetention = KafkaRetention()
    traces_encoding: TracesEncoding = "auto"
    feedback_service: str | None = Field(None, min_length=1, max_length=512)
    in_flight: int = Field(2000, ge=1, le=65_536)
    dedupe_hours: float = Field(48, gt=0)
    session_seconds: float = Field(30, ge=6, le=60)
    evidence_bytes: int = Field(32 * 2**20, ge=0)
    timeout_seconds: float = Field(15, ge=1, le=300)
    security: KafkaSecurity = KafkaSecurity()

    @model_validator(mode="before")
    @classmethod
    def _drop_removed(cls, value: Any) -> Any:
        # files of 0.1 may name them
        removed = {"feedback_epoch", "traces_epoch"}
        if not isinstance(value, dict) or removed.isdisjoint(value):
            return value
        for name in sorted(removed & value.keys()):
            log.warning("the setting kafka.%s has no effect any more; remove it", name)
        return {name: one for name, one in value.items() if name not in removed}

    @property
    def score_group(self) -> str:
        """The consumer group that reads traces and feedback."""
        return f"{self.group}-score"

    @property
    def counted_topics(self) -> tuple[str, ...]:
        """The topics of traces that workers consume, in the order of processing."""
        names = self.topics
        spans = () if self.traces_encoding == "native" else (names.spans,)
        return (names.traces, *spans, names.scores)

    @field_validator("bootstrap_servers")
    @classmethod
    def _check_servers(cls, value: list[str]) -> list[str]:
        for server in value:
            match = _SERVER_ADDRESS.fullmatch(server)
            if match is None or not 0 < int(match[1]) < 65_536:
                raise ValueError("each server is host:port, without a scheme")
        return value
