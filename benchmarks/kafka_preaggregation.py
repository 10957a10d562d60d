"""What it would save to add up a hot service's traces before the topic that is keyed by service.

    python -m benchmarks.kafka_preaggregation [--rate 2000] [--seconds 30] [--parts 8]

Simulated with the pure halves, no broker. As it is, each trace of a service is one record in one
partition, whose owner decodes it and counts it. Instead each of `--parts` score workers could add
up what it has scored and send one partial bucket of ten seconds of event time now and then; the
owner merges them. First it is shown that the rows of the windows are the same to the byte, however
the traces are split; then what a trace costs the owner, in processor time and in bytes, by how many
traces a partial bucket holds. Prints Markdown.
"""

from __future__ import annotations

import argparse
import gc
import random
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ragmeter.config.loader import load_settings
from ragmeter.core.score import ScoredTrace
from ragmeter.kafka.score_records import ScoreRecord, SourceOffset, decode_score, encode_score
from ragmeter.metrics.registry import metric_specs
from ragmeter.windows.bucket_builder import build_bucket
from ragmeter.windows.buckets import SeriesSlots
from ragmeter.windows.saved_buckets import decode_bucket, encode_bucket
from ragmeter.windows.state import BucketRow
from ragmeter.windows.windows import Windows

from benchmarks.per_trace import traffic

__all__ = ["Partial", "direct", "empty", "main", "merged", "rows_of", "split"]

SERVICE = "bot"
GRAIN = 10  # seconds: of the finest buckets


class Partial(NamedTuple):
    """What one score worker would send."""

    bucket: int
    """Number of the bucket of `GRAIN` seconds."""
    newest: float
    """Event time that it has seen."""
    traces: int
    data: bytes


def empty() -> Windows:
    settings = load_settings(environ={})
    found = Windows(settings.windows, specs=metric_specs(), min_samples=settings.limits.min_samples)
    assert found._state._finest == GRAIN
    return found


def split(traces: Sequence[ScoredTrace], parts: int, size: int, seed: int = 0) -> list[Partial]:
    """Partial buckets of about `size` traces, of workers that each see their share in order; they
    arrive as the workers send them, so that event time goes back and forth a little."""
    rng = random.Random(seed)
    waiting: list[list[ScoredTrace]] = [[] for _ in range(parts)]
    found: list[Partial] = []
    slots = SeriesSlots(metric_specs())

    def send(part: int) -> None:
        batch, waiting[part] = waiting[part], []
        by_index: dict[int, list[ScoredTrace]] = {}
        for trace in batch:
            by_index.setdefault(int(trace.timestamp // GRAIN), []).append(trace)
        for index, some in by_index.items():
            data = encode_bucket(build_bucket(some, slots), slots)
            found.append(Partial(index, max(one.timestamp for one in some), len(some), data))

    for trace in traces:
        part = rng.randrange(parts)
        waiting[part].append(trace)
        if len(waiting[part]) >= size:
            send(part)
    for part in range(parts):
        send(part)
    return found


def merged(windows: Windows, partials: Iterable[Partial]) -> None:
    """What the owner of the service would do with them."""
    for one in partials:
        if windows.now is None or one.newest > windows.now:
            windows.advance(one.newest)
        bucket = decode_bucket(one.data, windows._state.slots)
        for ring in reversed(windows._state.rings):
            ring.fold(one.bucket * GRAIN // ring.width, (SERVICE, ""), bucket)


def direct(windows: Windows, records: Iterable[bytes]) -> None:
    """What the owner of the service does now, counters, rules and drift left out."""
    for data in records:
        scored = decode_score(data).scored
        windows.add(scored, SERVICE)


def rows_of(windows: Windows) -> list[BucketRow]:
    return sorted(windows.drain(), key=lambda row: row[:4])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=2_000.0)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--parts", type=int, default=8)
    parser.add_argument("--sizes", type=int, nargs="*", default=[10, 100, 1_000])
    options = parser.parse_args()
    traces = list(traffic(options.rate, 0, options.seconds))
    records = [
        encode_score(ScoreRecord(trace, SourceOffset(0, number)))
        for number, trace in enumerate(traces)
    ]
    gc.collect()
    windows = empty()
    begun = time.process_time()
    direct(windows, records)
    rows = rows_of(windows)
    spent = (time.process_time() - begun) / len(traces) * 1e6
    size = sum(map(len, records)) / len(traces)
    print(f"{len(traces)} traces of one service, 20 metrics, {options.parts} score workers\n")
    print(
        "| traces a record | owner, us a trace | bytes a trace | sender, us a trace | same rows |"
    )
    print("| ---: | ---: | ---: | ---: | --- |")
    print(f"| 1 (as it is) | {spent:.1f} | {size:.0f} | | |")
    for many in options.sizes:
        begun = time.process_time()
        partials = split(traces, options.parts, many)
        sent = (time.process_time() - begun) / len(traces) * 1e6
        windows = empty()
        gc.collect()
        begun = time.process_time()
        merged(windows, partials)
        found = rows_of(windows)
        spent = (time.process_time() - begun) / len(traces) * 1e6
        size = sum(len(one.data) for one in partials) / len(traces)
        same = "yes" if found == rows else "NO"
        real = len(traces) / len(partials)
        print(f"| {real:.0f} | {spent:.1f} | {size:.0f} | {sent:.1f} | {same} |", flush=True)


if __name__ == "__main__":
    main()
