"""CPU time of one scrape of 50 services with full windows, against `prometheus_client`.

    python -m benchmarks.scrape [--services 50] [--repeat 15]

Figures are the least over the repeats (what else runs on the machine only ever adds), in
milliseconds of CPU time: `/metrics` and `/metrics/detail` when every service has had a trace since
the last scrape (all answers and estimates are made anew), `/metrics` when nothing has changed,
compression, the page of all services, and the text of the details' estimates beside the library's:
a custom collector that yields metric families, rendered by `prometheus_client.generate_latest`.
Both make their text from the same copied numbers, in turn, and the samples are compared.
Counting the new traces is work of the traces, whoever reads first, and is done before the clock
starts. Garbage is collected as rarely as in the agent.
"""

from __future__ import annotations

import argparse
import gzip
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample
from ragmeter.aggregate.agent_view import AgentHealth
from ragmeter.aggregate.aggregator import Aggregator
from ragmeter.alerts.alert import Alert
from ragmeter.app.parts import PARTS
from ragmeter.app.settings import load_settings
from ragmeter.core.counters import Counters, GaugeSample
from ragmeter.core.metric_specs import base_name, parse_cutoff
from ragmeter.core.process import collect_rarely
from ragmeter.core.score import BUILTIN_SCORER, Score, ScoredTrace, ScoreState
from ragmeter.core.series import split_scorer
from ragmeter.metrics.registry import metric_specs
from ragmeter.parts.collection import PartPage
from ragmeter.parts.views import Incident, QuestionAnswers
from ragmeter.windows.series import Estimate
from ragmeter.windows.windows import Windows
from ragmeter_exporters.exposition import MetricFamily
from ragmeter_exporters.families import LATENCY, quality_families
from ragmeter_exporters.page.rendering import fleet_page
from ragmeter_exporters.page.services import fleet_view
from ragmeter_exporters.prometheus import PrometheusExporter, _latency
from ragmeter_exporters.snapshot import Snapshot, take_snapshot

__all__ = ["BenchReading", "filled", "main"]

NOW = 1_790_000_000.0
SCRAPE_SECONDS = 15.0
STAGES = ("total", "retrieval", "generation")
DAY = 86_400
LIMIT_MS = 50.0
# Rules and drift are work of time, not of a scrape: without them the windows fill sooner.
SETTINGS = load_settings(
    environ={},
    overrides={"alerts": {"evaluation_seconds": 3600}, "drift": {"enabled": False}},
)
SCORED = [
    spec
    for spec in metric_specs().values()
    if spec.tier == "cheap" and BUILTIN_SCORER in spec.scorers  # the others are of canaries
]
SERVICES_OF_10_000 = 43  # whose estimates are 10,000 samples


class BenchReading:
    """What exporters read of an agent, over what counts its traces."""

    def __init__(self) -> None:
        expected = [(spec.name, spec.scorers[0]) for spec in SCORED]
        self.aggregator = Aggregator(SETTINGS, (), expected, parts=PARTS)
        self.segments: Sequence[str] = ()
        self.waiting: dict[tuple[str, str], int] = {}
        self._lock = threading.RLock()

    @property
    def windows(self) -> Windows:
        return self.aggregator.windows

    @property
    def counters(self) -> Counters:
        return self.aggregator.counters

    def lock(self) -> AbstractContextManager[Any]:
        return self._lock

    def instruments(self) -> Sequence[Mapping[str, str]]:
        return ()

    def gauges(self) -> Sequence[GaugeSample]:
        return self.aggregator.gauges()

    def questions(self, service: str) -> QuestionAnswers:
        return self.aggregator.view(QuestionAnswers)

    part_kinds = PARTS

    def part_pages(self, service: str | None = None) -> Sequence[PartPage]:
        return ()

    def unnamed_services(self) -> Sequence[str]:
        return ()

    def alerts(self) -> Sequence[Alert]:
        return ()

    def incidents(self) -> Sequence[Incident]:
        return ()

    def evidence(self, service: str, trace_id: str) -> dict[str, Any] | None:
        return None

    def health(self) -> AgentHealth:
        return AgentHealth(processing_lag_seconds=0.1)

    def add(self, service: str, timestamp: float, rng: random.Random) -> None:
        """One trace with a value of every metric of the cheap tier, and three latency stages."""
        results = []
        for spec in SCORED:
            top = 1000.0 if spec.high is None else spec.high
            value = float(rng.random() < 0.9) if spec.kind == "ratio" else top * rng.random()
            results.append(Score(spec.name, spec.scorers[0], ScoreState.SCORED, value))
        timings = {stage: rng.lognormvariate(0, 0.6) for stage in STAGES}
        trace = ScoredTrace(
            f"{service}-{timestamp}", service, timestamp, "ok", results, timings=timings
        )
        self.aggregator.apply(trace)


def filled(services: int, traces: int = 150, seed: int = 7) -> BenchReading:
    """Services with enough traces in each window, half of them in the last five minutes."""
    reading = BenchReading()
    rng = random.Random(seed)
    times = sorted(
        NOW - (rng.uniform(0, 290) if number % 2 else rng.uniform(0, DAY - 700))
        for number in range(traces)
    )
    for timestamp in times:
        for number in range(services):
            reading.add(f"service-{number:02d}", timestamp, rng)
    return reading


def _milliseconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return 1000 * (time.process_time() - start)


class EstimateCollector:
    """Yields the estimates and latency quantiles of a snapshot as families of the library.

    Samples go straight into `Metric.samples`, which takes less time than `add_metric`.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._families = {name: quality_families(spec) for name, spec in metric_specs().items()}

    def collect(self) -> Iterable[Metric]:
        rows: dict[str, list[tuple[dict[str, str], Estimate]]] = {}
        for service, _, metric, scorer, window, estimate in self._snapshot.estimates:
            name, fingerprint = split_scorer(scorer)
            labels = {"service": service, "scorer": name, "fingerprint": fingerprint}
            labels |= {"k": parse_cutoff(metric) or "", "window": window}
            own = {label: value for label, value in labels.items() if value}
            rows.setdefault(base_name(metric), []).append((own, estimate))
        for metric, pairs in rows.items():
            mean, lower, upper, samples, _ = self._families[metric]
            yield _gauge(mean, [(labels, e.value) for labels, e in pairs])
            yield _gauge(lower, [(labels, e.lower) for labels, e in pairs])
            yield _gauge(upper, [(labels, e.upper) for labels, e in pairs])
            yield _gauge(samples, [(labels, e.effective_samples) for labels, e in pairs])
        quantiles = [
            (
                {"service": service, "stage": stage, "quantile": str(q.quantile), "window": window},
                (q.value, q.lower, q.upper),
            )
            for service, _, stage, window, values in self._snapshot.quantiles
            for q in values
        ]
        for at, family in enumerate(LATENCY[:3]):
            numbers = [(labels, values[at]) for labels, values in quantiles]
            yield _gauge(family, [(labels, x) for labels, x in numbers if x is not None])


def _gauge(family: MetricFamily, values: Iterable[tuple[dict[str, str], float]]) -> Metric:
    metric = Metric(family.name, family.help, "gauge")
    metric.samples = [Sample(family.name, labels, value) for labels, value in values]
    return metric


def compare_with_the_library(reading: BenchReading, repeat: int) -> dict[str, float]:
    """CPU milliseconds of the text of the same estimates, ours and the library's, in turn."""
    exporter = PrometheusExporter(reading, registry=CollectorRegistry())
    snapshot = take_snapshot(reading, detail=True)
    registry = CollectorRegistry()
    registry.register(EstimateCollector(snapshot))

    def ours() -> bytes:
        parts = [*exporter._quality(snapshot, False), *_latency(snapshot, False)]
        return "".join(parts).encode("utf-8", "replace")

    shown, theirs = (_samples(text.decode()) for text in (ours(), generate_latest(registry)))
    unscored = {key for key in shown if key[0].endswith("_unscored_ratio")}
    assert shown.keys() - unscored == theirs.keys()
    assert all(abs(shown[key] - value) <= 1e-8 * abs(value) for key, value in theirs.items())
    times: dict[str, list[float]] = {"ours": [], "client": []}
    for _ in range(repeat):
        times["ours"].append(_milliseconds(ours))
        times["client"].append(_milliseconds(lambda: generate_latest(registry)))
    return {"samples": len(theirs), **{name: min(found) for name, found in times.items()}}


def _samples(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def measure(services: int, repeat: int) -> dict[str, float]:
    """CPU milliseconds by what was done, and the size of the exposition."""
    reading = filled(services)
    rng = random.Random(8)
    exporter = PrometheusExporter(reading, registry=CollectorRegistry())
    body = exporter.render(openmetrics=True)
    text = exporter.render().decode("utf-8")
    times: dict[str, list[float]] = {}

    def busy(name: str, step: float, work: Callable[[], object]) -> None:
        """Measure with a new trace of every service, which is in the windows and parts before."""
        for number in range(services):
            reading.add(f"service-{number:02d}", NOW + SCRAPE_SECONDS * step, rng)
        reading.aggregator.settle()
        reading.windows.services()  # brings the new traces into the windows
        times.setdefault(name, []).append(_milliseconds(work))

    for step in range(repeat):
        busy("busy", step, exporter.render)
        times.setdefault("idle", []).append(_milliseconds(exporter.render))
        busy("detail", step + 0.3, exporter.render_detail)
        times.setdefault("gzip", []).append(_milliseconds(lambda: gzip.compress(body, 1)))
        busy("page", step + 0.6, lambda: _page(reading))
    samples = sum(not line.startswith("#") for line in text.splitlines())
    found = {name: min(values) for name, values in times.items()}
    return {**found, "samples": samples, "bytes": len(body), "page_bytes": len(_page(reading))}


def _page(reading: BenchReading) -> bytes:
    """The page of all services, as a browser gets it."""
    return gzip.compress(fleet_page(fleet_view(reading)).encode(), 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--services", type=int, default=50)
    parser.add_argument("--repeat", type=int, default=15)
    options = parser.parse_args()
    collect_rarely()
    found = measure(options.services, options.repeat)
    both = compare_with_the_library(filled(SERVICES_OF_10_000), options.repeat)
    ours, client = both["ours"], both["client"]
    print(
        f"{options.services} services, {found['samples']:,.0f} samples, {found['bytes']:,.0f} bytes"
    )
    print("\n| what | CPU ms |\n| --- | ---: |")
    print(f"| `/metrics`, all new (aim {LIMIT_MS:.0f}) | {found['busy']:.1f} |")
    print(f"| `/metrics`, nothing new | {found['idle']:.1f} |")
    print(f"| gzip of it, if asked for | {found['gzip']:.1f} |")
    print(f"| `/metrics/detail`, all new | {found['detail']:.1f} |")
    print(f"| the page of all services, {found['page_bytes']:,.0f} bytes | {found['page']:.1f} |")
    print(f"| text of {both['samples']:,.0f} estimates | {ours:.1f} |")
    print(f"| the same by `prometheus_client` | {client:.1f} |")


if __name__ == "__main__":
    main()
