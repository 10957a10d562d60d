"""What goes wrong in a chaos run, and when: a function of the seed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

__all__ = ["Fault", "missed", "plan"]

Kind = Literal["kill", "term", "freeze", "join", "broker-kill", "broker-stop", "lose-node"]


AIMED = 0.7


@dataclass(frozen=True, slots=True)
class Fault:
    """`at`: the share of the traces that is counted by then; `victim` picks one of those that run;
    `down` seconds until what was ended is started again, or what was stopped goes on. `aimed`: at
    a worker that is ready, which is waited for; the others hit whatever there is, also workers
    that start, load or form a group."""

    at: float
    kind: Kind
    victim: float
    down: float
    aimed: bool


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
        found.append(Fault(at, kind, chance.random(), down, chance.random() < AIMED))
    if outage:
        found.append(Fault(0.4, "broker-stop", 0.0, outage, aimed=False))
    return sorted(found, key=lambda fault: fault.at)


def missed(planned: Iterable[Fault], done: Mapping[str, int]) -> list[str]:
    """A line for each kind that came less often than planned: such a run has not shown it."""
    wanted = Counter(fault.kind for fault in planned)
    return [
        f"{count} {kind} were planned, {done.get(kind, 0)} came"
        for kind, count in sorted(wanted.items())
        if done.get(kind, 0) < count
    ]
