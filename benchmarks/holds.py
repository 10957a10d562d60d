"""For how long the embedded agent holds its lock with hundreds of services, by what it does.

    python -m benchmarks.holds [--services 600] [--minutes 6] [--state FILE] [--against CHECKOUT]
        [--rounds 2] [--profile CAUSE]

Scrapes, pages and labels wait for that lock. First eight hours of traffic of one service are
counted by the agent, but for its scorers. All services get this state, with baselines as after two
weeks: FILE, which is made if it does not exist. An agent starts from a copy of it, counts some
more minutes in batches as live traffic has them, and is scraped every 15 seconds. Shown are the
longest hold of each cause and the sum of all, in milliseconds of CPU time of the thread that
holds it. With `--against`, the code of another checkout does the same in turn: the least of the
rounds is shown with the ratios, and whether both have saved the same state, row by row.
`--profile` prints where the time goes in the holds of one cause.
"""

from __future__ import annotations

import argparse
import cProfile
import hashlib
import json
import os
import pstats
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import ragmeter.embedded.worker
from prometheus_client import CollectorRegistry
from ragmeter.alerts.rule_sets import load_configured_rules
from ragmeter.config.loader import load_settings
from ragmeter.config.reporting import DriftDetectionSettings
from ragmeter.core.clocks import Clocks
from ragmeter.core.process import collect_rarely
from ragmeter.core.score import Score, ScoredTrace, ScoreState
from ragmeter.core.tiers import MetricScorer
from ragmeter.drift.baseline import HOUR, MINUTE
from ragmeter.embedded.agent import EmbeddedAgent
from ragmeter.metrics.registry import metric_specs
from ragmeter.scoring.scorer import Scorer, TraceScores
from ragmeter.store.rows import QueuedTrace
from ragmeter_exporters.prometheus import PrometheusExporter

__all__ = ["main", "measure", "prepare"]

HERE = Path(__file__).parent.parent
START = 1_760_000_400.0
LEARNED = 8 * HOUR
WEEK = 168  # hours, the levels of a baseline of two weeks
# Traces of a service in a minute: at the first, edges of distributions are laid within two hours.
FIRST_RATE, FIRST_HOURS, RATE = 5, 1.75, 1
SCRAPE_SECONDS = 15.0
BATCH_SECONDS = 5.0  # of live traffic; a batch has at most 512 traces
# The functions that hold the lock, and what they do there.
CAUSES = {
    "commit": "commit",
    "_process": "count, rules, drift",
    "_advance_time": "count, rules, drift",
    "take_snapshot": "scrape, first part",
    "read_each": "scrape, services",
}


class TimedLock:
    """A lock that notes for how long a thread computes while it holds it, by what for."""

    def __init__(self, profiled: str = "") -> None:
        self.longest: dict[str, float] = {}
        self.total: dict[str, float] = {}
        self.profile = cProfile.Profile()
        self._profiled = profiled
        self._depth = 0
        self._cause = ""
        self._since = 0.0

    def acquire(self) -> None:
        self._depth += 1
        if self._depth > 1:
            return
        frame: Any = sys._getframe(1)
        while frame and frame.f_code.co_name not in CAUSES:
            frame = frame.f_back
        self._cause = CAUSES[frame.f_code.co_name] if frame else "other"
        if self._cause == self._profiled:
            self.profile.enable()
        self._since = time.thread_time()

    def release(self) -> None:
        self._depth -= 1
        if self._depth:
            return
        held = time.thread_time() - self._since
        if self._cause == self._profiled:
            self.profile.disable()
        self.longest[self._cause] = max(held, self.longest.get(self._cause, 0.0))
        self.total[self._cause] = self.total.get(self._cause, 0.0) + held

    __enter__ = acquire

    def __exit__(self, *_: object) -> None:
        self.release()


def service_name(number: int) -> str:
    """Return the name of a service; they are equally long."""
    return f"service-{number:03d}"


class Traffic:
    """Scored traces of many services; what they are is a function of the event time alone."""

    def __init__(self, services: int) -> None:
        self._services = [service_name(number) for number in range(services)]
        scorer = Scorer()
        self._operational = self._kinds(scorer.cheap_pairs)
        self._builtin = self._kinds(scorer.builtin_pairs)
        self._seq = 0

    @staticmethod
    def _kinds(pairs: Sequence[MetricScorer]) -> list[tuple[str, float | None, float]]:
        """Return (name, share of ones or None, highest value) of each metric: no rule fires."""
        specs = [metric_specs()[name] for name, _ in pairs]
        shares = [0.98 if spec.good == "higher" else 0.02 for spec in specs]
        return [
            (spec.name, share if spec.kind == "ratio" else None, spec.high or 1000.0)
            for spec, share in zip(specs, shares, strict=True)
        ]

    def rows(
        self, begin: float, end: float, rate: int
    ) -> Iterator[tuple[QueuedTrace, TraceScores]]:
        """Yield the traces from a whole multiple of the batch on, in order of time."""
        rng = random.Random(begin)
        number = round(len(self._services) * rate * (end - begin) / MINUTE)
        first = round(len(self._services) * rate * begin / MINUTE)
        for at in range(number):
            service = self._services[(first + at) % len(self._services)]
            yield self._row(service, begin + (end - begin) * at / number, rng)

    def _row(self, service: str, at: float, rng: random.Random) -> tuple[QueuedTrace, TraceScores]:
        self._seq += 1
        name = f"{service}-{at:.4f}"
        body = {"trace_id": name, "service": service, "timestamp": at, "query": "How?"}
        body |= {"answer": "So [1].", "passages": [{"id": "p", "text": "So it is done."}]}
        failed = rng.random() < 0.004
        timings = {
            stage: rng.lognormvariate(0, 0.6) for stage in ("total", "retrieval", "generation")
        }
        summary = ScoredTrace(
            *(name, service, at, "error" if failed else "ok"),
            self._scores(self._operational, rng),
            timings=timings,
        )
        scores = TraceScores(
            *(summary, failed, False, self._scores(self._builtin, rng)),
            passages=("p",),
        )
        return QueuedTrace(self._seq, at, at, json.dumps(body).encode()), scores

    def _scores(
        self, kinds: list[tuple[str, float | None, float]], rng: random.Random
    ) -> list[Score]:
        return [
            Score(
                *(name, "builtin", ScoreState.SCORED),
                high * (0.5 + 0.5 * rng.random()) if share is None else float(rng.random() < share),
            )
            for name, share, high in kinds
        ]


class Bench:
    """An agent on a state file whose worker runs in this thread, at the time of the traffic."""

    def __init__(self, path: Path, services: int, profiled: str = "") -> None:
        files = {"path": str(path), "dead_letters": f"{path}.dead", "synchronous": "normal"}
        tree = {"state": files, "limits": {"services": services}}
        settings = load_settings(environ={}, overrides=tree)
        self.now = START
        # which traces people would be asked about is a matter of chance
        worker_module: Any = ragmeter.embedded.worker
        worker_module.Random = partial(random.Random, 1)
        rules = load_configured_rules(settings)
        clock = Clocks(lambda: self.now, lambda: self.now + time.thread_time())
        self.agent = EmbeddedAgent(settings, rules, clocks=clock)
        worker: Any = self.agent._worker
        self.worker = worker
        self.lock: Any = TimedLock(profiled)
        commits: Any = self.worker._commits
        for owner in (self.worker, self.worker.aggregator):
            owner.lock = self.lock
        commits._lock = self.lock
        self.exporter = PrometheusExporter(self.agent, registry=CollectorRegistry())
        self._traffic = Traffic(services)
        self._traffic._seq = self.worker._commits.upto

    def count(self, begin: float, end: float, rate: int, batch: float) -> None:
        """Count the traffic of an interval in batches of so many seconds."""
        for step in range(round((end - begin) / batch)):
            since = begin + step * batch
            rows = list(self._traffic.rows(since, since + batch, rate))
            self.now = since + batch
            if rows:
                self.worker._process_all(rows, self.worker.draws.terms)

    def count_silently(self, begin: float, end: float, rate: int) -> None:
        """Count the traffic of an interval, without the lock, and commit nothing."""
        self.worker.aggregator.pause = lambda: None
        for _, scores in self._traffic.rows(begin, end, rate):
            self.worker.state.count(self.worker.draws.draw(scores, self.worker.aggregator).trace)

    def close(self) -> None:
        self.agent._store.close()


def prepare(path: Path, services: int, hours: float = LEARNED / HOUR) -> None:
    """Write the state file after so many hours of traffic: that of one service, many times."""
    bench = Bench(path, 1)
    fast = START + min(hours, FIRST_HOURS) * HOUR
    bench.count_silently(START, fast, FIRST_RATE)
    bench.count_silently(fast, START + hours * HOUR, RATE)
    bench.worker._writes.last = True
    bench.worker._commits.commit(bench.worker.state)
    bench.close()
    names = [service_name(number) for number in range(services)]
    with sqlite3.connect(path) as db:
        for name in names[1:]:
            for table, rest in (
                ("buckets", "segment, width, start, data"),
                ("counters", "labels, value"),
            ):
                own = rest.replace("labels", f"replace(labels, '{names[0]}', '{name}')")
                where = {"buckets": "service=?", "counters": "instr(labels, ?)"}[table]
                first = f"'{name}'" if table == "buckets" else "name"
                db.execute(
                    f"INSERT INTO {table} SELECT {first}, {own} FROM {table} WHERE {where}",
                    (names[0],),
                )
        for key, value in db.execute("SELECT name, value FROM meta").fetchall():
            db.executemany("INSERT OR REPLACE INTO meta VALUES(?, ?)", _spread(key, value, names))
    db.close()


def _spread(key: str, value: str, names: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the parts of the saved state that all services have, of what one has."""
    kind, _, slot = key.partition(".")
    if not slot:
        yield key, json.dumps(_spread_names(json.loads(value), names))
        return
    if key == "drift.0":
        content = json.loads(value)
        for monitor in content["trackers"]:
            for series in monitor["series"].values():
                _widen(series)
        value = json.dumps(content)
        # as many as `drift.max_series` admits
        names = names[: DriftDetectionSettings().max_series // len(content["trackers"])]
    for number, name in enumerate(names):
        yield f"{kind}.{number}{slot.removeprefix('0')}", value.replace(names[0], name)


def _spread_names(content: Any, names: list[str]) -> Any:
    """Name all services where one is named."""
    if isinstance(content, list):
        return names if content == names[:1] else [_spread_names(one, names) for one in content]
    if not isinstance(content, dict):
        return content
    if names[0] in content:
        own = content[names[0]]
        return {name: n if own == 0 else own for n, name in enumerate(names)}  # slot 0
    return {name: _spread_names(one, names) for name, one in content.items()}


def _widen(series: dict[str, Any]) -> None:
    """Give a series levels of all hours of the week, and a month of learning for the next ones."""
    for learner in series["learners"]:
        sums = learner["cells"][-1][1:] if learner["cells"] else [60.0, 30.0]
        learner["cells"] = [[slot, *sums] for slot in range(WEEK)]
    for baseline in (series["stream"] or {"baselines": ()})["baselines"]:
        for field in ("levels", "errors"):
            own = baseline[field]
            baseline[field] = (own * WEEK)[:WEEK]


def measure(path: Path, services: int, minutes: float, profiled: str = "") -> dict[str, Any]:
    """CPU milliseconds of the longest hold and of all holds by cause, and a digest of the state."""
    bench = Bench(path, services, profiled)
    begin = bench.worker.aggregator.windows.now or START
    begin += BATCH_SECONDS - begin % BATCH_SECONDS
    collect_rarely()
    bench.count(begin, begin + MINUTE, RATE, BATCH_SECONDS)  # what a start makes anew
    bench.exporter.render()
    bench.lock.longest.clear()
    bench.lock.total.clear()
    for step in range(round(minutes * MINUTE / SCRAPE_SECONDS)):
        since = begin + MINUTE + step * SCRAPE_SECONDS
        bench.count(since, since + SCRAPE_SECONDS, RATE, BATCH_SECONDS)
        bench.exporter.render(openmetrics=True)
    longest, total = dict(bench.lock.longest), dict(bench.lock.total)
    bench.worker._writes.last = True  # as at the end: all that is left is written
    bench.worker._commits.commit(bench.worker.state)
    bench.close()
    if profiled:
        pstats.Stats(bench.lock.profile).sort_stats("cumulative").print_stats(40)
    return {
        "longest": {name: 1000 * held for name, held in sorted(longest.items())},
        "total": {name: 1000 * held for name, held in sorted(total.items())},
        "state": _digest(path),
    }


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with sqlite3.connect(path) as db:
        tables = [
            name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type='table'")
        ]
        for table in sorted(tables):
            for row in sorted(map(repr, db.execute(f'SELECT * FROM "{table}"'))):
                digest.update(row.encode())
    db.close()
    return digest.hexdigest()


def _measure_apart(checkout: Path, state: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Measure the code of a checkout in a process of its own, on a copy of the state."""
    with tempfile.TemporaryDirectory() as folder:
        copy = shutil.copy(state, Path(folder) / "state.sqlite")
        code = "import sys; from benchmarks import holds; holds.main()"
        command = [sys.executable, "-c", code, "--measure", str(copy)]
        command += ["--services", str(options.services), "--minutes", str(options.minutes)]
        # the benchmark is this one, what it measures is the checkout's
        path = f"{checkout}{os.pathsep}{HERE}"
        script = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "0"}
        with tempfile.TemporaryDirectory() as own:
            (Path(own) / "benchmarks").mkdir()
            for name in ("__init__.py", "holds.py"):
                shutil.copy(HERE / "benchmarks" / name, Path(own) / "benchmarks" / name)
            script["PYTHONPATH"] = f"{own}{os.pathsep}{checkout}"
            done = subprocess.run(command, cwd=own, env=script, check=True, capture_output=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--services", type=int, default=600)
    parser.add_argument("--minutes", type=float, default=6)
    parser.add_argument("--state", type=Path)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--profile", default="", choices=sorted(set(CAUSES.values())))
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure, options.services, options.minutes)))
        return
    with tempfile.TemporaryDirectory() as folder:
        state = options.state or Path(folder) / "state.sqlite"
        if not state.exists():
            prepare(state, options.services)
        if options.profile:
            copy = Path(shutil.copy(state, Path(folder) / "copy.sqlite"))
            measure(copy, options.services, options.minutes, options.profile)
            return
        sides = {
            "this": HERE,
            **({"against": options.against.resolve()} if options.against else {}),
        }
        found: dict[str, list[dict[str, Any]]] = {name: [] for name in sides}
        for _ in range(options.rounds):
            for name, checkout in sides.items():
                found[name].append(_measure_apart(checkout, state, options))
    _report(found)


def _report(found: dict[str, list[dict[str, Any]]]) -> None:
    for kind in ("longest", "total"):
        print(f"{kind:20}" + "".join(f"{name + ' ms':>14}" for name in found))
        for cause in found["this"][0][kind]:
            least = [min(one[kind].get(cause, 0.0) for one in runs) for runs in found.values()]
            ratio = f"{least[-1] / least[0]:10.2f} times" if len(least) > 1 else ""
            print(f"  {cause:18}" + "".join(f"{value:14.1f}" for value in least) + ratio)
    states = {one["state"] for runs in found.values() for one in runs}
    print("all have saved the same state" if len(states) == 1 else "THE SAVED STATES DIFFER")


if __name__ == "__main__":
    main()
