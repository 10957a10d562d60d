"""What a chaos run is to do."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Plan"]

LEAST = 10.0  # a calm beginning, and a first fault


@dataclass(frozen=True, slots=True)
class Plan:
    """`seconds` of faults; healing and comparing come on top. `rate` is of traces a second in calm,
    all ways in together, `overload` times as many in an overload, and `judged` the share that is
    drawn for the judge in calm. `memory_mb` is what the chart gives the agent; `patience` seconds
    without any progress end the healing."""

    seed: int = 1
    seconds: float = 600.0
    rate: float = 20.0
    overload: float = 10.0
    judged: float = 0.3
    memory_mb: int = 768
    patience: float = 180.0

    def __post_init__(self) -> None:
        if self.seconds < LEAST:
            raise ValueError(f"{self.seconds:g} s of faults: with less than {LEAST:g} none comes")
        if self.overload <= 1:
            raise ValueError(f"an overload of {self.overload:g} times the calm rate is none")
