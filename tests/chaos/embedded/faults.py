"""What goes wrong in a chaos run, and when: a function of the seed."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, get_args

from tests.chaos import faults
from tests.chaos.faults import AIMED, by_time

__all__ = ["JUDGE", "KINDS", "Fault", "Kind", "lane_of", "plan", "suffered"]

Kind = Literal[
    "kill",
    "term",
    "freeze",
    "judge-hang",
    "judge-limit",
    "judge-lie",
    "judge-garbage",
    "judge-down",
    "disk-full",
    "disk-error",
    "clock",
    "overload",
]
KINDS: tuple[Kind, ...] = get_args(Kind)

EVERY: dict[Kind, float] = {
    "kill": 20,
    "term": 120,
    "freeze": 150,
    "judge-hang": 100,
    "judge-limit": 100,
    "judge-lie": 200,
    "judge-garbage": 100,
    "judge-down": 150,
    "disk-full": 100,
    "disk-error": 100,
    "clock": 40,
    "overload": 75,
}
"""Seconds of a run for one of each: together one every five seconds, so that several overlap."""

LASTS: dict[Kind, tuple[float, float]] = {
    "kill": (0, 3),
    "term": (0, 3),
    "freeze": (2, 12),
    "judge-hang": (5, 25),
    "judge-limit": (5, 20),
    "judge-lie": (5, 20),
    "judge-garbage": (5, 20),
    "judge-down": (5, 25),
    "disk-full": (4, 15),
    "disk-error": (2, 10),
    "clock": (5, 40),
    "overload": (8, 16),
}
"""Least and most seconds, in a run of a minute or more. Of a kill: until the next start."""

JUDGE: dict[Kind, dict[str, float]] = {
    "judge-hang": {"hang": 0.7},
    "judge-limit": {"rate_limit": 0.8},
    "judge-lie": {"wrong": 1.0},
    "judge-garbage": {"malformed": 0.7},
    "judge-down": {"http_500": 0.5, "disconnect": 0.5},
}
"""The stub's shares of requests. Not all of a kind but the lies: where a breaker opens at once,
nothing is asked while the fault lasts."""

JUMP = 3600.0
"""Seconds the clock jumps at most. Whoever starts under a clock that is ahead takes event time
along; within the 24 h window that moves no trace out."""

ENDS = 0.9
"""Part of the run by which all has ended, so that the end begins in peace."""


@dataclass(frozen=True, slots=True)
class Fault(faults.Fault):
    """`at` seconds of the run. `size` is in [-1, 1]: of a clock's jump."""

    kind: Kind
    size: float


def plan(seed: int, seconds: float) -> list[Fault]:
    """Each kind at least once. Those of one lane do not overlap."""
    chance = random.Random(f"faults {seed}")
    end = ENDS * seconds
    lanes: dict[str, list[Fault]] = {}
    for kind in KINDS:
        lane = lane_of(kind)
        for _ in range(max(1, round(seconds / EVERY[kind]))):
            least, most = (min(limit, seconds / 12) for limit in LASTS[kind])
            size = chance.choice((-1, 1)) * chance.uniform(0.005, 1)
            lasts = chance.uniform(least, most)
            aimed = kind == "term" or (kind == "kill" and chance.random() < AIMED)
            lanes.setdefault(lane, []).append(Fault(0.0, kind, lasts, aimed, size))
    return sorted(
        (one for lane in lanes.values() for one in _placed(lane, end, chance)), key=by_time
    )


def suffered(kinds: Iterable[Kind]) -> dict[str, float]:
    """What a judge suffers from while these last, by the shares of requests. A lie is for what is
    left of the others."""
    found = {name: share for kind in kinds for name, share in JUDGE.get(kind, {}).items()}
    return dict(sorted(found.items(), key=lambda pair: pair[0] == "wrong"))


def lane_of(kind: Kind) -> str:
    """What overlaps nothing of its own lane. A liar meets no overload: what it has said counts by
    its share of all that was said, and the traces of an overload weigh more than others."""
    if kind == "judge-lie":
        return "overload"
    return "judge" if kind in JUDGE else kind


def _placed(lane: list[Fault], end: float, chance: random.Random) -> list[Fault]:
    """One after the other with gaps by chance in between; shortened where there is no room."""
    chance.shuffle(lane)
    busy = sum(fault.lasts for fault in lane)
    shrink = min(1.0, 0.8 * end / busy) if busy else 1.0
    free = end - shrink * busy
    cuts = sorted(chance.uniform(0, free) for _ in lane)
    placed = []
    passed = 0.0
    for cut, fault in zip(cuts, lane, strict=True):
        lasts = shrink * fault.lasts
        placed.append(replace(fault, at=cut + passed, lasts=lasts))
        passed += lasts
    return placed
