"""Which version of an instrument a series belongs to. Pure.

A judge that answers with another model, or is asked with another prompt, is another instrument:
its scores must not be averaged with those of the old one. So the scores of a scorer with
fingerprints go to series of their own, named `scorer@fingerprint`, and the newest of them is the
current one. What has no fingerprint (a call that failed, a blank answer) goes to a series by the
scorer's name, which readers add to the current one: by then, and not here, for the order in which
verdicts come back must not decide where anything counts.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from agent.tiers import Pair
from agent.trace import Score

__all__ = ["MAX_FINGERPRINTS", "Fingerprints", "split_scorer"]

MAX_FINGERPRINTS = 16
"""Series per metric and scorer at a time. Fingerprints come from a server: one that makes up a new
one for each reply must not fill the memory."""

OTHER = "other"
"""In place of the fingerprints beyond; a series of several instruments, until `keep` makes room."""


def split_scorer(scorer: str) -> tuple[str, str]:
    """("umbrela", "3f2a…") of the name of a series; ("builtin", "") where it has no fingerprint."""
    name, _, fingerprint = scorer.partition("@")
    return name, fingerprint


class Fingerprints:
    """The fingerprints known of each (metric, scorer), oldest first.

    `current` maps it to the name of its newest series.
    """

    def __init__(self) -> None:
        self._seen: dict[Pair, list[str]] = {}
        self.current: dict[Pair, str] = {}

    def series(self, score: Score) -> tuple[str, bool]:
        """The name of the series that `score` belongs to, and whether it starts a new one."""
        pair = (score.metric, score.scorer)
        if score.fingerprint is None:
            return score.scorer, False
        seen = self._seen.setdefault(pair, [])
        fingerprint = score.fingerprint
        new = fingerprint not in seen
        if new and len(seen) >= MAX_FINGERPRINTS:
            fingerprint = OTHER
            new = fingerprint not in seen
        if new:
            seen.append(fingerprint)
        name = f"{score.scorer}@{fingerprint}"
        self.current[pair] = name
        return name, new and len(seen) > 1

    @property
    def full(self) -> bool:
        """Whether a new fingerprint of any pair would have no series of its own."""
        return any(len(seen) >= MAX_FINGERPRINTS for seen in self._seen.values())

    def keep(self, alive: Container[Pair]) -> None:
        """Forget the fingerprints whose series (metric, name) is neither `alive` nor current."""
        for (metric, scorer), seen in self._seen.items():
            current = self.current.get((metric, scorer))
            names = {mark: f"{scorer}@{mark}" for mark in seen}
            seen[:] = [
                mark for mark, name in names.items() if name == current or (metric, name) in alive
            ]

    def dump(self) -> list[list[Any]]:
        """JSON-able."""
        return [
            [metric, scorer, seen, self.current.get((metric, scorer))]
            for (metric, scorer), seen in self._seen.items()
        ]

    def load(self, rows: list[list[Any]]) -> None:
        for metric, scorer, seen, current in rows:
            self._seen[metric, scorer] = list(seen)
            if current:
                self.current[metric, scorer] = current
