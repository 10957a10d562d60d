"""Measure what a Kafka worker costs, how workers scale, and how soon one is replaced.

    python -m benchmarks.kafka_workers [PART ...] [--messages N] [--rounds N]

A real Kafka of one node on this machine. The parts, all by default:

cost      processor time a message of a worker with and without built-in scorers, beside a plain
          loop of aiokafka, which drops each message, and a Faust agent, which forwards it.
scaling   messages a second of one and two workers that may each use a quarter of a core, as if on
          machines of their own; the broker is not bound.
hot       the same for one worker and six, where all traces are of one service, whose partition of
          the state has one owner.
takeover  seconds until the survivor of two workers counts for 50 services with a day behind them:
          after SIGTERM, and after SIGKILL, where the brokers first wait for the worker to
          answer, `kafka.session_seconds`.
growth    bytes of state a trace as they lie in the topic, at 100 traces a second.

The messages are written while the processes stand still, so that their producer takes nothing from
them. Traces are those of examples/mtrag.jsonl between 5 and 7.5 kB, each with a word of its own in
every passage. `scaling` and `hot` need control groups (version 1) and the rights of root.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from benchmarks.kafka_processes import cpu_seconds, limited
from benchmarks.throughput import distinct
from tests.kafka.cluster import Worker, by_service, workers
from tests.kafka.place import Place
from tests.kafka_server import KafkaServer, kafka_server
from tests.waiting import until

__all__ = ["main"]

EXAMPLE = Path(__file__).parent.parent / "examples" / "mtrag.jsonl"
SIZES = (5_000, 7_500)  # bytes: 6 kB on average
WARM = 400  # messages before the clock runs: code is imported, connections are made
PARTITIONS = 12  # so that six and twelve workers have the same to do
RATE = 100.0  # traces a second of event time
QUARTER = 0.25  # of a core
EIGHTH = 0.125  # of a core: twelve workers leave the broker half a core of two
SERVICES = 20
SESSION_SECONDS = 30  # the default
DAY_SERVICES, DAY_STEP = 50, 120.0  # seconds between two traces of a service
GROWTH_SECONDS = 60
UNORDERED_SECONDS = 900.0  # how far times are out of order at most
QUIET: dict[str, Any] = {"log_level": 0}
NO_MODEL: dict[str, Any] = {"models": {"cpu_share": 0}}
CHEAP: dict[str, Any] = {**NO_MODEL, "builtin_scorers": False}


class Run(NamedTuple):
    """One run: messages a second, and processor seconds a message."""

    rate: float
    cpu: float


class Bounded(NamedTuple):
    """How many workers are compared, with so many cores each, and the services of the traffic."""

    counts: Sequence[int]
    services: int
    cores: float


def traces(
    count: int, services: int, when: Callable[[int], float], edition: int = 0
) -> list[bytes]:
    """Return `count` traces of 6 kB, of the services in turn, number n at the time `when(n)`."""
    least, most = SIZES
    lines = [line for line in EXAMPLE.read_bytes().splitlines() if least <= len(line) <= most]
    out = []
    for number in range(count):
        trace = json.loads(lines[number % len(lines)])
        trace |= {
            "trace_id": f"{uuid.uuid4().hex}",
            "timestamp": when(number),
            "service": f"service-{number % services}",
            "timings": {"total": 0.5 + number % 7, "retrieval": 0.1},
        }
        out.append(json.dumps(trace).encode())
    return distinct(out, edition)


def produce(server: KafkaServer, topic: str, lines: Sequence[bytes], rate: float = 0.0) -> None:
    """Write to all partitions in turn, so that every worker has the same to do."""
    producer = Producer({**QUIET, "bootstrap.servers": server.bootstrap, "linger.ms": 5})
    begun = time.monotonic()
    for number, line in enumerate(lines):
        while rate and number / rate > time.monotonic() - begun:
            producer.poll(0.01)
        while True:
            try:
                producer.produce(topic, line, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(60):
        raise RuntimeError("the broker did not take all messages")


def committed(server: KafkaServer, group: str, topic: str) -> int:
    """Return how many messages of a topic a group has done."""
    asker = Consumer({**QUIET, "bootstrap.servers": server.bootstrap, "group.id": group})
    wanted = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    try:
        found = asker.committed(wanted, timeout=20)
    except KafkaException:  # a coordinator that is being made; asked again
        return 0
    finally:
        asker.close()
    return sum(max(0, one.offset) for one in found)


def reach(look: Callable[[], float], count: float) -> None:
    """Wait until `look` says at least `count`."""
    until(lambda: look() >= count, seconds=900, pause=0.5)


class Subjects:
    """The processes of one run, which read the same topic.

    Each of `looks` says how many messages they are done with; they are asked one after the other,
    because the last one may take its time of the processes.
    """

    def __init__(self, pids: Sequence[int], *looks: Callable[[], float]) -> None:
        self.pids = pids
        self._looks = looks

    def wait(self, count: int) -> None:
        for look in self._looks:
            reach(look, count)

    def measure(
        self, place: Place, warm: Sequence[bytes], lines: Sequence[bytes], cores: float = 0.0
    ) -> Run:
        """Run `lines` through, with at most so many `cores` for each process (0: no bound)."""
        produce(place.server, place.traces, warm)
        self.wait(len(warm))
        time.sleep(2)  # commits behind it
        for pid in self.pids:
            os.kill(pid, signal.SIGSTOP)
        produce(place.server, place.traces, lines)
        with limited(self.pids, cores) if cores else nullcontext():
            used = cpu_seconds(self.pids)
            begun = time.monotonic()
            for pid in self.pids:
                os.kill(pid, signal.SIGCONT)
            self.wait(len(warm) + len(lines))
            wall = time.monotonic() - begun
            used = cpu_seconds(self.pids) - used
        return Run(len(lines) / wall, used / len(lines))


def make_place(server: KafkaServer, folder: Path) -> Place:
    return Place(server, folder, partitions=PARTITIONS, session_seconds=SESSION_SECONDS)


def make_worker(place: Place, name: str, settings: dict[str, Any]) -> Worker:
    name = f"{place.settings.kafka.group}-{name}"
    return Worker(place.server, place.folder, name, settings=settings, **place.kafka)


def counted(all_: Sequence[Worker]) -> float:
    """Return how many traces are in the windows of all workers."""
    return sum(by_service(one.get("/metrics")).total() for one in all_)


@contextmanager
def ours(place: Place, count: int, settings: dict[str, Any]) -> Iterator[Subjects]:
    """Workers that are ready."""
    all_ = [make_worker(place, str(number), settings) for number in range(count)]
    group = place.settings.kafka.score_group
    with workers(*all_):
        until(lambda: all(one.ready for one in all_))
        yield Subjects(
            [one.process.pid for one in all_ if one.process],
            lambda: committed(place.server, group, place.traces),
            lambda: counted(all_),
        )


@contextmanager
def rival(place: Place, kind: str) -> Iterator[Subjects]:
    """One of the programs of `benchmarks.kafka_rivals`."""
    group = f"{place.settings.kafka.group}-{kind}"
    command = (kind, place.server.bootstrap, group, place.traces, place.settings.kafka.topics.dead)
    with subprocess.Popen([sys.executable, "-m", "benchmarks.kafka_rivals", *command]) as process:
        try:
            yield Subjects([process.pid], lambda: committed(place.server, group, place.traces))
        finally:
            process.kill()


def in_order(number: int) -> float:
    return 1_760_000_000 + number / RATE


def middle(values: Sequence[float], digits: int = 0) -> str:
    """Return the median with the least and the greatest."""

    def text(value: float) -> str:
        return f"{value:,.{digits}f}"

    return f"{text(statistics.median(values))} ({text(min(values))} … {text(max(values))})"


def cost(server: KafkaServer, folder: Path, options: argparse.Namespace) -> None:
    kinds: dict[str, Callable[[Place], Any]] = {
        "loop of aiokafka": lambda place: rival(place, "loop"),
        "agent of Faust": lambda place: rival(place, "faust"),
        "worker without built-in scorers": lambda place: ours(place, 1, CHEAP),
        "worker": lambda place: ours(place, 1, NO_MODEL),
    }
    runs: dict[str, list[Run]] = {name: [] for name in kinds}
    for edition in range(options.rounds):
        warm = traces(WARM, SERVICES, in_order, edition)
        lines = traces(options.messages, SERVICES, in_order, edition)
        for name, start in kinds.items():
            place = make_place(server, folder)
            with start(place) as subjects:
                runs[name].append(subjects.measure(place, warm, lines))
            say(f"{name}: {runs[name][-1]}")
    print("\n| program | messages/s | CPU µs a message | ratio to the loop | to Faust |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for name, found in runs.items():
        ratios = [
            middle([a.cpu / b.cpu for a, b in zip(found, runs[base], strict=True)], 1)
            for base in ("loop of aiokafka", "agent of Faust")
        ]
        rates, costs = [run.rate for run in found], [run.cpu * 1e6 for run in found]
        print(f"| {name} | {middle(rates)} | {middle(costs)} | {ratios[0]} | {ratios[1]} |")


def compare_counts(
    server: KafkaServer, folder: Path, options: argparse.Namespace, plan: Bounded
) -> None:
    """Print the rates of one and of several workers with the same part of a core each."""
    runs: dict[int, list[Run]] = {count: [] for count in plan.counts}
    for edition in range(options.rounds):
        warm = traces(WARM, plan.services, in_order, edition)
        lines = traces(options.messages, plan.services, in_order, edition)
        for count, found in runs.items():
            place = make_place(server, folder)
            with ours(place, count, NO_MODEL) as subjects:
                found.append(subjects.measure(place, warm, lines, plan.cores))
            say(f"{count} workers: {found[-1]}")
    print(
        "\n| workers | messages/s | CPU µs a message | times one |\n| ---: | ---: | ---: | ---: |"
    )
    for count, found in runs.items():
        times = [a.rate / b.rate for a, b in zip(found, runs[1], strict=True)]
        rates, costs = [run.rate for run in found], [run.cpu * 1e6 for run in found]
        print(f"| {count} | {middle(rates)} | {middle(costs)} | {middle(times, 2)} |")


def scaling(server: KafkaServer, folder: Path, options: argparse.Namespace) -> None:
    compare_counts(server, folder, options, Bounded((1, 2), SERVICES, QUARTER))


def hot(server: KafkaServer, folder: Path, options: argparse.Namespace) -> None:
    compare_counts(server, folder, options, Bounded((1, 6, 12), 1, EIGHTH))


def takeover(server: KafkaServer, folder: Path, options: argparse.Namespace) -> None:
    print("\n| end of the other worker | seconds until all services are counted again |")
    print("| --- | ---: |")
    for name in ("SIGTERM", "SIGKILL"):
        seconds = [takeover_seconds(server, folder, name) for _ in range(options.rounds)]
        print(f"| {name} | {middle(seconds, 1)} |")


def takeover_seconds(server: KafkaServer, folder: Path, name: str) -> float:
    """Return the time from the end of one of two workers until the other counts everything."""
    place = make_place(server, folder)
    pair = [make_worker(place, one, CHEAP) for one in "ab"]
    steps = int(24 * 3600 / DAY_STEP)
    begin = time.time() - 24 * 3600
    lines = traces(
        steps * DAY_SERVICES, DAY_SERVICES, lambda n: begin + n // DAY_SERVICES * DAY_STEP
    )
    with workers(*pair):
        until(lambda: all(one.ready for one in pair))
        produce(server, place.traces, lines)
        reach(lambda: counted(pair), len(lines))
        moved = counted(pair[:1])
        ended = time.monotonic()
        if name == "SIGKILL":
            pair[0].kill()
        else:
            pair[0].stop()
        produce(server, place.traces, traces(DAY_SERVICES, DAY_SERVICES, lambda _: time.time()))
        reach(lambda: counted(pair[1:]), len(lines) + DAY_SERVICES)
        seconds = time.monotonic() - ended
        say(f"{name}: {seconds:.1f} s, {moved:.0f} of {len(lines)} traces had the other owner")
    return seconds


def growth(server: KafkaServer, folder: Path, options: argparse.Namespace) -> None:
    print("\n| times | bytes of state a trace |\n| --- | ---: |")
    for name, spread in (("in order", 0.0), ("up to 15 minutes out of order", UNORDERED_SECONDS)):
        print(f"| {name} | {state_bytes(server, folder, spread):,.0f} |")


def state_bytes(server: KafkaServer, folder: Path, spread: float) -> float:
    """Return the bytes of state a trace, of traces up to `spread` seconds late."""
    place = make_place(server, folder)
    one = make_worker(place, "a", NO_MODEL)
    begin = time.time()
    late = random.Random(0)
    count = int(GROWTH_SECONDS * RATE)
    lines = traces(count, SERVICES, lambda n: begin + n / RATE - late.uniform(0.0, spread))
    with workers(one):
        until(lambda: one.ready)
        produce(server, place.traces, lines, RATE)
        reach(lambda: counted([one]), count)
    topic = f"{place.settings.kafka.group}-aggregates"
    logs = Path(server.nodes[0].folder, "data").glob(f"{topic}-*/*.log")
    return sum(log.stat().st_size for log in logs) / count


def say(what: str) -> None:
    """Tell how far the run is, beside the tables."""
    print(f"{what}; load {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)


PARTS = {"cost": cost, "scaling": scaling, "hot": hot, "takeover": takeover, "growth": growth}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], help="what to measure")
    parser.add_argument("--messages", type=int, default=4_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place, kafka_server(Path(place)) as server:
        for name in options.parts or PARTS:
            print(f"\n## {name}", flush=True)
            PARTS[name](server, Path(place), options)


if __name__ == "__main__":
    main()
