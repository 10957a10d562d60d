"""Settings of the ports: where they listen, who may use them, and how that is encrypted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, SecretStr, field_validator, model_validator

from agent.settings.section import Names, Section, distinct, listed

__all__ = ["Http", "Tls"]

Port = Annotated[int, Field(ge=0, le=65535)]
Accepted = Literal["open", "plain"]


class Tls(Section):
    cert_file: Path | None = Field(
        None, description="PEM certificate with its chain, for both ports; none: no TLS"
    )
    key_file: Path | None = Field(
        None, description="PEM file of its key, not encrypted; none: it is in `cert_file`"
    )
    client_ca_file: Path | None = Field(
        None, description="PEM authorities; whoever asks must show a certificate of theirs"
    )

    @model_validator(mode="after")
    def _whole(self) -> Tls:
        for name in ("key_file", "client_ca_file"):
            if getattr(self, name) is not None and self.cert_file is None:
                raise ValueError(f"{name} needs cert_file")
        return self


class Http(Section):
    host: str = Field(
        "127.0.0.1", min_length=1, description="address to listen on; loopback by default"
    )
    otlp_host: str | None = Field(
        None, min_length=1, description="another one for the port for traces; none: as `host`"
    )
    otlp_port: Port = Field(4318, description="port for traces in; 0 picks a free one")
    metrics_port: Port = Field(9464, description="port of `/metrics` and the page; 0: a free one")
    token: SecretStr | None = Field(
        None, description="bearer token for everything, or several; from the environment"
    )
    token_file: Path | None = Field(
        None, description="file with it; a change is noticed. Several, one a line: all are valid"
    )
    send_token: SecretStr | None = Field(
        None, description="token that opens sending traces only; from the environment"
    )
    send_token_file: Path | None = Field(None, description="file with it")
    scrape_token: SecretStr | None = Field(
        None, description="token that opens `/metrics` only; from the environment"
    )
    scrape_token_file: Path | None = Field(None, description="file with it")
    tls: Tls = Tls()
    accept: Annotated[list[Accepted], BeforeValidator(listed)] = Field(
        [],
        description="what you accept on an address that is not loopback: `open` (nobody is asked"
        " for a token or a certificate), `plain` (no TLS)",
    )
    names: Names = Field(
        [],
        description="names by which a browser may open ports that ask for nothing; addresses,"
        " single words and the host of `alerts.page_url` it may anyway",
    )

    @property
    def otlp_address(self) -> str:
        """Where traces are taken."""
        return self.otlp_host or self.host

    @field_validator("accept")
    @classmethod
    def _once(cls, value: list[Accepted]) -> list[Accepted]:
        distinct(value)
        return value

    @model_validator(mode="after")
    def _one_source(self) -> Http:
        for name in ("token", "send_token", "scrape_token"):
            if getattr(self, name) is not None and getattr(self, f"{name}_file") is not None:
                raise ValueError(f"{name} or {name}_file, not both")
        return self
