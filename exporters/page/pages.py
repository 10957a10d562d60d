"""The complete pages: status, service, trace and error."""

from __future__ import annotations

from typing import Any

from ragmeter.exporters.page.alerts import alerts_view, firing_counts
from ragmeter.exporters.page.rendering import load_style_sheet, render
from ragmeter.exporters.page.text import LABEL, one_line
from ragmeter.exporters.page.traces import TracePage
from ragmeter.exporters.page.views import PageBase, ServicePageView, StatusView, TraceView

REFRESH = 30  # seconds; as often as a Prometheus commonly scrapes


def csp() -> str:
    """Return the Content-Security-Policy: no script, nothing from elsewhere, one style block."""
    return (
        f"default-src 'none'; style-src '{load_style_sheet('style.css').hash}'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    )


def status_page(view: StatusView, name: str) -> str:
    """Render the status page; `name` is the title of the agent."""
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
        refresh=REFRESH,
    )


def service_page(view: ServicePageView, name: str) -> str:
    """Render the page of one service."""
    alerts = [alert for alert in view.base.alerts if alert.service == view.service.name]
    return _page(
        "service.html",
        f"{one_line(view.service.name, LABEL)} · {name}",
        view.base,
        name,
        alerts=alerts_view(alerts, view.base.now),
        services=[view.service],
        indexes=view.indexes,
    )


def trace_page(view: TraceView, name: str) -> str:
    """Render the page of one trace."""
    title = f"Trace {one_line(view.trace_id, LABEL)} · {name}"
    return _page("trace.html", title, view.base, name, page=TracePage(view))


def error_page(status: int, reason: str, detail: str) -> str:
    """Render the page of an HTTP error."""
    return _page("error.html", f"{status} {reason}", None, "ragmeter", detail=detail)


def _page(
    template: str, title: str, base: PageBase | None, name: str, refresh: int = 0, **context: Any
) -> str:
    css = load_style_sheet("style.css").css
    return render(template, title=title, base=base, name=name, refresh=refresh, css=css, **context)
