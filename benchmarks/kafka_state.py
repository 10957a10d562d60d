"""How long a worker takes to load its state from the changelog, and how its memory grows.

    python -m benchmarks.kafka_state recovery [--services 50] [--hours 24] [--copies 3]
    python -m benchmarks.kafka_state memory [--services 500] [--hours 36]
    python -m benchmarks.kafka_state ids [--count 1000000]
    python -m benchmarks.kafka_state written [--rate 220] [--jitter 900]

`recovery`: the states of all partitions are built in this process, as a worker builds them, and
their rows written to the changelog as a worker writes them, `--copies` times: so much of what was
superseded is still there when compaction is behind. Then a worker is started twice on a real
Kafka, with an empty changelog and with that one; the difference is what the state costs.

`memory`: the states of all partitions in this process, with the rows of the table beside them, as
one worker would hold them if it were alone. Printed at every twelfth of the event time.

`ids`: the known trace ids of one partition: memory, rows in a step of 1,000 traces each, and the
processor time of loading them at a takeover.

`written`: rows and bytes of state a trace, of ten services, in steps as a worker makes them, with
times that are up to `--jitter` seconds out of order; by gzip as a producer sends them.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from ragmeter.alerts.rules import AlertRule
from ragmeter.config.loader import load_settings
from ragmeter.config.settings import Settings
from ragmeter.core.score import Score, ScoredTrace, ScoreState
from ragmeter.kafka.processors.aggregate import STEP_SECONDS
from ragmeter.kafka.score_records import ScoreRecord, SourceOffset
from ragmeter.kafka.state.partition import PartitionState
from ragmeter.kafka.state.rows import SeenIdRows
from ragmeter.scoring.scorer import Scorer

from benchmarks.kafka_cluster import START, Setup, ready_after, running, worker
from benchmarks.memory import resident_megabytes
from tests.kafka_server import kafka_server

__all__ = ["main"]

PARTITIONS = 8
STEP = 500  # records: what is kept does not depend on it, and small steps take long


class Partition:
    """The state of one, and the rows that the table of a worker holds beside it."""

    def __init__(
        self, settings: Settings, number: int, scorer: Scorer, rules: Sequence[AlertRule]
    ) -> None:
        self.state = PartitionState(
            settings,
            rules,
            scorer.pairs,
            dedupe=settings.limits.dedupe_hours * 3600,
            clock=time.time,
            monotonic=time.monotonic,
        )
        self.table: dict[bytes, bytes] = {}
        self.written = 0
        self._waiting: list[ScoreRecord] = []

    def put(self, record: ScoreRecord) -> None:
        self._waiting.append(record)
        if len(self._waiting) >= STEP:
            self.step()

    def step(self) -> None:
        if not self._waiting:
            return
        for record in self._waiting:
            self.state.apply(record)
        self.state.settle()
        self._waiting = []
        rows = self.state.step()
        self.written += len(rows)
        for key, value in rows.items():
            if value is None:
                self.table.pop(key, None)
            else:
                self.table[key] = value


def traffic(services: int, hours: float, every: float, scorer: Scorer) -> Iterator[ScoredTrace]:
    """One trace of each service every so many seconds, evenly over all."""
    rng = random.Random(1)
    for number in range(int(hours * 3600 / every) * services):
        results = [
            Score(metric, by, ScoreState.SCORED, rng.random()) for metric, by in scorer.pairs
        ]
        yield ScoredTrace(
            f"t{number}",
            f"service-{number % services}",
            START + number * every / services,
            "ok",
            results,
            timings={"total": rng.lognormvariate(0, 0.5), "retrieval": 0.1},
        )


def partitions_of(
    settings: Settings, scorer: Scorer, rules: Sequence[AlertRule]
) -> list[Partition]:
    return [Partition(settings, number, scorer, rules) for number in range(PARTITIONS)]


def fill(all_: list[Partition], traces: Iterator[ScoredTrace], services: int) -> Iterator[int]:
    for number, trace in enumerate(traces):
        at = number % services % PARTITIONS
        all_[at].put(ScoreRecord(trace, SourceOffset(at, number // PARTITIONS)))
        yield number
    for one in all_:
        one.step()


def recovery(options: argparse.Namespace) -> None:
    # rules and drift look at every step of event time: most of the work, and few of the rows
    settings, scorer = load_settings(environ={}, overrides={"drift": {"enabled": False}}), Scorer()
    all_ = partitions_of(settings, scorer, [])
    traces = traffic(options.services, options.hours, options.every, scorer)
    count = sum(1 for _ in fill(all_, traces, options.services))
    rows = sum(len(one.table) for one in all_)
    size = sum(len(key) + len(data) for one in all_ for key, data in one.table.items())
    print(
        f"{count} traces of {options.services} services over {options.hours:g} h: {rows} rows,"
        f" {size / 1e6:.1f} MB; {options.copies} times in the topic",
        flush=True,
    )
    with tempfile.TemporaryDirectory() as place, kafka_server(Path(place)) as server:
        for name, copies in (("warm", 0), ("empty", 0), ("full", options.copies), ("again", 0)):
            setup = Setup(server.bootstrap, name, PARTITIONS)
            setup.make_topics()
            _write_changelog(setup, all_, copies)
            process = worker(setup, Path(place))
            with running(process):
                seconds = ready_after(process)
                used = process.cpu
                print(f"{name}: ready in {seconds:.1f} s, {used:.1f} s of a core", flush=True)
                for line in process.log.read_text().splitlines():
                    if "owns partitions" in line or " s)" in line:
                        print("   ", line.strip())


def _write_changelog(setup: Setup, all_: list[Partition], copies: int) -> None:
    producer = Producer({"bootstrap.servers": setup.bootstrap, "acks": "all", "log_level": 0})
    for _ in range(copies):
        for number, one in enumerate(all_):
            for key, data in one.table.items():
                while True:
                    try:
                        producer.produce(f"{setup.name}-aggregates", data, key, partition=number)
                        break
                    except BufferError:
                        producer.poll(0.1)
    assert producer.flush(60) == 0


def memory(options: argparse.Namespace) -> None:
    tree: dict[str, Any] = {"limits": {"services": options.services}}
    # rules look at every step of event time: most of the work, and nothing of the memory
    tree["drift"] = {"enabled": False}
    settings, scorer = load_settings(environ={}, overrides=tree), Scorer()
    all_ = partitions_of(settings, scorer, [])
    traces = traffic(options.services, options.hours, options.every, scorer)
    count = int(options.hours * 3600 / options.every) * options.services
    print(f"{count} traces of {options.services} services, one each in {options.every:g} s\n")
    print("| hours of event time | traces | resident MB | rows | MB of rows | records written |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: |")
    for number in fill(all_, traces, options.services):
        if (number + 1) % (count // 12) == 0:
            rows = sum(len(one.table) for one in all_)
            size = sum(len(key) + len(data) for one in all_ for key, data in one.table.items())
            written = sum(one.written for one in all_)
            hours = options.hours * (number + 1) / count
            cells = [f"{hours:.0f}", number + 1, f"{resident_megabytes():.0f}", rows]
            print(
                "|", " | ".join(map(str, [*cells, f"{size / 1e6:.0f}", written])), "|", flush=True
            )


def ids(options: argparse.Namespace) -> None:
    before, known, rows = resident_megabytes(), SeenIdRows(48 * 3600.0), dict[bytes, bytes]()
    written, begun = 0, time.process_time()
    for number in range(options.count):
        known.add("service", f"trace-{number}", START + number / 100)
        if not number % 1000 or number + 1 == options.count:
            for key, data in known.drain().items():
                written += len(key) + len(data or b"")
                rows[key] = data or b""
    added, saved = time.process_time() - begun, known.dump()
    grown = resident_megabytes() - before
    size = sum(len(key) + len(data) for key, data in rows.items())
    del known
    begun, again = time.process_time(), SeenIdRows(48 * 3600.0)
    again.load(saved, [(json.loads(key)[1:], data) for key, data in rows.items()])
    print(
        f"{options.count} ids: {grown - size / 1e6:.0f} MB of memory, {size / 1e6:.1f} MB in"
        f" {len(rows)} rows ({written / options.count:.0f} bytes written an id),"
        f" {1e6 * added / options.count:.1f} us to add one,"
        f" {time.process_time() - begun:.1f} s of a core to load them"
    )


def written(options: argparse.Namespace) -> None:
    settings, scorer = load_settings(environ={}), Scorer()
    rng, all_ = random.Random(2), partitions_of(settings, scorer, [])
    rows = size = sent = 0
    traces = list(traffic(10, options.count / options.rate / 3600, 10 / options.rate, scorer))
    for number, trace in enumerate(traces, 1):
        home = number % 10 % PARTITIONS
        at = trace.timestamp + rng.uniform(-options.jitter, options.jitter)
        record = ScoreRecord(trace._replace(timestamp=at), SourceOffset(home, number))
        all_[home].state.apply(record)
        if not number % int(options.step * options.rate) or number == len(traces):
            for one in all_:
                one.state.settle()
                step = one.state.step()
                data = b"".join(key + (value or b"") for key, value in step.items())
                rows += len(step)
                size += len(data)
                sent += len(zlib.compress(data))
    count = len(traces)
    print(
        f"{count} traces at {options.rate:g} a second, up to {options.jitter:g} s out of order:"
        f" {rows / count:.2f} rows, {size / count:.0f} bytes, {sent / count:.0f} by gzip, a trace"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True)
    for name, what, services, hours in (
        ("recovery", recovery, 50, 24.0),
        ("memory", memory, 500, 36.0),
    ):
        one = commands.add_parser(name)
        one.add_argument("--services", type=int, default=services)
        one.add_argument("--hours", type=float, default=hours)
        one.add_argument("--every", type=float, default=600.0)
        one.add_argument("--copies", type=int, default=3)
        one.set_defaults(what=what)
    one = commands.add_parser("ids")
    one.add_argument("--count", type=int, default=1_000_000)
    one.set_defaults(what=ids)
    one = commands.add_parser("written")
    one.add_argument("--count", type=int, default=20_000)
    one.add_argument("--rate", type=float, default=220.0)
    one.add_argument("--jitter", type=float, default=900.0)
    one.add_argument("--step", type=float, default=STEP_SECONDS)
    one.set_defaults(what=written)
    options = parser.parse_args()
    options.what(options)


if __name__ == "__main__":
    main()
