"""The Jinja2 environment of all pages, its filters and the style sheets.

Every expression of a template is escaped, and its hidden characters become visible, so a template
cannot forget either. Only `Markup` from our own pictures and style sheets passes unchanged.
"""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ragmeter.core.metric_specs import MetricSpec
from ragmeter.exporters.page import numbers, tables
from ragmeter.exporters.page.charts import sparkline
from ragmeter.exporters.page.text import (
    LABEL,
    metric_words,
    one_line,
    service_url,
    trace_url,
    visible,
)
from ragmeter.exporters.page.traces import trace_excerpt

QUANTILES = (0.5, 0.95, 0.99)
STATE_NAMES = {
    "scored": "scored",
    "not_applicable": "not applicable",
    "sampled_out": "sampled out",
    "unscored": "unscored",
    "shed": "shed",
    "late": "late",
}

_PACKAGE = "ragmeter.exporters.page"


@dataclass(frozen=True, slots=True)
class StyleSheet:
    """The text of a style block and the hash that a Content-Security-Policy names it by."""

    css: Markup
    hash: str


@lru_cache(maxsize=2)
def load_style_sheet(*names: str) -> StyleSheet:
    """Load style files of the package, joined to one style block."""
    css = "".join(files(_PACKAGE).joinpath(name).read_text("utf-8") for name in names)
    digest = b64encode(sha256(css.encode("utf-8")).digest()).decode("ascii")
    return StyleSheet(Markup(css), f"sha256-{digest}")


def render(template: str, **context: Any) -> str:
    """Render a template of the package."""
    return make_environment().get_template(template).render(context)


@lru_cache(maxsize=1)
def make_environment() -> Environment:
    """Make the environment of all templates, once."""
    environment = Environment(
        loader=PackageLoader(_PACKAGE),
        autoescape=True,
        finalize=_visible_text,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters |= {
        "age": numbers.format_age,
        "count": numbers.format_count,
        "difference": numbers.format_difference,
        "excerpt": trace_excerpt,
        "integer": "{:,}".format,
        "interval": _interval,
        "label": _label,
        "seconds": numbers.format_seconds,
        "time": numbers.format_time,
        "trace_value": numbers.format_trace_value,
        "value": numbers.format_value,
        "words": metric_words,
    }
    environment.globals |= {
        "QUANTILES": QUANTILES,
        "STATE_NAMES": STATE_NAMES,
        "adjusted_p": tables.adjusted_p,
        "breakdown_table": tables.breakdown_table,
        "index_rows": tables.index_rows,
        "seconds_interval": numbers.format_seconds_interval,
        "segment_name": tables.segment_name,
        "service_url": service_url,
        "similarity_rows": tables.similarity_rows,
        "sparkline": sparkline,
        "trace_url": trace_url,
        "traffic_shares": tables.traffic_shares,
    }
    return environment


def _visible_text(value: Any) -> Any:
    if isinstance(value, Markup):
        return value
    return "" if value is None else visible(str(value))


def _label(text: str, limit: int = LABEL) -> str:
    return one_line(text, limit)


def _interval(estimate: Any, spec: MetricSpec) -> str:
    return numbers.format_interval(estimate.lower, estimate.upper, spec)
