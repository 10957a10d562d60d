"""Render the pages with Jinja2: of all services, of one, of a trace, and of errors.

Every expression of a template is escaped, and its hidden characters become visible, so a template
cannot forget either. Only `Markup` from our own pictures and style sheets passes unchanged.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from importlib.resources import files
from typing import Any

from jinja2 import ChoiceLoader, Environment, FunctionLoader, PackageLoader, StrictUndefined
from markupsafe import Markup
from ragmeter import __version__
from ragmeter.core.metric_specs import MetricSpec
from ragmeter.metrics.registry import metric_specs
from ragmeter.parts import answer_texts
from ragmeter.parts.collection import PartKinds, PartPage
from ragmeter.parts.incident_words import is_closed, still_open
from ragmeter.server.paths import (
    details_path,
    fill_path,
    incident_path,
    quote_text,
    service_path,
    trace_path,
)
from ragmeter.windows.people_agreement import AGREEMENT_COLUMNS, AGREEMENT_NOTE

from ragmeter_exporters import svg
from ragmeter_exporters.page import numbers
from ragmeter_exporters.page.incidents import IncidentView, incident_lines
from ragmeter_exporters.page.questions import MARKS, RANGES
from ragmeter_exporters.page.runbooks import runbook_pages
from ragmeter_exporters.page.services import FleetView, ServicePageView
from ragmeter_exporters.page.texts import STATE_NAMES, metric_words, one_line, visible
from ragmeter_exporters.page.traces import TraceView, trace_excerpt, trace_parts
from ragmeter_exporters.page.views import DetailsView, PageBase
from ragmeter_exporters.plot import format_point, format_tick, plot, plot_question

QUANTILES = (0.5, 0.95, 0.99)
DOCS_URL = "https://github.com/ragmeter/ragmeter/blob/main/docs/"
AGREEMENT_URL = f"{DOCS_URL}agreement.md"  # how well scorers agree with people, measured
NAME = "ragmeter"  # of the agent, on its pages

_PACKAGE = "ragmeter_exporters.page"


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
        loader=ChoiceLoader([PackageLoader(_PACKAGE), FunctionLoader(_part_template)]),
        autoescape=True,
        finalize=_visible_text,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters |= {
        "age": numbers.format_age,
        "bounds": numbers.format_bounds,
        "count": numbers.format_count,
        "difference": numbers.format_difference,
        "excerpt": trace_excerpt,
        "integer": "{:,}".format,
        "interval": _interval,
        "label": one_line,
        "clock": numbers.format_clock,
        "pixel": "{:.1f}".format,
        "point": format_point,
        "percent": numbers.format_percent,
        "query": quote_text,
        "seconds": numbers.format_seconds,
        "share": numbers.format_share,
        "time": numbers.format_time,
        "trace_value": numbers.format_trace_value,
        "value": numbers.format_value,
        "words": metric_words,
        "minus": lambda text: text.replace("-", "\u2212"),
        "moment": numbers.format_moment,
    }
    environment.globals |= {
        "QUANTILES": QUANTILES,
        "STATE_NAMES": STATE_NAMES,
        "answers": answer_texts,
        "answers_counted": numbers.format_answers,
        "AGREEMENT_COLUMNS": AGREEMENT_COLUMNS,
        "AGREEMENT_NOTE": AGREEMENT_NOTE,
        "AGREEMENT_URL": AGREEMENT_URL,
        "DOCS_URL": DOCS_URL,
        "MARKS": answer_texts.MARKS,
        "MARKED_CHANGES": MARKS,
        "NAME": NAME,
        "RANGES": tuple(RANGES),
        "VERSION": __version__,
        "seconds_interval": numbers.format_seconds_interval,
        "service_path": service_path,
        "details_path": details_path,
        "incident_path": incident_path,
        "fill_path": fill_path,
        "format_tick": format_tick,
        "make_plot": plot,
        "plot_question": plot_question,
        "time_ticks": svg.time_ticks,
        "value_ticks": svg.value_ticks,
        "spec_of": metric_specs().__getitem__,
        "trace_path": trace_path,
    }
    return environment


def render_parts(pages: Iterable[PartPage]) -> list[Markup]:
    """Render the fragments of parts, whose templates lie beside their code."""
    environment = make_environment()
    return [
        Markup(environment.get_template(f"{page.package}:page.html").render(page.context))
        for page in pages
    ]


def _part_template(name: str) -> str | None:
    """Return a template that lies beside the code of a part, named `package:name`."""
    package, colon, file = name.partition(":")
    return files(package).joinpath(file).read_text("utf-8") if colon else None


def _visible_text(value: Any) -> Any:
    if isinstance(value, Markup):
        return value
    return "" if value is None else visible(str(value))


def _interval(estimate: Any, spec: MetricSpec) -> str:
    return numbers.format_interval(estimate.lower, estimate.upper, spec)


def csp() -> str:
    """Return the Content-Security-Policy: no script, nothing from elsewhere, one style block."""
    return (
        f"default-src 'none'; style-src '{load_style_sheet('style.css').hash}'; base-uri 'none'; "
        f"form-action 'self'; frame-ancestors 'none'"
    )


def fleet_page(view: FleetView) -> str:
    """Render the page of all services."""
    return _page(
        "fleet.html",
        NAME,
        view.base,
        view=view,
        incidents=incident_lines(still_open(view.base.incidents), view.base.now),
        fragments=render_parts(view.parts),
    )


def service_page(view: ServicePageView) -> str:
    """Render the page of one service."""
    own = [one for one in view.base.incidents if one.service == view.name]
    standing = still_open(own)
    return _page(
        "service.html",
        f"{one_line(view.name)} · {NAME}",
        view.base,
        view=view,
        questions=view.questions,
        incidents=incident_lines(standing, view.base.now),
        ended=len(own) - len(standing),
    )


def details_page(view: DetailsView) -> str:
    """Render what is known of one service beyond its questions."""
    own = [one for one in view.base.incidents if one.service == view.service.name]
    return _page(
        "details.html",
        f"Details of {one_line(view.service.name)} · {NAME}",
        view.base,
        incidents=incident_lines(still_open(own), view.base.now),
        ended=incident_lines([one for one in own if is_closed(one)], view.base.now),
        series=view.series,
        service=view.service,
        fragments=render_parts(view.parts),
    )


def incident_page(view: IncidentView) -> str:
    """Render the page of one incident."""
    title = f"{view.line.title} · {one_line(view.line.incident.service)} · {NAME}"
    return _page("incident.html", title, view.base, view=view)


def trace_page(view: TraceView) -> str:
    """Render the page of one trace."""
    title = f"Trace {one_line(view.trace_id)} · {NAME}"
    return _page("trace.html", title, view.base, page=trace_parts(view))


def render_part_page(template: str, title: str, base: PageBase, **context: Any) -> str:
    """Render a page of a part, whose template is named `package:name`."""
    return _page(template, title, base, **context)


def runbook_page(name: str, parts: PartKinds) -> str | None:
    """Render a runbook by its name, like `drift`; None if there is none."""
    from markdown_it import MarkdownIt  # late: a start need not wait for it

    source = runbook_pages(parts).get(name)
    if source is None:
        return None
    # other pages of the docs are not in the package
    source = source.replace("](../../", f"]({DOCS_URL}../").replace("](../", f"]({DOCS_URL}")
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    text = Markup(markdown.render(source))
    return _page("runbook.html", f"Runbook · {NAME}", None, text=text)


def error_page(status: int, reason: str, detail: str) -> str:
    """Render the page of an HTTP error."""
    return _page("error.html", f"{status} {reason}", None, detail=detail)


def _page(template: str, title: str, base: PageBase | None, **context: Any) -> str:
    css = load_style_sheet("style.css").css
    return render(template, title=title, base=base, css=css, **context)
