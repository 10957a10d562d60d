"""The Prometheus text formats 0.0.4 and OpenMetrics 1.0, and their content negotiation.

A scrape of fifty services has more than ten thousand samples. A custom collector of
`prometheus_client` that yields their families takes 6 us a sample, eight times as long as here
(`benchmarks/scrape.py`), where a sample is one f-string over a label block that was escaped once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import isnan
from typing import Literal

FamilyType = Literal["gauge", "counter", "histogram", "info"]

# By whether it is OpenMetrics.
CONTENT_TYPES = {
    True: "application/openmetrics-text; version=1.0.0; charset=utf-8",
    False: "text/plain; version=0.0.4; charset=utf-8",
}


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """One exported metric family, under the name that its samples have in Prometheus.

    Args:
        name: Ends in `_total` for counters and `_info` for infos.
        unit: Base unit, "" without one.
        segmented: The samples also carry one label per configured segment tag.
        ours: False where `prometheus_client` writes the samples.
    """

    name: str
    type: FamilyType
    help: str
    labels: tuple[str, ...] = ()
    unit: str = ""
    segmented: bool = False
    ours: bool = True


def escape_label(value: str) -> str:
    r"""Escape `\`, `"` and line feeds for a label value between quotes."""
    if "\\" in value:
        value = value.replace("\\", r"\\")
    if '"' in value:
        value = value.replace('"', r"\"")
    if "\n" in value:
        value = value.replace("\n", r"\n")
    return value


def format_labels(pairs: Iterable[tuple[str, str]]) -> str:
    """Write `{a="b",c="d"}` without empty values: an empty label is an absent label."""
    inner = ",".join([f'{name}="{escape_label(value)}"' for name, value in pairs if value])
    return f"{{{inner}}}" if inner else ""


def format_number(value: float) -> str:
    """Write a sample value as the shortest decimal that reads back as the same float."""
    text = repr(float(value))
    if text[-1] in "0123456789":
        return text
    return "NaN" if isnan(value) else ("+Inf" if value > 0 else "-Inf")


def family_header(family: MetricFamily, openmetrics: bool) -> str:
    """Write the HELP, TYPE and (OpenMetrics) UNIT lines.

    OpenMetrics names a counter family without `_total` and an info without `_info`, escapes
    quotes in the help text, and allows a unit only where the name ends in it.
    """
    name = family.name
    kind = str(family.type)
    help_text = family.help.replace("\\", r"\\").replace("\n", r"\n")
    if not openmetrics:
        kind = "gauge" if kind == "info" else kind
        return f"# HELP {name} {help_text}\n# TYPE {name} {kind}\n"
    if kind == "counter":
        name = name.removesuffix("_total")
    elif kind == "info":
        name = name.removesuffix("_info")
    help_text = help_text.replace('"', r"\"")
    has_unit = family.unit and name.endswith(f"_{family.unit}")
    unit = f"# UNIT {name} {family.unit}\n" if has_unit else ""
    return f"# HELP {name} {help_text}\n# TYPE {name} {kind}\n{unit}"


def join_exposition(parts: Sequence[str], openmetrics: bool) -> bytes:
    """Encode the exposition; lone surrogates, which UTF-8 cannot carry, become `?`."""
    end = "# EOF\n" if openmetrics else ""
    return ("".join(parts) + end).encode("utf-8", "replace")


def prefers_openmetrics(accept: Iterable[str]) -> bool:
    """Return whether OpenMetrics is named and liked at least as much as plain text."""
    openmetrics = plain = 0.0
    for item, quality in _quality_values(accept):
        if item == "application/openmetrics-text":
            openmetrics = max(openmetrics, quality)
        elif item == "text/plain":
            plain = max(plain, quality)
    return openmetrics > 0 and openmetrics >= plain


def accepts_gzip(accept_encoding: Iterable[str]) -> bool:
    """Return whether gzip, or any coding, is named with a quality above 0."""
    qualities = dict(_quality_values(accept_encoding))
    return qualities.get("gzip", qualities.get("*", 0.0)) > 0


def _quality_values(headers: Iterable[str]) -> Iterator[tuple[str, float]]:
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
