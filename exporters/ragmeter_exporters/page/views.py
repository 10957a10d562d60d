"""View models of the pages, copied from the running agent while its lock is held.

The lock is given up between services (`read_each`); kept traces are read without it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from ragmeter.aggregate.agent_view import AgentHealth, AgentView, JudgeSpend, judge_spend
from ragmeter.alerts.alert import Alert
from ragmeter.core.durations import main_window
from ragmeter.core.label_bounds import bound_label
from ragmeter.core.metric_specs import (
    METRIC_GROUPS,
    OTHER_GROUP,
    MetricSpec,
    base_name,
    display_rank,
    find_spec,
    is_judged,
)
from ragmeter.core.score import REFERENCE_SCORER
from ragmeter.core.series import is_overflow_series
from ragmeter.metrics.canary.specs import is_canary_scorer
from ragmeter.metrics.registry import metric_specs
from ragmeter.parts.collection import PartPage
from ragmeter.parts.contract import ServiceLink
from ragmeter.parts.incident_words import still_open
from ragmeter.parts.views import Incident
from ragmeter.trace import GUESSED_FIELDS
from ragmeter.windows.series import Estimate, Quantile
from ragmeter.windows.windows import Windows

from ragmeter_exporters.page.numbers import format_bounds
from ragmeter_exporters.page.questions import RANGES

WORST = 5  # traces of a metric
SEGMENTS = 24  # of a service
STALE_SECONDS = 300.0  # data older than the shortest default window is told from fresh data
# Seconds for which a reader of many services holds the lock at a time: so many times as long as it
# has waited for it until then, within these limits.
_HELD_PER_WAITED = 4
_LEAST_HELD = 0.01
_MOST_HELD = 0.25

_T = TypeVar("_T")
History = list[tuple[float, Estimate | None]]


@dataclass(frozen=True, slots=True)
class PageOptions:
    """What the pages show that is no part of the agent.

    Args:
        links: The pages of parts to which that of a service leads.
        trace_url: Template of the address of a trace in the tracing backend; empty: none.
        clock: Returns Unix seconds, for the age of the data.
        started: When the agent started, by the clock; None if it is not known.
    """

    links: Sequence[ServiceLink] = ()
    trace_url: str = ""
    clock: Callable[[], float] = time.time
    started: float | None = None


DEFAULT_OPTIONS = PageOptions()


@dataclass(slots=True)
class WindowCell:
    """One window of one metric; there is no estimate below `needed` scored traces."""

    estimate: Estimate | None
    states: dict[str, int]
    needed: int

    @property
    def scored(self) -> int:
        """Traces with a value."""
        return self.states.get("scored", 0)

    @property
    def missing(self) -> str:
        """Why there is no estimate."""
        return f"not enough answers yet ({self.scored:,} of {self.needed})"


@dataclass(slots=True)
class MetricRow:
    """One metric by one scorer: a cell for each window and the history of the chart.

    `judge` is the model that judges, empty where none does.
    """

    spec: MetricSpec
    scorer: str
    cells: dict[str, WindowCell]
    history: History
    judge: str = ""

    @property
    def measured(self) -> bool:
        """Whether some trace of some window has a value."""
        return any(cell.scored for cell in self.cells.values())

    @property
    def group(self) -> str:
        """The heading under which the metric stands."""
        if is_canary_scorer(self.scorer):  # the metric itself may be one of traffic, too
            return "Canaries"
        metric = base_name(self.spec.name)  # which has its cut-off here
        names = (name for name, metrics in METRIC_GROUPS.items() if metric in metrics)
        return next(names, OTHER_GROUP)

    @property
    def note(self) -> str:
        """The scorer and the better direction; lines break between them only."""
        better = f"{'↑' if self.spec.good == 'higher' else '↓'} better" if self.spec.good else ""
        by = f"{self.scorer} by {bound_label(self.judge, 40)}" if self.judge else self.scorer
        parts = (by, format_bounds(self.spec), better)
        return "\u00a0· ".join(part.replace(" ", "\u00a0") for part in parts if part)


@dataclass(slots=True)
class LatencyRow:
    """Quantiles of one stage, by window and quantile; `history` of p95, of the total alone."""

    stage: str
    quantiles: dict[str, dict[float, Quantile]]
    history: History


@dataclass(slots=True)
class SegmentRow:
    """One segment: its traces, estimates by (metric, scorer) and total p95."""

    segment: str
    seen: int
    estimates: dict[tuple[str, str], Estimate | None]
    p95: Quantile | None


@dataclass(slots=True)
class WorstTrace:
    """One of the worst traces of a metric; `trace` is None once it is no longer kept."""

    trace_id: str
    value: float
    timestamp: float
    trace: dict[str, Any] | None = None

    @property
    def query(self) -> str:
        """The question, or the id where the question is not known."""
        query = (self.trace or {}).get("query")
        return query if query and isinstance(query, str) else self.trace_id


@dataclass(slots=True)
class WorstGroup:
    """The worst traces of one metric by one scorer in a window."""

    spec: MetricSpec
    scorer: str
    window: str
    traces: list[WorstTrace]


@dataclass(slots=True)
class ServiceView:
    """Everything that is known of one service.

    Args:
        window: The window of the states and segments.
        span: The length of time of the charts.
        seen: Traces by window.
        guessed: Traces with a guessed field since the state began, by field.
        traces: Traces since the state began, `unread` those left out because of their language.
    """

    name: str
    window: str
    span: str
    seen: dict[str, int]
    rows: list[MetricRow]
    latency: list[LatencyRow]
    segments: list[SegmentRow] = field(default_factory=list)
    worst: list[WorstGroup] = field(default_factory=list)
    hidden_segments: int = 0
    guessed: dict[str, int] = field(default_factory=dict)
    traces: int = 0
    unread: int = 0

    @property
    def groups(self) -> list[tuple[str, list[MetricRow]]]:
        """The measured metrics below their headings."""
        rows = [row for row in self.rows if row.measured]
        names = sorted({row.group for row in rows}, key=[*METRIC_GROUPS, OTHER_GROUP].index)
        return [(name, [row for row in rows if row.group == name]) for name in names]


@dataclass(slots=True)
class PageBase:
    """Facts of the agent that every page shows; `now` is stream time, None before any trace.

    Of the windows, the shortest first, `window` is that of the states and segments. `clock` is the
    time by the clock, `newest` when the newest trace of a service came, `standing` its open
    pages and warnings.
    """

    options: PageOptions
    clock: float
    newest: dict[str, float]
    now: float | None
    health: AgentHealth
    windows: tuple[str, ...]
    window: str
    traces: float
    alerts: list[Alert]
    incidents: list[Incident]
    standing: dict[str, tuple[int, int]]
    services: list[str]
    judge: JudgeSpend | None

    @property
    def age(self) -> float:
        """Seconds since the newest trace."""
        return max(0.0, self.clock - max(self.newest.values(), default=self.now or self.clock))

    @property
    def state(self) -> str:
        """Whether traces `flow`, none come (`quiet`), or stream time does not move on (`still`).

        Stream time follows the clock while traffic is live; else all is of the past.
        """
        lag = self.health.processing_lag_seconds
        if lag is None and self.now is not None and self.clock - self.now > STALE_SECONDS:
            return "still"
        return "quiet" if self.now is not None and self.age > STALE_SECONDS else "flow"


@dataclass(slots=True)
class DetailsView:
    """The details of one service; `series` is the (metric, scorer) that is shown large."""

    base: PageBase
    service: ServiceView
    parts: list[PartPage] = field(default_factory=list)
    series: tuple[str, str] = ("", "")


def read_each(agent: AgentView, services: Sequence[str], read: Callable[[str], _T]) -> list[_T]:
    """Return what `read` gives for each service, with the lock held for some of them at a time.

    The writer never waits for all. Each hold is another wait while it counts a backlog, so holds
    are longer once the reader has waited.
    """
    results = list[_T]()
    waited = 0.0
    while len(results) < len(services):
        asked = time.monotonic()
        with agent.lock():
            since = time.monotonic()
            waited += since - asked
            hold = min(_MOST_HELD, max(_LEAST_HELD, _HELD_PER_WAITED * waited))
            for service in services[len(results) :]:
                results.append(read(service))
                if time.monotonic() - since >= hold:
                    break
    return results


def details_view(
    agent: AgentView,
    service: str,
    options: PageOptions = DEFAULT_OPTIONS,
    span: str | None = None,
    series: tuple[str, str] = ("", ""),
) -> DetailsView | None:
    """Copy the details of a service; None where no window has a trace of it.

    `span` is the length of time of the charts, one of `RANGES`, or any other text for the default,
    `series` the (metric, scorer) that is shown large, if it is there.
    """
    base = base_view(agent, options)
    if service not in base.services:
        return None
    view = _service(agent, service, base, span)
    return DetailsView(base, view, list(agent.part_pages(service)), series)


def count_open(incidents: Sequence[Incident]) -> dict[str, tuple[int, int]]:
    """Count the (pages, warnings) that are open, by service."""
    counts: dict[str, tuple[int, int]] = {}
    for incident in still_open(incidents):
        pages, warnings = counts.get(incident.service, (0, 0))
        page = incident.severity == "page"
        counts[incident.service] = (pages + page, warnings + (not page))
    return counts


def base_view(agent: AgentView, options: PageOptions = DEFAULT_OPTIONS) -> PageBase:
    """Copy what every page shows, under one hold of the lock."""
    health = agent.health()
    with agent.lock():
        windows = agent.windows
        services = list(windows.services())
        newest = {name: windows.newest_trace(name) for name in services}
        alerts = [alert.copy() for alert in agent.alerts()]
        incidents = list(agent.incidents())
        names = tuple(windows.names)
        traces = sum(
            value for (name, _), value in agent.counters.items() if name == "rag_requests_total"
        )
        return PageBase(
            options=options,
            clock=options.clock(),
            newest={name: at for name, at in newest.items() if at is not None},
            now=windows.now,
            health=health,
            windows=names,
            window=main_window(names),
            traces=traces,
            alerts=alerts,
            incidents=incidents,
            standing=count_open(incidents),
            services=services,
            judge=judge_spend(agent),
        )


def _service(agent: AgentView, service: str, base: PageBase, span: str | None) -> ServiceView:
    with agent.lock():
        view = _read_service(agent, service, base, span)
    items = [item for group in view.worst for item in group.traces]
    names = {item.trace_id for item in items}
    documents = {name: agent.evidence(service, name) for name in names}
    for item in items:
        trace = (documents[item.trace_id] or {}).get("trace")
        item.trace = trace if isinstance(trace, dict) else None
    return view


def _read_service(agent: AgentView, service: str, base: PageBase, span: str | None) -> ServiceView:
    length = span if span in RANGES and span is not None else base.window
    windows = agent.windows
    rows = _rows(windows, service, base, length)
    segments = windows.segments(service)
    own = ("service", service)
    get = agent.counters.get
    ended = (("status", name) for name in ("ok", "error", "timeout"))
    return ServiceView(
        name=service,
        window=base.window,
        span=length,
        seen={name: windows.count_traces(service, "", name) for name in base.windows},
        rows=rows,
        latency=_latency(windows, service, base, length),
        segments=[
            _segment(windows=windows, service=service, segment=name, rows=rows, base=base)
            for name in segments[:SEGMENTS]
        ],
        worst=_worst(windows, service, rows, base),
        hidden_segments=max(0, len(segments) - SEGMENTS),
        guessed={
            name: int(number)
            for name in GUESSED_FIELDS
            if (number := get("rag_guessed_fields_total", (own, ("field", name))))
        },
        traces=int(sum(get("rag_requests_total", (own, status)) for status in ended)),
        unread=int(get("rag_left_out_traces_total", (own, ("reason", "language")))),
    )


def row_order(series: tuple[str, str]) -> tuple[bool, int, tuple[str, str]]:
    """Return the key by which the rows of a service are sorted."""
    # Canaries come last: the scores by their reference, then those by a judge.
    metric, scorer = series
    return is_canary_scorer(scorer) and scorer != REFERENCE_SCORER, display_rank(metric), series


def _rows(windows: Windows, service: str, base: PageBase, span: str) -> list[MetricRow]:
    series = [
        (metric, scorer)
        for metric, scorer in windows.series(service, "")
        if find_spec(metric_specs(), metric) and not is_overflow_series(scorer)
    ]
    rows = []
    for metric, scorer in sorted(series, key=row_order):
        cells = {
            name: WindowCell(
                windows.estimate(service, "", metric, scorer, name),
                dict(windows.states(service, "", metric, scorer, name)),
                windows.min_samples,
            )
            for name in base.windows
        }
        history = windows.history(service, "", metric, scorer, span)
        spec = replace(metric_specs()[base_name(metric)], name=metric)
        judge = base.judge.model if base.judge and is_judged(scorer) else ""
        rows.append(
            MetricRow(spec=spec, scorer=scorer, cells=cells, history=list(history), judge=judge)
        )
    return rows


def _latency(windows: Windows, service: str, base: PageBase, span: str) -> list[LatencyRow]:
    return [
        LatencyRow(
            stage,
            {
                name: {q.quantile: q for q in windows.quantiles(service, "", stage, name)}
                for name in base.windows
            },
            windows.history(service, "", "latency", stage, span) if stage == "total" else [],
        )
        for stage in sorted(windows.stages(service, ""), key=lambda name: (name != "total", name))
    ]


def _segment(
    windows: Windows, service: str, segment: str, rows: Sequence[MetricRow], base: PageBase
) -> SegmentRow:
    quantiles = windows.quantiles(service, segment, "total", base.window)
    return SegmentRow(
        segment,
        windows.count_traces(service, segment, base.window),
        {
            (row.spec.name, row.scorer): windows.estimate(
                service, segment, row.spec.name, row.scorer, base.window
            )
            for row in rows
        },
        next((item for item in quantiles if item.quantile == 0.95), None),
    )


def _worst(
    windows: Windows, service: str, rows: Sequence[MetricRow], base: PageBase
) -> list[WorstGroup]:
    """List the worst traces of each metric that has a better side, perfect values left out."""
    groups = []
    for row in rows:
        spec = row.spec
        if spec.good is None:
            continue
        best = spec.high if spec.good == "higher" else spec.low
        for window in dict.fromkeys((base.window, base.windows[-1])):
            traces = [
                WorstTrace(item.trace_id, item.value, item.timestamp)
                for item in windows.worst(service, spec.name, row.scorer, window, WORST)
                if item.value != best
            ]
            if traces:
                groups.append(WorstGroup(spec, row.scorer, window, traces))
                break
    return groups
