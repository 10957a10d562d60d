"""View models of the pages, copied from the running agent while its lock is held.

As in `ragmeter.exporters.snapshot` the lock is taken per service; kept traces are read without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ragmeter.breakdown.breakdown import (
    Breakdown,
    BreakdownOptions,
    build_breakdown,
)
from ragmeter.breakdown.sources import WindowBreakdownSource
from ragmeter.core.metric_specs import (
    METRIC_GROUPS,
    OTHER_GROUP,
    MetricSpec,
    base_name,
    display_rank,
    find_spec,
)
from ragmeter.core.score import REFERENCE_SCORER
from ragmeter.core.series import is_overflow_series
from ragmeter.metrics.canary.scores import is_canary_scorer
from ragmeter.metrics.registry import METRICS

if TYPE_CHECKING:
    from ragmeter.aggregate.agent_view import AgentHealth, AgentView
    from ragmeter.aggregate.consistency import AnswerComparison
    from ragmeter.aggregate.indexes import IndexVersion
    from ragmeter.alerts.alert import Alert
    from ragmeter.breakdown.breakdown import Breakdown
    from ragmeter.windows.series import Estimate, Quantile
    from ragmeter.windows.windows import Windows


def default_segment_window(names: tuple[str, ...]) -> str:
    """1h, or the middle one: what the page shows of segments."""
    return "1h" if "1h" in names else names[len(names) // 2]


def service_breakdown(
    reading: AgentView, service: str, window: str, options: BreakdownOptions | None = None
) -> Breakdown:
    """Of one service. The lock is taken once for each series. Raises `NoPast`."""

    def windows() -> Windows:
        return reading.windows

    return build_breakdown(WindowBreakdownSource(windows, service, window, reading.lock), options)


FULL_SERVICES = 6  # services with all their tables on the status page; the rest one line each
WORST = 5
SEGMENTS = 24
BROKEN_DOWN = 40
"""Segments of a service whose breakdown is on the status page, which loads anew all the time; with
more it is on the service's own page alone."""


@dataclass(slots=True)
class WindowCell:
    """One window of one metric; `estimate` is None while `scored` is below `needed` (None where
    the windows do not say what they need)."""

    estimate: Estimate | None
    states: dict[str, int]
    needed: int | None

    @property
    def scored(self) -> int:
        return self.states.get("scored", 0)


@dataclass(slots=True)
class MetricRow:
    spec: MetricSpec
    scorer: str
    cells: dict[str, WindowCell]
    history: list[tuple[float, Estimate | None]]

    @property
    def measured(self) -> bool:
        """Some trace of some window has a value."""
        return any(cell.scored for cell in self.cells.values())

    @property
    def group(self) -> str:
        if is_canary_scorer(self.scorer):  # the metric itself may be one of traffic, too
            return "Canaries"
        metric = base_name(self.spec.name)  # which has its cut-off here
        names = (name for name, metrics in METRIC_GROUPS.items() if metric in metrics)
        return next(names, OTHER_GROUP)


@dataclass(slots=True)
class LatencyRow:
    stage: str
    quantiles: dict[str, dict[float, Quantile]]


@dataclass(slots=True)
class SegmentRow:
    segment: str
    seen: int
    estimates: dict[tuple[str, str], Estimate | None]
    p95: Quantile | None


@dataclass(slots=True)
class WorstTrace:
    trace_id: str
    value: float
    timestamp: float
    trace: dict[str, Any] | None = None


@dataclass(slots=True)
class WorstGroup:
    spec: MetricSpec
    scorer: str
    window: str
    traces: list[WorstTrace]


@dataclass(slots=True)
class ServiceView:
    """One service. `rows` alone is filled in where it is shown on one line."""

    name: str
    window: str
    seen: dict[str, int]
    rows: list[MetricRow]
    latency: list[LatencyRow]
    segments: list[SegmentRow] = field(default_factory=list)
    worst: list[WorstGroup] = field(default_factory=list)
    hidden_segments: int = 0
    compared: dict[str, AnswerComparison] = field(default_factory=dict)
    """Answers to one question, by window."""
    breakdown: Breakdown | None = None
    """Of the last `window`; None without segments, and where it is left to the service's page."""


@dataclass(slots=True)
class PageBase:
    """What every page says of the agent."""

    now: float | None
    health: AgentHealth
    windows: tuple[str, ...]
    window: str
    """The window of the sparklines, states and segments: 1h, or the middle one."""
    traces: float
    alerts: list[Alert]
    services: list[str]


@dataclass(slots=True)
class StatusView:
    base: PageBase
    overview: list[ServiceView]
    full: list[ServiceView]
    indexes: list[IndexVersion] = field(default_factory=list)


@dataclass(slots=True)
class ServicePageView:
    base: PageBase
    service: ServiceView
    indexes: list[IndexVersion] = field(default_factory=list)


@dataclass(slots=True)
class TraceView:
    base: PageBase
    service: str
    trace_id: str
    trace: dict[str, Any]
    results: list[dict[str, Any]]


def status_view(reading: AgentView) -> StatusView:
    base = base_view(reading)
    overview = [_service(reading, name, base, full=False) for name in base.services]
    firing = {alert.service for alert in base.alerts if alert.state == "firing"}
    longest = base.windows[-1]
    order = sorted(
        overview, key=lambda view: (view.name not in firing, -view.seen.get(longest, 0), view.name)
    )
    chosen = [view.name for view in order[:FULL_SERVICES]]
    full = [_service(reading, name, base, full=True) for name in chosen]
    for item in full:
        if len(item.segments) + item.hidden_segments <= BROKEN_DOWN:
            item.breakdown = _breakdown(reading, item)
    with reading.lock():
        indexes = list(reading.indexes())
    return StatusView(base, order, full, indexes)


def service_view(reading: AgentView, service: str) -> ServicePageView | None:
    base = base_view(reading)
    if service not in base.services:
        return None
    with reading.lock():
        indexes = [one for one in reading.indexes() if one.service == service]
    view = _service(reading, service, base, full=True)
    view.breakdown = _breakdown(reading, view)
    return ServicePageView(base, view, indexes)


def _breakdown(reading: AgentView, view: ServiceView) -> Breakdown | None:
    return service_breakdown(reading, view.name, view.window) if view.segments else None


def trace_view(reading: AgentView, service: str, trace_id: str) -> TraceView | None:
    kept = reading.evidence(service, trace_id)
    if kept is None:
        return None
    trace, results = kept.get("trace"), kept.get("results")
    return TraceView(
        base_view(reading),
        service,
        trace_id,
        trace if isinstance(trace, dict) else {},
        [item for item in results if isinstance(item, dict)] if isinstance(results, list) else [],
    )


def base_view(reading: AgentView) -> PageBase:
    """What every page needs, under one hold of the lock."""
    health = reading.health()
    with reading.lock():
        windows = reading.windows
        names = tuple(windows.names)
        traces = sum(
            value for (name, _), value in reading.counters.items() if name == "rag_traces_total"
        )
        return PageBase(
            now=windows.now,
            health=health,
            windows=names,
            window=default_segment_window(names),
            traces=traces,
            alerts=[alert.copy() for alert in reading.alerts()],
            services=list(windows.services()),
        )


def _service(reading: AgentView, service: str, base: PageBase, *, full: bool) -> ServiceView:
    with reading.lock():
        windows = reading.windows
        view = ServiceView(
            name=service,
            window=base.window,
            seen={name: windows.count_traces(service, "", name) for name in base.windows},
            rows=_rows(windows, service, base, full),
            latency=_latency(windows, service, "", base),
        )
        if full:
            segments = windows.segments(service)
            view.hidden_segments = max(0, len(segments) - SEGMENTS)
            view.segments = [
                _segment(windows, service, name, view.rows, base) for name in segments[:SEGMENTS]
            ]
            view.worst = _worst(windows, service, view.rows, base)
            view.compared = {name: reading.consistency(service, name) for name in base.windows}
    kept: dict[str, dict[str, Any] | None] = {}
    for group in view.worst:
        for item in group.traces:
            if item.trace_id not in kept:
                kept[item.trace_id] = reading.evidence(service, item.trace_id)
            trace = (kept[item.trace_id] or {}).get("trace")
            item.trace = trace if isinstance(trace, dict) else None
    return view


def _row_order(series: tuple[str, str]) -> tuple[bool, int, tuple[str, str]]:
    """Of canaries, what their reference says before what a judge does."""
    metric, scorer = series
    return is_canary_scorer(scorer) and scorer != REFERENCE_SCORER, display_rank(metric), series


def _rows(windows: Windows, service: str, base: PageBase, full: bool) -> list[MetricRow]:
    rows = []
    needed: int | None = windows.min_samples
    series = [
        (metric, scorer)
        for metric, scorer in windows.series(service, "")
        if find_spec(METRICS, metric) and not is_overflow_series(scorer)
    ]
    for metric, scorer in sorted(series, key=_row_order):
        cells = {
            name: WindowCell(
                windows.estimate(service, "", metric, scorer, name),
                dict(windows.states(service, "", metric, scorer, name)),
                needed,
            )
            for name in (base.windows if full else (base.window,))
        }
        history = windows.history(service, "", metric, scorer, base.window) if full else []
        spec = replace(METRICS[base_name(metric)], name=metric)
        rows.append(MetricRow(spec, scorer, cells, list(history)))
    return rows


def _latency(windows: Windows, service: str, segment: str, base: PageBase) -> list[LatencyRow]:
    stages = sorted(windows.stages(service, segment), key=lambda name: (name != "total", name))
    return [
        LatencyRow(
            stage,
            {
                name: {q.quantile: q for q in windows.quantiles(service, segment, stage, name)}
                for name in base.windows
            },
        )
        for stage in stages
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
    """Worst traces of each metric that has a better side; perfect values are not worst."""
    groups = []
    for row in rows:
        spec = row.spec
        if spec.good is None:
            continue
        best = spec.high if spec.good == "higher" else spec.low
        for window in dict.fromkeys((base.window, base.windows[-1])):
            found = windows.worst(service, spec.name, row.scorer, window, WORST)
            traces = [
                WorstTrace(item.trace_id, item.value, item.timestamp)
                for item in found
                if item.value != best
            ]
            if traces:
                groups.append(WorstGroup(spec, row.scorer, window, traces))
                break
    return groups
