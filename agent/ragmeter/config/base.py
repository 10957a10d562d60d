"""The base class of settings sections, value types they share, and parsing of HTTP headers.

Headers hold credentials, from settings and mounted secrets. So the text of a ValueError about them
names the line and never the value.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args
from urllib.parse import urlsplit, urlunsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Secret,
    ValidationInfo,
    field_validator,
)

_MAX_HEADER_CHARS = 65_536  # a mounted secret has a few hundred; more is another file
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# Printable ASCII: for other values httpx would raise an error whose text holds the value.
_HEADER_VALUE = re.compile(r"[\x20-\x7e]*")
# A request needs these to be understood, so settings may not change them.
_RESERVED_HEADERS = frozenset(
    ("content-type", "content-encoding", "content-length", "transfer-encoding", "host")
)

_ENDPOINT = re.compile(r"(/(?:chat/completions|completions|responses|messages))/*$")
_VARIABLE = re.compile(r"(?:^|/)\$\{?[A-Za-z_]")

_T = TypeVar("_T")
_Items = TypeVar("_Items", bound=Sequence[Any])


class SettingsSection(BaseModel):
    """A section of the settings: frozen, and strict about names and numbers."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _check_form(cls, value: object, info: ValidationInfo) -> object:
        """Refuse `on` for a number, which would be 1, and no text for a path, which is a folder."""
        annotation = cls.model_fields[info.field_name or ""].annotation
        kinds = {annotation, *get_args(annotation)}
        if value is True and kinds & {int, float} and bool not in kinds:
            raise ValueError("a number is needed")
        if value == "" and Path in kinds:
            raise ValueError("a path is needed")
        return value

    @field_validator("*")
    @classmethod
    def _open_path(cls, value: object) -> object:
        """Open `~`, and refuse a variable: a shell would have filled both in."""
        if not isinstance(value, Path):
            return value
        if _VARIABLE.search(str(value)):
            raise ValueError("a path of settings takes no variables of the environment")
        try:
            return value.expanduser()
        except RuntimeError:
            raise ValueError("there is no home folder for `~`") from None


def split_names(value: object) -> object:
    """Split `a,b`, the form of a list in the environment."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return value


def check_distinct(items: _Items) -> _Items:
    """Return the items; a ValueError if two are equal or have the same name."""
    names = [getattr(item, "name", item) for item in items]
    if len(set(names)) != len(names):
        raise ValueError("each name once")
    return items


def check_exclusive(section: SettingsSection, *names: str) -> None:
    """Raise a ValueError if both `name` and `name_file` are given."""
    for name in names:
        if getattr(section, name) is not None and getattr(section, f"{name}_file") is not None:
            raise ValueError(f"{name} or {name}_file, not both")


def check_http_url(value: str) -> str:
    """Return an http(s) URL with a host; the ValueError for others does not show the URL."""
    try:
        parts = urlsplit(value)
        sound = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        sound = False
    if any(map(str.isspace, value.strip())):
        raise ValueError(
            "a URL has no blank; several, where a list is allowed, have commas between"
        )
    if not sound:
        begin = re.match(r"[A-Za-z][\w+.-]{0,20}(?=://)", value)
        given = f", not {begin[0]}://" if begin and begin[0] not in ("http", "https") else ""
        raise ValueError(f"an http:// or https:// URL with a host is needed{given}")
    return value


class SecretUrl(Secret[Annotated[str, AfterValidator(check_http_url)]]):
    """An http(s) URL, shown without what may be secret in it.

    Credentials and a query may be, and so may a path: chat webhooks have their secret there. `/v1`,
    the version of an API, is not.
    """

    def _display(self) -> str:
        parts = urlsplit(self.get_secret_value())
        # a password may hold `@`
        _, at, host = parts.netloc.rpartition("@")
        path = parts.path if parts.path.rstrip("/") in ("", "/v1") else "/***"
        return urlunsplit(
            parts._replace(
                netloc=f"***@{host}" if at else host,
                path=path,
                query="***" if parts.query else "",
                fragment="",
            )
        )


def check_base_url(value: SecretUrl) -> SecretUrl:
    """Check a URL to which paths are added."""
    if re.search(r"[?#]", value.get_secret_value()):
        raise ValueError("a base URL has no query and no fragment")
    if end := _ENDPOINT.search(value.get_secret_value()):
        raise ValueError(f"a base URL ends before {end[1]}, which is added to it")
    return value


Distinct = AfterValidator(check_distinct)
BaseUrl = Annotated[SecretUrl, AfterValidator(check_base_url)]
SplitList = Annotated[list[_T], BeforeValidator(split_names)]
NameList = SplitList[str]
Share = Annotated[float, Field(gt=0, le=1)]


def read_headers(file: Path) -> dict[str, str]:
    """Read headers from a file.

    Raises:
        OSError: It cannot be read.
        ValueError: It is not UTF-8, too large, or a line is not a header.
    """
    with file.open(encoding="utf-8-sig") as source:
        text = source.read(_MAX_HEADER_CHARS + 1)
    if len(text) > _MAX_HEADER_CHARS:
        raise ValueError("too large for a file of headers")
    return parse_headers(text)


def parse_headers(text: str) -> dict[str, str]:
    """Parse lines of `name: value`; a ValueError names a line that is not a header."""
    lines = enumerate((line.strip() for line in text.splitlines()), 1)
    return dict(check_header(*line.partition(":"), f"line {n}") for n, line in lines if line)


def check_header(name: str, separator: str, value: str, where: str) -> tuple[str, str]:
    """Return a header with its name in lower case; a ValueError begins with its origin, `where`."""
    name = name.strip().lower()
    value = value.strip()
    if not separator or not _HEADER_NAME.fullmatch(name):
        raise ValueError(f"{where} does not begin with the name of a header")
    if name in _RESERVED_HEADERS:
        raise ValueError(f"{where}: settings may not change {name}")
    if not _HEADER_VALUE.fullmatch(value):
        raise ValueError(f"{where}: the value is not printable ASCII")
    return name, value
