"""One budget of false discoveries: Benjamini and Hochberg (1995, J. R. Stat. Soc. B 57: 289).

All comparisons of a look are one family: each segment with its own past and with the rest, for
each metric. Segments of different tags overlap, segments of one tag are compared with rests that
hold each other, and metrics are of the same answers, so the p values depend on one another.
Benjamini and Yekutieli (2001, Ann. Stat. 29: 1165) hold under any dependence, for which they divide
the budget by 1 + 1/2 + ... + 1/m, 5 to 7 here. Benjamini and Hochberg are proven for independent
and for positively dependent p values only, so what they do with the dependence that there is here
is measured (benchmarks/segments.py): the budget holds, and twice as much is found.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["FDR", "q_values"]

FDR = 0.05
"""The expected share of false ones among the findings of a look. Not .1: a page that is left open
is looked at all day."""


def q_values(ps: Sequence[float]) -> list[float]:
    """The adjusted p values, in the order of `ps`: findings are those of at most the budget."""
    m = len(ps)
    found = [1.0] * m
    lowest = 1.0
    for rank, index in enumerate(sorted(range(m), key=lambda i: -ps[i])):
        lowest = min(lowest, ps[index] * m / (m - rank))
        found[index] = lowest
    return found
