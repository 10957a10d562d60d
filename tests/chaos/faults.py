"""What goes wrong in a chaos run of either home, and when: a function of the seed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

__all__ = ["AIMED", "Fault", "by_time", "missed"]

AIMED = 0.7
"""Part of the kills that wait for a process which answers; the others hit whatever there is, also
one that starts, loads or forms a group."""


@dataclass(frozen=True, slots=True)
class Fault:
    """When it comes, what it is, and how many seconds it lasts; of what ends a process that is
    until the next start. What is `aimed` waits until there is a process that answers."""

    at: float
    kind: str
    lasts: float
    aimed: bool


def by_time(fault: Fault) -> float:
    return fault.at


def missed(planned: Iterable[Fault], done: Mapping[str, int]) -> list[str]:
    """A line for each kind that came less often than planned: such a run has not shown it."""
    wanted = Counter(fault.kind for fault in planned)
    return [
        f"{count} {kind} were planned, {done.get(kind, 0)} came"
        for kind, count in sorted(wanted.items())
        if done.get(kind, 0) < count
    ]
