"""CPU time of one scrape of 50 services with full windows, against `prometheus_client`.

    python -m benchmarks.scrape [--services 50] [--repeat 15]

Figures are the least over the repeats (what else runs on the machine only ever adds), in
milliseconds of CPU time: the scrape when every service has had a trace since the last one (all
estimates are made anew), its two halves (copying numbers out of the windows, writing text), the
scrape when nothing has changed, compression, and `prometheus_client.generate_latest` over the
very samples that the scrape gave. The last is rendering alone: it gets its numbers for nothing.
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

from ragmeter.aggregate.agent_view import AgentHealth
from ragmeter.aggregate.consistency import AnswerComparison
from ragmeter.aggregate.indexes import IndexVersion
from ragmeter.alerts.alert import Alert
from ragmeter.core.counters import DURATION_EDGES, Counters, Exemplar
from ragmeter.core.score import Score, ScoredTrace, ScoreState
from ragmeter.exporters.prometheus import PrometheusExporter
from ragmeter.exporters.snapshot import take_snapshot
from ragmeter.metrics.registry import metric_specs
from ragmeter.windows.windows import Windows

__all__ = ["BenchReading", "filled", "main"]

NOW = 1_790_000_000.0
STAGES = ("total", "retrieval", "generation")
DAY = 86_400
LIMIT_MS = 50.0


class BenchReading:
    """A `Reading` over real windows."""

    def __init__(self) -> None:
        self.windows = Windows()
        self.counters = Counters()
        self.segments: Sequence[str] = ()
        self.waiting: dict[tuple[str, str], int] = {}
        self._lock = threading.RLock()

    def lock(self) -> AbstractContextManager[Any]:
        return self._lock

    def instruments(self) -> Sequence[Mapping[str, str]]:
        return ()

    def gauges(self) -> Sequence[tuple[str, tuple[tuple[str, str], ...], float]]:
        return ()

    def indexes(self) -> Sequence[IndexVersion]:
        return ()

    def unnamed_services(self) -> Sequence[str]:
        return ()

    def consistency(self, service: str, window: str) -> AnswerComparison:
        return AnswerComparison(0, 0, {})

    def alerts(self) -> Sequence[Alert]:
        return ()

    def evidence(self, service: str, trace_id: str) -> dict[str, Any] | None:
        return None

    def health(self) -> AgentHealth:
        return AgentHealth(processing_lag_seconds=0.1)

    def add(self, service: str, timestamp: float, rng: random.Random) -> None:
        """One trace with a value of every metric of the cheap tier, and three latency stages."""
        results = []
        for spec in metric_specs().values():
            if spec.tier != "cheap":
                continue
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
        self.counters.inc("rag_traces_total", (*own, ("status", "ok")))
        self.counters.observe(
            "rag_trace_duration_seconds", own, timings["total"], DURATION_EDGES, exemplar
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


class _Same:
    """A collector that hands out parsed samples."""

    def __init__(self, text: str) -> None:
        self._metrics = list(text_string_to_metric_families(text))

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def measure(services: int, repeat: int) -> dict[str, float]:
    """CPU milliseconds by what was done, and the size of the exposition."""
    reading, rng = filled(services), random.Random(8)
    exporter = PrometheusExporter(reading, registry=CollectorRegistry())
    body = exporter.render(openmetrics=True)
    text = exporter.render().decode("utf-8")
    registry = CollectorRegistry()
    registry.register(_Same(text))
    times: dict[str, list[float]] = {}

    def news(step: float) -> None:
        for number in range(services):
            reading.add(f"service-{number:02d}", NOW + step / repeat, rng)
        reading.windows.services()

    for step in range(repeat):
        news(step)
        for name, work in (
            ("busy", lambda: exporter.render(openmetrics=True)),
            ("idle", lambda: exporter.render(openmetrics=True)),
            ("client", lambda: generate_latest(registry)),
            ("gzip", lambda: gzip.compress(body, 1)),
        ):
            times.setdefault(name, []).append(_milliseconds(work))
        news(step + 0.5)
        times.setdefault("copy", []).append(_milliseconds(lambda: take_snapshot(reading)))
    samples = sum(not line.startswith("#") for line in text.splitlines())
    found = {name: min(values) for name, values in times.items()}
    return {**found, "samples": samples, "bytes": len(body)}


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
    print(f"prometheus_client   {found['client']:.1f} ms CPU, text alone: ", end="")
    print(f"{found['client'] / (busy - copied):.1f} times ours")


if __name__ == "__main__":
    main()
