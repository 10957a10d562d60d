"""River's drift detectors on given streams, run by whichever Python has river: no import of ours.

`python river_alarms.py IN.npz OUT.json`, see `main` for the two. ADWIN and Page-Hinkley see every
stream from its beginning, so that they know the baseline; KSWIN keeps a window of 100 and none.
"""

from __future__ import annotations

import json
import math
import sys
from functools import cache
from typing import Any

import numpy as np

__all__ = ["main"]

SEED = 1

FEW = 2
"""Streams without a swap that KSWIN sees: it is thirty times as slow as the others, even so."""

REFILL = 70
"""Of its window of 100 KSWIN keeps 30 at an alarm."""


def _one(make: Any, x: Any, skip: int, enough: float = math.inf) -> list[int]:
    """Alarms after `skip` samples, up to the first that comes after `enough`."""
    detector, out = make(), []
    update = detector.update
    for i, value in enumerate(x.tolist(), 1):
        update(value)
        if detector.drift_detected and i > skip:
            out.append(i)
            if i > enough:
                break
    return out


def _search(make: Any, null: Any, skip: int, allowed: float, low: float, high: float) -> float:
    """The lowest threshold with at most `allowed` alarms in all, to within 2 %."""
    while high > low * 1.02:
        middle = (low * high) ** 0.5
        count = 0
        for x in null:
            count += len(_one(make(middle), x, skip))
            if count > allowed:
                break
        low, high = (middle, high) if count > allowed else (low, middle)
    return high


def _remember_p_values(module: Any) -> None:
    """The p-value of equal sample sizes depends on the distance alone, a multiple of 1/30: river's
    1.8 ms per update go to computing the same few again and again. Same results, 60 times as fast.
    """
    exact = module.stats.ks_2samp

    @cache
    def known(n: int, steps: int) -> tuple[float, float]:
        # n values of which `steps` lie below all of the others: the distance is steps / n
        first = np.arange(n, dtype=float)
        found = exact(first, first + steps - 0.5 if steps else first, method="auto")
        return float(found[0]), float(found[1])

    def fast(a: Any, b: Any, method: str) -> tuple[float, float]:
        first, second = np.sort(a), np.sort(b)
        every = np.concatenate([first, second])
        below = np.searchsorted(first, every, "right") - np.searchsorted(second, every, "right")
        return known(len(a), int(abs(below).max()))

    class Stats:
        ks_2samp = staticmethod(fast)

    module.stats = Stats


def _kswin_level(never: Any, null: Any, allowed: float) -> float:
    """Its p-values take few values: the largest that keeps the promise, found in one pass without
    alarms, where after each the window would fill anew."""
    series = []
    for x in null:
        detector, seen = never(), []
        for value in x.tolist():
            detector.update(value)
            seen.append(detector.p_value if len(detector.window) == detector.window_size else 1.0)
        series.append(np.asarray(seen))
    best = 0.0
    for level in np.unique(np.concatenate(series)):
        count = 0
        for values in series:
            last = -REFILL
            for i in np.flatnonzero(values <= level).tolist():
                if i >= last + REFILL:
                    count, last = count + 1, i
        if count > allowed:
            break
        best = float(level)
    return best


def main(source: str, target: str) -> None:
    """IN: rows of streams `calibrate`, `null`, `swapped` and perhaps `elsewhere`; `baseline`, `at`
    (the swaps), `near` (where in `swapped` KSWIN begins), `allowed` (alarms in all of `calibrate`).
    OUT: detector -> threshold, and per set the alarms of each stream."""
    from river import drift  # type: ignore[import-not-found,unused-ignore]

    module = sys.modules["river.drift.kswin"]
    _remember_p_values(module)
    data = np.load(source)
    baseline, near, allowed = int(data["baseline"]), int(data["near"]), float(data["allowed"])
    sets = {name: data[name] for name in ("null", "elsewhere", "swapped") if name in data}
    out: dict[str, Any] = {}

    def run(name: str, make: Any, threshold: float, skip: dict[str, int], base: int) -> None:
        out[name] = {"threshold": threshold}
        for key, streams in sets.items():
            begin = skip[key]
            enough = data["at"] - begin if key == "swapped" else np.full(len(streams), np.inf)
            out[name][key] = [
                [begin + i for i in _one(make(threshold), x[begin:], base, until)]
                for x, until in zip(streams, enough.tolist(), strict=True)
            ]

    whole, few = dict.fromkeys(sets, 0), {"null": baseline, "elsewhere": baseline, "swapped": near}
    for name, delta in (("Page-Hinkley", 0.005), ("Page-Hinkley .05", 0.05)):

        def page_hinkley(h: float, delta: float = delta) -> Any:
            return lambda: drift.PageHinkley(threshold=h, delta=delta, mode="up")

        h = _search(page_hinkley, data["calibrate"], baseline, allowed, 0.1, 500.0)
        run(name, page_hinkley, h, whole, baseline)

    def adwin(h: float) -> Any:
        return lambda: drift.ADWIN(delta=10.0**-h)

    h = _search(adwin, data["calibrate"], baseline, allowed, 0.05, 12.0)
    run("ADWIN", adwin, h, whole, baseline)

    def kswin(level: float) -> Any:
        return lambda: drift.KSWIN(alpha=level, seed=SEED)

    few_null = data["calibrate"][:FEW, baseline:]
    sets = {name: x if name == "swapped" else x[:FEW] for name, x in sets.items()}
    level = _kswin_level(kswin(0.0), few_null, allowed * len(few_null) / len(data["calibrate"]))
    run("KSWIN", kswin, level, few, 0)
    with open(target, "w", encoding="utf-8") as file:
        json.dump(out, file)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
