"""Settings of resolvers: where the texts of passages are of which a trace has the ids alone."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator

from agent.headers import from_lines
from agent.settings.section import Names, Section, distinct, http_url

__all__ = ["Resolvers", "Source"]

PLACE = "{id}"


class Source(Section):
    name: str = Field(pattern=r"^[a-z][a-z0-9_-]{0,39}$", description="label value")
    services: Names = Field([], description="only for these services; empty: all")
    url: str | None = Field(None, description="`http://host/path/{id}`")
    file: Path | None = Field(None, description="JSON lines, or CSV with a header (`.csv`)")
    sqlite: Path | None = Field(None, description="a SQLite file, opened for reading only")
    query: str | None = Field(
        None, description="for `sqlite`: `SELECT text FROM chunks WHERE id = ?`"
    )
    id_field: str = Field("id", min_length=1, description="for `file`: where the id is")
    text_field: str = Field(
        "text", min_length=1, description="where the text is in JSON or CSV; dots between levels"
    )
    headers: SecretStr | None = Field(
        None, description="for `url`: `Name: value`, one a line; from the environment"
    )
    headers_file: Path | None = Field(
        None, description="file of such lines, read anew when the server refuses the old ones"
    )
    timeout_seconds: float = Field(2, gt=0, le=60, description="longest wait for one text")
    concurrency: int = Field(8, ge=1, le=64, description="texts that are fetched at a time")
    max_bytes: int = Field(256 * 2**10, ge=1, le=16 * 2**20, description="largest text")

    @field_validator("url")
    @classmethod
    def _template(cls, value: str | None) -> str | None:
        if value is None:
            return None
        if value.count(PLACE) != 1:
            raise ValueError(f"one {PLACE} is needed")
        http_url(value.replace(PLACE, "x"))
        parts = urlsplit(value)
        if PLACE not in parts.path + parts.query:
            raise ValueError(f"{PLACE} must stand in the path or the query")
        return value

    @field_validator("query")
    @classmethod
    def _reads(cls, value: str | None) -> str | None:
        if value is not None and (value.count("?") != 1 or not re.match(r"(?i)\s*select\b", value)):
            raise ValueError("a SELECT with one `?` for the id is needed")
        return value

    @field_validator("headers")
    @classmethod
    def _lines(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None:
            from_lines(value.get_secret_value())
        return value

    @model_validator(mode="after")
    def _one(self) -> Source:
        if sum(place is not None for place in (self.url, self.file, self.sqlite)) != 1:
            raise ValueError("one of url, file and sqlite is needed")
        if (self.sqlite is None) != (self.query is None):
            raise ValueError("sqlite and query need each other")
        if self.url is None and (self.headers or self.headers_file):
            raise ValueError("headers are for a url")
        if self.headers is not None and self.headers_file is not None:
            raise ValueError("headers or headers_file, not both")
        return self


class Resolvers(Section):
    sources: list[Source] = Field(
        [], max_length=16, description="where texts are looked up; the first that has one gives it"
    )
    cache_bytes: int = Field(64 * 2**20, ge=0, description="texts remembered")
    cache_seconds: float = Field(3600, gt=0, description="how long a text is remembered")
    negative_seconds: float = Field(
        60, gt=0, description="how long it is remembered that there is none"
    )
    waiting: int = Field(
        1000, ge=1, description="traces that wait for texts; others go on without them"
    )

    @field_validator("sources")
    @classmethod
    def _distinct(cls, value: list[Source]) -> list[Source]:
        distinct([source.name for source in value])
        return value
