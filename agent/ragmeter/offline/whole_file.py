"""Read whole files for `ragmeter score` and `ragmeter segments`.

Feedback is joined, and windows are filled.
Unlike in the running agent nothing expires: there are no windows and no horizon.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ragmeter.config.settings import Settings
from ragmeter.core.feedback import PEOPLE, Feedback, Verdict
from ragmeter.core.metric_specs import find_helping_spec
from ragmeter.core.score import BUILTIN_SCORER, Score, ScoredTrace
from ragmeter.core.tiers import MetricScorer
from ragmeter.ingest.files import MAX_SHOWN
from ragmeter.metrics.labelled import (
    SORTED_BY,
    VERDICT_METRICS,
    label_results,
    label_scores,
    labelled_metric_names,
    unlabelled_results,
    verdict_values,
)
from ragmeter.metrics.merged_labels import (
    GivenLabels,
    effective_labels,
    ranked_passage_keys,
    read_given,
    trace_key,
)
from ragmeter.metrics.registry import metric_specs
from ragmeter.offline.backtest import Backtest
from ragmeter.offline.scored_lines import InvalidScoredLine, decode_scored_line, read_scored_lines
from ragmeter.parts.questions.estimator import narrowest, regression_estimate
from ragmeter.trace import Trace
from ragmeter.windows.estimators import Interval, widen_for_missing
from ragmeter.windows.intervals import estimate_interval
from ragmeter.windows.sums import stratum_key
from ragmeter.windows.windows import Windows

MINI_SCORER = "mini"  # the embedded model
_PEOPLE_METRICS = tuple(VERDICT_METRICS.values())


class FileFeedback:
    """The feedback of a file, to be joined to the traces of another.

    Attributes:
        number: Items of feedback.
        used: Items whose trace was scored so far.
        pairs: (metric, scorer) of every result that they may give.
    """

    def __init__(self, feedback: Iterable[Feedback], ks: Sequence[int]) -> None:
        self._ks = sorted(set(ks))
        self._by_trace: dict[bytes, list[tuple[str | None, str, GivenLabels]]] = {}
        self.number = self.used = 0
        scorers: set[str] = set()
        for item in feedback:
            row = (item.service, item.scorer, read_given(item))
            self._by_trace.setdefault(trace_key(item.trace_id), []).append(row)
            scorers.add(item.scorer)
            self.number += 1
        self.pairs: list[MetricScorer] = [
            (metric, scorer)
            for scorer in sorted(scorers)
            for metric in labelled_metric_names(self._ks)
        ]

    def scores(self, trace: Trace) -> list[Score]:
        """Return the results that the labels of a trace give, by scorer."""
        rows = self._by_trace.get(trace_key(trace.trace_id), ())
        passages = ranked_passage_keys(trace) if rows else None
        by_scorer: dict[str, GivenLabels] = {}
        for service, scorer, given in rows:
            if service in (None, trace.service):
                self.used += 1
                before = by_scorer.get(scorer, GivenLabels())
                by_scorer[scorer] = before.merge(given.restrict(passages))
        return [
            score
            for scorer, given in sorted(by_scorer.items())
            for score in self._results(trace, passages, scorer, given)
        ]

    def _results(
        self, trace: Trace, passages: Sequence[str] | None, scorer: str, given: GivenLabels
    ) -> list[Score]:
        labels = effective_labels(given.labels)
        probability = trace.probability
        if given.probability:
            probability *= given.probability.probability
        ranked = labels.by_rank(passages)
        values = label_scores(ranked, labels.answer, self._ks, labels.verdict)
        return label_results(values.items(), scorer, probability)


def read_cheap_scores(scored: ScoredTrace) -> tuple[dict[str, float], str]:
    """Return the scores that help to estimate people's labels by metric, and whose grounding is.

    That is the embedded model's where it has scored the trace; all others are built-in.
    """
    by_pair = {(score.metric, score.scorer): score.value for score in scored.results}
    named = MINI_SCORER if by_pair.get((SORTED_BY, MINI_SCORER)) is not None else BUILTIN_SCORER
    cheap: dict[str, float] = {}
    for metric in _PEOPLE_METRICS:
        helping = find_helping_spec(metric_specs(), metric)
        for scorer in (named, BUILTIN_SCORER):
            value = by_pair.get((helping.name if helping else metric, scorer))
            if value is not None:
                cheap.setdefault(metric, value)
    return cheap, named


class PeopleEstimate(NamedTuple):
    """Holds what people would say of all traces of a file, from `samples` labels."""

    metric: str
    interval: Interval
    samples: int


def estimate_people(
    cheap: Sequence[Mapping[str, float]],
    labels: Mapping[int, tuple[Verdict, float]],
    helper: str,
) -> list[PeopleEstimate]:
    """Estimate people's rates over all traces from the labels of some, as a question's number is.

    Args:
        cheap: The helping scores of every trace by metric (`read_cheap_scores`).
        labels: The labels and the probability of the labelled traces, by their index.
        helper: Whose the helping scores of grounding are.

    Returns:
        One estimate for each metric with a label: the narrowest of the plain one and those with the
        help of the scores.
    """
    windows = Windows(["24h"], min_samples=1)
    traces = [
        ScoredTrace(
            trace_id=str(at),
            service="",
            timestamp=0.0,
            status="ok",
            results=_in_classes(unlabelled_results(_PEOPLE_METRICS, scores)),
        )
        for at, scores in enumerate(cheap)
    ]
    given: dict[str, list[tuple[int, float, float]]] = {}
    for at, (verdict, probability) in labels.items():
        values = verdict_values(verdict)
        results = label_results(values.items(), PEOPLE, probability, cheap[at])
        traces.append(
            ScoredTrace(
                trace_id=str(at),
                service="",
                timestamp=0.0,
                status="ok",
                results=_in_classes(results),
                partial=True,
            )
        )
        for metric, value in values.items():
            if isinstance(value, float):
                given.setdefault(metric, []).append((at, value, probability))
    windows.advance(0.0)
    for trace in traces:
        windows.add(trace, "", ())
    estimates = []
    for metric in _PEOPLE_METRICS:
        cell = windows.cell("", "", metric, PEOPLE, "24h")
        if cell is None or not cell.scored:
            continue
        candidates = [estimate_interval(cell, 0.0, 1.0)]
        if metric == VERDICT_METRICS["answered"]:  # its cheap score is 0 or 1
            candidates.append(estimate_interval(cell, 0.0, 1.0, assisted=True))
        all_scores = [scores.get(metric, math.nan) for scores in cheap]
        guess = metric == SORTED_BY and helper != BUILTIN_SCORER
        regression = _regression(given[metric], all_scores, plain=candidates[0], guess=guess)
        if regression is not None:
            candidates.append(regression)
        interval = narrowest(candidates, cell.scored / len(cheap))
        if missing := cell.unscored_share():
            interval = widen_for_missing(interval, missing, 0.0, 1.0)
        estimates.append(PeopleEstimate(metric, interval, cell.scored))
    return estimates


def _in_classes(results: list[Score]) -> list[Score]:
    """Name the class of the cheap score in the stratum of each result."""
    for score in results:
        score.stratum = stratum_key(score.stratum, score.cheap)
    return results


def _regression(
    given: Sequence[tuple[int, float, float]],
    cheap: Sequence[float],
    *,
    plain: Interval,
    guess: bool,
) -> Interval | None:
    """Estimate a mean from (index, value, probability) of some traces and the scores of all."""
    scores = np.array(cheap)
    at = [index for index, *_ in given]
    return regression_estimate(
        values=np.array([value for _, value, _ in given]),
        weights=np.array([1 / probability for *_, probability in given]),
        cheap=scores[at, None],
        traffic=scores[:, None],
        traffic_weights=np.ones(len(scores)),
        plain=plain,
        total=float(len(scores)),
        guess=0 if guess else None,
    )


# Timestamp given to all traces: they share one bucket, so that a file of a year fits a window.
_MOMENT = 1_700_000_400.0


def fill_windows(path: Path, settings: Settings, say: Callable[[str], None]) -> Windows | None:
    """Fill windows with all traces of a scored file, each once; None if none could be read.

    Raises:
        OSError: The file cannot be read.
    """
    backtest = Backtest(settings, ())
    counts = backtest.counts
    limit = settings.limits.trace_bytes
    for text, number in read_scored_lines(path, limit):
        try:
            line = decode_scored_line(text, limit)
        except InvalidScoredLine as error:
            counts.bad += 1
            if counts.bad <= MAX_SHOWN:
                say(f"{path}: line {number}: {error}")
            continue
        backtest.feed(replace(line, trace=line.trace._replace(timestamp=_MOMENT)))
    backtest.finish()
    say(f"{path}: {counts.traces} traces, {counts.bad} lines unreadable")
    return backtest.windows if counts.traces else None
