"""Every service on one page: who is in trouble, and since when."""

from __future__ import annotations

from deploy.dashboards import thresholds
from deploy.dashboards.bands import latency_band, metric_band
from deploy.dashboards.board import Board, Row
from deploy.dashboards.now import now
from deploy.dashboards.panels import Column, Panel, columns, lines, link, number, on_page
from deploy.dashboards.parts import overview_panels
from deploy.dashboards.promql import INTERVAL, RANGE, of_service, target
from deploy.dashboards.thresholds import Line, Lines
from deploy.dashboards.variables import agents, places, scorer, service, window

__all__ = ["BOARD", "MAIN"]

MAIN = (
    *("error", "timeout", "empty_answer", "answered"),
    *("relevance", "grounding", "citation_precision"),
)
"""What the default rules watch."""

ONE = Lines((Line(1, "critical", above=True),))
THIRD = (8, 7)


def _top() -> list[Panel]:
    results = target("ragmeter_results_total", 'state="unscored"')
    owed = target("ragmeter_results_total", 'state=~"scored|unscored|shed"')
    seen = f"sum by (service) (increase({of_service('rag_requests_total')}[{RANGE}]))"
    return [
        number(
            "Alerts firing",
            "Alerts of the agents themselves. More than none: see the list below, and the status"
            " page.",
            f"sum({target('ragmeter_alerts_firing')}) or vector(0)",
            limits=ONE,
        ),
        number(
            "Agents not ready",
            "An agent that is not ready says why at /readyz; its services' numbers stand still.",
            f"count({target('ragmeter_ready')} == 0) or vector(0)",
            limits=ONE,
            alerts=["RagmeterNotReady", "RagmeterDown", "RagmeterAbsent"],
        ),
        number(
            "Services with traffic",
            "Services that sent a trace in the range shown. One too few: look at its sender first.",
            f"count({seen} > 0) or vector(0)",
            alerts=["RagTracesAbsent"],
        ),
        number(
            "Requests per second",
            "Traces of the chosen services, of every status.",
            f"sum(rate({of_service('rag_requests_total')}[{INTERVAL}]))",
            unit="reqps",
            sparkline=True,
        ),
        number(
            "Oldest trace that waits",
            "How late the numbers of embedded agents are at worst. It grows when more comes in than"
            " is scored. Of workers only `ragmeter kafka lag` knows.",
            f"max({target('ragmeter_oldest_unprocessed_seconds')})",
            unit="s",
            decimals=1,
            sparkline=True,
            alerts=["RagmeterLagging", "RagmeterStalled"],
        ),
        number(
            "Results without a value",
            "Share of the results in the range shown that should have a value and have none, over"
            " all metrics. Which, and why: the counter ragmeter_results_total by state and reason.",
            f"sum(increase({results}[{RANGE}])) / sum(increase({owed}[{RANGE}]))",
            unit="percentunit",
            decimals=2,
            alerts=["RagUnscoredHigh", "RagUnscoredElevated"],
        ),
    ]


def _table() -> Panel:
    return now(
        "Numbers of now",
        "Every service and metric that the default rules watch: estimate, its 95 % interval, the"
        " samples behind it, and the share of traces without a value. Compare intervals, not"
        " estimates: two that overlap may be the same. A row that is missing has too few samples"
        " in the window.",
        MAIN,
        size=(17, 9),
    )


def _firing() -> Panel:
    return columns(
        "Alerts that fire",
        "Of the agents themselves, by name. The status page says of each since when, in which"
        " segment, and which traces are the worst.",
        [
            Column("Alert", label="alertname", links=(link("Status page", "${page}/"),)),
            Column("Severity", label="severity", width=90),
            Column(
                "Firing",
                f"sum by (alertname, severity) ({target('ragmeter_alerts_firing')}) > 0",
                decimals=0,
                width=70,
            ),
        ],
        size=(7, 9),
        sort="Severity",
    )


def _each() -> list[Panel]:
    """What every service has in a row of its own."""
    statuses = f"sum by (status) (rate({of_service('rag_requests_total')}[{INTERVAL}]))"
    buckets = f"rate({of_service('rag_request_duration_seconds_bucket')}[{INTERVAL}])"
    return [
        lines(
            "Requests per second by status",
            "Every request is counted, also those that no scorer looks at. None: the sender is"
            " away (nobody measures silence unless RagTracesAbsent is switched on).",
            {"{{status}}": statuses}, unit="reqps", size=THIRD, stacked=True, links=[on_page()],
            colours={"ok": "green", "error": "red", "timeout": "orange"},
        ),
        metric_band(
            "error", "Errors",
            "Share of requests that ended with an error; timeouts are counted apart.", size=THIRD,
            chosen=False,
        ),
        latency_band(
            "total", "Latency, p95",
            "Nineteen of twenty requests were faster.", 0.95, size=THIRD,
        ),
        metric_band(
            "answered", "Answered",
            "Share of answers that attempt the question rather than refuse or not know.",
            size=THIRD,
        ),
        metric_band(
            "relevance", "Relevance of the passages",
            "Mean grade of what was retrieved, 0 (off topic) to 3 (answers the query).", size=THIRD,
        ),
        metric_band(
            "grounding", "Grounding of the answers",
            "How far the answers say what their passages say. When it falls and relevance does not,"
            " look at model and prompt.", size=THIRD,
        ),
        metric_band(
            "citation_precision", "Support by citations",
            "How well cited passages support the statements that cite them.", size=THIRD,
        ),
        *overview_panels(),
        lines(
            "Single slow requests",
            "Estimated p95 from the histogram; the points are single requests (exemplars). Click"
            " one: its trace opens on the status page while it is kept there.",
            {"p95": f"histogram_quantile(0.95, sum by (le) ({buckets}))"}, unit="s", size=THIRD,
            limits=thresholds.latency("total", 0.95), exemplars=True, links=[on_page()],
            colours={"p95": "blue"},
        ),
    ]  # fmt: skip


BOARD = Board(
    "overview",
    "Overview",
    "Every service: requests, errors, latency, quality with its interval, error budgets.",
    [*agents(), service(), window(), scorer(), *places()],
    [
        Row("", _top()),
        Row("", [_table(), _firing()]),
        Row("$service", _each(), repeat="service", empty="Nothing of this, or too few samples"),
    ],
)
