"""Settings of privacy: redaction rules, dropped attributes and hashing of ids."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import BeforeValidator, Field, SecretStr, field_validator, model_validator

from ragmeter.config.base import Distinct, NameList, SettingsSection, SplitList, split_names
from ragmeter.core.redaction_rules import BUILTIN_RULES, compile_pattern

TextField = Literal["query", "answer", "passages", "history", "error", "tags", "reference"]
TEXT_FIELDS: tuple[TextField, ...] = get_args(TextField)
_MAX_RULES = 64  # each is a label value and a search of every text


class RedactionRuleSettings(SettingsSection):
    """A redaction rule: a built-in one, or a pattern."""

    # label value; or that of a ready-made rule
    name: str = Field(pattern=r"^[a-z][a-z0-9_-]{0,39}$")
    # what is replaced; none: the ready-made
    pattern: str | None = Field(None, min_length=1, max_length=2000)
    # literal text in its place; none: `[name]`
    replacement: str | None = Field(None, max_length=200)
    fields: SplitList[TextField] = Field(list(TEXT_FIELDS), min_length=1)  # where it applies

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
        Field([], max_length=_MAX_RULES)
    )
    drop_attributes: NameList = Field([])
    content: Literal["full", "hash", "none"] = "full"
    hash_key: SecretStr | None = None
    hash_key_file: Path | None = None
    timeout_seconds: float = Field(0.25, gt=0, le=5)

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
