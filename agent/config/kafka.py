"""Settings of Kafka: brokers, topics, retention, security and workers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, SecretStr, field_validator, model_validator

from ragmeter.config.base import NameList, SettingsSection

TOPIC_KINDS = ("traces", "spans", "scores", "dead", "feedback", "control")
TracesEncoding = Literal["auto", "native", "otlp_proto", "otlp_json"]
TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")  # what Kafka takes
TOPIC_PREFIX = r"^[A-Za-z0-9._-]{0,200}$"
SERVER_ADDRESS = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(\d{1,5})")


def _check_topic(value: str) -> str:
    if not TOPIC_NAME.fullmatch(value) or value in (".", ".."):
        raise ValueError("1 to 249 letters, digits, dots, underscores and hyphens are needed")
    return value


class KafkaTopics(SettingsSection):
    prefix: str = Field(
        "rag.",
        pattern=TOPIC_PREFIX,
        description="of every name below that is not given",
    )
    traces: str = Field("rag.traces", description="traces in")
    spans: str = Field("rag.spans", description="parts of traces that came as OTLP, by trace id")
    scores: str = Field("rag.scores", description="scored traces, keyed by service")
    dead: str = Field("rag.dead", description="what could not be read, as it came")
    feedback: str = Field("rag.feedback", description="labels in: what is said of traces later")
    control: str = Field("rag.control", description="what the halves of the agent tell each other")

    @model_validator(mode="before")
    @classmethod
    def _prefixed(cls, data: Any) -> Any:
        prefix = data.get("prefix") if isinstance(data, dict) else None
        if isinstance(prefix, str) and re.match(TOPIC_PREFIX, prefix):
            return {kind: f"{prefix}{kind}" for kind in TOPIC_KINDS} | data
        return data

    _sound = field_validator(*TOPIC_KINDS)(_check_topic)

    @model_validator(mode="after")
    def _distinct(self) -> KafkaTopics:
        if len({getattr(self, kind) for kind in TOPIC_KINDS}) < len(TOPIC_KINDS):
            raise ValueError("six different topics are needed")
        return self


RetentionHours = Annotated[float, Field(ge=1, le=24 * 3650)]


class KafkaRetention(SettingsSection):
    traces_hours: RetentionHours = Field(
        72, description="how long traces are kept: longest outage of the workers, replay, evidence"
    )
    spans_hours: RetentionHours = Field(72, description="how long spans are kept: as for traces")
    scores_hours: RetentionHours = Field(72, description="how long scored traces are kept")
    dead_hours: RetentionHours = Field(336, description="how long what could not be read is kept")
    feedback_hours: RetentionHours = Field(336, description="how long feedback is kept")


class KafkaSecurity(SettingsSection):
    protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = Field(
        "PLAINTEXT", description="as the brokers' listener has it; only `..SSL` is encrypted"
    )
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = Field(
        "SCRAM-SHA-512", description="how the password is proved, for `SASL_..`"
    )
    username: str | None = Field(None, min_length=1, description="for `SASL_..`")
    password: SecretStr | None = Field(None, description="for `SASL_..`; from the environment")
    password_file: Path | None = Field(None, description="file with the password")
    ca_file: Path | None = Field(
        None, description="PEM file of the authorities to trust, for `..SSL`; none: the system's"
    )
    cert_file: Path | None = Field(
        None, description="PEM file of the client's certificate (chain), for `..SSL`"
    )
    key_file: Path | None = Field(
        None, description="PEM file of its key, not encrypted; none: it is in `cert_file`"
    )
    check_hostname: bool = Field(
        True, description="whether the broker's certificate must name the host that was called"
    )

    @property
    def sasl(self) -> bool:
        return self.protocol.startswith("SASL_")

    @property
    def tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @model_validator(mode="after")
    def _complete(self) -> KafkaSecurity:
        words = ("username", "password", "password_file")
        files = ("ca_file", "cert_file", "key_file")
        if self.sasl:
            if self.username is None or (self.password is None) == (self.password_file is None):
                raise ValueError(
                    f"protocol {self.protocol} needs username, and either password or password_file"
                )
        elif given := [name for name in words if getattr(self, name) is not None]:
            other = "SASL_SSL" if self.tls else "SASL_PLAINTEXT or SASL_SSL"
            raise ValueError(f"protocol {self.protocol} has no {given[0]}; is {other} meant?")
        if not self.tls and (given := [name for name in files if getattr(self, name) is not None]):
            other = "SASL_SSL" if self.sasl else "SSL or SASL_SSL"
            raise ValueError(f"protocol {self.protocol} has no {given[0]}; is {other} meant?")
        if self.key_file is not None and self.cert_file is None:
            raise ValueError("key_file needs cert_file")
        return self


class KafkaSettings(SettingsSection):
    bootstrap_servers: NameList = Field(
        ["127.0.0.1:9092"], min_length=1, description="brokers to ask first, as host:port"
    )
    client_id: str = Field(
        "ragmeter",
        pattern=r"^[A-Za-z0-9._-]{1,200}$",
        description="name in the brokers' logs and quotas",
    )
    group: str = Field(
        "ragmeter",
        pattern=r"^[A-Za-z0-9._-]{1,200}$",
        description="consumer group of the workers, and the first part of the state's topics;"
        " another group counts everything anew",
    )
    topics: KafkaTopics = KafkaTopics()
    partitions: int = Field(
        8,
        ge=1,
        le=10_000,
        description="of the traces, the scores and the state: most workers that share the work;"
        " those of scores and state cannot be changed later",
    )
    replication: int | None = Field(
        None, ge=1, le=100, description="copies of every topic, 3 to lose nothing; none: broker's"
    )
    retention: KafkaRetention = KafkaRetention()
    traces_encoding: TracesEncoding = Field(
        "auto",
        description="of messages without a header `encoding`: traces as JSON (native), requests of"
        " OpenTelemetry (otlp_proto, otlp_json), or each as it looks; with native there are no"
        " topics for spans",
    )
    traces_epoch: int = Field(
        0,
        ge=0,
        description="raise it by one when the topic of the traces or the spans was made anew",
    )
    feedback_epoch: int = Field(0, ge=0, description="the same for the topic of the feedback")
    feedback_service: str | None = Field(
        None,
        min_length=1,
        max_length=512,
        description="service of feedback over Kafka that names none; none: it is a dead letter",
    )
    in_flight: int = Field(
        256, ge=1, le=65_536, description="traces a worker has under way; the same on all workers"
    )
    dedupe_hours: float = Field(
        48, gt=0, description="event-time hours in which the same trace id counts once"
    )
    session_seconds: float = Field(
        30,
        ge=6,
        le=60,
        description="a worker that was killed is replaced after so long; one whose process hangs"
        " for longer is put out of the group",
    )
    evidence_bytes: int = Field(
        32 * 2**20,
        ge=0,
        description="texts of the worst traces that a partition of the state keeps, compressed;"
        " beyond it scores only",
    )
    timeout_seconds: float = Field(
        15, ge=1, le=300, description="longest time for a command to reach a broker"
    )
    security: KafkaSecurity = KafkaSecurity()

    @property
    def counted_topics(self) -> tuple[str, ...]:
        """What the workers read and commit of traces, in the order of their way."""
        names = self.topics
        spans = () if self.traces_encoding == "native" else (names.spans,)
        return (names.traces, *spans, names.scores)

    @field_validator("bootstrap_servers")
    @classmethod
    def _servers(cls, value: list[str]) -> list[str]:
        for server in value:
            found = SERVER_ADDRESS.fullmatch(server)
            if found is None or not 0 < int(found[1]) < 65_536:
                raise ValueError("each server is host:port, without a scheme")
        return value
