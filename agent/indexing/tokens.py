"""How many tokens chunks have: smallest, mean and largest exactly, quantiles within 1 %.

The cells are those of the latency histograms (`agent.windows.loghist`), which go from one to a
million when they count thousandths: any two of these can be added up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agent.windows.loghist import cell_of, cell_value

__all__ = ["Tokens"]

UNIT = 1000  # tokens: what the histogram takes for a second


@dataclass(slots=True)
class Tokens:
    """Of `number` chunks."""

    number: int = 0
    total: int = 0
    smallest: int = 0
    largest: int = 0
    cells: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, counts: Mapping[int, int]) -> Tokens:
        """From how many chunks have so many tokens."""
        new = cls()
        for tokens, number in counts.items():
            if number:
                cell = cell_of(tokens / UNIT)
                new.cells[cell] = new.cells.get(cell, 0) + number
        if new.cells:
            there = [tokens for tokens, number in counts.items() if number]
            new.smallest, new.largest = min(there), max(there)
            new.number = sum(counts.values())
            new.total = sum(tokens * number for tokens, number in counts.items())
        return new

    def add(self, other: Tokens) -> None:
        if not other.number:
            return
        self.smallest = min(self.smallest, other.smallest) if self.number else other.smallest
        self.largest = max(self.largest, other.largest)
        self.number += other.number
        self.total += other.total
        for cell, number in other.cells.items():
            self.cells[cell] = self.cells.get(cell, 0) + number

    @property
    def mean(self) -> float | None:
        return self.total / self.number if self.number else None

    def quantile(self, level: float) -> float | None:
        """The smallest number that so large a share of the chunks does not exceed."""
        if not self.number:
            return None
        rank = level * self.number * (1 - 1e-12)  # 0.95 of 20 is 19, though 0.95 is no binary
        passed = 0
        for cell in sorted(self.cells):
            passed += self.cells[cell]
            if passed >= rank:
                break
        return min(max(cell_value(cell) * UNIT, self.smallest), self.largest)

    def dump(self) -> list[Any]:
        """JSON-able."""
        cells = sorted(self.cells)
        counts = [self.cells[cell] for cell in cells]
        return [self.number, self.total, self.smallest, self.largest, cells, counts]

    @classmethod
    def load(cls, saved: list[Any]) -> Tokens:
        """The inverse of `dump`."""
        number, total, smallest, largest, cells, counts = saved
        return cls(number, total, smallest, largest, dict(zip(cells, counts, strict=True)))
