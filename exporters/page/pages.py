"""The complete pages: status, service, trace and error."""

from __future__ import annotations

from collections.abc import Sequence

from ragmeter.exporters.page.alerts import alerts_section, firing_counts
from ragmeter.exporters.page.markup import CSS, CSS_HASH, Child, Markup, el, one_line
from ragmeter.exporters.page.numbers import format_age, format_count, format_time
from ragmeter.exporters.page.sections import breakdown_section, consistency_table, indexes_section
from ragmeter.exporters.page.tables import (
    LABEL,
    latency_table,
    overview_table,
    quality_table,
    segments_table,
    service_url,
)
from ragmeter.exporters.page.traces import trace_body, worst_list
from ragmeter.exporters.page.views import (
    PageBase,
    ServicePageView,
    ServiceView,
    StatusView,
    TraceView,
)

REFRESH = 30  # seconds; as often as a Prometheus commonly scrapes

HOW_TO_READ = (
    (
        "The range under a number",
        " is its 95 % interval: what the traces in the window allow one to say about all of the "
        "service's traffic. Of intervals made this way, 95 in 100 hold the true value. The band "
        "around a line is the same interval.",
    ),
    (
        "Effective samples",
        " are the equally weighted traces that would carry the same evidence; sampling with "
        "unequal probabilities makes them fewer than the scored traces.",
    ),
    (
        "A dash",
        " means too little evidence for a number, which is not the same as 0. The gauge is then "
        "absent from /metrics too.",
    ),
    (
        "builtin",
        " scores come from word statistics, without a model: good for watching changes and for "
        "finding bad answers, less so for judging a single one.",
    ),
)


def csp() -> str:
    """No script, nothing from elsewhere, and one known style block."""
    return (
        f"default-src 'none'; style-src '{CSS_HASH}'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )


def status_page(view: StatusView, name: str) -> str:
    base = view.base
    parts: list[Child] = [alerts_section(base.alerts, base.now)]
    if not view.overview:
        parts.append(
            el("section", el("h2", "Services"), el("p", "No trace has come yet.", class_="quiet"))
        )
    if len(view.overview) > 1:
        table = overview_table(view.overview, base.window, firing_counts(base.alerts))
        parts.append(el("section", el("h2", f"{len(view.overview)} services"), table))
    parts += [_service(item, base) for item in view.full]
    if len(view.overview) > len(view.full):
        note = f"The tables of the first {len(view.full)} services are above; the others have "
        parts.append(el("p", note, "pages of their own, linked in the list.", class_="soft"))
    parts.append(indexes_section(view.indexes))
    return _shell(name, name, base, parts, refresh=True)


def service_page(view: ServicePageView, name: str) -> str:
    base, service = view.base, view.service
    alerts = [alert for alert in base.alerts if alert.service == service.name]
    body = [
        alerts_section(alerts, base.now),
        _service(service, base),
        indexes_section(view.indexes),
    ]
    return _shell(f"{one_line(service.name, LABEL)} · {name}", name, base, body)


def trace_page(view: TraceView, name: str) -> str:
    title = f"Trace {one_line(view.trace_id, LABEL)} · {name}"
    return _shell(title, name, view.base, [trace_body(view)])


def error_page(status: int, reason: str, detail: str) -> str:
    body = el(
        "section", el("h2", f"{status} {reason}"), el("p", detail) if detail else None,
        el("p", el("a", "Back to the status page", href="/")),
    )  # fmt: skip
    return _shell(f"{status} {reason}", "ragmeter", None, [body])


def _service(view: ServiceView, base: PageBase) -> Markup:
    seen = " · ".join(f"{view.seen.get(name, 0):,} traces in {name}" for name in base.windows)
    link = el("a", one_line(view.name, LABEL), href=service_url(view.name))
    parts: list[Child] = [el("h2", link, " ", el("small", seen))]
    if view.rows:
        parts += [quality_table(view, base.windows)]
    if view.latency:
        parts += [el("h3", "Latency by stage"), latency_table(view.latency, base.windows)]
    if view.segments:
        idle = sum(not item.seen for item in view.segments)
        more = f" · {idle} more without traffic" if idle else ""
        more += f" · {view.hidden_segments} more not shown" if view.hidden_segments else ""
        parts += [
            el("h3", "Segments ", el("small", f"last {view.window}{more}")),
            segments_table(view) if idle < len(view.segments) else None,
        ]
        parts += breakdown_section(view.breakdown, view.window)
        if view.breakdown is None:
            page = el("a", "on the service's page", href=service_url(view.name))
            parts.append(el("p", "Which of them moved a mean is ", page, ".", class_="note"))
    parts.append(consistency_table(view.compared, base.windows))
    if view.worst:
        parts += [el("h3", "Worst traces"), worst_list(view)]
    return el("section", parts, class_="service", aria_label=one_line(view.name, LABEL))


def _shell(
    title: str, name: str, base: PageBase | None, body: Sequence[Child], refresh: bool = False
) -> str:
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("meta", name="robots", content="noindex"),
        el("meta", http_equiv="refresh", content=REFRESH) if refresh else None,
        el("title", title),
        el("style", Markup(CSS)),
    )
    page = el(
        "body",
        el("a", "Skip to content", href="#main", class_="skip"),
        el(
            "div",
            _header(name, base),
            el("main", _problems(base), body, id="main"),
            _footer(base, refresh) if base is not None else None,
            class_="page",
        ),
    )
    return f"<!doctype html>\n{el('html', head, page, lang='en')}\n"


def _header(name: str, base: PageBase | None) -> Markup:
    mark = el(
        "svg",
        Markup('<path d="M3 17a9 9 0 1 1 16 0"/><path d="M4.2 9.5l1.7 1M11 4v2M17.8 9.5l-1.7 1"/>'),
        el("path", d="M11 16L14.6 8.4", class_="needle"),
        viewBox="0 0 22 20", width=24, height=22, aria_hidden="true",
    )  # fmt: skip
    brand = el("h1", el("a", mark, one_line(name, LABEL), href="/", class_="brand"))
    return el("header", brand, _facts(base) if base is not None else None, class_="top")


def _facts(base: PageBase) -> Markup:
    health = base.health
    ready = el(
        "dd", "ready" if health.ready else "not ready", class_="ok" if health.ready else "bad"
    )
    facts: list[tuple[str, Markup]] = [
        ("Agent", ready),
        ("Traces seen", el("dd", format_count(base.traces))),
        ("Waiting", el("dd", format_count(health.queue_depth))),
    ]
    if health.oldest_unprocessed_seconds:
        facts.append(("Oldest waits", el("dd", format_age(health.oldest_unprocessed_seconds))))
    facts.append(("Stream time", el("dd", format_time(base.now))))
    return el("dl", [el("div", el("dt", label), item) for label, item in facts], class_="facts")


def _problems(base: PageBase | None) -> Markup | None:
    if base is None or base.health.ready:
        return None
    lines = [el("li", one_line(problem, 400)) for problem in base.health.problems]
    return el("div", "The agent is not ready:", el("ul", lines), class_="problems", role="alert")


def _footer(base: PageBase, refresh: bool) -> Markup:
    windows = ", ".join(base.windows)
    note = f" This page loads anew every {REFRESH} seconds." if refresh else ""
    return el(
        "footer",
        [el("p", el("b", term), text) for term, text in HOW_TO_READ],
        el(
            "p",
            f"Windows ({windows}) go by the time of the traces, not by the clock; stream time is "
            f"the newest of them.{note} The same numbers: ",
            el("a", "/metrics", href="/metrics"),
            " and ",
            el("a", "/api/windows.json", href="/api/windows.json"),
            "; of segments: ",
            el("a", "/api/segments.json", href="/api/segments.json"),
            ".",
        ),
    )
