"""What every section of the settings is: frozen, and strict about names and numbers; and the kinds
of values that several of them have."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict

__all__ = ["Names", "Section", "http_url", "listed"]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def listed(value: object) -> object:
    """`a,b` from the environment is a list too."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return value


Names = Annotated[list[str], BeforeValidator(listed)]


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
