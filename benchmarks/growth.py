"""What the aggregate half costs as services and segments grow, and what a gap of event time costs.

    python -m benchmarks.growth [--traces 3000] [--case 3 20 20]

Traces are those of `examples/mtrag.jsonl`, scored once by the built-in scorers and given other
services, tags, times and latencies. Columns: process CPU in microseconds a trace of `apply`, and of
taking what changed with its JSON every 256 traces, with the garbage collector as the agent sets it;
rows of windows and budgets a trace; resident memory; MiB of the rows that are left, and CPU seconds
of loading them. Then, with 300 services: CPU seconds of a gap of a month and of the scrape after
it, and the longest time between two chances for a scrape in between.
"""

from __future__ import annotations

import argparse
import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry
from ragmeter.aggregate.aggregator import Aggregator, restore_aggregator, take_changes
from ragmeter.alerts.rule_sets import load_configured_rules
from ragmeter.config.loader import load_settings
from ragmeter.core.counters import GaugeSample
from ragmeter.core.process import collect_rarely
from ragmeter.core.score import ScoredTrace
from ragmeter.ingest.native import DecodedTrace, decode_trace
from ragmeter.scoring.scorer import Scorer
from ragmeter.windows.state import BucketRow
from ragmeter_exporters.page.rendering import status_page
from ragmeter_exporters.page.views import status_view
from ragmeter_exporters.prometheus import PrometheusExporter

from benchmarks.memory import resident_megabytes
from benchmarks.scrape import BenchReading

__all__ = ["main"]

START = 1_760_000_000.0
COMMIT = 256
MONTH = 30 * 86_400
CASES = ((1, 20, 0), (3, 20, 1), (3, 20, 5), (3, 20, 20), (50, 20, 5), (50, 4, 0), (300, 300, 0))
"""(services, traces a second of event time, tags of five values)."""


class AggregatorView(BenchReading):
    """An aggregator as exporters read it."""

    def __init__(self, one: Aggregator) -> None:
        super().__init__()
        self.windows, self.counters, self.one = one.windows, one.counters, one
        self.guard = threading.RLock()

    def lock(self) -> AbstractContextManager[Any]:
        return self.guard

    def gauges(self) -> list[GaugeSample]:
        return self.one.gauges()


def scored_traces() -> list[ScoredTrace]:
    scorer, scored = Scorer(), []
    for line in Path("examples/mtrag.jsonl").read_bytes().splitlines():
        item = decode_trace(line, len(line))
        assert isinstance(item, DecodedTrace)
        scored.append(scorer.score(item.trace).trace)
    return scored


def traffic(
    pool: list[ScoredTrace], services: int, rate: float, tags: int, number: int
) -> Iterator[ScoredTrace]:
    rng, at = random.Random(1), START
    for index in range(number):
        at += rng.expovariate(rate)
        timings = {
            stage: rng.lognormvariate(0, 0.6) for stage in ("total", "retrieval", "generation")
        }
        yield rng.choice(pool)._replace(
            trace_id=f"t{index}",
            service=f"service-{rng.randrange(services):03d}",
            timestamp=at,
            tags={f"tag{tag}": f"v{rng.randrange(5)}" for tag in range(tags)},
            timings=timings,
        )


def make_aggregator(tags: int) -> Aggregator:
    overrides = {"segments": [f"tag{tag}" for tag in range(tags)], "limits": {"services": 400}}
    settings = load_settings(environ={}, overrides=overrides)
    return Aggregator(settings, load_configured_rules(settings), Scorer().pairs)


def run(
    one: Aggregator, traces: list[ScoredTrace], saved: dict[Any, BucketRow] | None = None
) -> tuple[float, float, int]:
    """CPU seconds of applying and of taking, and the number of rows; `saved` gets those left."""
    applied = taken = 0.0
    rows = 0
    for first in range(0, len(traces), COMMIT):
        begin = time.process_time()
        for trace in traces[first : first + COMMIT]:
            one.apply(trace)
        one.settle()
        middle = time.process_time()
        changes = take_changes(one, whole=False)
        for part in changes.meta.values():
            json.dumps(part)
        applied, taken = applied + middle - begin, taken + time.process_time() - middle
        rows += len(changes.buckets)
        if saved is not None:
            saved.update((row[:4], row) for row in changes.buckets)
    return applied, taken, rows


def measure_load(tags: int, saved: dict[Any, BucketRow]) -> tuple[float, float]:
    """MiB of the rows that are left, and CPU seconds of loading them."""
    rows = [row for row in saved.values() if row[4] is not None]
    one = make_aggregator(tags)
    begin = time.process_time()
    restore_aggregator(one, rows, [], {})
    return sum(len(row[4] or b"") for row in rows) / 2**20, time.process_time() - begin


def measure_gap(pool: list[ScoredTrace], number: int) -> None:
    one = make_aggregator(0)
    run(one, list(traffic(pool, 300, 10, 0, number)))
    view = AggregatorView(one)
    exporter = PrometheusExporter(view, registry=CollectorRegistry())
    longest, begin = 0.0, time.process_time()
    last = begin
    for _ in one.advance_steps(START + MONTH):
        now = time.process_time()
        longest, last = max(longest, now - last), now
    gap, begin = time.process_time() - begin, time.process_time()
    exporter.render()
    print(f"\n300 services, a gap of a month: {gap:.2f} s, at most {longest:.3f} s at a time;")
    print(f"the scrape after it: {time.process_time() - begin:.3f} s")


def measure_page(pool: list[ScoredTrace]) -> None:
    one = make_aggregator(0)
    traces = list(traffic(pool, 50, 4, 0, 6_400))
    run(one, traces[:6_000])
    view = AggregatorView(one)
    exporter = PrometheusExporter(view, registry=CollectorRegistry())
    pages: dict[str, Callable[[], bytes]] = {
        "/metrics": exporter.render,
        "page": lambda: status_page(status_view(view)).encode(),
    }
    for render in pages.values():
        render()  # the first time compiles templates
    for name, render in pages.items():
        run(one, traces[6_000:6_200] if name == "/metrics" else traces[6_200:])
        begin = time.process_time()
        body = render()
        cpu = time.process_time() - begin
        print(f"50 services, all changed: {name} {1000 * cpu:.0f} ms, {len(body):,} bytes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=int, default=3_000)
    parser.add_argument("--case", type=int, nargs=3, metavar=("SERVICES", "RATE", "TAGS"))
    options = parser.parse_args()
    pool = scored_traces()
    collect_rarely()
    print("services  rate  tags   apply    take  rows/trace  MiB  saved MiB  load s")
    for services, rate, tags in [options.case] if options.case else CASES:
        one = make_aggregator(tags)
        saved: dict[Any, BucketRow] = {}
        traces = list(traffic(pool, services, rate, tags, options.traces))
        applied, taken, rows = run(one, traces, saved)
        costs = [1e6 * seconds / options.traces for seconds in (applied, taken)]
        print(
            f"{services:8} {rate:5} {tags:5} {costs[0]:7.0f} {costs[1]:7.0f} "
            f"{rows / options.traces:11.2f} {resident_megabytes():4.0f} "
            "{:10.1f} {:7.2f}".format(*measure_load(tags, saved))
        )
    if not options.case:
        measure_gap(pool, options.traces)
        measure_page(pool)


if __name__ == "__main__":
    main()
