"""Base class of settings sections, shared value types, and parsing of HTTP headers.

What every section of the settings is: frozen, and strict about names and numbers; and the kinds
of values that several of them have.

Headers that sign in to a server, as settings and mounted secrets have them: shown nowhere.

What is wrong with one raises ValueError, whose text names its place and no value.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


class SettingsSection(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def split_names(value: object) -> object:
    """`a,b` from the environment is a list too."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return value


def check_distinct(names: Sequence[str]) -> None:
    """ValueError where a name comes twice."""
    if len(set(names)) != len(names):
        raise ValueError("each name once")


NameList = Annotated[list[str], BeforeValidator(split_names)]
Share = Annotated[float, Field(gt=0, le=1)]


def check_http_url(value: str | None) -> str | None:
    """ValueError, without the URL in it, where it is not http(s) with a host."""
    if value is not None:
        try:
            parts = urlsplit(value)
            sound = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:
            sound = False
        if not sound:
            raise ValueError("an http:// or https:// URL with a host is needed")
    return value


def check_base_url(value: str | None) -> str | None:
    """The same for a URL to which paths are added."""
    value = check_http_url(value)
    if value is not None and re.search(r"[?#\s]", value):
        raise ValueError("a base URL has no query, no fragment and no space")
    return value


MAX_HEADER_CHARS = 65_536  # a mounted secret has a few hundred; more is another file
HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# Printable ASCII, as httpx would else raise an error whose text holds the value.
HEADER_VALUE = re.compile(r"[\x20-\x7e]*")

RESERVED_HEADERS = frozenset(
    ("content-type", "content-encoding", "content-length", "transfer-encoding", "host")
)
"""What a request needs to be understood is not for settings to change."""


def read_headers(file: Path) -> dict[str, str]:
    """Of a file of lines. OSError or ValueError where it is none."""
    with file.open(encoding="utf-8") as source:
        text = source.read(MAX_HEADER_CHARS + 1)
    if len(text) > MAX_HEADER_CHARS:
        raise ValueError("too large for a file of headers")
    return parse_headers(text)


def parse_headers(text: str) -> dict[str, str]:
    """`name: value`, one a line."""
    lines = enumerate((line.strip() for line in text.splitlines()), 1)
    return dict(check_header(*line.partition(":"), f"line {n}") for n, line in lines if line)


def check_header(name: str, mark: str, value: str, where: str) -> tuple[str, str]:
    """One header. `mark` is what stood between name and value, "" where nothing did."""
    name, value = name.strip().lower(), value.strip()
    if not mark or not HEADER_NAME.fullmatch(name):
        raise ValueError(f"{where} does not begin with the name of a header")
    if name in RESERVED_HEADERS:
        raise ValueError(f"{where}: {name} is not for settings to change")
    if not HEADER_VALUE.fullmatch(value):
        raise ValueError(f"{where}: the value is not printable ASCII")
    return name, value
