"""What the windows cost: per trace, per scrape, per row written, and the memory of a full day.

Run with `python -m benchmarks.windows [--seconds-per-trace N]`; prints one JSON object. Times are
process CPU time, best of three where a run is short; memory is what tracemalloc counts.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import time
import tracemalloc
from collections.abc import Callable, Sequence
from functools import partial

from ragmeter.core.metric_specs import MetricSpec
from ragmeter.core.score import Score, ScoredTrace, ScoreState
from ragmeter.windows.windows import Windows

__all__ = ["main"]

MEANS = ("relevance", "grounding", "precision", "recall", "f1", "indicators")
COUNTS = ("input_tokens", "output_tokens", "cost_usd")
GOOD = ("answered", "presence")
BAD = ("fabricated", "error", "timeout", "empty")
METRICS = (*MEANS, *COUNTS, *GOOD, *BAD, "spare")
STAGES = ("total", "retrieval", "generation")
START = 1_000_000_200.0


def _spec(name: str) -> MetricSpec:
    if name in COUNTS:
        return MetricSpec(name, "mean", "cheap", ("builtin",), "", "", "", high=None, good=None)
    kind, good = ("ratio", "lower") if name in BAD else ("mean", "higher")
    if name in GOOD:
        kind = "ratio"
    return MetricSpec(name, kind, "cheap", ("builtin",), "", "", "", good=good)  # type: ignore[arg-type]


SPECS = {name: _spec(name) for name in METRICS}


def _value(name: str, rng: random.Random) -> float:
    if name in COUNTS:
        return rng.randrange(50, 4000) * (1e-6 if name == "cost_usd" else 1.0)
    if name in BAD:
        return float(rng.random() < 0.03)
    return float(rng.random() < 0.9) if name in GOOD else rng.betavariate(8, 2)


def make_traces(
    number: int, step: float, services: int = 1, probability: float = 1.0
) -> list[ScoredTrace]:
    """`number` traces, `step` seconds of event time apart, all 16 metrics and 3 stages each."""
    rng = random.Random(7)
    return [
        ScoredTrace(
            f"trace-{i:08d}",
            f"service-{i % services}",
            START + i * step,
            "ok",
            [
                Score(name, "builtin", ScoreState.SCORED, _value(name, rng), None, probability)
                for name in METRICS
            ],
            probability,
            {stage: rng.lognormvariate(0, 0.5) for stage in STAGES},
        )
        for i in range(number)
    ]


def _cpu(call: Callable[[], object]) -> float:
    gc.collect()
    start = time.process_time()
    call()
    return time.process_time() - start


def _fill(windows: Windows, traces: Sequence[ScoredTrace], segments: Sequence[str] = ()) -> None:
    for trace in traces:
        windows.advance(trace.timestamp)
        windows.add(trace, trace.service, segments)
    windows.services()


def cost_per_trace() -> dict[str, float]:
    """Microseconds per trace, folding included."""
    cases: dict[str, tuple[list[ScoredTrace], tuple[str, ...]]] = {
        "one service, 100 a second": (make_traces(20_000, 0.01), ()),
        "one service, 10 a second": (make_traces(20_000, 0.1), ()),
        "the same, upstream sampling 0.1": (make_traces(20_000, 0.1, 1, 0.1), ()),
        "the same, two segments": (make_traces(20_000, 0.1), ("model=a", "tenant=b")),
        "50 services, 50 a second": (make_traces(20_000, 0.02, 50), ()),
        "every trace alone in its bucket": (make_traces(5_000, 11.0), ()),
    }
    out = {}
    for name, (traces, segments) in cases.items():
        fill = partial(_fill, traces=traces, segments=segments)
        best = min(_cpu(partial(fill, Windows(specs=SPECS))) for _ in range(3))
        out[name] = round(best / len(traces) * 1e6, 1)
    return out


def _scrape(windows: Windows) -> int:
    count = 0
    for service in windows.services():
        for metric, scorer in windows.series(service):
            for window in windows.names:
                count += windows.estimate(service, "", metric, scorer, window) is not None
                windows.states(service, "", metric, scorer, window)
        for stage in windows.stages(service):
            for window in windows.names:
                windows.quantiles(service, "", stage, window)
    return count


def cost_of_a_scrape() -> dict[str, float]:
    """Milliseconds for all estimates, states and quantiles of 50 services."""
    windows = Windows(specs=SPECS)
    traces = make_traces(20_000, 0.015, 50)
    _fill(windows, traces[:-50])
    cold = _cpu(lambda: _scrape(windows))
    warm = _cpu(lambda: _scrape(windows))
    windows.drain()
    _fill(windows, traces[-50:])
    rows = len(windows.drain())
    changed = _cpu(lambda: _scrape(windows))
    _fill(windows, make_traces(20_050, 0.015, 50)[-50:])
    drain = _cpu(windows.drain)
    return {
        "estimates": _scrape(windows),
        "first ms": round(cold * 1e3, 1),
        "every total changed ms": round(changed * 1e3, 1),
        "nothing changed ms": round(warm * 1e3, 1),
        "drain rows": rows,
        "drain us per row": round(drain / rows * 1e6, 1),
    }


def memory_of_a_day(step: float) -> dict[str, float]:
    """One service with traffic in every bucket of a whole day, then an hour more."""
    number = int(90_000 / step)
    block = make_traces(10_000, step)
    gc.collect()
    tracemalloc.start()
    base = tracemalloc.get_traced_memory()[0]
    windows = Windows(specs=SPECS)
    sizes = {}
    for i in range(number):
        trace = block[i % len(block)]
        trace = trace._replace(timestamp=START + i * step, trace_id=f"trace-{i:08d}")
        windows.add(trace, "service-0")
        if not i % 512:
            windows.services()  # fold before the block's traces are used again
        if i in (number - 1, int(86_400 / step)):
            windows.services()
            gc.collect()
            sizes["after 25 h" if i == number - 1 else "after 24 h"] = (
                tracemalloc.get_traced_memory()[0] - base
            )
    tracemalloc.stop()
    rows = windows.drain()
    data = [row[4] or b"" for row in rows]
    loaded = Windows(specs=SPECS)
    return {
        "traces": number,
        **{f"kB {name}": round(size / 1024) for name, size in sizes.items()},
        "kB per metric": round(sizes["after 25 h"] / 1024 / len(METRICS), 1),
        "rows": len(rows),
        "kB of rows": round(sum(map(len, data)) / 1024),
        "load ms": round(_cpu(lambda: loaded.load(rows)) * 1e3, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds-per-trace", type=float, default=1.0)
    step = parser.parse_args().seconds_per_trace
    result = {
        "us per trace of 16 metrics and 3 stages": cost_per_trace(),
        "scrape of 50 services": cost_of_a_scrape(),
        f"memory of one service, a trace every {step:g} s": memory_of_a_day(step),
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
