"""How well each scorer agrees with people's labels of whole traces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from ragmeter.core.metric_specs import find_helping_spec, find_spec
from ragmeter.metrics.labelled import VERDICT_METRICS
from ragmeter.metrics.registry import metric_specs

# Labels of each kind, yes and no, below which no threshold is suggested and no AUROC given: with
# fewer either is chance.
MIN_OF_EACH = 5
_Z_95 = 1.959963984540054
_CALIBRATION_BINS = 5

# The labels of one trace, and the values of all scorers by metric and scorer.
LabelledScores = tuple[Mapping[str, bool | str], Mapping[str, Mapping[str, float]]]


class ScorerAgreement(NamedTuple):
    """The agreement of a scorer with people's yes and no to one question.

    Args:
        label: The question: a field of `Verdict`.
        metric: The metric of the scorer.
        scorer: Its name.
        n: Traces with both a label and a value.
        yes: Share of them with the label yes.
        mean: Mean of the values, as a part of their range; equal to `yes` if it is calibrated.
        calibration: Expected calibration error over five groups of equal size.
        auroc: Chance that a trace with yes has a higher value than one with no, its lower and upper
            95 % limits (Newcombe's method 5, Statistics in Medicine 2006); None with few of either
            kind.
        kappa: Cohen's kappa of people and the value being at least half of its range.
        threshold: The value from which on it is best taken for yes: it maximises the balanced
            accuracy on these very labels; None with few of either kind.
        accuracy: That balanced accuracy.
    """

    label: str
    metric: str
    scorer: str
    n: int
    yes: float
    mean: float
    calibration: float
    auroc: tuple[float, float, float] | None
    kappa: float
    threshold: float | None
    accuracy: float | None


def compare_with_people(labelled: Sequence[LabelledScores]) -> list[ScorerAgreement]:
    """Return the agreement of every scorer that measures what people were asked.

    These are the metric of the question and those that are helped by the same built-in score.
    """
    specs = metric_specs()
    rows: list[ScorerAgreement] = []
    for label, metric in VERDICT_METRICS.items():
        helping = find_helping_spec(specs, metric)
        by_scorer: dict[tuple[str, str], list[tuple[float, bool]]] = {}
        for labels, scores in labelled:
            yes = labels.get(label)
            if not isinstance(yes, bool):
                continue
            for name, values in scores.items():
                if find_helping_spec(specs, name) is helping is not None:
                    for scorer, value in values.items():
                        by_scorer.setdefault((name, scorer), []).append((value, yes))
        for (name, scorer), pairs in sorted(by_scorer.items()):
            spec = find_spec(specs, name)
            high = spec.high if spec is not None and spec.high else 1.0
            rows.append(_agreement(label, name, scorer, pairs, high))
    return rows


def _agreement(
    label: str, metric: str, scorer: str, pairs: Sequence[tuple[float, bool]], high: float
) -> ScorerAgreement:
    n, yes = len(pairs), sum(yes for _, yes in pairs)
    enough = min(yes, n - yes) >= MIN_OF_EACH
    threshold, accuracy = _best_threshold(pairs) if enough else (None, None)
    return ScorerAgreement(
        *(label, metric, scorer, n, yes / n),
        sum(value for value, _ in pairs) / n / high,
        _calibration_error([(value / high, yes) for value, yes in pairs]),
        auroc_interval(pairs) if enough else None,
        cohen_kappa([(value >= high / 2, yes) for value, yes in pairs]),
        threshold,
        accuracy,
    )


def auroc_interval(pairs: Sequence[tuple[float, bool]]) -> tuple[float, float, float]:
    """Return the AUROC of values for the label yes, with its 95 % limits.

    Args:
        pairs: (value, label), with at least one label of each kind.
    """
    good = [value for value, yes in pairs if yes]
    bad = [value for value, yes in pairs if not yes]
    wins = sum((one > other) + (one == other) / 2 for one in good for other in bad)
    n, m = len(good), len(bad)
    value = wins / (n * m)

    def beyond(limit: float) -> bool:
        """Return whether `value` lies more than the .975 quantile from a true AUROC of `limit`."""
        spread = (n + m) / 2 - 1
        shape = 1 + spread * ((1 - limit) / (2 - limit) + limit / (1 + limit))
        return (value - limit) ** 2 > _Z_95**2 * limit * (1 - limit) * shape / (n * m)

    return value, _bisect(0.0, value, beyond), _bisect(1.0, value, beyond)


def _bisect(outer: float, inner: float, beyond: Callable[[float], bool]) -> float:
    """Return the point between a limit that is `beyond` and one that is not at which that turns."""
    for _ in range(40):
        middle = (outer + inner) / 2
        outer, inner = (middle, inner) if beyond(middle) else (outer, middle)
    return inner


def cohen_kappa(pairs: Iterable[tuple[bool, bool]]) -> float:
    """Return Cohen's kappa of two yes/no labellings; 0 if chance alone would agree fully."""
    rows = list(pairs)
    n = len(rows)
    agree = sum(one == other for one, other in rows) / n
    first, second = sum(one for one, _ in rows) / n, sum(other for _, other in rows) / n
    chance = first * second + (1 - first) * (1 - second)
    return (agree - chance) / (1 - chance) if chance < 1 else 0.0


def _calibration_error(pairs: Sequence[tuple[float, bool]]) -> float:
    ordered = sorted(pairs)
    bins = min(_CALIBRATION_BINS, len(ordered))
    cuts = [at * len(ordered) // bins for at in range(bins + 1)]
    groups = [ordered[start:end] for start, end in pairwise(cuts)]
    off = (abs(sum(value - yes for value, yes in group)) for group in groups)
    return sum(off) / len(ordered)


def _best_threshold(pairs: Sequence[tuple[float, bool]]) -> tuple[float, float]:
    """Return the threshold of the best balanced accuracy, midway between two values, and that."""
    values = sorted({value for value, _ in pairs})
    yes = sum(yes for _, yes in pairs)

    def accuracy(cut: float) -> float:
        right = sum(value >= cut for value, is_yes in pairs if is_yes) / yes
        wrong = sum(value >= cut for value, is_yes in pairs if not is_yes) / (len(pairs) - yes)
        return (right + 1 - wrong) / 2

    cuts = [(low + high) / 2 for low, high in pairwise(values)] or values
    best = max(cuts, key=accuracy)
    return best, accuracy(best)
