"""How well each scorer agrees with people's labels of whole traces, and how to show it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any, NamedTuple

from ragmeter.core.feedback import PEOPLE
from ragmeter.core.metric_specs import find_helping_spec, find_spec
from ragmeter.core.score import ScoreState
from ragmeter.metrics.labelled import VERDICT_METRICS
from ragmeter.metrics.registry import metric_specs
from ragmeter.windows.estimators import Cell, mean_interval, wilson_interval

# Labels of each kind, yes and no, below which no threshold is suggested and no AUROC given: with
# fewer either is chance.
MIN_OF_EACH = 5
_CALIBRATION_BINS = 5

AGREEMENT_COLUMNS = (
    "metric (scorer)",
    "answers",
    "people's yes",
    "difference",
    "calibration error",
    "AUROC",
    "kappa",
    "threshold",
)
AGREEMENT_NOTE = (
    "Each label counts for the traffic that it stands for; in brackets 95 % intervals. people's"
    " yes: its share; difference: how far the scorer's mean is above it; calibration error: the"
    " expected one, over five groups; kappa: of values of half their range or more. threshold: from"
    " there on a value is best taken for yes; chosen on these very labels, so that new ones agree"
    f" somewhat less. A dash: fewer than {MIN_OF_EACH} labels of either kind, or no better than"
    " chance."
)

Interval = tuple[float, float, float]  # a value, its lower and its upper 95 % limit


class LabelledScores(NamedTuple):
    """The labels of one trace, the values of all scorers by metric and scorer, and its weight."""

    labels: Mapping[str, bool | str]
    scores: Mapping[str, Mapping[str, float]]
    weight: float = 1.0


class ScorerAgreement(NamedTuple):
    """The agreement of a scorer with people's yes and no to one question.

    Args:
        label: The question: a field of `Verdict`.
        n: Traces with both a label and a value.
        yes: Share of them with the label yes.
        bias: Mean of the values, as a part of their range, less `yes`.
        calibration: Expected calibration error over five groups of equal size.
        auroc: Chance that a trace with yes has a higher value than one with no; None with few of
            either kind. Its interval is Wilson's, of as many samples as the variance is worth that
            Hanley and McNeil give (Radiology 1982, with Newcombe's mean of both sizes).
        kappa: Cohen's kappa of people and the value being at least half of its range. Its interval
            is Wilson's of the share of agreement, with the agreement by chance as it is.
        threshold: The value from which on it is best taken for yes: it maximises the balanced
            accuracy on these very labels; None with few of either kind, or if none beats chance.
    """

    label: str
    metric: str
    scorer: str
    n: int
    yes: float
    bias: Interval
    calibration: float
    auroc: Interval | None
    kappa: Interval
    threshold: float | None

    @property
    def cells(self) -> list[str]:
        """The texts of `AGREEMENT_COLUMNS`."""

        def limits(interval: Interval) -> str:
            return "{:z.2f} [{:z.2f}, {:z.2f}]".format(*interval)

        return [
            f"{self.metric} ({self.scorer})",
            str(self.n),
            f"{self.yes:.2f}",
            limits(self.bias),
            f"{self.calibration:.2f}",
            "–" if self.auroc is None else limits(self.auroc),
            limits(self.kappa),
            "–" if self.threshold is None else f"{self.threshold:.2f}",
        ]


class _Pair(NamedTuple):
    value: float  # as a part of its range
    yes: bool
    weight: float


Results = Iterable[Mapping[str, Any]]  # scores in their public JSON form


def scorer_values(results: Results) -> dict[str, dict[str, float]]:
    """Return the values of results in their public JSON form, by metric and scorer."""
    values: dict[str, dict[str, float]] = {}
    for item in results:
        if item["state"] == ScoreState.SCORED and "k" not in item and item["scorer"] != PEOPLE:
            values.setdefault(item["metric"], {})[item["scorer"]] = item["value"]
    return values


def labelled_scores(results: Sequence[Mapping[str, Any]]) -> LabelledScores | None:
    """Return the labels that a scored trace has from people, with its scores; None without any."""
    names = {metric: label for label, metric in VERDICT_METRICS.items()}
    labels: dict[str, bool | str] = {}
    weight = 1.0
    for item in results:
        if item["scorer"] == PEOPLE and item["state"] == ScoreState.SCORED:
            labels[names[item["metric"]]] = item["value"] >= 0.5
            weight = 1 / item["probability"]
    return LabelledScores(labels, scorer_values(results), weight) if labels else None


def compare_with_people(labelled: Iterable[LabelledScores]) -> list[ScorerAgreement]:
    """Return the agreement of every scorer that measures what people were asked.

    These are the metric of the question and those that are helped by the same built-in score.
    """
    specs = metric_specs()
    groups: dict[tuple[str, str, str], list[_Pair]] = {}
    for labels, scores, weight in labelled:
        for label, metric in VERDICT_METRICS.items():
            yes = labels.get(label)
            helping = find_helping_spec(specs, metric)
            if not isinstance(yes, bool):
                continue
            for name, values in scores.items():
                if find_helping_spec(specs, name) is helping is not None:
                    for scorer, value in values.items():
                        pair = _Pair(value / _largest(name), yes, weight)
                        groups.setdefault((label, name, scorer), []).append(pair)
    order = list(VERDICT_METRICS)
    rows = sorted(groups.items(), key=lambda row: (order.index(row[0][0]), row[0][1:]))
    return [_compare(*names, pairs) for names, pairs in rows]


def _largest(metric: str) -> float:
    spec = find_spec(metric_specs(), metric)
    return spec.high if spec is not None and spec.high else 1.0


def _compare(label: str, metric: str, scorer: str, pairs: Sequence[_Pair]) -> ScorerAgreement:
    n = len(pairs)
    good = sum(pair.yes for pair in pairs)
    yes = _mean((float(pair.yes), pair.weight) for pair in pairs)
    auroc = None
    threshold = None
    if min(good, n - good) >= MIN_OF_EACH:
        auroc = auroc_interval(pairs)
        threshold = _best_threshold(pairs)
    kappa = cohen_kappa([pair._replace(value=float(pair.value >= 0.5)) for pair in pairs])
    return ScorerAgreement(
        label=label,
        metric=metric,
        scorer=scorer,
        n=n,
        yes=yes,
        bias=_bias(pairs),
        calibration=_calibration_error(pairs),
        auroc=auroc,
        kappa=kappa,
        threshold=None if threshold is None else threshold * _largest(metric),
    )


def _mean(rows: Iterable[tuple[float, float]]) -> float:
    """Return the mean of (value, weight)."""
    total = weights = 0.0
    for value, weight in rows:
        total += value * weight
        weights += weight
    return total / weights


def _kish(pairs: Iterable[_Pair]) -> float:
    """Return how many pairs of equal weight carry as much information (Kish)."""
    weights = [pair.weight for pair in pairs]
    return sum(weights) ** 2 / sum(weight * weight for weight in weights)


def _bias(pairs: Sequence[_Pair]) -> Interval:
    """Return the mean of value less label with the limits of a mean between -1 and 1."""
    rows = [(pair.value - pair.yes, pair.weight) for pair in pairs]
    mean = _mean(rows)
    n = _kish(pairs)
    variance = _mean(((value - mean) ** 2, weight) for value, weight in rows)
    cell = Cell(
        size=n, n=len(rows), effective=n, mean=mean, variance=variance * n / max(1.0, n - 1)
    )
    return mean_interval([cell], -1.0, 1.0)[:3]


def _by_value(pairs: Sequence[_Pair]) -> list[tuple[float, float, float]]:
    """Return (value, weight of no, weight of yes) of each value, ascending."""
    rows = []
    for value, group in groupby(sorted(pairs), lambda pair: pair.value):
        both = [0.0, 0.0]
        for pair in group:
            both[pair.yes] += pair.weight
        rows.append((value, *both))
    return rows


def auroc_interval(pairs: Sequence[_Pair]) -> Interval:
    """Return the AUROC of values for the label yes, with its 95 % limits; both kinds are there."""
    wins = below = 0.0
    for _, bad, good in (rows := _by_value(pairs)):
        wins += good * (below + bad / 2)
        below += bad
    value = min(1.0, wins / (below * sum(good for _, _, good in rows)))
    n, m = (_kish(pair for pair in pairs if pair.yes is kind) for kind in (True, False))
    shape = (1 - value) / (2 - value) + value / (1 + value)
    return value, *wilson_interval(value, n * m / (1 + ((n + m) / 2 - 1) * shape))


def cohen_kappa(pairs: Sequence[_Pair]) -> Interval:
    """Return Cohen's kappa of values 0 and 1 with the labels; 0 if chance alone would agree fully.

    Args:
        pairs: (value, label, weight), at least one.
    """
    agree = _mean((float(pair.value == pair.yes), pair.weight) for pair in pairs)
    first, second = (_mean((float(pair[at]), pair.weight) for pair in pairs) for at in (0, 1))
    chance = first * second + (1 - first) * (1 - second)
    if chance >= 1:
        return 0.0, -1.0, 1.0
    lower, upper = wilson_interval(agree, _kish(pairs))
    value, lower, upper = ((one - chance) / (1 - chance) for one in (agree, lower, upper))
    return value, max(-1.0, lower), upper


def _calibration_error(pairs: Sequence[_Pair]) -> float:
    ordered = sorted(pairs)
    off = 0.0
    cuts = [at * len(ordered) // _CALIBRATION_BINS for at in range(_CALIBRATION_BINS + 1)]
    for start, end in pairwise(cuts):
        off += abs(sum((one.value - one.yes) * one.weight for one in ordered[start:end]))
    return off / sum(pair.weight for pair in ordered)


def _best_threshold(pairs: Sequence[_Pair]) -> float | None:
    """Return the threshold of the best balanced accuracy, midway between two values."""
    rows = _by_value(pairs)
    bad, good = (sum(row[at] for row in rows) for at in (1, 2))
    gain = 0.0  # of the balanced accuracy over chance, doubled
    best = 1e-9
    threshold = None
    for (value, no, yes), (following, _, _) in pairwise(rows):
        gain += no / bad - yes / good
        if gain > best:
            best = gain
            threshold = (value + following) / 2
    return threshold
