"""The Prometheus exporter: render a view of the agent as an exposition.

Gauges of quality and latency, the counters, and the agent's health are written here; process
and platform metrics come from the injected `prometheus_client` registry.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.exposition import generate_latest as text_latest
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics_latest

from ragmeter import __version__
from ragmeter.aggregate.accounting import DURATION_EDGES
from ragmeter.core.counters import Exemplar
from ragmeter.core.metric_specs import MetricSpec, base_name, parse_cutoff
from ragmeter.core.series import split_scorer
from ragmeter.exporters.exposition import (
    MetricFamily,
    escape_label,
    family_header,
    format_labels,
    format_number,
    join_exposition,
)
from ragmeter.exporters.families.catalogue import (
    AGENT,
    CONSISTENCY,
    INDEXING,
    LATENCY,
    TRAFFIC,
    all_families,
    quality_families,
)
from ragmeter.exporters.snapshot import Snapshot, segment_labels, split_segment, take_snapshot
from ragmeter.metrics.registry import METRICS

if TYPE_CHECKING:
    from ragmeter.aggregate.agent_view import AgentView
    from ragmeter.windows.series import Estimate, Quantile

# OpenMetrics: the names and values of an exemplar's labels have at most 128 characters together.
EXEMPLAR_LIMIT = 128
STATUSES = ("ok", "error", "timeout")
STATES = ("scored", "not_applicable", "sampled_out", "unscored", "shed", "late")
DURATION = "rag_trace_duration_seconds"

_ORDER = {family.name: family.labels for family in (*TRAFFIC, *AGENT)}

Labels = tuple[tuple[str, str], ...]
Series = dict[str, dict[Labels, float]]


def process_registry() -> CollectorRegistry:
    """A registry of its own with the process, platform and garbage collector metrics."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    return registry


class PrometheusExporter:
    """Renders the exposition of one `Reading`. Safe to call from several threads."""

    def __init__(
        self,
        reading: AgentView,
        *,
        registry: CollectorRegistry | None = None,
        specs: Mapping[str, MetricSpec] = METRICS,
        version: str = __version__,
    ) -> None:
        self._reading = reading
        self._registry = process_registry() if registry is None else registry
        self._specs = specs
        self._version = version
        self._families = {name: quality_families(spec) for name, spec in specs.items()}
        self._counters = {
            family.name: family for family in all_families(specs) if family.type == "counter"
        }

    def render(self, *, openmetrics: bool = False) -> bytes:
        """The whole exposition, UTF-8. OpenMetrics 1.0 with exemplars, or text 0.0.4."""
        snapshot = take_snapshot(self._reading)
        series = _counter_series(snapshot)
        parts: list[str] = []
        self._quality(snapshot, parts, openmetrics)
        self._latency(snapshot, parts, openmetrics)
        _histogram(snapshot, series, parts, openmetrics)
        self._counts(series, parts, openmetrics)
        self._health(snapshot, series, parts, openmetrics)
        parts.append(self._process(openmetrics))
        return join_exposition(parts, openmetrics)

    def _quality(self, snapshot: Snapshot, parts: list[str], openmetrics: bool) -> None:
        rows: dict[str, list[tuple[str, Estimate]]] = {metric: [] for metric in self._specs}
        prefixes = _LabelPrefixes(snapshot)
        blocks: dict[tuple[str, str, str, str], str] = {}
        for service, segment, metric, scorer, window, found in snapshot.estimates:
            k = parse_cutoff(metric)
            key = (service, segment, f"{k}@{scorer}" if k else scorer, window)
            block = blocks.get(key)
            if block is None:
                block = blocks[key] = _quality_labels(
                    prefixes.of(service, segment), scorer, k, window
                )
            known = rows.get(base_name(metric))
            if known is not None:  # a score of a metric that nobody has declared has no name
                known.append((block, found))
        shares = self._shares(snapshot, prefixes)
        for metric, pairs in rows.items():
            mean, lower, upper, samples, unscored = self._families[metric]
            if shares[metric]:
                parts.append(family_header(unscored, openmetrics))
                parts += [f"{unscored.name}{line}" for line in shares[metric]]
            if not pairs:
                continue
            # Four plain loops: they are most of the text, and an indirection doubles their time.
            # Ten digits: intervals are known to two or three, and the seventeen of repr() take
            # twice the time and make the page a fifth longer.
            name = mean.name
            parts.append(family_header(mean, openmetrics))
            parts += [f"{name}{block}{found.value:.10g}\n" for block, found in pairs]
            name = lower.name
            parts.append(family_header(lower, openmetrics))
            parts += [f"{name}{block}{found.lower:.10g}\n" for block, found in pairs]
            name = upper.name
            parts.append(family_header(upper, openmetrics))
            parts += [f"{name}{block}{found.upper:.10g}\n" for block, found in pairs]
            name = samples.name
            parts.append(family_header(samples, openmetrics))
            parts += [f"{name}{block}{found.effective_samples:.10g}\n" for block, found in pairs]

    def _shares(self, snapshot: Snapshot, prefixes: _LabelPrefixes) -> dict[str, list[str]]:
        """Labels and values of the unscored shares, by metric."""
        lines: dict[str, list[str]] = {metric: [] for metric in self._specs}
        for service, metric, scorer, window, share in snapshot.unscored:
            if base_name(metric) in lines:
                block = _quality_labels(
                    prefixes.of(service, ""), scorer, parse_cutoff(metric), window
                )
                lines[base_name(metric)].append(f"{block}{share:.10g}\n")
        return lines

    def _latency(self, snapshot: Snapshot, parts: list[str], openmetrics: bool) -> None:
        rows: list[tuple[str, Quantile]] = []
        prefixes = _LabelPrefixes(snapshot)
        for service, segment, stage, window, values in snapshot.quantiles:
            before = f'{prefixes.of(service, segment)},stage="{escape_label(stage)}",quantile="'
            after = f'",window="{escape_label(window)}"}} '
            rows += [(f"{before}{item.quantile}{after}", item) for item in values]
        point, lower, upper = LATENCY[:3]
        for family, lines in (
            (point, [f"{point.name}{block}{item.value:.10g}\n" for block, item in rows]),
            (
                lower,
                [
                    f"{lower.name}{block}{item.lower:.10g}\n"
                    for block, item in rows
                    if item.lower is not None
                ],
            ),
            (
                upper,
                [
                    f"{upper.name}{block}{item.upper:.10g}\n"
                    for block, item in rows
                    if item.upper is not None
                ],
            ),
        ):
            if lines:
                parts.append(family_header(family, openmetrics))
                parts += lines

    def _counts(self, series: Series, parts: list[str], openmetrics: bool) -> None:
        for family in self._counters.values():
            if family.ours:
                _family(family, series.get(family.name, {}), parts, openmetrics)
        for name in sorted(series.keys() - self._counters.keys()):
            if not name.startswith(f"{DURATION}_"):
                # Counted by someone but missing in the reference: better shown than lost.
                family = MetricFamily(name, "counter", "Not described.")
                _family(family, series[name], parts, openmetrics)

    def _health(
        self, snapshot: Snapshot, series: Series, parts: list[str], openmetrics: bool
    ) -> None:
        health = snapshot.health
        firing: dict[Labels, float] = {}
        for alert in snapshot.alerts:
            key = (("alertname", alert.rule), ("severity", alert.severity))
            firing[key] = firing.get(key, 0) + (alert.state == "firing")
        values: dict[str, dict[Labels, float]] = {
            "ragmeter_accounting_mismatch": _mismatch(series, snapshot.waiting),
            "ragmeter_drawn_traces": {
                (("tier", tier),): float(number) for tier, number in health.drawn.items()
            },
            "ragmeter_judge_info": dict.fromkeys(snapshot.instruments, 1.0),
            "ragmeter_processing_lag_seconds": _single(health.processing_lag_seconds),
            "ragmeter_oldest_unprocessed_seconds": _single(health.oldest_unprocessed_seconds),
            "ragmeter_queue_depth": _single(health.queue_depth),
            "ragmeter_ready": _single(float(health.ready)),
            "ragmeter_stream_time_seconds": _single(snapshot.now),
            "ragmeter_alerts_firing": firing,
            "ragmeter_build_info": {(("version", self._version),): 1.0},
        }
        for name, labels, value in snapshot.gauges:
            values.setdefault(name, {})[labels] = value
        for family in (*CONSISTENCY, *INDEXING, *AGENT):
            if family.type != "counter":
                _family(family, values.get(family.name, {}), parts, openmetrics)

    def _process(self, openmetrics: bool) -> str:
        latest = openmetrics_latest if openmetrics else text_latest
        return latest(self._registry).decode("utf-8").removesuffix("# EOF\n")


def _quality_labels(prefix: str, scorer: str, k: str | None, window: str) -> str:
    """The labels of a quality gauge."""
    name, fingerprint = split_scorer(scorer)
    more = f',fingerprint="{escape_label(fingerprint)}"' if fingerprint else ""
    more += f',k="{escape_label(k)}"' if k else ""
    return f'{prefix},scorer="{escape_label(name)}"{more},window="{escape_label(window)}"}} '


class _LabelPrefixes:
    """The opening of a label block, `{service="a",model="b"`, escaped once per segment."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._tags = snapshot.segments
        self._names = segment_labels(snapshot.segments)
        self._known: dict[tuple[str, str], str] = {}

    def of(self, service: str, segment: str) -> str:
        known = self._known.get((service, segment))
        if known is None:
            known = f'{{service="{escape_label(service)}"'
            if segment:
                tag, value = split_segment(segment, self._tags)
                name = self._names.get(tag) or segment_labels([tag])[tag]
                known += f',{name}="{escape_label(value)}"'
            self._known[(service, segment)] = known
        return known


def _family(
    family: MetricFamily, values: Mapping[Labels, float], parts: list[str], openmetrics: bool
) -> None:
    if not values:
        return
    parts.append(family_header(family, openmetrics))
    for labels, value in values.items():
        parts.append(f"{family.name}{format_labels(labels)} {format_number(value)}\n")


def _single(value: float | None) -> dict[Labels, float]:
    return {} if value is None else {(): value}


def _counter_series(snapshot: Snapshot) -> Series:
    """Counters by name and labels, with the zeros that `rate()` needs to miss no first event.

    Labels are put into one order, and empty ones dropped, before the sums are made: to Prometheus
    `reason=""` and no reason are the same series.
    """
    series: Series = defaultdict(dict)
    for (name, labels), value in snapshot.counters:
        order = _ORDER.get(name, ())
        key = tuple(
            sorted(
                [pair for pair in labels if pair[1]],
                key=lambda pair: order.index(pair[0]) if pair[0] in order else len(order),
            )
        )
        series[name][key] = series[name].get(key, 0.0) + value
    services = dict.fromkeys(snapshot.services)
    for name in (*(family.name for family in TRAFFIC), f"{DURATION}_sum"):
        for labels in series.get(name, {}):
            services.update((value, None) for label, value in labels if label == "service")
    for service in services:
        own = ("service", service)
        for status in STATUSES:
            series["rag_traces_total"].setdefault((own, ("status", status)), 0.0)
        for direction in ("input", "output"):
            series["rag_tokens_total"].setdefault((own, ("direction", direction)), 0.0)
        series["rag_cost_usd_total"].setdefault((own,), 0.0)
        series[f"{DURATION}_sum"].setdefault((own,), 0.0)
    for labels in list(series.get("rag_canaries_total", {})):
        for status in STATUSES:  # where there are any
            series["rag_canaries_total"].setdefault((labels[0], ("status", status)), 0.0)
    series["ragmeter_state_quarantined_total"].setdefault((), 0.0)
    for label in ("service", *snapshot.segments):
        series["ragmeter_label_overflow_total"].setdefault((("label", label),), 0.0)
    for labels in list(series.get("rag_slo_events_total", {})):
        for name in ("rag_slo_bad_events_total", "rag_slo_bad_events_squared_total"):
            series[name].setdefault(labels, 0.0)
    for labels in list(series.get("ragmeter_seen_total", {})):
        for state in STATES:
            series["ragmeter_results_total"].setdefault((*labels, ("state", state)), 0.0)
    for labels in list(series.get("ragmeter_traces_received_total", {})):
        for name in ("ragmeter_traces_duplicate_total", "ragmeter_clock_skew_total"):
            series[name].setdefault(labels, 0.0)
    return series


def _mismatch(series: Series, waiting: Mapping[tuple[str, str], int]) -> dict[Labels, float]:
    """Results unaccounted for, by metric and scorer, also where one side alone was counted.

    The distance |seen - sum over states - waiting for a slow tier|, and at least the number by
    which `waiting` is negative: a result that is counted twice raises the sum over states and
    lowers `waiting` alike, so the distance alone would stay 0.
    """
    out: dict[Labels, float] = {
        (("metric", metric), ("scorer", scorer)): -float(number)
        for (metric, scorer), number in waiting.items()
    }
    for name, sign in (("ragmeter_seen_total", 1.0), ("ragmeter_results_total", -1.0)):
        for labels, value in series.get(name, {}).items():
            key = tuple(pair for pair in labels if pair[0] in ("metric", "scorer"))
            out[key] = out.get(key, 0.0) + sign * value
    found = {key: abs(value) for key, value in out.items()}
    for (metric, scorer), owed in waiting.items():
        key = (("metric", metric), ("scorer", scorer))
        found[key] = max(found[key], -float(owed))
    return found


def _histogram(snapshot: Snapshot, series: Series, parts: list[str], openmetrics: bool) -> None:
    """Cumulative buckets from own counts; every edge is there, also where nothing fell."""
    counts: dict[Labels, dict[str, float]] = {
        labels: {} for labels in series.get(f"{DURATION}_sum", {})
    }
    for labels, value in series.get(f"{DURATION}_bucket", {}).items():
        counts.setdefault(labels[:-1], {})[labels[-1][1]] = value
    if not counts:
        return
    exemplars = _exemplars(snapshot) if openmetrics else {}
    parts.append(family_header(LATENCY[3], openmetrics))
    for labels, own in counts.items():
        edges = sorted(
            {*map(float, DURATION_EDGES), *(float(edge) for edge in own if edge != "+Inf")}
        )
        prefix = format_labels(labels)[:-1] + "," if labels else "{"
        total = 0.0
        for edge in (*(repr(edge) for edge in edges), "+Inf"):
            total += own.get(edge, 0.0)
            exemplar = exemplars.get((*labels, ("le", edge)), "")
            parts.append(
                f'{DURATION}_bucket{prefix}le="{edge}"}} {format_number(total)}{exemplar}\n'
            )
        block = format_labels(labels)
        parts.append(f"{DURATION}_count{block} {format_number(total)}\n")
        parts.append(
            f"{DURATION}_sum{block} {format_number(series[f'{DURATION}_sum'].get(labels, 0))}\n"
        )


def _exemplars(snapshot: Snapshot) -> dict[Labels, str]:
    return {
        labels: _exemplar(exemplar)
        for (name, labels), exemplar in snapshot.exemplars.items()
        if name == f"{DURATION}_bucket"
    }


def _exemplar(exemplar: Exemplar) -> str:
    """Nothing for an id that is too long: a cut id would lead nowhere."""
    if len("trace_id") + len(exemplar.trace_id) > EXEMPLAR_LIMIT:
        return ""
    return (
        f' # {{trace_id="{escape_label(exemplar.trace_id)}"}} '
        f"{format_number(exemplar.value)} {exemplar.timestamp:.3f}"
    )
