"""CPU time of one scrape of 50 services with full windows, against `prometheus_client`.

    python -m benchmarks.scrape [--services 50] [--repeat 15]

Figures are the least over the repeats (what else runs on the machine only ever adds), in
milliseconds of CPU time: the scrape when every service has had a trace since the last one (all
estimates are made anew), its two halves (copying numbers out of the windows, writing text), the
scrape when nothing has changed, compression, the page of all services (their answers are kept in
an agent, and fixed here), and the same estimates by the library: a custom collector that yields
metric families, rendered by `prometheus_client.generate_latest`. Both make their text from the same
copied numbers, in turn, and the samples are compared.
Bringing the new traces into the windows is work of the traces, whoever reads first, and is done
before the clock starts.
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
from ragmeter.alerts.alert import Alert
from ragmeter.app.parts import PARTS
from ragmeter.core.counters import DURATION_EDGES, Counters, Exemplar
from ragmeter.core.metric_specs import base_name, parse_cutoff
from ragmeter.core.score import BUILTIN_SCORER, Score, ScoredTrace, ScoreState
from ragmeter.core.series import split_scorer
from ragmeter.metrics.registry import metric_specs
from ragmeter.parts.collection import PartPage
from ragmeter.parts.questions.catalogue import QUESTIONS, QuestionSpec
from ragmeter.parts.views import Answer, Incident, Level, QuestionAnswers
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
STAGES = ("total", "retrieval", "generation")
DAY = 86_400
LIMIT_MS = 50.0
SERVICES_OF_10_000 = 43  # whose estimates are 10,000 samples


class FixedAnswers(QuestionAnswers):
    """The same eight answers for every service."""

    def __init__(self) -> None:
        self._answers = [_answer(question) for question in QUESTIONS]

    def answers(self, service: str) -> Sequence[Answer]:
        return self._answers


def _answer(question: QuestionSpec) -> Answer:
    level = Level(
        value=0.8,
        lower=0.75,
        upper=0.85,
        window="24h",
        samples=143,
        worth=100.0,
        source=question.sources[0],
    )
    return Answer(
        question=question.name,
        meaning=question.meaning,
        unit=question.unit,
        better=question.better,
        level=level,
        usual=0.8,
        state="good",
        source="143 labels + model",
    )


class BenchReading:
    """A `Reading` over real windows."""

    def __init__(self) -> None:
        self.windows = Windows()
        self.counters = Counters()
        self.segments: Sequence[str] = ()
        self.waiting: dict[tuple[str, str], int] = {}
        self._lock = threading.RLock()
        self._questions = FixedAnswers()

    def lock(self) -> AbstractContextManager[Any]:
        return self._lock

    def instruments(self) -> Sequence[Mapping[str, str]]:
        return ()

    def gauges(self) -> Sequence[tuple[str, tuple[tuple[str, str], ...], float]]:
        return ()

    def questions(self, service: str) -> QuestionAnswers:
        return self._questions

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
        for spec in metric_specs().values():
            if spec.tier != "cheap" or BUILTIN_SCORER not in spec.scorers:
                continue  # of canaries
            top = 1000.0 if spec.high is None else spec.high
            value = float(rng.random() < 0.9) if spec.kind == "ratio" else top * rng.random()
            results.append(Score(spec.name, spec.scorers[0], ScoreState.SCORED, value))
        timings = {stage: rng.lognormvariate(0, 0.6) for stage in STAGES}
        trace = ScoredTrace(
            f"{service}-{timestamp}", service, timestamp, "ok", results, timings=timings
        )
        self.windows.advance(timestamp)
        self.windows.add(trace, service)
        own = (("service", service),)
        exemplar = Exemplar(trace.trace_id, timings["total"], timestamp)
        self.counters.inc("rag_requests_total", (*own, ("status", "ok")))
        self.counters.observe(
            "rag_request_duration_seconds", own, [timings["total"]], DURATION_EDGES, [exemplar]
        )


def filled(services: int, traces: int = 150, seed: int = 7) -> BenchReading:
    """Services with enough traces in each window, half of them in the last five minutes."""
    reading, rng = BenchReading(), random.Random(seed)
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
    reading, rng = filled(services), random.Random(8)
    exporter = PrometheusExporter(reading, registry=CollectorRegistry())
    body = exporter.render_detail(openmetrics=True)
    text = exporter.render_detail().decode("utf-8")
    times: dict[str, list[float]] = {}

    def news(step: float) -> None:
        for number in range(services):
            reading.add(f"service-{number:02d}", NOW + step / repeat, rng)
        reading.windows.services()

    for step in range(repeat):
        news(step)
        for name, work in (
            ("busy", lambda: exporter.render_detail(openmetrics=True)),
            ("idle", lambda: exporter.render_detail(openmetrics=True)),
            ("gzip", lambda: gzip.compress(body, 1)),
        ):
            times.setdefault(name, []).append(_milliseconds(work))
        news(step + 0.3)
        times.setdefault("page", []).append(_milliseconds(lambda: _page(reading)))
        news(step + 0.6)
        times.setdefault("copy", []).append(_milliseconds(lambda: take_snapshot(reading)))
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
    found = measure(options.services, options.repeat)
    busy, copied = found["busy"], found["copy"]
    print(f"services            {options.services}")
    print(f"samples             {found['samples']:,.0f} in {found['bytes'] / 1e6:.2f} MB")
    print(f"scrape, all new     {busy:.1f} ms CPU (to stay under {LIMIT_MS:.0f} for 50 services)")
    print(f"  numbers           {copied:.1f} ms")
    print(f"  text              {busy - copied:.1f} ms")
    print(f"scrape, unchanged   {found['idle']:.1f} ms CPU")
    print(f"gzip, if asked for  {found['gzip']:.1f} ms CPU")
    kilobytes = found["page_bytes"] / 1000
    print(f"page of all         {found['page']:.1f} ms CPU, {kilobytes:.1f} kB with gzip")
    both = compare_with_the_library(filled(SERVICES_OF_10_000), options.repeat)
    ours, client = both["ours"], both["client"]
    print(f"{both['samples']:,.0f} samples      text {ours:.1f} ms CPU; by a collector of ", end="")
    print(f"prometheus_client {client:.1f} ms, {client / ours:.1f} times ours;")
    whole = (copied + (busy - copied) * client / ours) / busy
    print(f"                    the whole scrape would take {whole:.1f} times as long")


if __name__ == "__main__":
    main()
