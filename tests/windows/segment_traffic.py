"""A day of traffic in real windows, in the last hour of which one segment is worse."""

from __future__ import annotations

import random
from functools import cache

from ragmeter.core.score import Score, ScoredTrace, ScoreState
from ragmeter.windows.windows import Windows

__all__ = ["NOW", "busy"]

NOW = 1_790_000_400.0  # the start of a bucket of every ring


@cache
def busy(
    drop: float = 0.0, seed: int = 1, few: int = 0, tag: str = "kind", version: str | None = None
) -> Windows:
    """4,000 traces of a day, then 1,000 of an hour in which `drop` of the good answers of `b` are
    lost. A tenth has no tag; `few` are of `c`; `version` is the
    scorer's. Made once: to be read only."""
    rng = random.Random(seed)
    windows = Windows()
    for n in range(5000):
        late = n >= 4000
        at = NOW - 3000 + (n - 4000) * 2.9 if late else NOW - 80_000 + n * 19
        kind = rng.choices(["a", "b", ""], [6, 3, 1])[0]
        good = rng.random() < 0.9 and not (late and kind == "b" and rng.random() < drop)
        if late and n - 4000 < few:
            kind = "c"
        scores = [
            Score("answered", "builtin", ScoreState.SCORED, float(good), fingerprint=version),
            Score("grounding", "builtin", ScoreState.SCORED, rng.betavariate(9, 2)),
        ]
        segments = [f"{tag}={kind}"] if kind else []
        windows.add(ScoredTrace(f"t{n}", "bot", at, "ok", scores), "bot", segments)
    windows.advance(NOW)
    return windows
