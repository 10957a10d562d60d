"""Messages a second and processor time a message of 1, 2 and 4 workers beside a Faust agent that
only decodes and forwards.

    python -m benchmarks.kafka_scale [--messages 16000] [--rounds 3] [--workers 1 2 4]
    python -m benchmarks.kafka_scale --builtin --workers 1 --kinds worker worker+1

A real Kafka of one node. Real traces of 5 to 7.5 kB of several services, 100 a second of event
time; the cheap tier, windows, default rules and drift on, built-in scorers and model off;
`worker+1` has a scorer process beside it. Each round has
every kind once, in turn, with topics and a group of its own; the clock runs from the first message
after a warm-up until the last is counted and committed (the no-op: until the last is in the other
topic). With `--filled` the messages are written while the processes stand still, before the clock
runs, so that producing them takes no core from the workers. Processor time is that of the workers
alone, without the broker's and the producer's. Where workers, broker and producer share few cores,
wall time cannot show how workers scale. Processor time a message does, which must not rise with
their number, beside the part of the time in which the main thread of a worker runs or waits for a
core ("busy"): what is left of it a worker waits for others. With `--quota 0.25` each process gets
that part of a core and no more from the end of the warm-up on, as on a machine of its own, and the
broker, which is not limited, what it wants; both go before other work. A run that takes longer than
`--seconds` is cut there and counts with what it has done. Prints Markdown.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import statistics
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import KafkaException

from benchmarks.kafka_cluster import (
    Process,
    Setup,
    committed,
    counted_by,
    cpu_group,
    ends,
    grown,
    noop,
    produce,
    running,
    settled,
    until,
    worker,
)
from tests.kafka_server import kafka_server

__all__ = ["main"]

WARM = 800  # messages before the clock runs: code is imported, connections are made
RATE = 100.0  # traces a second of event time
SIZES = (5_000, 7_500)  # bytes: 6 kB on average


class Run(NamedTuple):
    """Seconds, and records written to the changelog, a message."""

    wall: float
    cpu: float
    changelog: float
    messages: int
    own: float  # of `cpu`, without scorer processes: the most that one worker can do of a core
    busy: float  # part of the time in which main threads run or wait for a core


class Kind(NamedTuple):
    name: str
    workers: int

    def __str__(self) -> str:
        return f"{self.name}, {self.workers}"


def run(
    kind: Kind,
    setup: Setup,
    folder: Path,
    lines: list[bytes],
    warm: list[bytes],
    options: argparse.Namespace,
) -> Run:
    traces, partitions = setup.topic("traces"), setup.partitions
    setup.make_topics()
    target = setup.topic("scores")
    changelog = f"{setup.name}-aggregates"
    ours = kind.name.startswith("worker")
    all_: list[Process] = []
    for number in range(kind.workers):
        if ours:
            all_.append(worker(setup, folder, number, options.profile))
        else:
            log = folder / f"{setup.name}-{number}.log"
            all_.append(noop(setup, target, kind.name.split()[1], log))

    def done() -> int:
        if not ours:
            return ends(setup.bootstrap, target, partitions)
        try:
            return committed(setup.bootstrap, f"{setup.name}-score", traces, partitions)
        except KafkaException:  # a coordinator that is busy; asked again
            return 0

    def counted(wanted: int) -> bool:
        """Whether all is in the state; asked when it is scored, since a scrape takes its time."""
        return done() >= wanted and (not ours or sum(map(counted_by, all_)) >= wanted)

    with running(*all_), ExitStack() as limits:
        group = setup.name if not ours else f"{setup.name}-score"
        until(settled(setup, kind.workers, traces, group), all_)
        produce(setup.bootstrap, traces, warm, partitions)
        until(lambda: counted(len(warm)), all_)
        time.sleep(1.5)  # commits and idle steps behind it
        if options.quota:
            for process in all_:
                limits.enter_context(cpu_group(process.pid, options.quota))
        if options.filled:
            for process in all_:
                os.kill(process.pid, signal.SIGSTOP)
            produce(setup.bootstrap, traces, lines, partitions)
        used, own = (sum(process.cpu for process in all_), sum(one.own_cpu for one in all_))
        before = ends(setup.bootstrap, changelog, partitions)
        busy = sum(process.busy for process in all_)
        begun = time.monotonic()
        if options.filled:
            for process in all_:
                os.kill(process.pid, signal.SIGCONT)
        else:
            produce(setup.bootstrap, traces, lines, partitions)
        left = max(1.0, options.seconds - (time.monotonic() - begun))
        with suppress(TimeoutError):
            until(lambda: counted(len(warm) + len(lines)), all_, left)
        count = max(1, done() - len(warm))
        wall = time.monotonic() - begun
        busy = (sum(process.busy for process in all_) - busy) / wall / kind.workers
        used = sum(process.cpu for process in all_) - used
        own = sum(process.own_cpu for process in all_) - own
        rows = ends(setup.bootstrap, changelog, partitions) - before
        return Run(wall / count, used / count, rows / count, count, own / count, busy)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=16_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--services", type=int, default=20)
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2, 4])
    parser.add_argument("--seconds", type=float, default=120.0, help="of a run, at most")
    parser.add_argument("--kinds", nargs="*", default=["noop buffered", "noop awaited", "worker"])
    parser.add_argument("--builtin", action="store_true", help="with the built-in scorers")
    parser.add_argument("--quota", type=float, help="cores of each process, by cgroup; as root")
    parser.add_argument("--filled", action="store_true", help="write all before the clock runs")
    parser.add_argument("--model", type=float, default=0.0, help="models.cpu_share; 0.2 as run")
    parser.add_argument("--profile", type=Path, help="write a profile of the (last) worker")
    options = parser.parse_args()
    kinds = [Kind(name, number) for number in options.workers for name in options.kinds]
    all_ = grown(WARM + options.messages, options.services, RATE, sizes=SIZES)
    warm, lines = all_[:WARM], all_[WARM:]
    size = sum(map(len, lines)) / len(lines)
    print(
        f"{len(lines)} traces of {size:.0f} bytes, {options.services} services,"
        f" {options.partitions} partitions, {options.rounds} rounds, median (min … max)\n"
    )
    found: dict[Kind, dict[int, Run]] = {kind: {} for kind in kinds}
    with (
        tempfile.TemporaryDirectory() as place,
        kafka_server(Path(place)) as server,
        ExitStack() as shares,
    ):
        if options.quota:
            for node in server.nodes:
                shares.enter_context(cpu_group(node.pid or 0))
        for number in range(options.rounds):
            for kind in kinds:
                name = f"b{number}-{re.sub('[ +]', '-', kind.name)}-{kind.workers}"
                setup = Setup(
                    server.bootstrap,
                    name,
                    options.partitions,
                    (
                        ("builtin_scorers", options.builtin),
                        ("models", {"cpu_share": options.model}),
                        ("scorers", {"processes": int(kind.name.partition("+")[2] or 0)}),
                    ),
                )
                where = Path(place)
                try:
                    one = run(kind, setup, where, lines, warm, options)
                except TimeoutError:
                    print(f"<!-- round {number} {kind}: no group, or not warm in time -->")
                    continue
                found[kind][number] = one
                print(
                    f"<!-- round {number} {kind}: {1 / one.wall:.0f} a second,"
                    f" {one.cpu * 1e6:.0f} us ({one.own * 1e6:.0f} without processes),"
                    f" {one.changelog:.2f} changelog, {one.messages} messages, busy {one.busy:.2f},"
                    f" {one.cpu / one.wall / kind.workers:.3f} cores each,"
                    f" load {os.getloadavg()[0]:.0f} -->",
                    flush=True,
                )
    print(_table({kind: runs for kind, runs in found.items() if runs}))


def _table(found: dict[Kind, dict[int, Run]]) -> str:
    """Of runs by round: a ratio is of two runs of the same round."""
    lines = [
        "| what, processes | messages/s | CPU µs a message | wall: ratio to no-op buffered, awaited"
        " | CPU: no-op buffered, awaited / this | changelog records a message | cores each"
        " | rate: ratio to one process |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for kind, rounds in found.items():
        runs = rounds.values()
        wall = [1 / one.wall for one in runs]
        cpu = [one.cpu * 1e6 for one in runs]
        cells = [str(kind), _span(wall), _span(cpu)]
        for field in ("wall", "cpu"):
            ratios = []
            for base in ("noop buffered", "noop awaited"):
                others = found.get(Kind(base, kind.workers), {})
                pairs = [
                    getattr(others[number], field) / getattr(one, field)
                    for number, one in rounds.items()
                    if number in others
                ]
                ratios.append(f"{statistics.median(pairs):.2f}" if pairs else "")
            cells.append(", ".join(ratios))
        cells.append(f"{statistics.median(one.changelog for one in runs):.3f}")
        cells.append(_span([one.cpu / one.wall / kind.workers for one in runs], 2))
        alone = found.get(Kind(kind.name, 1), {})
        times = [alone[n].wall / one.wall for n, one in rounds.items() if n in alone]
        cells.append(_span(times, 2) if times else "")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _span(values: list[float], digits: int = 0) -> str:
    middle, least, most = statistics.median(values), min(values), max(values)
    return f"{middle:.{digits}f} ({least:.{digits}f} … {most:.{digits}f})"


if __name__ == "__main__":
    main()
