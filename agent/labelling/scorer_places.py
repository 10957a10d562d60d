"""Which scorers' labels may have series: their names come from outside, and each has many."""

from __future__ import annotations

from collections.abc import Sequence

from agent.feedback.labels import RESERVED
from agent.fingerprints import split_scorer
from agent.metrics.labelled.scores import metric_names
from agent.metrics.names import base
from agent.windows import Windows
from agent.windows.stratified import is_assisted

__all__ = ["ScorerPlaces"]


class ScorerPlaces:
    """`most` names have a place at a time, each until every window has forgotten it."""

    def __init__(self, most: int, ks: Sequence[int]) -> None:
        self._most = most
        self._labelled = set(map(base, metric_names(ks)))
        self._known: set[str] = set()

    def admit(self, scorer: str, windows: Windows) -> bool:
        """Whether there is room for series of this scorer."""
        if scorer in self._known:
            return True
        alive = {
            split_scorer(name)[0]
            for service in windows.services()
            for metric, name in windows.series(service)
            if base(metric) in self._labelled and not is_assisted(name)
        }
        self._known = alive - RESERVED
        if scorer not in self._known and len(self._known) >= self._most:
            return False
        self._known.add(scorer)
        return True
