"""The headers of requests to the receiver of results."""

from __future__ import annotations

import contextlib
from pathlib import Path
from urllib.parse import unquote

from pydantic import SecretStr
from ragmeter.config.base import check_header, read_headers
from ragmeter.config.loader import ConfigError


class ReceiverHeaders:
    """The headers of requests to the receiver, as in OTEL_EXPORTER_OTLP_HEADERS or one a line.

    A file is read anew for each request, as secrets are rotated; while it cannot be read, the last
    good headers hold.

    Raises:
        ConfigError: There are no valid headers to begin with; the text names no value.
    """

    def __init__(self, text: SecretStr | None, file: Path | None) -> None:
        self._file = file
        self._held: dict[str, str] = {}
        try:
            if file is not None:
                self._held = read_headers(file)
            elif text is not None:
                self._held = _parse_header_pairs(text.get_secret_value())
        except (OSError, UnicodeDecodeError) as error:
            why = (isinstance(error, OSError) and error.strerror) or "not a text file"
            raise ConfigError(f"results_export.headers_file: {file}: {why}") from None
        except ValueError as error:
            key = "headers" if file is None else "headers_file"
            raise ConfigError(f"results_export.{key}: {error}") from None

    def current(self) -> dict[str, str]:
        """Return the headers of the next request."""
        if self._file is not None:
            with contextlib.suppress(OSError, ValueError):  # being replaced just now
                self._held = read_headers(self._file)
        return self._held


def _parse_header_pairs(text: str) -> dict[str, str]:
    """Parse `name=value,name=value`, percent-encoded as in OTEL_EXPORTER_OTLP_HEADERS."""
    entries = ((n, entry.strip().partition("=")) for n, entry in enumerate(text.split(","), 1))
    return dict(
        check_header(unquote(name), mark, unquote(value), f"entry {n}")
        for n, (name, mark, value) in entries
        if name or mark
    )
