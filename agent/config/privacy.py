"""Settings of privacy: redaction rules, dropped attributes and hashing of ids."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, SecretStr, field_validator, model_validator

from ragmeter.config.base import NameList, SettingsSection, check_distinct, split_names
from ragmeter.core.redaction_rules import BUILTIN_RULES, compile_pattern

TextField = Literal["query", "answer", "passages", "history", "error", "tags", "reference"]
TEXT_FIELDS: tuple[TextField, ...] = (
    "query",
    "answer",
    "passages",
    "history",
    "error",
    "tags",
    "reference",
)
MAX_RULES = 64  # each is a label value and a search of every text


class RedactionRuleSettings(SettingsSection):
    name: str = Field(
        pattern=r"^[a-z][a-z0-9_-]{0,39}$", description="label value; or that of a ready-made rule"
    )
    pattern: str | None = Field(
        None, min_length=1, max_length=2000, description="what is replaced; none: the ready-made"
    )
    replacement: str | None = Field(
        None, max_length=200, description="literal text in its place; none: `[name]`"
    )
    fields: Annotated[list[TextField], BeforeValidator(split_names)] = Field(
        list(TEXT_FIELDS), min_length=1, description="where it applies"
    )

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, value: str | None) -> str | None:
        if value is not None:
            compile_pattern(value)
        return value

    @model_validator(mode="after")
    def _known(self) -> RedactionRuleSettings:
        if self.pattern is None and self.name not in BUILTIN_RULES:
            ready = ", ".join(BUILTIN_RULES)
            raise ValueError(f"{self.name!r} needs a pattern: the ready-made rules are {ready}")
        return self


def _expand_rule_name(value: object) -> object:
    """A ready-made rule may be given by its name alone."""
    value = split_names(value)
    if isinstance(value, list):
        return [{"name": item} if isinstance(item, str) else item for item in value]
    return value


def read_key(path: Path) -> bytes:
    """A key from a file. ValueError without its content."""
    try:
        key = path.read_bytes().strip()
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    if not key:
        raise ValueError(f"{path} is empty")
    return key


class PrivacySettings(SettingsSection):
    redact: Annotated[list[RedactionRuleSettings], BeforeValidator(_expand_rule_name)] = Field(
        [],
        max_length=MAX_RULES,
        description="rules, in order: names of ready-made ones ("
        + ", ".join(BUILTIN_RULES)
        + "), or "
        "`{name, pattern, replacement, fields}`",
    )
    drop_attributes: NameList = Field(
        [], description="names of span attributes, tags and metadata to drop; `*` and `?` match"
    )
    content: Literal["full", "hash", "none"] = Field(
        "full", description="what the state file and the page keep of texts once they are scored"
    )
    hash_key: SecretStr | None = Field(None, description="key of the hashes; from the environment")
    hash_key_file: Path | None = Field(None, description="file with the key of the hashes")
    timeout_seconds: float = Field(
        0.25, gt=0, le=5, description="longest search for one pattern in one text"
    )

    @field_validator("redact")
    @classmethod
    def _distinct(cls, value: list[RedactionRuleSettings]) -> list[RedactionRuleSettings]:
        check_distinct([rule.name for rule in value])
        return value

    @field_validator("drop_attributes")
    @classmethod
    def _names(cls, value: list[str]) -> list[str]:
        if not all(0 < len(name.strip()) <= 256 for name in value):
            raise ValueError("names of 1 to 256 characters")
        return value

    @field_validator("hash_key_file")
    @classmethod
    def _readable(cls, value: Path | None) -> Path | None:
        if value is not None:
            read_key(value)
        return value

    @model_validator(mode="after")
    def _key(self) -> PrivacySettings:
        secret = self.hash_key.get_secret_value() if self.hash_key else ""
        if self.content == "hash" and not (secret or self.hash_key_file):
            # hashes of short texts without a key are guessed in no time
            raise ValueError("content: hash needs hash_key or hash_key_file")
        return self

    @property
    def edits(self) -> bool:
        """Whether anything of a trace is changed as it comes in."""
        return bool(self.redact or self.drop_attributes)

    def key(self) -> bytes:
        """The key of the hashes; empty without one. ValueError where its file cannot be read."""
        if self.hash_key_file is not None:
            return read_key(self.hash_key_file)
        return self.hash_key.get_secret_value().encode() if self.hash_key else b""
