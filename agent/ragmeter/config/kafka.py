"""Settings of Kafka: brokers, topics, retention, security and workers."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, SecretStr, field_validator, model_validator

from ragmeter.config.base import NameList, SettingsSection, check_exclusive, check_http_url

log = logging.getLogger(__name__)

# Others write these, so they may have had their names before. The other topics have those that the
# prefix gives them.
_NAMED_TOPICS = ("traces", "feedback")
TOPIC_KINDS = (*_NAMED_TOPICS, "spans", "scores", "dead", "control")
TracesEncoding = Literal["auto", "native", "otlp_proto", "otlp_json"]
_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")  # Kafka's rule
_TOPIC_PREFIX = r"^[A-Za-z0-9._-]{0,200}$"
_NAME = r"^[A-Za-z0-9._-]{1,200}$"
_SERVER_ADDRESS = re.compile(r"(?:\[[0-9A-Fa-f:.]+(?:%[\w.-]+)?\]|[A-Za-z0-9._-]+):(\d{1,5})")


def _check_topic(value: str) -> str:
    if not _TOPIC_NAME.fullmatch(value) or value in (".", ".."):
        raise ValueError("1 to 249 letters, digits, dots, underscores and hyphens are needed")
    return value


class KafkaTopics(SettingsSection):
    """Names of the topics."""

    prefix: str = Field(
        "rag.", pattern=_TOPIC_PREFIX, description="of every topic that is not named below"
    )
    traces: str = Field("rag.traces", description="traces in")
    feedback: str = Field("rag.feedback", description="labels in: what is said of traces later")

    @model_validator(mode="before")
    @classmethod
    def _add_prefix(cls, data: Any) -> Any:
        prefix = data.get("prefix") if isinstance(data, dict) else None
        if isinstance(prefix, str) and re.match(_TOPIC_PREFIX, prefix):
            return {kind: f"{prefix}{kind}" for kind in _NAMED_TOPICS} | data
        return data

    _check = field_validator(*_NAMED_TOPICS)(_check_topic)

    @property
    def written_by_others(self) -> tuple[str, ...]:
        """The topics in which the messages of others arrive."""
        return tuple(getattr(self, kind) for kind in _NAMED_TOPICS)

    @property
    def spans(self) -> str:
        """The topic of the parts of traces that came as OTLP, by trace id."""
        return f"{self.prefix}spans"

    @property
    def scores(self) -> str:
        """The topic of scored traces, keyed by service."""
        return f"{self.prefix}scores"

    @property
    def dead(self) -> str:
        """The topic of what could not be read, as it came."""
        return f"{self.prefix}dead"

    @property
    def control(self) -> str:
        """The topic of what the halves of the agent tell each other."""
        return f"{self.prefix}control"

    @model_validator(mode="after")
    def _distinct(self) -> KafkaTopics:
        if len({getattr(self, kind) for kind in TOPIC_KINDS}) < len(TOPIC_KINDS):
            raise ValueError("six different topics are needed")
        return self


class KafkaOAuth(SettingsSection):
    """Where the token of OAUTHBEARER comes from: a token endpoint, or a file that others renew."""

    token_url: str | None = Field(
        None, description="token endpoint, asked by the client credentials grant"
    )
    client_id: str | None = Field(None, min_length=1, description="of the client at `token_url`")
    client_secret: SecretStr | None = Field(
        None, description="of the client at `token_url`; from the environment"
    )
    client_secret_file: Path | None = Field(None, description="file with the secret")
    scope: str | None = Field(
        None, min_length=1, description="scopes to ask `token_url` for, blanks apart"
    )
    token_file: Path | None = Field(
        None,
        description=(
            "file with a token, read at every connection: of Kubernetes' projected service "
            "accounts, or of a program that signs one"
        ),
    )
    extensions: dict[str, str] = Field(
        default_factory=dict,
        description="SASL extensions, as `logicalCluster` and `identityPoolId` of Confluent Cloud",
    )

    @field_validator("token_url")
    @classmethod
    def _check_url(cls, value: str | None) -> str | None:
        return None if value is None else check_http_url(value)

    @field_validator("extensions")
    @classmethod
    def _check_extensions(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():  # RFC 7628
            if not re.fullmatch("[A-Za-z]+", name) or name == "auth":
                raise ValueError("letters are needed for a name, and another one than auth")
            if not re.fullmatch(r"[\x20-\x7e\t\r\n]*", text):
                raise ValueError("printable ASCII is needed")
        return value

    @property
    def given(self) -> bool:
        """Whether a token can come from anywhere."""
        return self.token_url is not None or self.token_file is not None

    @model_validator(mode="after")
    def _complete(self) -> KafkaOAuth:
        check_exclusive(self, "client_secret")
        credentials = ("client_id", "client_secret", "client_secret_file", "scope")
        words = [name for name in credentials if getattr(self, name) is not None]
        if self.token_url is not None and self.token_file is not None:
            raise ValueError("token_url or token_file, not both")
        if self.token_url is None and words:
            raise ValueError(f"{words[0]} is for token_url, which is not given")
        if self.token_url is not None and (
            self.client_id is None or (self.client_secret or self.client_secret_file) is None
        ):
            raise ValueError(
                "token_url needs client_id, and either client_secret or client_secret_file"
            )
        return self


class KafkaSecurity(SettingsSection):
    """Encryption and authentication towards the brokers."""

    protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = Field(
        "PLAINTEXT", description="as the brokers' listener has it; only `..SSL` is encrypted"
    )
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] = Field(
        "SCRAM-SHA-512",
        description="for `SASL_..`: how the password is proved, or `OAUTHBEARER` for a token",
    )
    username: str | None = Field(None, min_length=1, description="for `SASL_..`")
    password: SecretStr | None = Field(None, description="for `SASL_..`; from the environment")
    password_file: Path | None = Field(None, description="file with the password")
    oauth: KafkaOAuth = KafkaOAuth()
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
        """Whether clients authenticate."""
        return self.protocol.startswith("SASL_")

    @property
    def tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.protocol.endswith("SSL")

    @model_validator(mode="after")
    def _complete(self) -> KafkaSecurity:
        words = ("username", "password", "password_file")
        files = ("ca_file", "cert_file", "key_file")
        given = [name for name in words if getattr(self, name) is not None]
        if self.oauth.given:
            given.append("oauth")
        if not self.sasl:
            if given:
                other = "SASL_SSL" if self.tls else "SASL_PLAINTEXT or SASL_SSL"
                raise ValueError(f"protocol {self.protocol} has no {given[0]}; is {other} meant?")
        elif self.mechanism == "OAUTHBEARER":
            if given != ["oauth"]:
                raise ValueError(
                    "mechanism OAUTHBEARER needs oauth.token_url or oauth.token_file,"
                    " and no username or password"
                )
        elif self.oauth.given:
            raise ValueError(f"mechanism {self.mechanism} has no oauth; is OAUTHBEARER meant?")
        elif self.username is None or (self.password is None) == (self.password_file is None):
            raise ValueError(
                f"protocol {self.protocol} needs username, and either password or password_file"
            )
        if not self.tls and (given := [name for name in files if getattr(self, name) is not None]):
            other = "SASL_SSL" if self.sasl else "SSL or SASL_SSL"
            raise ValueError(f"protocol {self.protocol} has no {given[0]}; is {other} meant?")
        if self.key_file is not None and self.cert_file is None:
            raise ValueError("key_file needs cert_file")
        return self


class KafkaSettings(SettingsSection):
    """Brokers, topics and workers."""

    bootstrap_servers: NameList = Field(
        ["127.0.0.1:9092"], min_length=1, description="brokers to ask first, as host:port"
    )
    group: str = Field(
        "ragmeter",
        pattern=_NAME,
        description=(
            "consumer group of the workers, their name in the brokers' logs and quotas, and the "
            "first part of the state's topics; another group counts everything anew"
        ),
    )
    topics: KafkaTopics = KafkaTopics()
    partitions: int = Field(
        8,
        ge=1,
        le=10_000,
        description=(
            "of the traces, the scores and the state: most workers that share the work; those of "
            "scores and state cannot be changed later"
        ),
    )
    replication: int | None = Field(
        None, ge=1, le=100, description="copies of every topic, 3 to lose nothing; none: broker's"
    )
    retention_hours: float = Field(
        72,
        ge=1,
        le=24 * 3650,
        description=(
            "how long traces, spans and scored traces are kept: longest outage of the workers, "
            "replay, evidence"
        ),
    )
    traces_encoding: TracesEncoding = Field(
        "auto",
        description=(
            "of messages without a header `encoding`: traces as JSON (native), requests of "
            "OpenTelemetry (otlp_proto, otlp_json), or each as it looks; with native there are no "
            "topics for spans"
        ),
    )
    in_flight: int = Field(
        2000, ge=1, le=65_536, description="traces of a partition that a worker has under way"
    )
    session_seconds: float = Field(
        30,
        ge=6,
        le=60,
        description=(
            "a worker that was killed is replaced after so long; one whose process hangs for "
            "longer is put out of the group"
        ),
    )
    security: KafkaSecurity = KafkaSecurity()

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
