"""Render the pages with Jinja2: status, service, trace and error.

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
from markdown_it import MarkdownIt
from markupsafe import Markup

from ragmeter.core.metric_specs import MetricSpec
from ragmeter.exporters.page import numbers, tables
from ragmeter.exporters.page.alerts import alerts_view, firing_counts
from ragmeter.exporters.page.numbers import (
    label_url,
    metric_words,
    one_line,
    service_url,
    trace_url,
    visible,
)
from ragmeter.exporters.page.traces import trace_excerpt, trace_parts
from ragmeter.exporters.page.views import (
    LabelView,
    PageBase,
    ServicePageView,
    StatusView,
    TraceView,
)
from ragmeter.exporters.svg import sparkline
from ragmeter.sampling.people_agreement import AGREEMENT_COLUMNS, AGREEMENT_NOTE

QUANTILES = (0.5, 0.95, 0.99)
STATE_NAMES = {
    "scored": "scored",
    "not_applicable": "not applicable",
    "sampled_out": "sampled out",
    "unscored": "unscored",
    "shed": "shed",
    "late": "late",
}

DOCS_URL = "https://github.com/ragmeter/ragmeter/blob/main/docs/"
AGREEMENT_URL = f"{DOCS_URL}agreement.md"  # how well scorers agree with people, measured

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
        "label": one_line,
        "percent": tables.format_percent,
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
        "AGREEMENT_COLUMNS": AGREEMENT_COLUMNS,
        "AGREEMENT_NOTE": AGREEMENT_NOTE,
        "AGREEMENT_URL": AGREEMENT_URL,
        "MAX_INDEX_ROWS": tables.MAX_INDEX_ROWS,
        "chunk_tokens": tables.chunk_tokens,
        "seconds_interval": numbers.format_seconds_interval,
        "segment_name": tables.segment_name,
        "most_frequent": tables.most_frequent,
        "documents_by_type": tables.documents_by_type,
        "service_url": service_url,
        "label_url": label_url,
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


def _interval(estimate: Any, spec: MetricSpec) -> str:
    return numbers.format_interval(estimate.lower, estimate.upper, spec)


REFRESH = 30  # seconds; as often as a Prometheus commonly scrapes


def csp(*, forms: bool = False) -> str:
    """Return the Content-Security-Policy: no script, nothing from elsewhere, one style block.

    With `forms` the page may post to its own address.
    """
    return (
        f"default-src 'none'; style-src '{load_style_sheet('style.css').hash}'; base-uri 'none'; "
        f"form-action '{'self' if forms else 'none'}'; frame-ancestors 'none'"
    )


def status_page(view: StatusView, name: str, *, labels: bool = False) -> str:
    """Render the status page; `name` is the title of the agent, `labels` whether it takes some."""
    return _page(
        "status.html",
        name,
        view.base,
        name,
        view=view,
        alerts=alerts_view(view.base.alerts, view.base.now),
        firing=firing_counts(view.base.alerts),
        services=view.full,
        indexes=view.indexes,
        labels=labels,
        refresh=REFRESH,
    )


def service_page(view: ServicePageView, name: str, *, labels: bool = False) -> str:
    """Render the page of one service."""
    alerts = [alert for alert in view.base.alerts if alert.service == view.service.name]
    return _page(
        "service.html",
        f"{one_line(view.service.name)} · {name}",
        view.base,
        name,
        alerts=alerts_view(alerts, view.base.now),
        services=[view.service],
        agreement=view.agreement,
        indexes=view.indexes,
        labels=labels,
    )


def trace_page(view: TraceView, name: str) -> str:
    """Render the page of one trace."""
    title = f"Trace {one_line(view.trace_id)} · {name}"
    return _page("trace.html", title, view.base, name, page=trace_parts(view))


def label_page(view: LabelView, name: str) -> str:
    """Render the page on which people label traces."""
    title = f"Label · {one_line(view.service)} · {name}"
    page = None if view.trace is None else trace_parts(view.trace)
    return _page(
        "label.html", title, view.base, name, view=view, page=page, agreement=view.agreement
    )


def runbook_page(name: str, agent_name: str) -> str | None:
    """Render a page of docs/runbooks, a copy of which is in the package; None if there is none."""
    file = files(_PACKAGE).joinpath("runbooks", name)
    if not file.is_file():
        return None
    # other pages of the docs are not in the package
    text = (
        file.read_text("utf-8")
        .replace("](../../", f"]({DOCS_URL}../")
        .replace("](../", f"]({DOCS_URL}")
    )
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    text = Markup(markdown.render(text))
    return _page("runbook.html", f"Runbook · {agent_name}", None, agent_name, text=text)


def error_page(status: int, reason: str, detail: str) -> str:
    """Render the page of an HTTP error."""
    return _page("error.html", f"{status} {reason}", None, "ragmeter", detail=detail)


def _page(
    template: str, title: str, base: PageBase | None, name: str, refresh: int = 0, **context: Any
) -> str:
    css = load_style_sheet("style.css").css
    return render(template, title=title, base=base, name=name, refresh=refresh, css=css, **context)
