"""What every section of the settings is: frozen, and strict about names and numbers; and the kinds
of values that several of them have."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

__all__ = ["Names", "Section", "Share", "base_url", "distinct", "http_url", "listed"]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def listed(value: object) -> object:
    """`a,b` from the environment is a list too."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return value


def distinct(names: Sequence[str]) -> None:
    """ValueError where a name comes twice."""
    if len(set(names)) != len(names):
        raise ValueError("each name once")


Names = Annotated[list[str], BeforeValidator(listed)]
Share = Annotated[float, Field(gt=0, le=1)]


def http_url(value: str | None) -> str | None:
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


def base_url(value: str | None) -> str | None:
    """The same for a URL to which paths are added."""
    value = http_url(value)
    if value is not None and re.search(r"[?#\s]", value):
        raise ValueError("a base URL has no query, no fragment and no space")
    return value
