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
)
from ragmeter.core.clocks import parse_window

ID_PLACEHOLDER = "{id}"
_PortNumber = Annotated[int, Field(ge=0, le=65535)]


def _check_window(value: str) -> str:
    parse_window(value)
    return value


class TlsSettings(SettingsSection):
    """TLS of both ports."""

    cert_file: Path | None = None
    key_file: Path | None = None
    client_ca_file: Path | None = None

    @model_validator(mode="after")
    def _complete(self) -> TlsSettings:
        for name in ("key_file", "client_ca_file"):
            if getattr(self, name) is not None and self.cert_file is None:
                raise ValueError(f"{name} needs cert_file")
        return self


class HttpSettings(SettingsSection):
    """Addresses, tokens and TLS of the HTTP ports."""

    host: str = Field("127.0.0.1", min_length=1)
    otlp_host: str | None = Field(None, min_length=1)
    otlp_port: _PortNumber = 4318
    metrics_port: _PortNumber = 9464
    token: SecretStr | None = None
    token_file: Path | None = None
    send_token: SecretStr | None = None
    send_token_file: Path | None = None
    scrape_token: SecretStr | None = None
    scrape_token_file: Path | None = None
    tls: TlsSettings = TlsSettings()
    accept: Annotated[SplitList[Literal["open", "plain"]], Distinct] = Field([])
    names: NameList = Field([])

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

    grace_seconds: float = Field(2, ge=0)
    logs_grace_seconds: float = Field(6, ge=0)
    idle_seconds: float = Field(30, gt=0)
    max_age_seconds: float = Field(300, gt=0)
    remember_seconds: float = Field(3600, gt=0)
    max_remembered: int = Field(100_000, ge=1)
    max_trace_spans: int = Field(10_000, ge=1)
    max_trace_bytes: int = Field(16 * 2**20, ge=1024)
    max_open_traces: int = Field(10_000, ge=1)
    max_open_bytes: int = Field(256 * 2**20, ge=1024)
    max_copy_bytes: int = Field(64 * 2**20, ge=0)
    tool_names: NameList = Field([])
    excluded_tools: NameList = Field([])
    hash_ids: bool = True
    session_salt: SecretStr = SecretStr("ragmeter")
    text_limit: int | None = Field(None, ge=1)

    @model_validator(mode="after")
    def _order(self) -> OtlpSettings:
        if self.remember_seconds < self.max_age_seconds:
            raise ValueError("remember_seconds must not be under max_age_seconds")
        return self


class FeedbackSettings(SettingsSection):
    """Joining of feedback to traces."""

    horizon: Annotated[str, AfterValidator(_check_window)] | None = None
    traces: int = Field(100_000, ge=0)
    waiting: int = Field(10_000, ge=1)
    scorers: int = Field(8, ge=1)
    reserved: NameList = Field([])


class ResolverSource(SettingsSection):
    """A source of passage texts: a URL, a file or a SQLite database."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_-]{0,39}$")  # label value
    services: NameList = Field([])  # only for these services; empty: all
    url: str | None = None  # `http://host/path/{id}`
    file: Path | None = None  # JSON lines, or CSV with a header (`.csv`)
    sqlite: Path | None = None  # a SQLite file, opened for reading only
    query: str | None = None  # for `sqlite`: `SELECT text FROM chunks WHERE id = ?`
    id_field: str = Field("id", min_length=1)  # for `file`: where the id is
    # where the text is in JSON or CSV; dots between levels
    text_field: str = Field("text", min_length=1)
    headers: SecretStr | None = None  # for `url`: `Name: value`, one a line; from the environment
    # file of such lines, read anew when the server refuses the old ones
    headers_file: Path | None = None
    timeout_seconds: float = Field(2, gt=0, le=60)  # longest wait for one text
    concurrency: int = Field(8, ge=1, le=64)  # texts that are fetched at a time
    max_bytes: int = Field(256 * 2**10, ge=1, le=16 * 2**20)  # largest text

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

    sources: Annotated[list[ResolverSource], Distinct] = Field([], max_length=16)
    cache_bytes: int = Field(64 * 2**20, ge=0)
    cache_seconds: float = Field(3600, gt=0)
    negative_seconds: float = Field(60, gt=0)
    waiting: int = Field(1000, ge=1)
