"""Drift detectors: what must hold, false alarms, and minutes to find a shift beside plain methods.

`python -m benchmarks.drift --seed N [--data DIR] [--parts abcde]` prints goals beside figures,
found through the shipped monitor and series (`drift_acceptance`); DIR, the development data, gives
real answers. `--nulls`, `--compare` and `--cost` print tables that the docs do not have: buckets of
a minute, one trace a second. The plain methods get the threshold that gives them one false alarm
in 30 days on independent traffic, found on that very traffic; ours has the threshold that follows
from the promise. ADWIN takes part where `river` is installed. Prints Markdown.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from pydantic import TypeAdapter
from ragmeter.core.metric_specs import MetricSpec
from ragmeter.core.score import Score, ScoredTrace, ScoreState
from ragmeter.metrics.builtin import PreparedTrace, score_builtin
from ragmeter.parts.drift.baseline import Baseline, BaselineLearner
from ragmeter.parts.drift.detectors import DriftStream, ScorePart
from ragmeter.parts.drift.monitor import DriftMonitor, DriftSettings
from ragmeter.parts.drift.series_monitors import SavedMonitor
from ragmeter.windows.windows import Windows

from benchmarks.drift_acceptance import (
    Case,
    counterexample,
    flapping,
    installation,
    speed,
    weekends,
)
from benchmarks.drift_acceptance import table as _table
from benchmarks.drift_streams import NULLS, SHIFTS, Minutes, null, shifted
from training.devdata import TASKS, rows, to_trace

__all__ = ["main"]

H = 30 * 86400.0
"""One false alarm in 30 days."""

EDGES = (6, 16, 32, 48, 58)
"""Of 64 cells of equal share: about the quantiles .1, .25, .5, .75 and .9."""

AFTER = 60
"""Minutes for which a plain method is not asked again after an alarm."""

Alarms = list[int]
Method = Callable[[Minutes, int, int, float], Alarms]
"""(minutes, baseline, levels, threshold) -> minutes of the alarms, counted from the start"""


def _learn(m: Minutes, learn: int, slots: int, edge: int | None = None) -> Baseline:
    learner = BaselineLearner(60)
    above = m.total if edge is None else m.cells[:, edge:].sum(1)
    squares = m.squares if edge is None else above
    rows = zip(m.n[:learn].tolist(), above[:learn].tolist(), squares[:learn].tolist(), strict=True)
    for i, (n, total, square) in enumerate(rows):
        if n:
            learner.add(i * 60.0, n, total, square)
    baseline = learner.freeze(1, slots)
    assert baseline is not None
    return baseline


def _run(
    stream: DriftStream, m: Minutes, learn: int, totals: np.ndarray, squares: np.ndarray, h: float
) -> Alarms:
    out = []
    rows = zip(totals[learn:].tolist(), squares[learn:].tolist(), strict=True)
    for i, (n, row) in enumerate(zip(m.n[learn:].tolist(), rows, strict=True), learn):
        parts = [[ScorePart(n, *sums)] for sums in zip(*row, strict=True)]
        if n and stream.add(i * 60.0, 60.0, parts) >= h:
            out.append(i)
            stream.restart()
    return out


def ours_mean(m: Minutes, learn: int, slots: int, h: float) -> Alarms:
    stream = DriftStream([_learn(m, learn, slots)])
    return _run(stream, m, learn, m.total[:, None], m.squares[:, None], h)


def ours_shares(m: Minutes, learn: int, slots: int, h: float) -> Alarms:
    baselines = [_learn(m, learn, slots, edge) for edge in EDGES]
    columns = np.stack([m.cells[:, edge:].sum(1) for edge in EDGES], 1)
    return _run(DriftStream(baselines, 1, True), m, learn, columns, columns, h)


def _roll(x: np.ndarray, k: int) -> np.ndarray:
    c = np.cumsum(np.concatenate([np.zeros((k, *x.shape[1:])), x]), 0)
    return np.asarray(c[k:] - c[:-k])


def _crossings(statistic: np.ndarray, learn: int, h: float) -> Alarms:
    out: Alarms = []
    for i in np.flatnonzero(statistic >= h).tolist():
        if i >= learn and (not out or i >= out[-1] + AFTER):
            out.append(i)
    return out


def _level(m: Minutes, learn: int) -> tuple[float, float]:
    n = m.n[:learn].sum()
    mean = m.total[:learn].sum() / n
    return float(mean), float(np.sqrt(m.squares[:learn].sum() / n - mean * mean))


def window_mean(m: Minutes, learn: int, slots: int, h: float) -> Alarms:
    """The mean of the last hour against the baseline's plus a margin."""
    mean, _ = _level(m, learn)
    return _crossings(_roll(m.total, 60) / np.maximum(_roll(m.n, 60), 1) - mean, learn, h)


def chart(m: Minutes, learn: int, slots: int, h: float) -> Alarms:
    """A Shewhart chart: a minute's mean so many standard errors off."""
    mean, sd = _level(m, learn)
    n = np.maximum(m.n, 1)
    return _crossings((m.total / n - mean) / (sd / np.sqrt(n)), learn, h)


def page_hinkley(m: Minutes, learn: int, slots: int, h: float) -> Alarms:
    """On the standardised minute means, allowance .25, against the baseline's mean."""
    mean, sd = _level(m, learn)
    n = np.maximum(m.n, 1)
    out, s = [], 0.0
    for i, z in enumerate(((m.total / n - mean) / (sd / np.sqrt(n)))[learn:].tolist(), learn):
        s = max(0.0, s + z - 0.25)
        if s >= h:
            out.append(i)
            s = 0.0
    return out


def ks(m: Minutes, learn: int, slots: int, h: float) -> Alarms:
    """Kolmogorov-Smirnov distance of the last 8 minutes (480 traces), every 5 minutes."""
    reference = np.cumsum(m.cells[:learn].sum(0)) / m.n[:learn].sum()
    window = _roll(m.cells, 8)
    share = np.cumsum(window, 1) / np.maximum(window.sum(1, keepdims=True), 1)
    statistic = np.abs(share - reference).max(1)
    statistic[np.arange(len(statistic)) % 5 != 0] = 0
    return _crossings(statistic, learn, h)


def psi(m: Minutes, learn: int, slots: int, h: float) -> Alarms:
    """Population stability index of the same windows over 8 bins of equal share."""
    bins = m.cells.reshape(len(m.n), 8, 8).sum(2)
    p = (bins[:learn].sum(0) + 0.5) / (m.n[:learn].sum() + 4)
    window = _roll(bins, 8)
    q = (window + 0.5) / (window.sum(1, keepdims=True) + 4)
    statistic = ((q - p) * np.log(q / p)).sum(1)
    statistic[np.arange(len(statistic)) % 5 != 0] = 0
    return _crossings(statistic, learn, h)


def adwin(m: Minutes, learn: int, slots: int, h: float) -> Alarms:
    """River's ADWIN on the minute means; the threshold is -log10(delta)."""
    from river.drift import ADWIN  # type: ignore[import-not-found,unused-ignore]

    detector, out = ADWIN(delta=10.0**-h, clock=1), []
    for i, x in enumerate((m.total / np.maximum(m.n, 1)).tolist()):
        detector.update(x)
        if detector.drift_detected and i >= learn:
            out.append(i)
    return out


PLAIN: dict[str, tuple[Method, float, float, bool]] = {
    "threshold on the mean of an hour": (window_mean, 0.0, 0.3, True),
    "control chart, a minute": (chart, 2.0, 60.0, True),
    "Page-Hinkley": (page_hinkley, 2.0, 5000.0, True),
    "KS, 480 traces": (ks, 0.0, 0.5, False),
    "PSI, 480 traces": (psi, 0.0, 2.0, False),
}
"""Method, range of thresholds, and whether it is for rates, too."""


def _river() -> bool:
    try:
        import river  # type: ignore[import-not-found,unused-ignore]  # noqa: F401
    except ImportError:
        return False
    return True


def _calibrate(
    method: Method, kinds: Sequence[str], low: float, high: float, runs: int, days: int
) -> float:
    """The lowest threshold with at most one alarm per 30 days on each kind of traffic."""
    for kind in kinds:
        streams = [null(kind, 100 + seed, days) for seed in range(runs)]
        top = high
        for _ in range(16):
            middle = (low + top) / 2
            alarms = sum(len(method(m, learn, slots, middle)) for m, learn, slots in streams)
            low, top = (middle, top) if alarms * 30 > runs * days else (low, middle)
        low = top
    return low


def _far(method: Method, kind: str, h: float, runs: int, days: int, swell: float = 0.0) -> float:
    """False alarms per 30 days."""
    alarms = 0
    for seed in range(runs):
        m, learn, slots = null(kind, 200 + seed, days, swell=swell)
        alarms += len(method(m, learn, slots, h))
    return alarms * 30 / (runs * days)


def _minutes(method: Method, shift: str, h: float, runs: int) -> tuple[float, float]:
    """(median minutes to the first alarm after the shift, share found within 12 hours)"""
    found = []
    for seed in range(runs):
        m, learn = shifted(shift, 300 + seed, 120, 720)
        late = [i - learn - 120 + 1 for i in method(m, learn, 1, h) if i >= learn + 120]
        found.append(late[0] if late else 10**6)
    return float(np.median(found)), float(np.mean(np.asarray(found) <= 720))


def nulls(runs: int) -> None:
    """Ours where nothing drifts: false alarms per 30 days, promised 1."""
    rows = []
    days = 15
    for kind in NULLS:
        null.cache_clear()  # some 16 MB each
        row = [kind]
        for swell in (0.0, 2.0):
            row.append(f"{_far(ours_mean, kind, H, runs, days, swell):.2f}")
            shares = kind.startswith("score")
            row.append(f"{_far(ours_shares, kind, H, runs, days, swell):.2f}" if shares else "")
        rows.append(row)
    print(f"False alarms per 30 days, {runs * days} days each\n")
    swells = ("traffic x 1/3 to x 3: mean", "traffic x 1/3 to x 3: shares")
    _table(["no drift", "mean", "shares", *swells], rows)


PEACE = {
    "rate": ("rate 5 %", "rate, bursts of 20"),
    "score": ("score", "score, AR(1) .6", "score, day and night"),
}
"""Traffic without drift, by what is measured; the first of each is independent."""


def compare(runs: int) -> None:
    """Minutes to find a shift: with thresholds for independent traffic, and what happens to those
    elsewhere; then with thresholds that keep the promise on all the traffic shown."""
    ours: list[tuple[str, Method, dict[str, float]]] = [
        ("**ours, mean**", ours_mean, {"rate": H, "score": H}),
        ("**ours, shares**", ours_shares, {"score": H}),
    ]
    plain = dict(PLAIN)
    if _river():
        plain["ADWIN (river)"] = (adwin, 0.3, 12.0, True)
    days, few = 15, max(2, runs // 3)
    kinds = [kind for group in PEACE.values() for kind in group]
    for every in (False, True):
        rows = []
        methods = list(ours)
        for name, (method, low, high, rates) in plain.items():
            found = {
                what: _calibrate(method, kinds if every else kinds[:1], low, high, few, days)
                for what, kinds in PEACE.items()
                if rates or what == "score"
            }
            methods.append((name, method, found))
        if not every:
            methods.append(("3 standard errors, a minute", chart, {"rate": 3.0, "score": 3.0}))
        for name, method, h in methods:
            print(name, file=sys.stderr, flush=True)
            row = [name]
            for shift, (kind, *_) in SHIFTS.items():
                if kind not in h:
                    row.append("")
                    continue
                median, share = _minutes(method, shift, h[kind], runs)
                row.append(f"{median:.0f}" if share > 0.5 else f"{share:.0%} found")
            for kind in kinds:
                threshold = h.get(kind.partition(" ")[0].strip(","))
                row.append(
                    "" if threshold is None else f"{_far(method, kind, threshold, few, days):.1f}"
                )
            rows.append(row)
        print(
            "Thresholds of the plain methods: one false alarm in 30 days on "
            + ("each kind of traffic shown\n" if every else "independent traffic\n")
        )
        _table(["method", *SHIFTS, *(f"FA {kind}" for kind in kinds)], rows)


def cost(rate: float, hours: float = 2.5) -> dict[str, float]:
    """Microseconds per trace of 20 metrics for what drift adds; learning and watching alike."""
    specs = {
        f"m{i}": MetricSpec(f"m{i}", "mean" if i % 2 else "ratio", "cheap", ("builtin",), *"abc")
        for i in range(20)
    }
    rng = np.random.default_rng(1)
    windows = Windows(specs=specs)
    monitor = DriftMonitor(DriftSettings(milestones=((3600, 1), (7200, 24))), specs)
    count, spent, observing = int(hours * 3600 * rate), 0.0, 0.0
    step = 10.0
    batch: list[ScoredTrace] = []
    due = 1_000_000_000.0
    for i in range(count):
        at = 999_999_990.0 + i / rate
        u = rng.random(20)
        results = [
            Score(f"m{k}", "builtin", ScoreState.SCORED, float(v if k % 2 else v < 0.95))
            for k, v in enumerate(u.tolist())
        ]
        one = ScoredTrace(f"t{i}", "bot", at, "ok", results, timings={"total": float(u[0]) + 0.1})
        windows.add(one, "bot")
        batch.append(one)
        if at >= due:
            due += step
            windows.advance(at)
            windows.bucket("bot", "", "m0", "builtin", 10, at - at % 10)  # folds: the windows' cost
            begun = time.process_time()
            monitor.observe(batch)
            looked = time.process_time()
            monitor.advance(at, windows)
            observing += looked - begun
            spent += time.process_time() - looked
            batch = []
    monitors = [one for of_service in monitor.monitors().values() for one in of_service]
    state = TypeAdapter(list[SavedMonitor]).dump_json(monitors)
    streams = len(monitor.ratios())
    return {
        "traces_per_second": rate,
        "observe_us_per_trace": observing / count * 1e6,
        "advance_us_per_trace": spent / count * 1e6,
        "streams": streams,
        "state_bytes_per_stream": len(state) / max(1, streams),
    }


def _pairs(folder: Path) -> dict[tuple[str, str], np.ndarray]:
    """(built-in grounding, people's verdict) of the answers of each task and model of RAGTruth."""
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for row in rows(folder, "grounding_ragtruth"):
        bad = row["labels"]["normalized"].get("hallucinated")
        if bad is None or not row["answer"].strip():
            continue
        for score in score_builtin(PreparedTrace(to_trace(row))):
            if score.metric == "grounding" and score.value is not None:
                key = TASKS[row["task"]], row["model"]
                found.setdefault(key, []).append((score.value, 1.0 - float(bad)))
    return {key: np.asarray(values) for key, values in found.items()}


def _drawn(seed: int, mean: float) -> np.ndarray:
    """Scores that people agree with as far as a fair coin of that weight can."""
    rng = np.random.default_rng(seed)
    y = rng.beta(mean * 6, (1 - mean) * 6, 4000)
    return np.stack([y, (rng.random(4000) < y) * 1.0], 1)


def accept(parts: str, seed: int, runs: int, data: Path | None) -> None:
    """Print the rows (a) to (e) of what must hold."""
    if "a" in parts:
        weekends(runs, seed)
    if "b" in parts:
        counterexample(max(1, runs // 4), seed)
    if "c" in parts:
        installation(4, 30, seed)
    if "d" in parts:
        cases: list[Case] = []
        old, new = "gpt-3.5-turbo-0613", "llama-2-70b-chat"
        if data is not None:
            pairs = _pairs(data)
            cases += [
                ("QA", pairs["QA", old], pairs["QA", new], 6, 0.1, 1.25, (15, 100)),
                (
                    *("Summary", pairs["Summary", old], pairs["Summary", "llama-2-7b-chat"]),
                    *(6, 0.1, 1.25, (15, 100)),
                ),
            ]
        cases.append(("one in 10 min", _drawn(1, 0.72), _drawn(2, 0.32), 0.1, 0.5, 8, (480, 960)))
        speed(cases, runs, seed)
    if "e" in parts:
        flapping(runs, seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("nulls", "compare", "cost"):
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--runs", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--parts", default="abcde", help="which rows of what must hold")
    options = parser.parse_args()
    if not (options.nulls or options.compare or options.cost):
        accept(options.parts, options.seed, options.runs, options.data)
    if options.nulls:
        nulls(options.runs)
    if options.compare:
        compare(options.runs)
    if options.cost:
        for rate in (0.2, 1.0, 10.0):
            print(json.dumps({k: round(v, 1) for k, v in cost(rate).items()}), flush=True)


if __name__ == "__main__":
    main()
