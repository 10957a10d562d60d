"""What a chaos run of workers is to do."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Plan"]


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
