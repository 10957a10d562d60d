"""One run of a report: its scored traces summarised by series, with box plots.

The numbers of a box plot, of scores that stand for different numbers of traces. Pure.

A quantile is the point where the cumulative weight passes p, and the middle of two neighbours
where it meets p exactly (type 2 of Hyndman and Fan 1996; numpy: `averaged_inverted_cdf`). Of the
usual definitions this one needs no other rule for weights: a score of weight 3 counts as three
scores, and the median of an even number is the middle of the two in the middle.

One run: a file of scored traces, summed up. Pure.

The sums are those of the agent's windows, of one window that takes everything whenever it was: so
a report and a gauge say the same of the same traces.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

from ragmeter.core.arithmetic import weight_units
from ragmeter.core.label_bounds import OTHER_LABEL
from ragmeter.core.metric_specs import MetricSpec, base_name, display_rank
from ragmeter.core.score import Score, ScoredTrace, ScoreState
from ragmeter.core.series import FingerprintRegistry, is_overflow_series, split_scorer
from ragmeter.metrics.registry import metric_specs
from ragmeter.offline.scored_lines import split_slow_results
from ragmeter.windows.estimators import Interval
from ragmeter.windows.intervals import estimate_history, estimate_interval, is_assisted
from ragmeter.windows.series import Estimate, Quantile
from ragmeter.windows.windows import Windows
from ragmeter.windows.worst import tie_break, worst_sign

WHISKER_REACH = 1.5
"""Of the box's length: Tukey's whiskers (1977) end at the furthest score within so much of it."""

MAX_OUTLIERS = 200
"""Different values drawn beyond the whiskers of a box, the furthest ones. A picture of more shows a
smear; `outside` counts them all."""

_QUARTILES = ((1, 4), (1, 2), (3, 4))


@dataclass(frozen=True, slots=True)
class BoxPlot:
    """`n` scores; the whiskers `low` and `high` are scores; `outside` of them lie beyond."""

    n: int
    low: float
    q1: float
    median: float
    q3: float
    high: float
    outside: int
    outliers: tuple[float, ...]


def _weighted_quantiles(
    values: Sequence[float], weights: Sequence[int], shares: Sequence[tuple[int, int]]
) -> list[float]:
    """Quantiles of sorted values, at least one, with positive whole weights. A share is a fraction,
    (1, 4): so that meeting it exactly is no matter of rounding."""
    sums = list(accumulate(weights))
    found, place = [], 0
    for above, below in shares:  # ascending
        while sums[place] * below < sums[-1] * above:
            place += 1
        meets = sums[place] * below == sums[-1] * above and place + 1 < len(values)
        found.append((values[place] + values[place + 1]) / 2 if meets else values[place])
    return found


def compute_box_plot(values: Sequence[float], probabilities: Sequence[float]) -> BoxPlot | None:
    """The box of scores with their inclusion probabilities, in any order; None of no score."""
    if not values:
        return None
    pairs = sorted(zip(values, map(weight_units, probabilities), strict=True))
    ordered = [value for value, _ in pairs]
    q1, median, q3 = _weighted_quantiles(ordered, [number for _, number in pairs], _QUARTILES)
    reach = WHISKER_REACH * (q3 - q1)
    inside = [value for value in ordered if q1 - reach <= value <= q3 + reach]
    # the quartiles lie within the scores, so there is a score on each side of the box or in it
    low, high = min(inside[0], q1), max(inside[-1], q3)
    beyond = [value for value in ordered if not q1 - reach <= value <= q3 + reach]
    shown = sorted(set(beyond), key=lambda value: (-max(low - value, value - high), value))
    return BoxPlot(
        len(ordered), low, q1, median, q3, high, len(beyond), tuple(sorted(shown[:MAX_OUTLIERS]))
    )


WINDOW = "1h"  # any will do: every trace is put at the same moment
SERVICE = "run"
MAX_REASONS = 50  # different ones counted by name, of one series: they come from a file
MAX_STRATA = 16  # as in a backtest: each has its sums


@dataclass(slots=True)
class SeriesScores:
    """The scored traces of a series: `keys` are what pairs are found by, places in `Run.keys`."""

    keys: array[int] = field(default_factory=lambda: array("q"))
    values: array[float] = field(default_factory=lambda: array("d"))
    probabilities: array[float] = field(default_factory=lambda: array("d"))

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True, slots=True)
class WorstScore:
    trace_id: str
    value: float


@dataclass(frozen=True, slots=True)
class RunSeries:
    """What a run says of one metric by one scorer (`fingerprint`: by which version of it).

    `estimate` is None where nothing was scored; `reasons` says why, of each state. `plain` is the
    interval of what was scored alone, before it is widened by what was not.
    """

    metric: str
    scorer: str
    fingerprint: str
    spec: MetricSpec
    scores: SeriesScores
    estimate: Estimate | None
    plain: Interval | None
    box: BoxPlot | None
    states: dict[str, int]
    reasons: dict[str, Counter[str]]
    worst: tuple[WorstScore, ...]
    weighted: bool


class ScoredRun:
    """`name` is what people call it. Traces are added once each; `keys[i]` is what the i-th one is
    paired by (None: nothing), `ids[i]` its id."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.traces = 0
        self.services: Counter[str] = Counter()
        self.keys: list[str | None] = []
        self.ids: list[str] = []
        self._windows = Windows((WINDOW,), specs=metric_specs(), min_samples=1)
        self._fingerprints = FingerprintRegistry()
        self._windows.current = self._fingerprints.current
        self._scores: dict[tuple[str, str], SeriesScores] = {}
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
                    score.stratum = OTHER_LABEL
        scored, rest = split_slow_results(replace(scored, timestamp=0.0, service=SERVICE))
        if rest is not None:
            rest = replace(rest, results=[self._in_series(score) for score in rest.results])
        for part in (scored, rest):
            if part is not None:
                for score in part.results:
                    self._note(place, score)
                self._windows.add(part, SERVICE)

    def _in_series(self, score: Score) -> Score:
        name, _ = self._fingerprints.assign_series(score)
        return score if name == score.scorer else replace(score, scorer=name)

    def _note(self, place: int, score: Score) -> None:
        pair = (score.metric, score.scorer)
        if score.state is ScoreState.SCORED and score.value is not None:
            scores = self._scores.setdefault(pair, SeriesScores())
            scores.keys.append(place)
            scores.values.append(score.value)
            scores.probabilities.append(score.probability)
        elif score.reason:
            states = self._reasons.setdefault(pair, {})
            reasons = states.setdefault(str(score.state), Counter())
            known = score.reason in reasons or len(reasons) < MAX_REASONS
            reasons[score.reason if known else OTHER_LABEL] += 1

    def _names(self, metric: str, scorer: str) -> list[str]:
        """The series whose results stand under a scorer's name: what no version has found and the
        current version's. Under a version's own name its own."""
        return list(dict.fromkeys((scorer, self._windows.current_scorer(metric, scorer))))

    def scores(self, metric: str, scorer: str) -> SeriesScores:
        """The values behind a series, by the name that the windows know it by."""
        found = SeriesScores()
        for name in self._names(metric, scorer):
            part = self._scores.get((metric, name), SeriesScores())
            found.keys += part.keys
            found.values += part.values
            found.probabilities += part.probabilities
        return found

    def series(self, worst: int) -> Iterator[RunSeries]:
        """Every series, in the order of the status page, each with so many worst traces."""
        windows = self._windows
        pairs = windows.series(SERVICE)
        for metric, scorer in sorted(pairs, key=lambda pair: (display_rank(pair[0]), pair)):
            spec = metric_specs().get(base_name(metric))
            if spec is None or is_assisted(scorer) or is_overflow_series(scorer):
                continue
            who, fingerprint = split_scorer(windows.current_scorer(metric, scorer))
            scores = self.scores(metric, scorer)
            reasons: dict[str, Counter[str]] = {}
            for name in self._names(metric, scorer):
                for state, counted in self._reasons.get((metric, name), {}).items():
                    reasons.setdefault(state, Counter()).update(counted)
            yield RunSeries(
                metric, who, fingerprint, spec, scores,
                windows.estimate(SERVICE, "", metric, scorer, WINDOW),
                self._plain(metric, scorer, spec),
                compute_box_plot(scores.values, scores.probabilities),
                windows.states(SERVICE, "", metric, scorer, WINDOW),
                reasons,
                tuple(self._worst(metric, scores, worst)),
                any(probability != 1 for probability in scores.probabilities),
            )  # fmt: skip

    def _plain(self, metric: str, scorer: str, spec: MetricSpec) -> Interval | None:
        cell = self._windows.cell(SERVICE, "", metric, scorer, WINDOW)
        if cell is None or not cell.scored:
            return None
        history = estimate_history(cell, history_variance(spec.low, spec.high))
        return estimate_interval(cell, spec.kind == "ratio", spec.low, spec.high, history)

    def _worst(self, metric: str, scores: SeriesScores, most: int) -> Iterator[WorstScore]:
        """The bad ends, worst first; among equals chance decides, the same each time. Of a ratio
        the bad outcomes alone."""
        sign = worst_sign(metric, metric_specs())
        spec = metric_specs()[base_name(metric)]
        if not sign:
            return
        best = spec.high if sign > 0 else spec.low
        places = sorted(
            (sign * value, tie_break(self.ids[place]), place)
            for place, value in zip(scores.keys, scores.values, strict=True)
            if value != best
        )
        for value, _, place in places[:most]:
            yield WorstScore(
                self.ids[place], sign * value + 0.0
            )  # plus zero: -0.0 is no value to show

    def latency(self) -> list[tuple[str, Sequence[Quantile]]]:
        """Quantiles of the seconds of each stage."""
        windows = self._windows
        found = ((s, windows.quantiles(SERVICE, "", s, WINDOW)) for s in windows.stages(SERVICE))
        return [(stage, numbers) for stage, numbers in found if numbers]


def history_variance(low: float | None, high: float | None) -> float | None:
    """The variance of one pseudo-observation of a score within bounds, as in the windows."""
    return None if low is None or high is None else (high - low) ** 2 / 12
