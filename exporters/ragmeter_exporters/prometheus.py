"""The Prometheus exporter: render a view of the agent as an exposition.

There are two. `/metrics` has the questions, one number each, what every request tells, the counters
and the agent's health; process and platform metrics come from the injected `prometheus_client`
registry. `/metrics/detail` has every metric of every scorer, by segment, with its companions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily
from prometheus_client.exposition import generate_latest as text_latest
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics_latest
from prometheus_client.registry import Collector
from ragmeter import __version__
from ragmeter.aggregate.agent_view import AgentView
from ragmeter.core.counters import DURATION_EDGES, CounterKey, Exemplar, add_counts
from ragmeter.core.metric_specs import base_name, parse_cutoff
from ragmeter.core.series import split_scorer
from ragmeter.metrics.registry import metric_specs
from ragmeter.parts.incident_words import still_open
from ragmeter.windows.series import Estimate, Quantile

from ragmeter_exporters.exposition import (
    MetricFamily,
    escape_label,
    family_header,
    format_labels,
    format_number,
    join_exposition,
)
from ragmeter_exporters.families import (
    AGENT,
    LATENCY,
    REQUESTS,
    TRAFFIC,
    all_families,
    part_families,
    quality_families,
)
from ragmeter_exporters.snapshot import Snapshot, segment_labels, split_segment, take_snapshot

# OpenMetrics: the names and values of an exemplar's labels have at most 128 characters together.
EXEMPLAR_LIMIT = 128
STATUSES = ("ok", "error", "timeout")
STATES = ("scored", "not_applicable", "sampled_out", "unscored", "shed", "late")
DURATION = LATENCY[3].name
REFUSALS_METRIC = "ragmeter_http_refused_total"
JUDGE_LATENCY = next(family for family in AGENT if family.type == "histogram")

Labels = tuple[tuple[str, str], ...]
Series = dict[str, dict[Labels, float]]

# Counters that get zeros as soon as another one has a series: with its labels and these.
_ZEROS: dict[str, dict[str, tuple[Labels, ...]]] = {
    "ragmeter_seen_total": {
        "ragmeter_results_total": tuple((("state", state),) for state in STATES)
    },
    "ragmeter_traces_received_total": {
        "ragmeter_traces_duplicate_total": ((),),
        "ragmeter_clock_skew_total": ((),),
    },
}

_LABEL_ORDER = {family.name: family.labels for family in (*TRAFFIC, *AGENT)}


def process_registry() -> CollectorRegistry:
    """Make a registry with the process, platform and garbage collector metrics."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    return registry


class PrometheusExporter:
    """Renders the exposition of one agent; safe to call from several threads.

    `registry` holds the process metrics, a fresh one by default.
    """

    def __init__(self, agent: AgentView, *, registry: CollectorRegistry | None = None) -> None:
        self._agent = agent
        self._registry = process_registry() if registry is None else registry
        self._keys: dict[CounterKey, Labels] = {}  # labels of a counter as they are written
        self._families = {name: quality_families(spec) for name, spec in metric_specs().items()}
        self._parts = part_families(agent.part_kinds)
        self._counters = {
            family.name: family
            for family in all_families(agent.part_kinds, metric_specs())
            if family.type == "counter"
        }

    def render(self, *, openmetrics: bool = False) -> bytes:
        """Render `/metrics` in UTF-8: OpenMetrics 1.0 with exemplars, or text 0.0.4."""
        snapshot = take_snapshot(self._agent)
        series = self._counter_series(snapshot)
        parts = [
            *_requests(snapshot, openmetrics),
            *_histogram(LATENCY[3], snapshot, series, openmetrics),
            *self._counts(series, openmetrics),
            *_health(snapshot, series, self._parts, openmetrics),
            *_histogram(JUDGE_LATENCY, snapshot, series, openmetrics),
            self._process(openmetrics),
        ]
        return join_exposition(parts, openmetrics)

    def render_detail(self, *, openmetrics: bool = False) -> bytes:
        """Render `/metrics/detail` likewise."""
        snapshot = take_snapshot(self._agent, detail=True)
        parts = [*self._quality(snapshot, openmetrics), *_latency(snapshot, openmetrics)]
        return join_exposition(parts, openmetrics)

    def _quality(self, snapshot: Snapshot, openmetrics: bool) -> Iterator[str]:
        rows: dict[str, list[tuple[str, Estimate]]] = {metric: [] for metric in self._families}
        prefixes = _LabelPrefixes(snapshot)
        blocks: dict[tuple[str, str, str, str], str] = {}
        for service, segment, metric, scorer, window, estimate in snapshot.estimates:
            k = parse_cutoff(metric)
            key = (service, segment, f"{k}@{scorer}" if k else scorer, window)
            block = blocks.get(key)
            if block is None:
                block = blocks[key] = prefixes.quality(service, segment, scorer, k, window)
            metric_rows = rows.get(base_name(metric))
            if metric_rows is not None:  # a score of an undeclared metric has no name here
                metric_rows.append((block, estimate))
        shares: dict[str, list[str]] = {metric: [] for metric in self._families}
        for service, metric, scorer, window, share in snapshot.unscored:
            if base_name(metric) in shares:
                k = parse_cutoff(metric)
                key = (service, "", f"{k}@{scorer}" if k else scorer, window)
                block = blocks.get(key) or prefixes.quality(service, "", scorer, k, window)
                shares[base_name(metric)].append(f"{block}{share:.10g}\n")
        for metric, pairs in rows.items():
            mean, lower, upper, samples, unscored = self._families[metric]
            yield from _lines(unscored, shares[metric], openmetrics)
            # Four plain loops: they are most of the text, and an indirection doubles their time.
            # Ten digits: intervals are known to two or three, and the seventeen of repr() take
            # twice the time and make the page a fifth longer.
            n = mean.name
            yield from _family(mean, [f"{n}{b}{e.value:.10g}\n" for b, e in pairs], openmetrics)
            n = lower.name
            yield from _family(lower, [f"{n}{b}{e.lower:.10g}\n" for b, e in pairs], openmetrics)
            n = upper.name
            yield from _family(upper, [f"{n}{b}{e.upper:.10g}\n" for b, e in pairs], openmetrics)
            n = samples.name
            effective = [f"{n}{b}{e.effective_samples:.10g}\n" for b, e in pairs]
            yield from _family(samples, effective, openmetrics)

    def _counter_series(self, snapshot: Snapshot) -> Series:
        """Sum counters by name and labels."""
        series: Series = defaultdict(dict)
        keys: dict[CounterKey, Labels] = {}
        for counter, value in snapshot.counters:
            name, labels = counter
            key = keys[counter] = self._keys.get(counter) or _ordered_labels(name, labels)
            of_name = series[name]
            of_name[key] = add_counts(name, of_name.get(key, 0.0), value)
        self._keys = keys
        _add_zeros(series, snapshot)
        return series

    def _counts(self, series: Series, openmetrics: bool) -> Iterator[str]:
        for family in self._counters.values():
            if family.ours:
                yield from _samples(family, series.get(family.name, {}), openmetrics)
        for name in sorted(series.keys() - self._counters.keys()):
            if not name.startswith((f"{DURATION}_", f"{JUDGE_LATENCY.name}_")):
                # Counted by someone but missing in the reference: better shown than lost.
                family = MetricFamily(name, "counter", "Not described.")
                yield from _samples(family, series[name], openmetrics)

    def _process(self, openmetrics: bool) -> str:
        latest = openmetrics_latest if openmetrics else text_latest
        return latest(self._registry).decode("utf-8").removesuffix("# EOF\n")


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

    def quality(self, service: str, segment: str, scorer: str, k: str | None, window: str) -> str:
        """Return the whole label block of a quality gauge."""
        name, fingerprint = split_scorer(scorer)
        more = f',fingerprint="{escape_label(fingerprint)}"' if fingerprint else ""
        more += f',k="{escape_label(k)}"' if k else ""
        prefix = self.of(service, segment)
        return f'{prefix},scorer="{escape_label(name)}"{more},window="{escape_label(window)}"}} '


def _requests(snapshot: Snapshot, openmetrics: bool) -> Iterator[str]:
    """Write the latency of whole services, and the open incidents."""
    latency, incident = REQUESTS
    lines = [
        f'{{service="{escape_label(service)}",stage="{escape_label(stage)}",'
        f'quantile="{item.quantile}",window="{window}"}} {item.value:.10g}\n'
        for service, segment, stage, window, values in snapshot.quantiles
        if not segment
        for item in values
    ]
    yield from _lines(latency, lines, openmetrics)
    open_incidents: dict[Labels, float] = {
        (("service", one.service), ("incident", one.id), ("severity", one.severity)): 1.0
        for one in still_open(snapshot.incidents)
    }
    yield from _samples(incident, open_incidents, openmetrics)


def _latency(snapshot: Snapshot, openmetrics: bool) -> Iterator[str]:
    rows: list[tuple[str, Quantile]] = []
    prefixes = _LabelPrefixes(snapshot)
    for service, segment, stage, window, values in snapshot.quantiles:
        before = f'{prefixes.of(service, segment)},stage="{escape_label(stage)}",quantile="'
        after = f'",window="{escape_label(window)}"}} '
        rows += [(f"{before}{item.quantile}{after}", item) for item in values]
    point, lower, upper = LATENCY[:3]
    yield from _lines(point, [f"{block}{q.value:.10g}\n" for block, q in rows], openmetrics)
    lowers = [f"{block}{q.lower:.10g}\n" for block, q in rows if q.lower is not None]
    yield from _lines(lower, lowers, openmetrics)
    uppers = [f"{block}{q.upper:.10g}\n" for block, q in rows if q.upper is not None]
    yield from _lines(upper, uppers, openmetrics)


def _health(
    snapshot: Snapshot, series: Series, parts: Sequence[MetricFamily], openmetrics: bool
) -> Iterator[str]:
    health = snapshot.health
    firing: dict[Labels, float] = {}
    for alert in snapshot.alerts:
        key = (("alertname", alert.rule), ("severity", alert.severity))
        firing[key] = firing.get(key, 0) + (alert.state == "firing")
    single = {
        "ragmeter_processing_lag_seconds": health.processing_lag_seconds,
        "ragmeter_oldest_unprocessed_seconds": health.oldest_unprocessed_seconds,
        "ragmeter_queue_depth": health.queue_depth,
        "ragmeter_ready": float(health.ready),
        "ragmeter_stream_time_seconds": snapshot.now,
    }
    values: Series = {
        "ragmeter_accounting_mismatch": _mismatch(series, snapshot.waiting),
        "ragmeter_drawn_traces": {
            (("tier", tier),): float(number) for tier, number in health.pending.items()
        },
        "ragmeter_judge_info": dict.fromkeys(snapshot.instruments, 1.0),
        "ragmeter_alerts_firing": firing,
        "ragmeter_build_info": {(("version", __version__),): 1.0},
        **{name: {(): value} for name, value in single.items() if value is not None},
    }
    for name, labels, value in snapshot.gauges:
        values.setdefault(name, {})[labels] = value
    for family in (*parts, *AGENT):
        if family.type not in ("counter", "histogram"):
            yield from _samples(family, values.get(family.name, {}), openmetrics)


def _lines(family: MetricFamily, lines: Iterable[str], openmetrics: bool) -> Iterator[str]:
    """Write a family whose samples are already label blocks with values."""
    name = family.name
    return _family(family, [f"{name}{line}" for line in lines], openmetrics)


def _family(family: MetricFamily, samples: Sequence[str], openmetrics: bool) -> Iterator[str]:
    if samples:
        yield family_header(family, openmetrics)
        yield "".join(samples)


def _samples(
    family: MetricFamily, values: Mapping[Labels, float], openmetrics: bool
) -> Iterator[str]:
    lines = [f"{format_labels(key)} {format_number(value)}\n" for key, value in values.items()]
    yield from _lines(family, lines, openmetrics)


def _ordered_labels(name: str, labels: Labels) -> Labels:
    """Put labels into one order, without empty ones: `reason=""` and no reason are one series."""
    order = _LABEL_ORDER.get(name, ())
    return tuple(
        sorted(
            [pair for pair in labels if pair[1]],
            key=lambda pair: order.index(pair[0]) if pair[0] in order else len(order),
        )
    )


def _add_zeros(series: Series, snapshot: Snapshot) -> None:
    """Add the zeros that `rate()` needs to miss no first event."""
    services = dict.fromkeys(snapshot.services)
    for name in (*(family.name for family in TRAFFIC), f"{DURATION}_sum"):
        for labels in series.get(name, {}):
            services.update((value, None) for label, value in labels if label == "service")
    for service in services:
        own = ("service", service)
        for status in STATUSES:
            series["rag_requests_total"].setdefault((own, ("status", status)), 0.0)
        for direction in ("input", "output"):
            series["rag_tokens_total"].setdefault((own, ("direction", direction)), 0.0)
        series["rag_cost_usd_total"].setdefault((own,), 0.0)
        series[f"{DURATION}_sum"].setdefault((own,), 0.0)
    series["ragmeter_state_quarantined_total"].setdefault((), 0.0)
    for label in ("service", *snapshot.segments):
        series["ragmeter_label_overflow_total"].setdefault((("label", label),), 0.0)
    for counted, zeros in _ZEROS.items():
        for labels in series.get(counted, {}):
            for name, extra_labels in zeros.items():
                for extra in extra_labels:
                    series[name].setdefault((*labels, *extra), 0.0)


def _mismatch(series: Series, waiting: Mapping[tuple[str, str], int]) -> dict[Labels, float]:
    """Count the results unaccounted for by metric and scorer, also where one side has none.

    The distance |seen - sum over states - waiting for a slow tier|, and at least the number by
    which `waiting` is negative: a result that is counted twice raises the sum over states and
    lowers `waiting` alike, so the distance alone would stay 0.
    """
    pending: dict[Labels, float] = {
        (("metric", metric), ("scorer", scorer)): float(number)
        for (metric, scorer), number in waiting.items()
    }
    distances = {key: -number for key, number in pending.items()}
    for name, sign in (("ragmeter_seen_total", 1.0), ("ragmeter_results_total", -1.0)):
        for labels, value in series.get(name, {}).items():
            key = tuple(pair for pair in labels if pair[0] in ("metric", "scorer"))
            distances[key] = distances.get(key, 0.0) + sign * value
    return {key: max(abs(number), -pending.get(key, 0.0)) for key, number in distances.items()}


def _histogram(
    family: MetricFamily, snapshot: Snapshot, series: Series, openmetrics: bool
) -> Iterator[str]:
    """Write cumulative buckets; every edge is there, also where nothing fell."""
    sums = series.get(f"{family.name}_sum", {})
    counts: dict[Labels, dict[str, float]] = {labels: {} for labels in sums}
    for labels, value in series.get(f"{family.name}_bucket", {}).items():
        counts.setdefault(labels[:-1], {})[labels[-1][1]] = value
    if not counts:
        return
    exemplars = {
        labels: _exemplar(exemplar)
        for (name, labels), exemplar in snapshot.exemplars.items()
        if openmetrics and name == f"{family.name}_bucket"
    }
    yield family_header(family, openmetrics)
    for labels, own in counts.items():
        edges = {*map(float, DURATION_EDGES), *(float(edge) for edge in own if edge != "+Inf")}
        prefix = format_labels(labels)[:-1] + "," if labels else "{"
        total = 0.0
        for edge in (*map(repr, sorted(edges)), "+Inf"):
            total += own.get(edge, 0.0)
            exemplar = exemplars.get((*labels, ("le", edge)), "")
            yield f'{family.name}_bucket{prefix}le="{edge}"}} {format_number(total)}{exemplar}\n'
        block = format_labels(labels)
        yield f"{family.name}_count{block} {format_number(total)}\n"
        yield f"{family.name}_sum{block} {format_number(sums.get(labels, 0))}\n"


def _exemplar(exemplar: Exemplar) -> str:
    """Write an exemplar; nothing for an id that is too long, as a cut id would lead nowhere."""
    if len("trace_id") + len(exemplar.trace_id) > EXEMPLAR_LIMIT:
        return ""
    return (
        f' # {{trace_id="{escape_label(exemplar.trace_id)}"}} '
        f"{format_number(exemplar.value)} {exemplar.timestamp:.3f}"
    )


class RefusalsCollector(Collector):
    """Exports the requests that the ports refused, by the name of a port, then by reason."""

    def __init__(self, counts: Mapping[str, Mapping[str, int]]) -> None:
        self._counts = counts

    def collect(self) -> Iterator[CounterMetricFamily]:
        """Yield the counter with a sample for each port and reason."""
        family = CounterMetricFamily(
            REFUSALS_METRIC.removesuffix("_total"),
            "Requests and connections that a port refused, by why.",
            labels=("port", "reason"),
        )
        for port, reasons in list(self._counts.items()):
            for reason, number in list(reasons.items()):
                family.add_metric((port, reason), number)
        yield family
