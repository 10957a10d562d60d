"""Headers that sign in to a receiver: from the environment or a file, shown nowhere."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from urllib.parse import unquote

from pydantic import SecretStr

from agent.config import ConfigError

__all__ = ["Headers"]

MAX_CHARS = 65_536  # a mounted secret has a few hundred; more is another file
NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# Printable ASCII, as httpx would else raise an error whose text holds the value.
VALUE = re.compile(r"[\x20-\x7e]*")

OURS = frozenset(
    ("content-type", "content-encoding", "content-length", "transfer-encoding", "host")
)
"""What a request needs to be understood is not for settings to change."""


class Headers:
    """`current` gives the headers of the next request. A file is read anew each time, as secrets
    are rotated; while it cannot be read, the last good headers hold. ConfigError where there are
    none to begin with; its text names no value."""

    def __init__(self, text: SecretStr | None, file: Path | None) -> None:
        self._file = file
        self._held: dict[str, str] = {}
        try:
            if file is not None:
                self._held = _from_lines(_read(file))
            elif text is not None:
                self._held = _from_pairs(text.get_secret_value())
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"results_export.headers_file: {file}: {_why(error)}") from None
        except ValueError as error:
            key = "headers" if file is None else "headers_file"
            raise ConfigError(f"results_export.{key}: {error}") from None

    def current(self) -> dict[str, str]:
        if self._file is not None:
            with contextlib.suppress(OSError, ValueError):  # being replaced just now
                self._held = _from_lines(_read(self._file))
        return self._held


def _why(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or "not a text file"


def _read(file: Path) -> str:
    with file.open(encoding="utf-8") as source:
        text = source.read(MAX_CHARS + 1)
    if len(text) > MAX_CHARS:
        raise ValueError("too large for a file of headers")
    return text


def _from_lines(text: str) -> dict[str, str]:
    """`name: value`, one a line."""
    lines = enumerate((line.strip() for line in text.splitlines()), 1)
    return dict(_checked(*line.partition(":"), f"line {n}") for n, line in lines if line)


def _from_pairs(text: str) -> dict[str, str]:
    """`name=value,name=value` as OTEL_EXPORTER_OTLP_HEADERS has it: percent-encoded."""
    pairs = enumerate((pair.strip() for pair in text.split(",")), 1)
    found = ((n, pair.partition("=")) for n, pair in pairs if pair)
    return dict(
        _checked(unquote(name), mark, unquote(value), f"entry {n}")
        for n, (name, mark, value) in found
    )


def _checked(name: str, mark: str, value: str, where: str) -> tuple[str, str]:
    name, value = name.strip().lower(), value.strip()
    if not mark or not NAME.fullmatch(name):
        raise ValueError(f"{where} does not begin with the name of a header")
    if name in OURS:
        raise ValueError(f"{where}: {name} is not for settings to change")
    if not VALUE.fullmatch(value):
        raise ValueError(f"{where}: the value is not printable ASCII")
    return name, value
