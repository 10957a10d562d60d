"""What a chaos run is to do, and what it has come to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

__all__ = ["Plan", "Report"]


@dataclass(frozen=True, slots=True)
class Plan:
    """`look` seconds between two looks at what is exported (one costs a worker some 0.1 s); `rate`
    messages a second at most; `backlog` is the share of the traces that may wait; `patience`
    seconds without any progress end the run. `outage`: for so many seconds all brokers are away, in
    the middle of the traces, and no worker may end."""

    traces: int = 100_000
    seed: int = 1
    rate: float = 1000.0
    backlog: float = 0.04
    kills: int = 10
    terms: int = 3
    freezes: int = 1
    joins: int = 2
    broker_restarts: int = 3
    workers: int = 2
    partitions: int = 4
    in_flight: int = 64
    session: float = 10.0
    nodes: int = 1
    lose_node: bool = False
    mutant: str = ""
    patience: float = 150.0
    look: float = 10.0
    outage: float = 0.0


@dataclass
class Report:
    seconds: float = 0.0
    counted: float = 0.0
    facts: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        facts = "\n".join(f"  {fact}" for fact in self.facts)
        if not self.differences:
            return f"{facts}\nno differences"
        return f"{facts}\n{len(self.differences)} differences\n{_shown(self.differences)}"


def _shown(lines: Sequence[str], most: int = 40) -> str:
    shown = "\n".join(f"  {line}" for line in lines[:most])
    return shown + (f"\n  and {len(lines) - most} more" if len(lines) > most else "")
