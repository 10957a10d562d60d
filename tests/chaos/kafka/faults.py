"""What goes wrong in a chaos run, and when: a function of the seed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

from tests.chaos import faults
from tests.chaos.faults import AIMED, by_time

__all__ = ["Fault", "plan"]

Kind = Literal["kill", "term", "freeze", "join", "broker-kill", "broker-stop", "lose-node"]


@dataclass(frozen=True, slots=True)
class Fault(faults.Fault):
    """`at`: the share of the traces that is counted by then; `victim` picks one of those that
    run."""

    kind: Kind
    victim: float


def plan(
    seed: int,
    *,
    kills: int,
    terms: int,
    freezes: int,
    joins: int,
    broker_restarts: int,
    session: float,
    lose_node: bool = False,
    outage: float = 0.0,
) -> list[Fault]:
    """Kills are SIGKILL, terms SIGTERM. A frozen worker sleeps for longer than its session, so that
    it wakes up as a zombie: its partitions are somebody else's by then."""
    chance = random.Random(f"faults {seed}")
    kinds: list[Kind] = ["kill"] * kills
    kinds += ["term"] * terms
    kinds += ["freeze"] * freezes
    kinds += ["join"] * joins
    kinds += [chance.choice(("broker-kill", "broker-stop")) for _ in range(broker_restarts)]
    kinds += ["lose-node"] * lose_node
    chance.shuffle(kinds)
    times = sorted(chance.uniform(0.05, 0.95) for _ in kinds)
    found = []
    for at, kind in zip(times, kinds, strict=True):
        if kind == "freeze":
            down = session * chance.uniform(1.2, 2.0)
        elif kind.startswith("broker"):
            down = chance.uniform(0.0, 8.0)
        else:
            down = chance.uniform(0.0, 1.5 * session)
        victim = chance.random()
        found.append(Fault(at, kind, down, chance.random() < AIMED, victim))
    if outage:
        found.append(Fault(0.4, "broker-stop", outage, aimed=False, victim=0.0))
    return sorted(found, key=by_time)
