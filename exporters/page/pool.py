"""Fewer, better known points for a sparkline of little traffic.

A minute with two traces says nothing, and sixty such minutes draw noise. Neighbours are pooled
until each point has enough traces.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import sqrt
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from agent.windows import Estimate

__all__ = ["pooled"]

Z = 1.959963984540054
ENOUGH = 20  # traces of a point, on average: a share is then known to some 20 points either way
LEAST = 12  # points; with fewer there is no course to see

Point = tuple[float, "Estimate | None"]


def pooled(points: Sequence[Point], kind: Literal["mean", "ratio"]) -> list[Point]:
    """Groups of equally many neighbours, as few as give `ENOUGH` traces a group on average.

    A group's value is the mean of its parts, weighted by effective samples. Its interval: for a
    ratio Wilson's, on the sum of effective samples; for a mean from the variances that the parts'
    intervals imply, ((upper - lower) / 2z)^2, which errs on the wide side as those were
    t intervals.
    """
    samples = sum(found.samples for _, found in points if found is not None)
    if not samples:
        return list(points)
    wanted = max(LEAST, min(len(points), samples // ENOUGH))
    size = max(1, -(-len(points) // wanted))
    if size == 1:
        return list(points)
    groups = []
    # Counted from the end, so that the newest group is whole.
    for end in range(len(points), 0, -size):
        part = points[max(0, end - size) : end]
        groups.append((part[-1][0], _pool([found for _, found in part if found], kind)))
    return groups[::-1]


def _pool(parts: Sequence[Estimate], kind: str) -> Estimate | None:
    if len(parts) < 2:
        return parts[0] if parts else None
    weights = [part.effective_samples for part in parts]
    n = sum(weights)
    value = sum(w * part.value for w, part in zip(weights, parts, strict=True)) / n
    if kind == "ratio":
        lower, upper = _wilson(value, n)
    else:
        halves = [(part.upper - part.lower) / 2 for part in parts]
        half = sqrt(sum((w * h) ** 2 for w, h in zip(weights, halves, strict=True))) / n
        lower = max(value - half, min(part.lower for part in parts))
        upper = min(value + half, max(part.upper for part in parts))
    samples = sum(part.samples for part in parts)
    return replace(
        parts[-1], value=value, lower=lower, upper=upper, effective_samples=n, samples=samples
    )


def _wilson(p: float, n: float) -> tuple[float, float]:
    """Wilson 1927, "Probable inference, the law of succession, and statistical inference"."""
    middle = (p + Z * Z / (2 * n)) / (1 + Z * Z / n)
    half = Z / (1 + Z * Z / n) * sqrt(p * (1 - p) / n + Z * Z / (4 * n * n))
    return max(0.0, middle - half), min(1.0, middle + half)
