"""What a scored trace of 20 metrics costs in windows, estimates and drift detectors, on one core.

`python -m benchmarks.per_trace [--traces N] [--rates 0.2 1 10 100]`. One service through the
aggregate half as the agent runs it: at each rate three hours of traffic untimed (baselines of one
hour, so that every detector is on), then what is timed. All series and windows are estimated once a
minute. Microseconds of processor time per trace, and as a ratio to decoding the JSON of such
a trace (2 kB) in the same run, for a machine that is busy is slower at both. Prints Markdown.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from ragmeter.aggregate.aggregator import Aggregator
from ragmeter.config.loader import load_settings
from ragmeter.core.score import Score, ScoredTrace, ScoreState
from ragmeter.drift.baseline import HOUR
from ragmeter.metrics.registry import metric_specs

__all__ = ["cost", "main"]

BEGIN = 1_760_000_400.0
METRICS_USED = 20
WARM = 3 * HOUR


def _names() -> list[str]:
    names = [name for name, spec in metric_specs().items() if "builtin" in spec.scorers]
    names += [f"precision_at_k:{k}" for k in (1, 3, 5, 10, 20)]
    assert len(names) == METRICS_USED
    return names


def traffic(rate: float, begin: float, end: float, seed: int = 1) -> Iterator[ScoredTrace]:
    """Traces at `rate` a second, `begin` to `end` in seconds."""
    rng = random.Random(seed)
    names = _names()
    ratio = [metric_specs()[name.partition(":")[0]].kind == "ratio" for name in names]
    for n in range(int(begin * rate), int(end * rate)):
        results = [
            Score(
                name,
                "builtin",
                ScoreState.SCORED,
                float(rng.random() < 0.95) if r else rng.random(),
            )
            for name, r in zip(names, ratio, strict=True)
        ]
        timings = {"total": rng.lognormvariate(0, 0.5)}
        yield ScoredTrace(f"t{n}", "bot", BEGIN + n / rate, "ok", results, timings=timings)


def _decode(count: int) -> float:
    """Microseconds to decode the JSON of a trace."""
    passages = [{"id": f"p{i}", "text": "Click on Forgot password. " * 12} for i in range(5)]
    trace = {"trace_id": "t1", "service": "bot", "timestamp": BEGIN, "query": "How? " * 10,
             "answer": "Click Forgot password [1]. " * 8, "passages": passages}  # fmt: skip
    text = json.dumps(trace)
    begun = time.process_time()
    for _ in range(count):
        json.loads(text)
    return (time.process_time() - begun) / count * 1e6


def _bare(one: Aggregator) -> None:
    """Leave out what is neither windows nor estimates nor detectors: counters, objectives, and what
    the draws are told of the traffic."""
    nothing: Any = lambda *_: None  # noqa: E731
    one._count_later = nothing  # type: ignore[method-assign]
    one._learner.observe = nothing  # type: ignore[method-assign]


def cost(rate: float, traces: int, bare: bool = True) -> dict[str, float]:
    """Microseconds per trace, by part; with `bare` of these parts alone."""
    one = Aggregator(load_settings(environ={}, overrides={}), [], [])
    if bare:
        _bare(one)
    monitor = one.drift.monitor
    monitor.settings = replace(monitor.settings, milestones=((float(HOUR), 1),))
    # a million traces at 100 a second would teach nothing that those at 10 do not
    for scored in traffic(min(rate, 10.0), 0, WARM):
        one.apply(scored)
    timed = list(traffic(rate, WARM, WARM + traces / rate, 2))
    watch = one.drift
    spent = {"estimates": 0.0, "detectors": 0.0, "all": 0.0}
    advance, observe = watch.advance, watch.observe

    def timed_advance(until: float) -> list[object]:
        begun = time.process_time()
        found = advance(until)
        spent["detectors"] += time.process_time() - begun
        return found  # type: ignore[return-value]

    def timed_observe(traces: Sequence[ScoredTrace]) -> None:
        begun = time.process_time()
        observe(traces)
        spent["detectors"] += time.process_time() - begun

    watch.advance, watch.observe = timed_advance, timed_observe  # type: ignore[method-assign,assignment]
    minute = 0.0
    gc.collect()
    begun = time.process_time()
    for scored in timed:
        one.apply(scored)
        if scored.timestamp >= minute + 60:
            minute = scored.timestamp
            looked = time.process_time()
            for metric, scorer in one.windows.series("bot"):
                for name in one.windows.names:
                    one.windows.estimate("bot", "", metric, scorer, name)
            spent["estimates"] += time.process_time() - looked
    one.settle()
    spent["all"] = time.process_time() - begun
    per = {name: seconds / len(timed) * 1e6 for name, seconds in spent.items()}
    return {
        "traces_per_second": rate,
        "all_us": per["all"],
        "windows_us": per["all"] - per["estimates"] - per["detectors"],
        "estimates_us": per["estimates"],
        "detectors_us": per["detectors"],
        "detectors": float(len(watch.gauges())),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=int, default=6_000)
    parser.add_argument("--rates", type=float, nargs="*", default=[0.2, 1.0, 10.0, 100.0])
    options = parser.parse_args()
    print(
        "| traces a second | all, us | windows | estimates | detectors | of them | x JSON decode"
        " | with counters and objectives |"
    )
    print("|" + " ---: |" * 8)
    for rate in options.rates:
        number = max(options.traces, int(600 * rate))
        found = cost(rate, number)
        ratio = found["all_us"] / _decode(3_000)
        cells = [f"{rate:g}", *(f"{found[k]:.0f}" for k in list(found)[1:]), f"{ratio:.1f}"]
        cells.append(f"{cost(rate, number, bare=False)['all_us']:.0f}")
        print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
