"""One run of a report: its scored traces summarised by series.

The sums are those of the agent's windows, with a single window for all timestamps, so that a report
and a gauge agree on the same traces.
"""

from __future__ import annotations

import math
import statistics
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property

from ragmeter.core.counters import Counts
from ragmeter.core.feedback import PEOPLE
from ragmeter.core.label_bounds import OTHER_LABEL
from ragmeter.core.metric_specs import MetricSpec, base_name, display_rank
from ragmeter.core.score import Score, ScoredTrace, ScoreState, UnsupportedSpan, read_unsupported
from ragmeter.core.series import FingerprintRegistry, is_overflow_series, split_scorer
from ragmeter.ingest.redaction import Redactor
from ragmeter.metrics.consistency import AnswerConsistency, answer_consistency
from ragmeter.metrics.registry import metric_specs
from ragmeter.offline.judging_summary import JudgingSummary
from ragmeter.offline.report.box_plot import BoxPlot, compute_box_plot
from ragmeter.offline.scored_lines import bound_strata, split_slow_results
from ragmeter.parts.views import Answer, FileAnswers
from ragmeter.windows.estimators import Interval
from ragmeter.windows.intervals import estimate_interval
from ragmeter.windows.people_agreement import (
    LabelledScores,
    ScorerAgreement,
    compare_with_people,
    labelled_scores,
)
from ragmeter.windows.series import Estimate, Quantile
from ragmeter.windows.windows import Windows
from ragmeter.windows.worst import tie_break, worst_sign

WINDOW = "1h"  # any window will do: all traces get the same timestamp
SERVICE = "run"
# Answers to a question that are compared with each other: 45 pairs, as many as a spread needs.
MAX_ANSWERS = 10
MAX_MARKED = 1_000  # traces whose unsupported words are at hand, the worst: 6 MB at most
MAX_REASONS = 50  # distinct reasons of a series counted by name: they come from a file


@dataclass(slots=True)
class SeriesScores:
    """Scores of a series; `keys` holds the index of each trace in `ScoredRun.keys`."""

    keys: array[int] = field(default_factory=lambda: array("q"))
    values: array[float] = field(default_factory=lambda: array("d"))
    probabilities: array[float] = field(default_factory=lambda: array("d"))

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True, slots=True)
class TraceText:
    """Shortened query and answer of a trace, shown beside its score."""

    query: str = ""
    answer: str = ""


@dataclass(frozen=True, slots=True)
class WorstScore:
    """Score of one of the worst traces, and what nothing supports in its answer."""

    trace_id: str
    value: float
    unsupported: tuple[UnsupportedSpan, ...] = ()


@dataclass(frozen=True, slots=True)
class RepeatedScores:
    """The variation of the scores of a question that was asked several times.

    Args:
        questions: Questions with at least two scores.
        scores: Scores of these questions.
        mean: Mean over the questions of their mean score.
        variance: Mean over the questions of the sample variance of their scores.
    """

    questions: int
    scores: int
    mean: float
    variance: float

    @property
    def variation(self) -> float | None:
        """The coefficient of variation, root of `variance` over `mean`; None at a mean of 0."""
        return math.sqrt(self.variance) / self.mean if self.mean > 0 else None


def summarise_repeats(
    keys: Sequence[str | None], scores: SeriesScores, more: Sequence[tuple[str, float]] = ()
) -> RepeatedScores | None:
    """Summarise the questions with several scores; None without any.

    `keys` has the question of each trace of the run, `more` further scores of questions.
    """
    by_question: dict[str, list[float]] = {}
    for index, value in zip(scores.keys, scores.values, strict=True):
        key = keys[index]
        if key is not None:
            by_question.setdefault(key, []).append(value)
    for key, value in more:
        by_question.setdefault(key, []).append(value)
    repeated = [values for values in by_question.values() if len(values) > 1]
    if not repeated:
        return None
    return RepeatedScores(
        len(repeated),
        sum(map(len, repeated)),
        statistics.fmean(map(statistics.fmean, repeated)),
        statistics.fmean(map(statistics.variance, repeated)),
    )


@dataclass(frozen=True, slots=True)
class RunSeries:
    """Results of a run for one metric by one version of a scorer.

    Args:
        fingerprint: Version of the scorer, or empty.
        scores: All scores of the series.
        estimate: Mean with its interval; None where nothing was scored.
        plain: Interval of the scored traces alone, before unscored traces widen it.
        states: Number of results by state.
        reasons: Number of results by state and reason.
        worst: Worst traces, worst first.
        weighted: True if any score has a probability below 1.
        repeats: Of questions that were asked several times; None if there are none.
        instrument: Name of the model behind the fingerprint, or empty.
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
    repeats: RepeatedScores | None
    instrument: str = ""

    @property
    def two_valued(self) -> bool:
        """True if the scores are shares of yes and no, which have no useful quartiles."""
        return self.spec.kind == "ratio" or set(self.scores.values) <= {0.0, 1.0}


class ScoredRun:
    """Scored traces of one file, summed up by series.

    Each trace is added once. `keys[i]` is the pairing key of the i-th trace (None: unpaired) and
    `ids[i]` its id; `period` has the Unix times of the first and the last trace.

    Args:
        name: Name shown in the report.
        redactor: Redacts texts of details; without it none is shown.
        questions: Answers the questions of its traces.

    Attributes:
        judging: The judges, their instruments and what they cost, as far as the file says.
        notes: Remarks about the input.
        texts: Texts of traces by trace id; runs may differ in their answers.
        groups: Parts of the run by the value of a tag.
    """

    def __init__(
        self, name: str, redactor: Redactor | None = None, questions: FileAnswers | None = None
    ) -> None:
        self.name = name
        self._questions = questions or FileAnswers()
        self._redactor = redactor
        self.judging = JudgingSummary()
        self.notes: list[str] = []
        self.texts: dict[str, TraceText] = {}
        self.groups: list[ScoredRun] = []
        self.traces = 0
        self.services: Counter[str] = Counter()
        self.period: tuple[float, float] | None = None
        self.keys: list[str | None] = []
        self.ids: list[str] = []
        self._fingerprints = FingerprintRegistry()
        self._windows = Windows((WINDOW,), min_samples=1, current=self._fingerprints.current)
        self._scores: dict[tuple[str, str], SeriesScores] = {}
        self._reasons: dict[tuple[str, str], dict[str, Counter[str]]] = {}
        self._strata: set[str] = set()
        self._again: dict[tuple[str, str], list[tuple[str, float]]] = {}
        self._answers: dict[str, list[str]] = {}
        self._spans: dict[int, tuple[float, list[UnsupportedSpan]]] = {}
        self._labelled: list[LabelledScores] = []

    @cached_property
    def agreement(self) -> list[ScorerAgreement]:
        """How well the scorers agree with people's labels, where the traces have any."""
        return compare_with_people(self._labelled)

    @cached_property
    def answers(self) -> Sequence[Answer]:
        """The questions of its traces; none where nothing answers them."""
        return self._questions.answers()

    @cached_property
    def consistency(self) -> AnswerConsistency | None:
        """How alike the answers are that `add_answer` was given."""
        return answer_consistency(self._answers.values())

    def add_answer(self, question: str, answer: str) -> None:
        """Add the text of an answer; those beyond `MAX_ANSWERS` to a question are left out."""
        answers = self._answers.setdefault(question, [])
        if len(answers) < MAX_ANSWERS:
            answers.append(answer)

    @property
    def dates(self) -> str:
        """The days of the traces in UTC, such as `2026-01-15 to 2026-01-17`."""
        return " to ".join(dict.fromkeys(time[:10] for time in self.times if time))

    @property
    def times(self) -> list[str | None]:
        """The times of the first and the last trace in UTC (RFC 3339)."""
        if self.period is None:
            return [None, None]
        return [datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds") for at in self.period]

    @property
    def measured(self) -> set[str]:
        """The base names of the metrics that have a score."""
        return {base_name(metric) for metric, _ in self._scores}

    def add_again(self, scored: ScoredTrace, question: str) -> None:
        """Count a further answer to a question, for `RunSeries.repeats` alone.

        Answers to one question are alike: as traces of their own they would make the interval
        narrower than the questions allow.
        """
        self.judging.add(scored.judging)
        for score in scored.results:
            if score.value is not None:
                pair = (score.metric, score.scorer)
                self._again.setdefault(pair, []).append((question, score.value))

    def add(self, scored: ScoredTrace, key: str | None) -> None:
        """Count a trace, which the run owns afterwards; `key` is its pairing key."""
        index = self.traces
        self.traces += 1
        self.judging.add(scored.judging)
        self.services[scored.service] += 1
        if scored.timestamp > 0:  # a CSV of open-rag-eval has no times
            first, last = self.period or (scored.timestamp, scored.timestamp)
            self.period = min(first, scored.timestamp), max(last, scored.timestamp)
        self.keys.append(key)
        self.ids.append(scored.trace_id)
        if any(score.scorer == PEOPLE for score in scored.results):
            labelled = labelled_scores([score.to_dict() for score in scored.results])
            self._labelled += [] if labelled is None else [labelled]
        bound_strata(scored.results, self._strata)
        scored, slow = split_slow_results(scored._replace(timestamp=0.0, service=SERVICE))
        if slow is not None:
            slow = slow._replace(results=[self._in_series(score) for score in slow.results])
        self._questions.add(scored, slow)
        for trace in (scored, slow):
            if trace is not None:
                for score in trace.results:
                    self._note(index, score)
                self._windows.add(trace, SERVICE)

    def _in_series(self, score: Score) -> Score:
        name, _ = self._fingerprints.assign_series(score)
        return score if name == score.scorer else replace(score, scorer=name)

    def _note(self, index: int, score: Score) -> None:
        pair = (score.metric, score.scorer)
        if score.state is ScoreState.SCORED and score.value is not None:
            scores = self._scores.setdefault(pair, SeriesScores())
            scores.keys.append(index)
            scores.values.append(score.value)
            scores.probabilities.append(score.probability)
            if self._redactor is not None and (spans := read_unsupported(score.detail)):
                self._spans[index] = score.value, spans
                if len(self._spans) > 2 * MAX_MARKED:
                    worst = sorted(self._spans.items(), key=lambda item: item[1][0])
                    self._spans = dict(worst[:MAX_MARKED])
        elif score.reason:
            states = self._reasons.setdefault(pair, {})
            reasons = states.setdefault(str(score.state), Counter())
            counted_by_name = score.reason in reasons or len(reasons) < MAX_REASONS
            reasons[score.reason if counted_by_name else OTHER_LABEL] += 1

    def _names(self, metric: str, scorer: str) -> list[str]:
        """List the series shown under the name of a scorer.

        The plain name stands for results without a version and those of the current version; the
        name of a version stands for itself.
        """
        return list(dict.fromkeys((scorer, self._windows.current_scorer(metric, scorer))))

    def scores(self, metric: str, scorer: str) -> SeriesScores:
        """Collect the scores of a series, named as in the windows."""
        combined = SeriesScores()
        for name in self._names(metric, scorer):
            scores = self._scores.get((metric, name), SeriesScores())
            combined.keys += scores.keys
            combined.values += scores.values
            combined.probabilities += scores.probabilities
        return combined

    def series(self, worst: int) -> Iterator[RunSeries]:
        """Yield every series in the order of the status page, each with `worst` traces at most."""
        windows = self._windows
        pairs = windows.series(SERVICE)
        for metric, scorer in sorted(pairs, key=lambda pair: (display_rank(pair[0]), pair)):
            spec = metric_specs().get(base_name(metric))
            if spec is None or is_overflow_series(scorer):
                continue
            base_scorer, fingerprint = split_scorer(windows.current_scorer(metric, scorer))
            scores = self.scores(metric, scorer)
            reasons: dict[str, Counter[str]] = {}
            for name in self._names(metric, scorer):
                for state, counted in self._reasons.get((metric, name), {}).items():
                    reasons.setdefault(state, Counter()).update(counted)
            yield RunSeries(
                metric=metric,
                scorer=base_scorer,
                fingerprint=fingerprint,
                spec=spec,
                scores=scores,
                estimate=windows.estimate(SERVICE, "", metric, scorer, WINDOW),
                plain=self._plain(metric, scorer, spec),
                box=compute_box_plot(scores.values, scores.probabilities),
                states=windows.states(SERVICE, "", metric, scorer, WINDOW),
                reasons=reasons,
                worst=tuple(self._worst(metric, scores, worst)),
                weighted=any(probability != 1 for probability in scores.probabilities),
                repeats=summarise_repeats(self.keys, scores, self._again.get((metric, scorer), ())),
                instrument=self.judging.model(fingerprint),
            )

    def _plain(self, metric: str, scorer: str, spec: MetricSpec) -> Interval | None:
        cell = self._windows.cell(SERVICE, "", metric, scorer, WINDOW)
        if cell is None or not cell.scored:
            return None
        return estimate_interval(cell, spec.low, spec.high)

    def _worst(self, metric: str, scores: SeriesScores, most: int) -> Iterator[WorstScore]:
        """Yield the worst scores, worst first; a hash of the id breaks ties.

        The best possible value is left out, so that a ratio shows bad outcomes only.
        """
        sign = worst_sign(metric, metric_specs())
        spec = metric_specs()[base_name(metric)]
        if not sign:
            return
        best = spec.high if sign > 0 else spec.low
        ranked = sorted(
            (sign * value, tie_break(self.ids[index]), index)
            for index, value in zip(scores.keys, scores.values, strict=True)
            if value != best
        )
        for value, _, index in ranked[:most]:
            _, spans = self._spans.get(index if metric == "grounding" else -1, (0.0, []))
            redact = self._redactor.text if self._redactor else None
            shown = [
                replace(span, text=text, evidence=redact(span.evidence, Counts()) or "")
                for span in spans
                if redact and (text := redact(span.text, Counts()))
            ]
            # Adding 0.0 turns -0.0 into 0.0.
            yield WorstScore(self.ids[index], sign * value + 0.0, tuple(shown))

    def latency(self) -> list[tuple[str, Sequence[Quantile]]]:
        """Compute the latency quantiles, in seconds, of each stage that has any."""
        windows = self._windows
        quantiles = (
            (s, windows.quantiles(SERVICE, "", s, WINDOW)) for s in windows.stages(SERVICE)
        )
        return [(stage, numbers) for stage, numbers in quantiles if numbers]
