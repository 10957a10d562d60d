"""Read whole files for `ragmeter score` and `ragmeter segments`.

Feedback is joined, and windows are filled.
Unlike in the running agent nothing expires: there are no windows and no horizon.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

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
from ragmeter.trace import Trace
from ragmeter.windows.intervals import assisted_scorer
from ragmeter.windows.series import Estimate
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
    """What people would say of all traces of a file."""

    metric: str
    scorer: str
    estimate: Estimate


def estimate_people(
    cheap: Sequence[Mapping[str, float]],
    labels: Mapping[int, tuple[Verdict, float]],
    helper: str,
) -> list[PeopleEstimate]:
    """Estimate people's rates over all traces from the labels of some, as the windows do.

    Args:
        cheap: The helping scores of every trace by metric (`read_cheap_scores`).
        labels: The labels and the probability of the labelled traces, by their index.
        helper: Whose the helping scores of grounding are, for the name of the scorer.

    Returns:
        For each question the estimate of the labels alone, then that with the help of the scores.
    """
    windows = Windows(["24h"], min_samples=1)
    traces = [
        ScoredTrace(
            trace_id=str(at),
            service="",
            timestamp=0.0,
            status="ok",
            results=unlabelled_results(_PEOPLE_METRICS, scores),
        )
        for at, scores in enumerate(cheap)
    ]
    for at, (verdict, probability) in labels.items():
        values = verdict_values(verdict).items()
        results = label_results(values, PEOPLE, probability, cheap[at])
        traces.append(
            ScoredTrace(
                trace_id=str(at),
                service="",
                timestamp=0.0,
                status="ok",
                results=results,
                partial=True,
            )
        )
    windows.advance(0.0)
    for trace in traces:
        windows.add(trace, "", ())
    estimates = []
    for metric in _PEOPLE_METRICS:
        # the embedded model scores grounding alone
        helped = f"{PEOPLE}+{helper if metric == SORTED_BY else BUILTIN_SCORER}"
        for scorer, name in ((PEOPLE, PEOPLE), (assisted_scorer(PEOPLE), helped)):
            if (metric, scorer) in windows.series(""):
                estimate = windows.estimate("", "", metric, scorer, "24h")
                if estimate is not None:
                    estimates.append(PeopleEstimate(metric, name, estimate))
    return estimates


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
