"""What a scraper asks for: RFC 9110 Accept and Accept-Encoding with their quality values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

__all__ = ["accepts_gzip", "prefers_openmetrics"]


def prefers_openmetrics(accept: Iterable[str]) -> bool:
    """True if OpenMetrics is named and liked at least as much as plain text."""
    openmetrics = plain = 0.0
    for item, quality in _items(accept):
        if item == "application/openmetrics-text":
            openmetrics = max(openmetrics, quality)
        elif item == "text/plain":
            plain = max(plain, quality)
    return openmetrics > 0 and openmetrics >= plain


def accepts_gzip(accept_encoding: Iterable[str]) -> bool:
    """True if gzip, or any coding, is named with a quality above 0."""
    qualities = dict(_items(accept_encoding))
    return qualities.get("gzip", qualities.get("*", 0.0)) > 0


def _items(headers: Iterable[str]) -> Iterator[tuple[str, float]]:
    for header in headers:
        for part in header.split(","):
            name, *parameters = (piece.strip() for piece in part.split(";"))
            quality = 1.0
            for parameter in parameters:
                key, _, value = parameter.partition("=")
                if key.strip().lower() == "q":
                    try:
                        quality = float(value)
                    except ValueError:
                        quality = 0.0
            if name:
                yield name.lower(), quality
