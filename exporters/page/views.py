"""What the pages show, copied from the running agent while its lock is held.

As in `exporters.snapshot` the lock is taken per service; kept traces are read without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from agent.fingerprints import is_mixture
from agent.metrics import METRICS
from agent.metrics.canary.judged import is_of_canaries
from agent.metrics.names import base as base_name
from agent.metrics.names import spec_of
from agent.metrics.results import REFERENCE
from agent.metrics.spec import MetricSpec
from agent.presentation import GROUPS, MORE, rank
from exporters.breakdowns import breakdown_in, usual_window

if TYPE_CHECKING:
    from agent.alerts.alert import Alert
    from agent.breakdown.breakdown import Breakdown
    from agent.consistency.memory import Compared
    from agent.indexing.indexes import Version
    from agent.reading import Health, Reading
    from agent.windows import Estimate, Quantile, Windows

__all__ = [
    "Base",
    "Cell",
    "LatencyRow",
    "MetricRow",
    "SegmentRow",
    "ServiceView",
    "StatusView",
    "TraceView",
    "WorstGroup",
    "WorstTrace",
    "base_view",
    "service_view",
    "status_view",
    "trace_view",
]

FULL_SERVICES = 6  # services with all their tables on the status page; the rest one line each
WORST = 5
SEGMENTS = 24
BROKEN_DOWN = 40
"""Segments of a service whose breakdown is on the status page, which loads anew all the time; with
more it is on the service's own page alone."""


@dataclass(slots=True)
class Cell:
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
    cells: dict[str, Cell]
    history: list[tuple[float, Estimate | None]]

    @property
    def measured(self) -> bool:
        """Some trace of some window has a value."""
        return any(cell.scored for cell in self.cells.values())

    @property
    def group(self) -> str:
        if is_of_canaries(self.scorer):  # the metric itself may be one of traffic, too
            return "Canaries"
        metric = base_name(self.spec.name)  # which has its cut-off here
        names = (name for name, metrics in GROUPS.items() if metric in metrics)
        return next(names, MORE)


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
    compared: dict[str, Compared] = field(default_factory=dict)
    """Answers to one question, by window."""
    breakdown: Breakdown | None = None
    """Of the last `window`; None without segments, and where it is left to the service's page."""


@dataclass(slots=True)
class Base:
    """What every page says of the agent."""

    now: float | None
    health: Health
    windows: tuple[str, ...]
    window: str
    """The window of the sparklines, states and segments: 1h, or the middle one."""
    traces: float
    alerts: list[Alert]
    services: list[str]


@dataclass(slots=True)
class StatusView:
    base: Base
    overview: list[ServiceView]
    full: list[ServiceView]
    indexes: list[Version] = field(default_factory=list)


@dataclass(slots=True)
class ServicePageView:
    base: Base
    service: ServiceView
    indexes: list[Version] = field(default_factory=list)


@dataclass(slots=True)
class TraceView:
    base: Base
    service: str
    trace_id: str
    trace: dict[str, Any]
    results: list[dict[str, Any]]


def status_view(reading: Reading) -> StatusView:
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


def service_view(reading: Reading, service: str) -> ServicePageView | None:
    base = base_view(reading)
    if service not in base.services:
        return None
    with reading.lock():
        indexes = [one for one in reading.indexes() if one.service == service]
    view = _service(reading, service, base, full=True)
    view.breakdown = _breakdown(reading, view)
    return ServicePageView(base, view, indexes)


def _breakdown(reading: Reading, view: ServiceView) -> Breakdown | None:
    return breakdown_in(reading, view.name, view.window) if view.segments else None


def trace_view(reading: Reading, service: str, trace_id: str) -> TraceView | None:
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


def base_view(reading: Reading) -> Base:
    """What every page needs, under one hold of the lock."""
    health = reading.health()
    with reading.lock():
        windows = reading.windows
        names = tuple(windows.names)
        traces = sum(
            value for (name, _), value in reading.counters.items() if name == "rag_traces_total"
        )
        return Base(
            now=windows.now,
            health=health,
            windows=names,
            window=usual_window(names),
            traces=traces,
            alerts=[alert.copy() for alert in reading.alerts()],
            services=list(windows.services()),
        )


def _service(reading: Reading, service: str, base: Base, *, full: bool) -> ServiceView:
    with reading.lock():
        windows = reading.windows
        view = ServiceView(
            name=service,
            window=base.window,
            seen={name: windows.seen(service, "", name) for name in base.windows},
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


def _place(series: tuple[str, str]) -> tuple[bool, int, tuple[str, str]]:
    """Of canaries, what their reference says before what a judge does."""
    metric, scorer = series
    return is_of_canaries(scorer) and scorer != REFERENCE, rank(metric), series


def _rows(windows: Windows, service: str, base: Base, full: bool) -> list[MetricRow]:
    rows = []
    needed: int | None = windows.min_samples
    series = [
        (metric, scorer)
        for metric, scorer in windows.series(service, "")
        if spec_of(METRICS, metric) and not is_mixture(scorer)
    ]
    for metric, scorer in sorted(series, key=_place):
        cells = {
            name: Cell(
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


def _latency(windows: Windows, service: str, segment: str, base: Base) -> list[LatencyRow]:
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
    windows: Windows, service: str, segment: str, rows: Sequence[MetricRow], base: Base
) -> SegmentRow:
    quantiles = windows.quantiles(service, segment, "total", base.window)
    return SegmentRow(
        segment,
        windows.seen(service, segment, base.window),
        {
            (row.spec.name, row.scorer): windows.estimate(
                service, segment, row.spec.name, row.scorer, base.window
            )
            for row in rows
        },
        next((item for item in quantiles if item.quantile == 0.95), None),
    )


def _worst(
    windows: Windows, service: str, rows: Sequence[MetricRow], base: Base
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
