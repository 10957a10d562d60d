"""One run: a file of scored traces, summed up. Pure.

The sums are those of the agent's windows, of one window that takes everything whenever it was: so
a report and a gauge say the same of the same traces.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from agent.fingerprints import Fingerprints, is_mixture, split_scorer
from agent.labels import OTHER
from agent.metrics import METRICS
from agent.metrics.names import base
from agent.metrics.spec import MetricSpec
from agent.presentation import rank
from agent.report.boxes import Box, box_of
from agent.scored_input import apart
from agent.trace import Score, ScoredTrace, State
from agent.windows import Estimate, Quantile, Windows
from agent.windows.estimators import Interval
from agent.windows.intervals import interval_of
from agent.windows.stratified import history_of, is_assisted
from agent.windows.worst import direction_of, tie_break

__all__ = ["Run", "Scores", "Series", "Worst", "history_variance"]

WINDOW = "1h"  # any will do: every trace is put at the same moment
SERVICE = "run"
MAX_REASONS = 50  # different ones counted by name, of one series: they come from a file
MAX_STRATA = 16  # as in a backtest: each has its sums


@dataclass(slots=True)
class Scores:
    """The scored traces of a series: `keys` are what pairs are found by, places in `Run.keys`."""

    keys: array[int] = field(default_factory=lambda: array("q"))
    values: array[float] = field(default_factory=lambda: array("d"))
    probabilities: array[float] = field(default_factory=lambda: array("d"))

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True, slots=True)
class Worst:
    trace_id: str
    value: float


@dataclass(frozen=True, slots=True)
class Series:
    """What a run says of one metric by one scorer (`fingerprint`: by which version of it).

    `estimate` is None where nothing was scored; `reasons` says why, of each state. `plain` is the
    interval of what was scored alone, before it is widened by what was not.
    """

    metric: str
    scorer: str
    fingerprint: str
    spec: MetricSpec
    scores: Scores
    estimate: Estimate | None
    plain: Interval | None
    box: Box | None
    states: dict[str, int]
    reasons: dict[str, Counter[str]]
    worst: tuple[Worst, ...]
    weighted: bool


class Run:
    """`name` is what people call it. Traces are added once each; `keys[i]` is what the i-th one is
    paired by (None: nothing), `ids[i]` its id."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.traces = 0
        self.services: Counter[str] = Counter()
        self.keys: list[str | None] = []
        self.ids: list[str] = []
        self._windows = Windows((WINDOW,), specs=METRICS, min_samples=1)
        self._fingerprints = Fingerprints()
        self._windows.current = self._fingerprints.current
        self._scores: dict[tuple[str, str], Scores] = {}
        self._reasons: dict[tuple[str, str], dict[str, Counter[str]]] = {}
        self._strata: set[str] = set()

    def add(self, scored: ScoredTrace, key: str | None) -> None:
        """Count a trace. It belongs to the run from here on."""
        place = self.traces
        self.traces += 1
        self.services[scored.service] += 1
        self.keys.append(key)
        self.ids.append(scored.trace_id)
        for score in scored.results:
            if score.stratum and score.stratum not in self._strata:
                if len(self._strata) < MAX_STRATA:
                    self._strata.add(score.stratum)
                else:
                    score.stratum = OTHER
        scored = replace(scored, timestamp=0.0, service=SERVICE)
        rest = apart(scored)
        if rest is not None:
            rest.results = [self._in_series(score) for score in rest.results]
        for part in (scored, rest):
            if part is not None:
                for score in part.results:
                    self._note(place, score)
                self._windows.add(part, SERVICE)

    def _in_series(self, score: Score) -> Score:
        name, _ = self._fingerprints.series(score)
        return score if name == score.scorer else replace(score, scorer=name)

    def _note(self, place: int, score: Score) -> None:
        pair = (score.metric, score.scorer)
        if score.state is State.SCORED and score.value is not None:
            scores = self._scores.setdefault(pair, Scores())
            scores.keys.append(place)
            scores.values.append(score.value)
            scores.probabilities.append(score.probability)
        elif score.reason:
            states = self._reasons.setdefault(pair, {})
            reasons = states.setdefault(str(score.state), Counter())
            known = score.reason in reasons or len(reasons) < MAX_REASONS
            reasons[score.reason if known else OTHER] += 1

    def _names(self, metric: str, scorer: str) -> list[str]:
        """The series whose results stand under a scorer's name: what no version has found and the
        current version's. Under a version's own name its own."""
        return list(dict.fromkeys((scorer, self._windows.named(metric, scorer))))

    def scores(self, metric: str, scorer: str) -> Scores:
        """The values behind a series, by the name that the windows know it by."""
        found = Scores()
        for name in self._names(metric, scorer):
            part = self._scores.get((metric, name), Scores())
            found.keys += part.keys
            found.values += part.values
            found.probabilities += part.probabilities
        return found

    def series(self, worst: int) -> Iterator[Series]:
        """Every series, in the order of the status page, each with so many worst traces."""
        windows = self._windows
        pairs = windows.series(SERVICE)
        for metric, scorer in sorted(pairs, key=lambda pair: (rank(pair[0]), pair)):
            spec = METRICS.get(base(metric))
            if spec is None or is_assisted(scorer) or is_mixture(scorer):
                continue
            who, fingerprint = split_scorer(windows.named(metric, scorer))
            scores = self.scores(metric, scorer)
            reasons: dict[str, Counter[str]] = {}
            for name in self._names(metric, scorer):
                for state, counted in self._reasons.get((metric, name), {}).items():
                    reasons.setdefault(state, Counter()).update(counted)
            yield Series(
                metric, who, fingerprint, spec, scores,
                windows.estimate(SERVICE, "", metric, scorer, WINDOW),
                self._plain(metric, scorer, spec),
                box_of(scores.values, scores.probabilities),
                windows.states(SERVICE, "", metric, scorer, WINDOW),
                reasons,
                tuple(self._worst(metric, scores, worst)),
                any(probability != 1 for probability in scores.probabilities),
            )  # fmt: skip

    def _plain(self, metric: str, scorer: str, spec: MetricSpec) -> Interval | None:
        cell = self._windows.cell(SERVICE, "", metric, scorer, WINDOW)
        if cell is None or not cell.scored:
            return None
        history = history_of(cell, history_variance(spec.low, spec.high))
        return interval_of(cell, spec.kind == "ratio", spec.low, spec.high, history)

    def _worst(self, metric: str, scores: Scores, most: int) -> Iterator[Worst]:
        """The bad ends, worst first; among equals chance decides, the same each time. Of a ratio
        the bad outcomes alone."""
        sign = direction_of(metric, METRICS)
        spec = METRICS[base(metric)]
        if not sign:
            return
        best = spec.high if sign > 0 else spec.low
        places = sorted(
            (sign * value, tie_break(self.ids[place]), place)
            for place, value in zip(scores.keys, scores.values, strict=True)
            if value != best
        )
        for value, _, place in places[:most]:
            yield Worst(self.ids[place], sign * value + 0.0)  # plus zero: -0.0 is no value to show

    def latency(self) -> list[tuple[str, Sequence[Quantile]]]:
        """Quantiles of the seconds of each stage."""
        windows = self._windows
        found = ((s, windows.quantiles(SERVICE, "", s, WINDOW)) for s in windows.stages(SERVICE))
        return [(stage, numbers) for stage, numbers in found if numbers]


def history_variance(low: float | None, high: float | None) -> float | None:
    """The variance of one pseudo-observation of a score within bounds, as in the windows."""
    return None if low is None or high is None else (high - low) ** 2 / 12
