"""Settings of inputs: HTTP ports, OTLP, resolvers and privacy."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal, get_args
from urllib.parse import urlsplit

from pydantic import (
    BeforeValidator,
    Field,
    SecretStr,
    field_validator,
    model_validator,
)

from ragmeter.config.base import (
    Distinct,
    NameList,
    SecretUrl,
    SettingsSection,
    SplitList,
    check_exclusive,
    parse_headers,
    split_names,
)
from ragmeter.core.redaction_rules import BUILTIN_RULES, compile_pattern

ID_PLACEHOLDER = "{id}"
_MORE_THAN_HOST = re.compile(r"[/\s\[\],]|^[^:]*:\d*$")  # a URL, or a port behind a host
_PortNumber = Annotated[int, Field(ge=0, le=65535)]


class TlsSettings(SettingsSection):
    """TLS of both ports."""

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
    def _complete(self) -> TlsSettings:
        for name in ("key_file", "client_ca_file"):
            if getattr(self, name) is not None and self.cert_file is None:
                raise ValueError(f"{name} needs cert_file")
        return self


class HttpSettings(SettingsSection):
    """Addresses, tokens and TLS of the HTTP ports."""

    host: str = Field(
        "127.0.0.1",
        min_length=1,
        description="address to listen on; loopback by default; `*` or `::`: all of IPv4 and IPv6",
    )
    otlp_host: str | None = Field(
        None, min_length=1, description="another one for the port for traces; none: as `host`"
    )
    otlp_port: _PortNumber = Field(4318, description="port for traces in; 0 picks a free one")
    metrics_port: _PortNumber = Field(
        9464, description="port of `/metrics` and the page; 0: a free one"
    )
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
    tls: TlsSettings = TlsSettings()
    accept: Annotated[SplitList[Literal["open", "plain"]], Distinct] = Field(
        [],
        description=(
            "what you accept on an address that is not loopback: `open` (nobody is asked for a "
            "token or a certificate), `plain` (no TLS)"
        ),
    )
    names: NameList = Field(
        [],
        description=(
            "names by which a browser may open ports that ask for nothing; addresses, single "
            "words and the host of `alerts.page_url` it may anyway"
        ),
    )

    @field_validator("host", "otlp_host")
    @classmethod
    def _host_alone(cls, value: str | None) -> str | None:
        """Take `[::1]` for the address that it is in a URL, and refuse what holds more."""
        if value and value.startswith("[") and value.endswith("]"):
            value = value[1:-1]
        if value and _MORE_THAN_HOST.search(value):
            raise ValueError(
                "one address alone is needed (`*`: all); the ports are http.otlp_port and"
                " http.metrics_port"
            )
        return value

    @property
    def otlp_address(self) -> str:
        """The address of the port for traces."""
        return self.otlp_host or self.host

    @model_validator(mode="after")
    def _exclude(self) -> HttpSettings:
        check_exclusive(self, "token", "send_token", "scrape_token")
        if self.otlp_port == self.metrics_port != 0 and self.otlp_address == self.host:
            raise ValueError("otlp_port and metrics_port are the same: each needs one of its own")
        return self


class OtlpSettings(SettingsSection):
    """Assembly of traces from OTLP spans."""

    grace_seconds: float = Field(
        2,
        ge=0,
        description=(
            "quiet time that closes a trace whose root has come, or idle_seconds if less; 6 s at "
            "least while log events carry content, as exporters send them up to 5 s later"
        ),
    )
    idle_seconds: float = Field(
        30, gt=0, description="quiet time after which a trace without its root is closed"
    )
    max_age_seconds: float = Field(
        300, gt=0, description="a trace is closed so long after its first span, whatever comes"
    )
    tool_names: NameList = Field(
        [],
        description=(
            "tools whose results are passages, by name (`*` stands for any text), besides those "
            "whose name or result looks like a retrieval"
        ),
    )
    excluded_tools: NameList = Field(
        [],
        description=(
            "tools whose results are not passages though they look like it, by name; `*` alone "
            "leaves those of `otlp.tool_names`"
        ),
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

    @property
    def remember_seconds(self) -> float:
        """How long a closed trace is known: spans that come later are late."""
        return max(3600.0, 2 * self.max_age_seconds)


class ResolverSource(SettingsSection):
    """A source of passage texts, over HTTP."""

    name: str = Field(
        pattern=r"^[a-z][a-z0-9_-]{0,39}$", description="value of the label `resolver`"
    )
    services: NameList = Field([], description="only for these services; empty: all")
    url: SecretUrl = Field(description="`http://host/path/{id}`")
    text_field: str = Field(
        "text",
        min_length=1,
        description="where the text is in a JSON reply; dots between levels",
    )
    headers: SecretStr | None = Field(
        None, description="`Name: value`, one a line; from the environment"
    )
    headers_file: Path | None = Field(
        None,
        description="file of such lines, read anew when the server refuses the old ones",
    )
    timeout_seconds: float = Field(2, gt=0, le=60, description="longest wait for one text")
    concurrency: int = Field(8, ge=1, le=64, description="texts that are fetched at a time")
    max_bytes: int = Field(256 * 2**10, ge=1, le=16 * 2**20, description="largest text")

    @field_validator("url")
    @classmethod
    def _check_template(cls, value: SecretUrl) -> SecretUrl:
        template = value.get_secret_value()
        if template.count(ID_PLACEHOLDER) != 1:
            raise ValueError(f"one {ID_PLACEHOLDER} is needed")
        parts = urlsplit(template)
        if ID_PLACEHOLDER not in parts.path + parts.query:
            raise ValueError(f"{ID_PLACEHOLDER} must stand in the path or the query")
        return value

    @field_validator("headers")
    @classmethod
    def _check_headers(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None:
            parse_headers(value.get_secret_value())
        return value

    @model_validator(mode="after")
    def _complete(self) -> ResolverSource:
        check_exclusive(self, "headers")
        return self


class ResolverSettings(SettingsSection):
    """Look-up of passage texts by id."""

    sources: Annotated[list[ResolverSource], Distinct] = Field(
        [], max_length=16, description="where texts are looked up; the first that has one gives it"
    )


TextField = Literal["query", "answer", "passages", "history", "error", "tags", "reference"]
TEXT_FIELDS: tuple[TextField, ...] = get_args(TextField)
_MAX_RULES = 64  # each is a label value and a search of every text


class RedactionRuleSettings(SettingsSection):
    """A redaction rule: a built-in one, or a pattern."""

    name: str = Field(
        pattern=r"^[a-z][a-z0-9_-]{0,39}$",
        description="value of the label `rule`; or the name of a ready-made rule",
    )
    pattern: str | None = Field(
        None,
        min_length=1,
        max_length=2000,
        description="what is replaced; none: as in the ready-made rule",
    )
    replacement: str | None = Field(
        None, max_length=200, description="literal text in its place; none: `[name]`"
    )
    fields: SplitList[TextField] = Field(
        list(TEXT_FIELDS), min_length=1, description="where it applies"
    )

    @field_validator("pattern")
    @classmethod
    def _check_pattern(cls, value: str | None) -> str | None:
        if value is not None:
            compile_pattern(value)
        return value

    @model_validator(mode="after")
    def _complete(self) -> RedactionRuleSettings:
        if self.pattern is None and self.name not in BUILTIN_RULES:
            names = ", ".join(BUILTIN_RULES)
            raise ValueError(f"{self.name!r} needs a pattern: the ready-made rules are {names}")
        return self


def _expand_rule_name(value: object) -> object:
    value = split_names(value)
    if isinstance(value, list):
        return [{"name": item} if isinstance(item, str) else item for item in value]
    return value


def _read_key(path: Path) -> bytes:
    """Read a key from a file; the ValueError of a bad file does not show its content."""
    try:
        key = path.read_bytes().strip()
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    if not key:
        raise ValueError(f"{path} is empty")
    return key


class PrivacySettings(SettingsSection):
    """What is removed from traces and what is stored of their texts."""

    redact: Annotated[list[RedactionRuleSettings], BeforeValidator(_expand_rule_name), Distinct] = (
        Field(
            [],
            max_length=_MAX_RULES,
            description=(
                "rules, in order: names of ready-made ones (email, phone, iban, credit_card, "
                "device, ip, secret), or `{name, pattern, replacement, fields}`"
            ),
        )
    )
    drop_attributes: NameList = Field(
        [], description="names of span attributes, tags and metadata to drop; `*` and `?` match"
    )
    content: Literal["full", "hash", "none"] = Field(
        "full", description="what the state file and the page keep of texts once they are scored"
    )
    hash_key: SecretStr | None = Field(None, description="key of the hashes; from the environment")
    hash_key_file: Path | None = Field(None, description="file with the key of the hashes")

    @field_validator("drop_attributes")
    @classmethod
    def _check_names(cls, value: list[str]) -> list[str]:
        if not all(0 < len(name.strip()) <= 256 for name in value):
            raise ValueError("names of 1 to 256 characters")
        return value

    @field_validator("hash_key_file")
    @classmethod
    def _check_file(cls, value: Path | None) -> Path | None:
        if value is not None:
            _read_key(value)
        return value

    @model_validator(mode="after")
    def _complete(self) -> PrivacySettings:
        secret = self.hash_key.get_secret_value() if self.hash_key else ""
        if self.content == "hash" and not (secret or self.hash_key_file):
            # without a key the hash of a short text is easily reversed by guessing
            raise ValueError("content: hash needs hash_key or hash_key_file")
        return self

    @property
    def edits(self) -> bool:
        """Whether traces are changed on arrival."""
        return bool(self.redact or self.drop_attributes)

    def key(self) -> bytes:
        """Return the key of the hashes, empty without one.

        Raises:
            ValueError: Its file cannot be read.
        """
        if self.hash_key_file is not None:
            return _read_key(self.hash_key_file)
        return self.hash_key.get_secret_value().encode() if self.hash_key else b""
