"""Rankings of yes and no: of each passage, in rank order, 1, 0, or the `Gap` why it isn't known.

A gap takes away what it could change, and only that, as in `agent.metrics.ranking`.
"""

from __future__ import annotations

from collections.abc import Sequence

from agent.metrics.results import Gap, prevailing

__all__ = ["Hits", "any_hit", "reciprocal_rank_at", "share"]

Hits = Sequence[float | Gap]

_NONE = Gap("no_passages", applies=False)


def _unknown(hits: Hits) -> Gap | None:
    gaps = [one for one in hits if isinstance(one, Gap)]
    return prevailing(gaps) if gaps else None


def share(hits: Hits, k: int) -> float | Gap:
    """(hits among the first k) / k. With fewer than k passages there is none, as with precision@k:
    k passages were never shown."""
    if not hits:
        return _NONE
    if len(hits) < k:
        return Gap("too_few_passages", applies=False)
    top = hits[:k]
    return _unknown(top) or sum(one for one in top if not isinstance(one, Gap)) / k


def any_hit(hits: Hits, k: int) -> float | Gap:
    """1 if there is a hit among the first k, else 0. A known hit stands beside any gap."""
    if not hits:
        return _NONE
    top = hits[:k]
    if 1.0 in top:
        return 1.0
    return _unknown(top) or 0.0


def reciprocal_rank_at(hits: Hits, k: int) -> float | Gap:
    """1 / rank of the first hit among the first k, 0 without any (Voorhees, TREC-8 QA, 1999)."""
    if not hits:
        return _NONE
    for rank, one in enumerate(hits[:k], 1):
        if one == 1.0:
            # an unknown one before it might have been the first
            return _unknown(hits[:rank]) or 1.0 / rank
    return _unknown(hits[:k]) or 0.0
