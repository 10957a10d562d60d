"""What the benchmarks on a real Kafka share: traffic, topics, processes and what they used."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from ragmeter.config.loader import load_settings
from ragmeter.kafka.operator.administration import provision

from tests.ports import free_port

__all__ = [
    "START",
    "Process",
    "Setup",
    "committed",
    "counted_by",
    "cpu_group",
    "ends",
    "grown",
    "noop",
    "produce",
    "ready_after",
    "running",
    "settled",
    "until",
    "worker",
]

START = 1_760_000_000.0
EXAMPLE = Path(__file__).parent.parent / "examples" / "mtrag.jsonl"
_QUIET: dict[str, Any] = {"log_level": 0}
TICK = os.sysconf("SC_CLK_TCK")
_CPU_GROUPS = Path("/sys/fs/cgroup/cpu")
_PERIOD_US = 20_000  # short beside a batch and a heartbeat
_SHARES = 10_240  # of a process without a group: 1,024


@dataclass(frozen=True)
class Setup:
    """A set of topics of its own: `name` is prefix and group."""

    bootstrap: str
    name: str
    partitions: int = 8
    more: tuple[tuple[str, Any], ...] = ()

    @property
    def settings(self) -> dict[str, Any]:
        kafka = {
            "bootstrap_servers": [self.bootstrap],
            "group": self.name,
            "partitions": self.partitions,
            "topics": {"prefix": f"{self.name}."},
        }
        return {**dict(self.more), "kafka": kafka}

    def topic(self, kind: str) -> str:
        return f"{self.name}.{kind}"

    def make_topics(self) -> None:
        provision(load_settings(environ={}, overrides=self.settings))


def grown(
    count: int,
    services: int,
    rate: float,
    seed: int = 0,
    sizes: tuple[int, int] = (3_500, 6_500),
) -> list[bytes]:
    """`count` real traces of `sizes` bytes under new ids, `rate` a second of event time over all
    services, in turn."""
    least, most = sizes
    lines = [line for line in EXAMPLE.read_bytes().splitlines() if least <= len(line) <= most]
    out = []
    for number in range(count):
        trace = json.loads(lines[number % len(lines)])
        trace |= {
            "trace_id": f"t{seed}-{number}",
            "timestamp": START + number / rate,
            "service": f"service-{number % services}",
            "timings": {"total": 0.5 + number % 7, "retrieval": 0.1},
        }
        out.append(json.dumps(trace).encode())
    return out


def produce(bootstrap: str, topic: str, lines: Sequence[bytes], partitions: int) -> None:
    """In turn to all partitions, so that every worker has the same to do."""
    producer = Producer({**_QUIET, "bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5})
    for number, line in enumerate(lines):
        while True:
            try:
                producer.produce(topic, line, partition=number % partitions)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(60) == 0


def _asker(bootstrap: str, group: str) -> Consumer:
    return Consumer({**_QUIET, "bootstrap.servers": bootstrap, "group.id": group})


def committed(bootstrap: str, group: str, topic: str, partitions: int) -> int:
    """Messages of `topic` that `group` has committed."""
    asker = _asker(bootstrap, group)
    wanted = [TopicPartition(topic, number) for number in range(partitions)]
    found = asker.committed(wanted, timeout=20)
    asker.close()
    return sum(max(0, one.offset) for one in found)


def ends(bootstrap: str, topic: str, partitions: int) -> int:
    """Messages that were ever written to `topic`."""
    asker = _asker(bootstrap, "none")
    found = [
        asker.get_watermark_offsets(TopicPartition(topic, number), timeout=20)
        for number in range(partitions)
    ]
    asker.close()
    return sum(high for _, high in found)


def until(
    what: Callable[[], object],
    all_: Sequence[Process] = (),
    seconds: float = 120,
    every: float = 0.1,
) -> None:
    """Wait until `what()` is true, asked `every` so many seconds, while all of `all_` run."""
    end = time.monotonic() + seconds
    while not what():
        for process in all_:
            process.check()
        if time.monotonic() > end:
            raise TimeoutError("it did not come to that")
        time.sleep(every)


class Process:
    """One that runs beside; what it prints goes to `log`."""

    def __init__(self, command: Sequence[str], log: Path, port: int = 0) -> None:
        self.log = log
        self.port = port
        self._told = False
        with log.open("ab") as out:
            self._popen = subprocess.Popen([sys.executable, *command], stdout=out, stderr=out)

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def cpu(self) -> float:
        """Seconds of processor time so far, of all threads and of its scorer processes."""
        own = Path(f"/proc/{self._popen.pid}")
        children = [
            Path(f"/proc/{child}")
            for tasks in own.glob("task/*/children")
            for child in tasks.read_text().split()
        ]
        return self.own_cpu + sum(map(_cpu, children))

    @property
    def own_cpu(self) -> float:
        """Seconds of processor time so far, without its scorer processes."""
        return _cpu(Path(f"/proc/{self._popen.pid}"))

    @property
    def busy(self) -> float:
        """Seconds in which its main thread ran or waited for a core."""
        ran, waited, _ = Path(f"/proc/{self.pid}/task/{self.pid}/schedstat").read_text().split()
        return (int(ran) + int(waited)) / 1e9

    @property
    def megabytes(self) -> float:
        """Resident."""
        for line in Path(f"/proc/{self._popen.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024
        raise OSError("it has ended")

    def check(self) -> None:
        """Raises when it has ended by itself."""
        if self._popen.poll() is not None:
            raise RuntimeError(
                f"it has ended ({self._popen.returncode}): {self.log.read_text()[-2000:]}"
            )

    def end(self, seconds: float = 30) -> int:
        if self._popen.poll() is None:
            if not self._told:  # a second one would end a worker in the middle
                self._popen.terminate()
                self._told = True
            try:
                self._popen.wait(seconds)
            except subprocess.TimeoutExpired:
                self._popen.kill()
        return self._popen.wait()


def noop(setup: Setup, target: str, kind: str, log: Path) -> Process:
    source = setup.topic("traces")
    arguments = [setup.bootstrap, setup.name, source, target, kind]
    return Process(["-m", "benchmarks.kafka_noop", *arguments], log)


def _cpu(process: Path) -> float:
    fields = (process / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def worker(setup: Setup, folder: Path, number: int = 0, profile: Path | None = None) -> Process:
    port = free_port()
    config = folder / f"{setup.name}-{number}.json"
    config.write_text(json.dumps({**setup.settings, "http": {"metrics_port": port}}))
    command = ["-m", "ragmeter", "worker", "--config", str(config)]
    if profile is not None:
        command = ["-m", "cProfile", "-o", str(profile), *command]
    return Process(command, folder / f"{setup.name}-{number}.log", port)


@contextmanager
def cpu_group(pid: int, cores: float | None = None) -> Iterator[None]:
    """Give a process, and what it starts, a share before other work of the machine, and at most so
    many cores in each 20 ms. By a cgroup (version 1) of its own: as root."""
    group = _CPU_GROUPS / f"ragmeter-{pid}"
    group.mkdir()
    try:
        (group / "cpu.shares").write_text(str(_SHARES))
        if cores is not None:
            (group / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
            (group / "cpu.cfs_quota_us").write_text(str(int(cores * _PERIOD_US)))
        (group / "cgroup.procs").write_text(str(pid))
        yield
    finally:
        for one in (group / "cgroup.procs").read_text().split():
            with suppress(ProcessLookupError):  # it has just ended
                (_CPU_GROUPS / "cgroup.procs").write_text(one)
        group.rmdir()


def ready_after(process: Process) -> float:
    """Seconds from now until its readiness page says yes."""
    begun = time.monotonic()

    def ready() -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{process.port}/readyz", timeout=5):
                return True
        except OSError:
            return False

    until(ready, [process], 200)
    return time.monotonic() - begun


def counted_by(process: Process) -> float:
    """Traces that a worker has counted, of all services."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{process.port}/metrics", timeout=5) as page:
            text = page.read().decode()
    except OSError:
        return 0.0
    lines = [line for line in text.splitlines() if line.startswith("rag_traces_total")]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


@contextmanager
def running(*processes: Process) -> Iterator[None]:
    try:
        yield
    finally:
        with ThreadPoolExecutor() as threads:
            list(threads.map(Process.end, processes))


def settled(setup: Setup, members: int, topic: str, name: str | None = None) -> Callable[[], bool]:
    """Whether the group has so many members, and each partition of `topic` one of them."""
    name = name or setup.name
    admin = AdminClient({**_QUIET, "bootstrap.servers": setup.bootstrap})

    def look() -> bool:
        future = admin.describe_consumer_groups([name])[name]
        try:
            group = future.result()
        except KafkaException:  # its coordinator is being made
            return False
        owned = [
            one
            for member in group.members
            if member.assignment
            for one in member.assignment.topic_partitions
            if one.topic == topic
        ]
        return (
            group.state.name == "STABLE"
            and len(group.members) == members
            and len(owned) == setup.partitions
        )

    return look
