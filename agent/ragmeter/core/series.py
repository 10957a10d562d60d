"""Series names and the registry of scorer fingerprints that belong to each series.

Scores of a judge with another model or prompt must not be averaged with those from before the
change. So the scores of each fingerprint go to a series of their own, named `scorer@fingerprint`,
and readers who ask for the scorer get its current series. At a change, results of traces under way
come in between those of the new version, so a fingerprint becomes current only after
`CONFIRMING_SCORES`.

Scores without a fingerprint (a failed call, a blank answer) go to a series with the scorer's name,
which readers add to the current one. Adding them here instead would let the order in which verdicts
come back decide where they count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable
from dataclasses import dataclass
from typing import Any

from ragmeter.core.metric_specs import base_name, parse_cutoff
from ragmeter.core.score import Score
from ragmeter.core.tiers import MetricScorer

# Series per metric and scorer at a time. Fingerprints come from a server: one that makes up a new
# one for each reply must not fill the memory.
MAX_FINGERPRINTS = 16

# Stands for the fingerprints beyond that, until `retain` makes room. Its results are counted, but a
# mean over several versions has no meaning, so its series is never current and never shown.
OTHER_FINGERPRINT = "other"

# Scores of a fingerprint, without one of the current in between, that make it current. An estimate
# needs 5 by default (`limits.min_samples`), so readers lose little. While old and new are equally
# likely, 10 such scores come by chance once in a thousand; a late one never moves it back.
CONFIRMING_SCORES = 10


def split_scorer(scorer: str) -> tuple[str, str]:
    """Split a series name into scorer and fingerprint, "" where it has none."""
    name, _, fingerprint = scorer.partition("@")
    return name, fingerprint


def is_overflow_series(scorer: str) -> bool:
    """Return whether the series holds scores of several fingerprints."""
    return split_scorer(scorer)[1] == OTHER_FINGERPRINT


def series_labels(metric: str, scorer: str) -> dict[str, Any]:
    """Return the JSON labels of a series: metric, scorer, and `k` and `fingerprint` if any."""
    name, fingerprint = split_scorer(scorer)
    labels: dict[str, Any] = {"metric": base_name(metric), "scorer": name}
    if k := parse_cutoff(metric):
        labels["k"] = int(k)
    if fingerprint:
        labels["fingerprint"] = fingerprint
    return labels


@dataclass(frozen=True, slots=True)
class SeriesState:
    """The fingerprints of one metric and scorer, and the name of the series that is current.

    Args:
        since: Scores by fingerprint since the last one of the current series.
    """

    metric: str
    scorer: str
    seen: list[str]
    current: str
    since: dict[str, int]


class FingerprintRegistry:
    """The fingerprints of each (metric, scorer); `current` maps it to its current series."""

    def __init__(self) -> None:
        self._seen: dict[MetricScorer, list[str]] = {}
        # scores by fingerprint since the last one of the current series
        self._since: dict[MetricScorer, Counter[str]] = {}
        self.current: dict[MetricScorer, str] = {}

    def assign_series(self, score: Score) -> tuple[str, bool]:
        """Return the name of a score's series, and whether it has just become the current one."""
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
        """Whether a pair has no room for a new fingerprint."""
        return any(len(seen) >= MAX_FINGERPRINTS for seen in self._seen.values())

    def retain(self, alive: Container[MetricScorer]) -> None:
        """Forget fingerprints whose series (metric, name) is neither `alive` nor current."""
        for (metric, scorer), seen in self._seen.items():
            current = self.current.get((metric, scorer))
            names = {mark: f"{scorer}@{mark}" for mark in seen}
            seen[:] = [
                mark for mark, name in names.items() if name == current or (metric, name) in alive
            ]
            since = self._since.get((metric, scorer), Counter())
            for mark in since.keys() - set(seen):
                del since[mark]

    def state(self) -> list[SeriesState]:
        """Return what a restart goes on with."""
        return [
            SeriesState(
                metric=metric,
                scorer=scorer,
                seen=seen,
                current=self.current[metric, scorer],
                since=self._since[metric, scorer],
            )
            for (metric, scorer), seen in self._seen.items()
        ]

    def restore(self, states: Iterable[SeriesState]) -> None:
        """Go on from a state."""
        for one in states:
            pair = (one.metric, one.scorer)
            self._seen[pair] = one.seen
            self._since[pair] = Counter(one.since)
            self.current[pair] = one.current
