"""Series names and the registry of scorer fingerprints that belong to each series.

A judge that answers with another model, or is asked with another prompt, is another instrument:
its scores must not be averaged with those of the old one. So the scores of a scorer with
fingerprints go to series of their own, named `scorer@fingerprint`, and one of them is the current
one, which readers get who ask for the scorer. At a change, results of traces that were under way
come in between those of the new instrument, and some rest on verdicts of both; so current becomes
only what has stood its ground (`CONFIRMED`).

What has no fingerprint (a call that failed, a blank answer) goes to a series by the scorer's name,
which readers add to the current one: by then, and not here, for the order in which verdicts come
back must not decide where anything counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container
from typing import Any

from ragmeter.core.metric_specs import base_name, parse_cutoff
from ragmeter.core.score import Score
from ragmeter.core.tiers import MetricScorer

MAX_FINGERPRINTS = 16
"""Series per metric and scorer at a time. Fingerprints come from a server: one that makes up a new
one for each reply must not fill the memory."""

OTHER_FINGERPRINT = "other"
"""In place of the fingerprints beyond: a series of several instruments, until `keep` makes room.
Its results are counted, its mean would say nothing: it is never current and never shown."""

CONFIRMING_SCORES = 10
"""Scores of a fingerprint without one of the current in between, after which it is the current one.
An estimate needs 5 by default (`limits.min_samples`), so readers lose little. Where old and new are
as likely, 10 such scores come by chance once in a thousand; a late one never moves it back."""


def split_scorer(scorer: str) -> tuple[str, str]:
    """("umbrela", "3f2a…") of the name of a series; ("builtin", "") where it has no fingerprint."""
    name, _, fingerprint = scorer.partition("@")
    return name, fingerprint


def is_overflow_series(scorer: str) -> bool:
    """Whether the series of this name holds scores of several instruments."""
    return split_scorer(scorer)[1] == OTHER_FINGERPRINT


def series_labels(metric: str, scorer: str) -> dict[str, Any]:
    """A series as JSON names it: metric, scorer, `k` and `fingerprint` where it has them."""
    who, fingerprint = split_scorer(scorer)
    labels: dict[str, Any] = {"metric": base_name(metric), "scorer": who}
    if k := parse_cutoff(metric):
        labels["k"] = int(k)
    if fingerprint:
        labels["fingerprint"] = fingerprint
    return labels


class FingerprintRegistry:
    """The fingerprints known of each (metric, scorer), oldest first.

    `current` maps it to the name of its current series.
    """

    def __init__(self) -> None:
        self._seen: dict[MetricScorer, list[str]] = {}
        self._since: dict[
            MetricScorer, Counter[str]
        ] = {}  # scores since the last one of the current
        self.current: dict[MetricScorer, str] = {}

    def assign_series(self, score: Score) -> tuple[str, bool]:
        """The name of the series that `score` belongs to, and whether that took the place of
        another as the current one."""
        pair = (score.metric, score.scorer)
        if score.fingerprint is None:
            return score.scorer, False
        seen = self._seen.setdefault(pair, [])
        fingerprint = score.fingerprint
        if fingerprint not in seen:
            if len(seen) >= MAX_FINGERPRINTS:
                return f"{score.scorer}@{OTHER_FINGERPRINT}", False
            seen.append(fingerprint)
        name = f"{score.scorer}@{fingerprint}"
        current = self.current.setdefault(pair, name)
        since = self._since.setdefault(pair, Counter())
        if name == current:
            since.clear()
            return name, False
        since[fingerprint] += 1
        if since[fingerprint] < CONFIRMING_SCORES:
            return name, False
        since.clear()
        self.current[pair] = name
        return name, True

    @property
    def full(self) -> bool:
        """Whether a new fingerprint of any pair would have no series of its own."""
        return any(len(seen) >= MAX_FINGERPRINTS for seen in self._seen.values())

    def retain(self, alive: Container[MetricScorer]) -> None:
        """Forget the fingerprints whose series (metric, name) is neither `alive` nor current."""
        for (metric, scorer), seen in self._seen.items():
            current = self.current.get((metric, scorer))
            names = {mark: f"{scorer}@{mark}" for mark in seen}
            seen[:] = [
                mark for mark, name in names.items() if name == current or (metric, name) in alive
            ]
            since = self._since.get((metric, scorer), Counter())
            for mark in since.keys() - set(seen):
                del since[mark]

    def dump(self) -> list[list[Any]]:
        """JSON-able."""
        return [
            [*pair, seen, self.current.get(pair), dict(self._since.get(pair, {}))]
            for pair, seen in self._seen.items()
        ]

    def load(self, rows: list[list[Any]]) -> None:
        for metric, scorer, seen, current, *since in rows:
            self._since[metric, scorer] = Counter(*since)  # absent in states of older versions
            self._seen[metric, scorer] = list(seen)
            if current:
                self.current[metric, scorer] = current
