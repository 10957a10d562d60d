"""What workers show while all brokers are away: asked every second, from outside."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.chaos.kafka.pool import Pool
from tests.kafka_server import KafkaServer
from tests.samples import samples

__all__ = ["Watch", "watched"]

READY = "ragmeter_ready"
LINES = 100  # of the log of a worker, in an outage of any length and after it


@dataclass
class Watch:
    """`unready` seconds from the end of the last broker until a worker's `/readyz` says so, `ready`
    from the start of the first until it is ready again; `lines` of its log between."""

    unready: dict[str, float] = field(default_factory=dict)
    ready: dict[str, float] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    shown: set[float] = field(default_factory=set)
    counted: set[float] = field(default_factory=set)
    answers: int = 0

    def facts(self) -> list[str]:
        return [
            f"outage: {self.answers} pages were read meanwhile",
            *(f"  {name}: not ready after {s:.1f} s" for name, s in self.unready.items()),
            *(f"  {name}: ready {s:.1f} s after the broker" for name, s in self.ready.items()),
            *(f"  {name}: {count} lines of the log" for name, count in self.lines.items()),
        ]

    def wrong(self, workers: int) -> list[str]:
        found = []
        if len(self.unready) < workers:
            found.append(f"{len(self.unready)} of {workers} workers said that the brokers are away")
        if self.shown - {0.0}:
            found.append(f"{READY} was {self.shown} during the outage")
        if len(self.counted) > 1:
            found.append(f"the counts moved during the outage: {sorted(self.counted)}")
        found += [f"{name}: {n} lines" for name, n in self.lines.items() if n > LINES]
        return found


@contextmanager
def watched(pool: Pool, server: KafkaServer) -> Iterator[Watch]:
    """Ask the workers of `pool` until the block ends."""
    watch = Watch()
    done = threading.Event()
    thread = threading.Thread(target=_follow, args=(watch, pool, server, done), daemon=True)
    thread.start()
    try:
        yield watch
    finally:
        done.set()
        thread.join()


def _follow(watch: Watch, pool: Pool, server: KafkaServer, done: threading.Event) -> None:
    went = came = 0.0
    before: dict[str, int] = {}
    while not done.wait(1.0):
        up = any(node.pid is not None for node in server.nodes)
        now = time.monotonic()
        workers = dict(pool.workers)
        if not went and up:
            before = {name: worker.log.count("\n") for name, worker in workers.items()}
            continue
        went = went or now
        if up:
            came = came or now
        for name, worker in workers.items():
            ready = bool(worker.get("/readyz"))
            if up and ready and name not in watch.ready:
                watch.ready[name] = time.monotonic() - came
            if not up and not ready:
                watch.unready.setdefault(name, time.monotonic() - went)
            watch.lines[name] = worker.log.count("\n") - before.get(name, 0)
        if not up and len(watch.unready) == len(workers):
            pages = [samples(worker.exposition()) for worker in workers.values()]
            watch.answers += len(pages)
            watch.shown |= {page.get(READY, -1.0) for page in pages}
            traces = [v for p in pages for k, v in p.items() if k.startswith("rag_requests_total")]
            watch.counted.add(sum(traces))
