"""Max-min fair division of one amount among several demands. Pure."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["divide"]


def divide(total: float, demands: Sequence[float]) -> list[float]:
    """What each demand gets: all of it up to a common level, which is as high as `total` allows.

    Water-filling (Bertsekas and Gallager, Data Networks, 6.5.2, for a single link): whoever asks
    for less than an equal part gets it all, and what it leaves is divided among the others. No
    demand can lower what another one below the level gets. O(n log n).
    """
    left = total
    given = [0.0] * len(demands)
    order = sorted(range(len(demands)), key=demands.__getitem__)
    for position, index in enumerate(order):
        level = left / (len(order) - position)
        given[index] = min(demands[index], level)
        left -= given[index]
    return given
