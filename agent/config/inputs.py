"""Settings of inputs: HTTP ports, OTLP, feedback and resolvers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr, field_validator, model_validator

from ragmeter.config.base import (
    Distinct,
    NameList,
    SettingsSection,
    SplitList,
    check_exclusive,
    check_http_url,
    parse_headers,
    setting,
)
from ragmeter.core.clocks import parse_window

ID_PLACEHOLDER = "{id}"
_PortNumber = Annotated[int, Field(ge=0, le=65535)]


def _check_window(value: str) -> str:
    parse_window(value)
    return value


class TlsSettings(SettingsSection):
    """TLS of both ports."""

    cert_file: Path | None = setting(
        None, "PEM certificate with its chain, for both ports; none: no TLS"
    )
    key_file: Path | None = setting(
        None, "PEM file of its key, not encrypted; none: it is in `cert_file`"
    )
    client_ca_file: Path | None = setting(
        None, "PEM authorities; whoever asks must show a certificate of theirs"
    )

    @model_validator(mode="after")
    def _complete(self) -> TlsSettings:
        for name in ("key_file", "client_ca_file"):
            if getattr(self, name) is not None and self.cert_file is None:
                raise ValueError(f"{name} needs cert_file")
        return self


class HttpSettings(SettingsSection):
    """Addresses, tokens and TLS of the HTTP ports."""

    host: str = setting("127.0.0.1", "address to listen on; loopback by default", min_length=1)
    otlp_host: str | None = setting(
        None, "another one for the port for traces; none: as `host`", min_length=1
    )
    otlp_port: _PortNumber = setting(4318, "port for traces in; 0 picks a free one")
    metrics_port: _PortNumber = setting(9464, "port of `/metrics` and the page; 0: a free one")
    token: SecretStr | None = setting(
        None, "bearer token for everything, or several; from the environment"
    )
    token_file: Path | None = setting(
        None, "file with it; a change is noticed. Several, one a line: all are valid"
    )
    send_token: SecretStr | None = setting(
        None, "token that opens sending traces only; from the environment"
    )
    send_token_file: Path | None = setting(None, "file with it")
    scrape_token: SecretStr | None = setting(
        None, "token that opens `/metrics` only; from the environment"
    )
    scrape_token_file: Path | None = setting(None, "file with it")
    tls: TlsSettings = TlsSettings()
    accept: Annotated[SplitList[Literal["open", "plain"]], Distinct] = setting(
        [],
        "what you accept on an address that is not loopback: `open` (nobody is asked for a token "
        "or a certificate), `plain` (no TLS)",
    )
    names: NameList = setting(
        [],
        "names by which a browser may open ports that ask for nothing; addresses, single words "
        "and the host of `alerts.page_url` it may anyway",
    )

    @property
    def otlp_address(self) -> str:
        """The address of the port for traces."""
        return self.otlp_host or self.host

    @model_validator(mode="after")
    def _exclude(self) -> HttpSettings:
        check_exclusive(self, "token", "send_token", "scrape_token")
        return self


class OtlpSettings(SettingsSection):
    """Assembly of traces from OTLP spans."""

    grace_seconds: float = setting(
        2, "quiet time that closes a trace whose root has come, or idle_seconds if less", ge=0
    )
    logs_grace_seconds: float = setting(
        6, "the same while log events carry content: exporters send them up to 5 s later", ge=0
    )
    idle_seconds: float = setting(
        30, "quiet time after which a trace without its root is closed", gt=0
    )
    max_age_seconds: float = setting(
        300, "a trace is closed so long after its first span, whatever comes", gt=0
    )
    remember_seconds: float = setting(
        3600, "how long a closed trace is known: spans that come later are late", gt=0
    )
    max_remembered: int = setting(
        100_000, "closed traces known at a time; the oldest are forgotten", ge=1
    )
    max_trace_spans: int = setting(
        10_000, "a trace is closed at so many spans and log events", ge=1
    )
    max_trace_bytes: int = setting(
        16 * 2**20, "a trace is closed at so many bytes of spans", ge=1024
    )
    max_open_traces: int = setting(
        10_000, "open traces; beyond it the oldest are closed early", ge=1
    )
    max_open_bytes: int = setting(
        256 * 2**20,
        "spans of all open traces on the disk; beyond it the oldest are closed early",
        ge=1024,
    )
    max_copy_bytes: int = setting(
        64 * 2**20,
        "spans of open traces kept in memory too, which are not read from the disk",
        ge=0,
    )
    tool_names: NameList = setting(
        [], "tools whose results are passages, by name: without it only retrievers are"
    )
    hash_ids: bool = setting(
        True, "keep sessions and users as keyed hashes; false keeps them as they come"
    )
    session_salt: SecretStr = setting(
        SecretStr("ragmeter"), "key of the hashes of sessions and users; set your own"
    )
    text_limit: int | None = setting(
        None, "the senders' limit of attribute values: text of just this length was cut", ge=1
    )

    @model_validator(mode="after")
    def _order(self) -> OtlpSettings:
        if self.remember_seconds < self.max_age_seconds:
            raise ValueError("remember_seconds must not be under max_age_seconds")
        return self


class FeedbackSettings(SettingsSection):
    """Joining of feedback to traces."""

    horizon: Annotated[str, AfterValidator(_check_window)] | None = setting(
        None,
        "how long a trace waits for labels, and labels for their trace; none, and at most: the "
        "longest window, for later ones would have none to enter",
    )
    traces: int = setting(
        100_000,
        "traces remembered for their labels, some 350 bytes each; beyond it the oldest are "
        "forgotten. On Kafka each partition has an equal part. 0: no feedback",
        ge=0,
    )
    waiting: int = setting(
        10_000,
        "feedback waiting for its trace; beyond it the oldest is shed. On Kafka each partition "
        "has an equal part",
        ge=1,
    )
    scorers: int = setting(8, "names of scorers in feedback with series of their own", ge=1)


class ResolverSource(SettingsSection):
    """A source of passage texts: a URL, a file or a SQLite database."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_-]{0,39}$", description="label value")
    services: NameList = setting([], "only for these services; empty: all")
    url: str | None = setting(None, "`http://host/path/{id}`")
    file: Path | None = setting(None, "JSON lines, or CSV with a header (`.csv`)")
    sqlite: Path | None = setting(None, "a SQLite file, opened for reading only")
    query: str | None = setting(None, "for `sqlite`: `SELECT text FROM chunks WHERE id = ?`")
    id_field: str = setting("id", "for `file`: where the id is", min_length=1)
    text_field: str = setting(
        "text", "where the text is in JSON or CSV; dots between levels", min_length=1
    )
    headers: SecretStr | None = setting(
        None, "for `url`: `Name: value`, one a line; from the environment"
    )
    headers_file: Path | None = setting(
        None, "file of such lines, read anew when the server refuses the old ones"
    )
    timeout_seconds: float = setting(2, "longest wait for one text", gt=0, le=60)
    concurrency: int = setting(8, "texts that are fetched at a time", ge=1, le=64)
    max_bytes: int = setting(256 * 2**10, "largest text", ge=1, le=16 * 2**20)

    @field_validator("url")
    @classmethod
    def _check_template(cls, value: str | None) -> str | None:
        if value is None:
            return None
        if value.count(ID_PLACEHOLDER) != 1:
            raise ValueError(f"one {ID_PLACEHOLDER} is needed")
        check_http_url(value.replace(ID_PLACEHOLDER, "x"))
        parts = urlsplit(value)
        if ID_PLACEHOLDER not in parts.path + parts.query:
            raise ValueError(f"{ID_PLACEHOLDER} must stand in the path or the query")
        return value

    @field_validator("query")
    @classmethod
    def _check_query(cls, value: str | None) -> str | None:
        if value is not None and (value.count("?") != 1 or not re.match(r"(?i)\s*select\b", value)):
            raise ValueError("a SELECT with one `?` for the id is needed")
        return value

    @field_validator("headers")
    @classmethod
    def _check_headers(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None:
            parse_headers(value.get_secret_value())
        return value

    @model_validator(mode="after")
    def _complete(self) -> ResolverSource:
        if sum(source is not None for source in (self.url, self.file, self.sqlite)) != 1:
            raise ValueError("one of url, file and sqlite is needed")
        if (self.sqlite is None) != (self.query is None):
            raise ValueError("sqlite and query need each other")
        if self.url is None and (self.headers or self.headers_file):
            raise ValueError("headers are for a url")
        check_exclusive(self, "headers")
        return self


class ResolverSettings(SettingsSection):
    """Look-up of passage texts by id."""

    sources: Annotated[list[ResolverSource], Distinct] = setting(
        [], "where texts are looked up; the first that has one gives it", max_length=16
    )
    cache_bytes: int = setting(64 * 2**20, "texts remembered", ge=0)
    cache_seconds: float = setting(3600, "how long a text is remembered", gt=0)
    negative_seconds: float = setting(60, "how long it is remembered that there is none", gt=0)
    waiting: int = setting(1000, "traces that wait for texts; others go on without them", ge=1)
