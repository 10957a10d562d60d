"""The headers of the receiver of results: from the environment or a file."""

from __future__ import annotations

import contextlib
from pathlib import Path
from urllib.parse import unquote

from pydantic import SecretStr

from agent.config import ConfigError
from agent.headers import checked, read_headers

__all__ = ["Headers"]


class Headers:
    """`current` gives the headers of the next request. A file is read anew each time, as secrets
    are rotated; while it cannot be read, the last good headers hold. ConfigError where there are
    none to begin with; its text names no value."""

    def __init__(self, text: SecretStr | None, file: Path | None) -> None:
        self._file = file
        self._held: dict[str, str] = {}
        try:
            if file is not None:
                self._held = read_headers(file)
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
                self._held = read_headers(self._file)
        return self._held


def _why(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or "not a text file"


def _from_pairs(text: str) -> dict[str, str]:
    """`name=value,name=value` as OTEL_EXPORTER_OTLP_HEADERS has it: percent-encoded."""
    pairs = enumerate((pair.strip() for pair in text.split(",")), 1)
    found = ((n, pair.partition("=")) for n, pair in pairs if pair)
    return dict(
        checked(unquote(name), mark, unquote(value), f"entry {n}")
        for n, (name, mark, value) in found
    )
