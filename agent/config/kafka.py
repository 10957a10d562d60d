"""Settings of Kafka: brokers, topics, retention, security and workers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, SecretStr, field_validator, model_validator

from ragmeter.config.base import NameList, SettingsSection, setting

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

    prefix: str = setting("rag.", "of every name below that is not given", pattern=_TOPIC_PREFIX)
    traces: str = setting("rag.traces", "traces in")
    spans: str = setting("rag.spans", "parts of traces that came as OTLP, by trace id")
    scores: str = setting("rag.scores", "scored traces, keyed by service")
    dead: str = setting("rag.dead", "what could not be read, as it came")
    feedback: str = setting("rag.feedback", "labels in: what is said of traces later")
    control: str = setting("rag.control", "what the halves of the agent tell each other")

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

    traces_hours: _RetentionHours = setting(
        72, "how long traces are kept: longest outage of the workers, replay, evidence"
    )
    spans_hours: _RetentionHours = setting(72, "how long spans are kept: as for traces")
    scores_hours: _RetentionHours = setting(72, "how long scored traces are kept")
    dead_hours: _RetentionHours = setting(336, "how long what could not be read is kept")
    feedback_hours: _RetentionHours = setting(336, "how long feedback is kept")


class KafkaSecurity(SettingsSection):
    """Encryption and authentication towards the brokers."""

    protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = setting(
        "PLAINTEXT", "as the brokers' listener has it; only `..SSL` is encrypted"
    )
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = setting(
        "SCRAM-SHA-512", "how the password is proved, for `SASL_..`"
    )
    username: str | None = setting(None, "for `SASL_..`", min_length=1)
    password: SecretStr | None = setting(None, "for `SASL_..`; from the environment")
    password_file: Path | None = setting(None, "file with the password")
    ca_file: Path | None = setting(
        None, "PEM file of the authorities to trust, for `..SSL`; none: the system's"
    )
    cert_file: Path | None = setting(
        None, "PEM file of the client's certificate (chain), for `..SSL`"
    )
    key_file: Path | None = setting(
        None, "PEM file of its key, not encrypted; none: it is in `cert_file`"
    )
    check_hostname: bool = setting(
        True, "whether the broker's certificate must name the host that was called"
    )

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

    bootstrap_servers: NameList = setting(
        ["127.0.0.1:9092"], "brokers to ask first, as host:port", min_length=1
    )
    client_id: str = setting("ragmeter", "name in the brokers' logs and quotas", pattern=_NAME)
    group: str = setting(
        "ragmeter",
        "consumer group of the workers, and the first part of the state's topics; another group "
        "counts everything anew",
        pattern=_NAME,
    )
    topics: KafkaTopics = KafkaTopics()
    partitions: int = setting(
        8,
        "of the traces, the scores and the state: most workers that share the work; those of "
        "scores and state cannot be changed later",
        ge=1,
        le=10_000,
    )
    replication: int | None = setting(
        None, "copies of every topic, 3 to lose nothing; none: broker's", ge=1, le=100
    )
    retention: KafkaRetention = KafkaRetention()
    traces_encoding: TracesEncoding = setting(
        "auto",
        "of messages without a header `encoding`: traces as JSON (native), requests of "
        "OpenTelemetry (otlp_proto, otlp_json), or each as it looks; with native there are no "
        "topics for spans",
    )
    traces_epoch: int = setting(
        0, "raise it by one when the topic of the traces or the spans was made anew", ge=0
    )
    feedback_epoch: int = setting(0, "the same for the topic of the feedback", ge=0)
    feedback_service: str | None = setting(
        None,
        "service of feedback over Kafka that names none; none: it is a dead letter",
        min_length=1,
        max_length=512,
    )
    in_flight: int = setting(
        256, "traces a worker has under way; the same on all workers", ge=1, le=65_536
    )
    dedupe_hours: float = setting(
        48, "event-time hours in which the same trace id counts once", gt=0
    )
    session_seconds: float = setting(
        30,
        "a worker that was killed is replaced after so long; one whose process hangs for longer "
        "is put out of the group",
        ge=6,
        le=60,
    )
    evidence_bytes: int = setting(
        32 * 2**20,
        "texts of the worst traces that a partition of the state keeps, compressed; beyond it "
        "scores only",
        ge=0,
    )
    timeout_seconds: float = setting(
        15, "longest time for a command to reach a broker", ge=1, le=300
    )
    security: KafkaSecurity = KafkaSecurity()

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
