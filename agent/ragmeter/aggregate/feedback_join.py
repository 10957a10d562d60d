"""Join feedback to the traces that were counted, and count its labels.

Feedback is durable from the moment it is accepted until the commit that counts it, and a trace is
remembered from the commit that counts it until the horizon ends. So a process that dies repeats
what was not committed, and nothing counts twice. Merging labels does not depend on their order
(`ragmeter.aggregate.feedback_records`), and their results are taken out of the windows and added
anew when they change: late, repeated and corrected labels end in the same numbers.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import NamedTuple

from ragmeter.aggregate.aggregator import Aggregator
from ragmeter.aggregate.feedback_records import (
    FeedbackLabels,
    FeedbackTrace,
    ModelSample,
    ScorerFeedback,
    hash_passage_ids,
    labels_by_rank,
    trace_key,
)
from ragmeter.config.inputs import FeedbackSettings
from ragmeter.config.settings import Settings
from ragmeter.core.clocks import parse_window
from ragmeter.core.counters import GaugeSample
from ragmeter.core.feedback import HUMAN, PEOPLE, RESERVED_SCORERS
from ragmeter.core.label_bounds import NameAdmission
from ragmeter.core.metric_specs import base_name
from ragmeter.core.score import Score, ScoredTrace, ScoreState
from ragmeter.core.series import split_scorer
from ragmeter.metrics.labelled import (
    PEOPLE_STRATUM,
    SORTED_BY,
    find_model_score,
    label_results,
    label_scores,
    labelled_metric_names,
    unlabelled_results,
)
from ragmeter.metrics.ranking import rank_order
from ragmeter.store.pending import (
    FeedbackChanges,
    FeedbackStore,
    NewFeedback,
    NewRememberedTrace,
    RememberedTrace,
    StoredFeedback,
)
from ragmeter.trace import Trace
from ragmeter.windows.intervals import is_assisted
from ragmeter.windows.sums import upstream_stratum
from ragmeter.windows.windows import Windows

log = logging.getLogger(__name__)

_scorer_of = attrgetter("scorer")

# Each feedback ends in exactly one of these.
OUTCOMES = {
    "joined": "its labels are counted",
    "repeated": "its labels change nothing: they were counted before, or later ones were",
    "unmatched": "no trace of this id came within the horizon",
    "late": "its trace has left the longest window",
    "ambiguous": "several services have a trace of this id, and it names none",
    "no_such_passage": "it labels passages only, and none of its trace's",
    "too_many_scorers": "there is no room for one scorer more (feedback.scorers)",
    "shed": "too much feedback was waiting (feedback.waiting)",
    "internal_error": "counting it failed",
}

# Seconds of event time between two searches for feedback that has waited too long. At full
# minutes, so that the result depends on event time alone and not on when the process started.
_SEARCH_SECONDS = 60.0


class CountedTrace(NamedTuple):
    """A trace that was counted just now.

    Args:
        service: Its service as it was sent.
        passages: The hashes of its passages in rank order; None: not captured.
        scored: The trace under its bounded names.
        segments: The segments it was counted in.
    """

    service: str
    passages: tuple[str, ...] | None
    scored: ScoredTrace
    segments: tuple[str, ...]


def ranked_passage_keys(trace: Trace) -> tuple[str, ...] | None:
    """Return the value of `CountedTrace.passages`."""
    if trace.passages is None:
        return None
    passages = trace.passages
    return hash_passage_ids([passages[index].id for index in rank_order(passages)])


class FeedbackJoin:
    """Joins the feedback in a store to the traces that were counted.

    Not safe to use from several threads but for `unread` and `has_read_up_to`.

    Args:
        settings: The settings of the agent.
        rows: The store: tables of the state file, or rows of a partition on Kafka.
        share: How many such objects share the limits of the settings.
    """

    def __init__(self, settings: Settings, rows: FeedbackStore, share: int = 1) -> None:
        self._rows = rows
        self._max_traces = -(-settings.feedback.traces // share)
        self._max_waiting = -(-settings.feedback.waiting // share)
        self._settings = settings.feedback
        self._ks = sorted(set(settings.judge.k))
        longest = max(map(parse_window, settings.windows))
        wanted = settings.feedback.horizon
        self.horizon = float(min(longest, parse_window(wanted)) if wanted else longest)
        self._traces = 0
        self._reset()

    def restore(self) -> None:
        """Begin with the content of the store; all feedback in it is read anew."""
        self._reset()
        self._traces = self._rows.count_remembered()

    def _reset(self) -> None:
        self._read = self._taken = 0  # the last ids that were joined and that `take` gave
        self._waiting = WaitingFeedback()
        self._forgotten = self._searched = -math.inf
        self._scorers = _ScorerAdmission(self._settings, self._ks)

    def _horizon_start(self, now: float) -> float:
        return now // _SEARCH_SECONDS * _SEARCH_SECONDS - self.horizon

    def unread(self) -> int:
        """Return how much feedback was never read."""
        return self._rows.count_feedback(self._read)

    def has_read_up_to(self, number: int) -> bool:
        """Return whether the feedback of this id, and all before it, was read."""
        return not self._rows.count_feedback(self._read, number)

    def gauges(self) -> list[GaugeSample]:
        """Return how much feedback waits and how many traces are remembered."""
        return [
            ("ragmeter_feedback_waiting", (), float(self._rows.count_feedback())),
            ("ragmeter_feedback_traces", (), float(self._traces)),
        ]

    def remember(self, counted: Iterable[CountedTrace], aggregator: Aggregator) -> FeedbackChanges:
        """Return the changes that remember traces which were counted just now.

        Canaries are left out: their reference labels them. So are traces that came too late for
        every window.
        """
        now = aggregator.windows.now
        past = -math.inf if now is None else self._horizon_start(now)
        remembered: list[NewRememberedTrace] = []
        for one in counted if self._max_traces else ():
            scored = one.scored
            at = one.scored.timestamp
            if scored.canary or at < past or aggregator.windows.too_late(at):
                continue
            trace = FeedbackTrace(
                trace_id=scored.trace_id,
                service=scored.service,
                segments=one.segments,
                timestamp=at,
                probability=scored.probability,
                passages=one.passages,
                cheap=_helping_scores(scored),
            )
            if trace.cheap is not None:
                self._add_sample(trace, scored, aggregator)
            key = trace_key(scored.trace_id)
            remembered.append(NewRememberedTrace(key, one.service, at, trace.dump()))
            self._waiting.arrived(key)
        changes = FeedbackChanges(remembered)
        if past > self._forgotten:
            self._forgotten = changes.before = past
            self._traces -= self._rows.count_remembered(past)
        self._traces += len(remembered)
        changes.shed = max(0, self._traces - self._max_traces)
        if changes.shed:
            self._traces -= changes.shed
            aggregator.counters.inc("ragmeter_feedback_traces_shed_total", by=changes.shed)
        return changes

    def add_model_scores(
        self, finished: Iterable[tuple[str, ScoredTrace]], aggregator: Aggregator
    ) -> FeedbackChanges:
        """Return the changes that add a local model's scores to remembered traces.

        Args:
            finished: The service as it was sent, and the results of a tier.
            aggregator: Its windows get the sizes of what the labels stand for.
        """
        changed: list[tuple[int, bytes]] = []
        for service, scored in finished:
            if find_model_score(scored.results) is None:
                continue
            for row in self._rows.remembered_traces(trace_key(scored.trace_id), service):
                trace = FeedbackTrace.load(row.body)
                if trace.cheap is None or aggregator.windows.too_late(trace.timestamp):
                    continue
                self._add_sample(trace, scored, aggregator)
                labels = trace.by_scorer.get(PEOPLE)
                if trace.sample and labels and labels.probability:
                    results = trace.sample.results(labels.counted, labels)
                    empty = _partial(trace, [])
                    labelled = _partial(trace, results)
                    aggregator.amend(empty, labelled, trace.segments)
                changed.append((row.id, trace.dump()))
        return FeedbackChanges(labelled=changed)

    @staticmethod
    def _add_sample(trace: FeedbackTrace, scored: ScoredTrace, aggregator: Aggregator) -> None:
        """Count a trace that a local model was drawn to score in the strata of its score.

        A draw that was shed is left out, as if the rate had been lower.
        """
        score = find_model_score(scored.results)
        if score is None or score.state in (ScoreState.SAMPLED_OUT, ScoreState.SHED):
            return
        share = min(1.0, score.probability / scored.probability)
        name = f"{PEOPLE}+{split_scorer(score.scorer)[0]}"
        trace.sample = sample = ModelSample(name, score.value, score.probability, share)
        pending = ((SORTED_BY, name, sample.stratum, sample.value),)
        size = _partial(trace, [])._replace(probability=score.probability, pending=pending)
        aggregator.windows.add(size, trace.service, trace.segments)

    def take(self, limit: int, now: float | None) -> list[StoredFeedback]:
        """Return feedback to join now: its trace has come, its time is up, or it is new."""
        due = self._waiting.ready(limit)
        for number in due:
            self._waiting.forget(number)
        due += [number for number in self._overdue(now) if number not in due][: limit - len(due)]
        rows = [row for row in map(self._rows.row, due) if row is not None]
        new = self._rows.rows(self._read, limit - len(rows)) if len(rows) < limit else []
        self._taken = new[-1].id if new else 0
        taken = {row.id for row in rows}  # after a failure all that waits is new again
        return [*rows, *(row for row in new if row.id not in taken)]

    def mark_read(self) -> None:
        """Mark the feedback that `take` gave as joined; call it once that is durable."""
        self._read = max(self._read, self._taken)

    def _overdue(self, now: float | None) -> list[int]:
        over = max(0, len(self._waiting) - self._max_waiting)
        late: list[int] = []
        if now is not None and (past := self._horizon_start(now)) > self._searched:
            late = self._waiting.waiting_since_before(past)
            self._searched = past if not late else self._searched
        return sorted({*late, *(self._waiting.oldest(over) if over else ())})

    def join(self, rows: Sequence[StoredFeedback], aggregator: Aggregator) -> FeedbackChanges:
        """Count the labels of feedback; hold the lock of `aggregator`."""
        traces: dict[int, FeedbackTrace] = {}  # by their id in the store
        changed: dict[int, None] = {}
        done: list[int] = []
        for row in rows:
            match = self._match(row, aggregator)
            if match is None:
                self._waiting.add(row.id, row.new.trace, row.new.since)
                continue
            outcome = match if isinstance(match, str) else ""
            if not isinstance(match, str):
                if match.id not in traces:
                    traces[match.id] = FeedbackTrace.load(match.body)
                outcome = self._count_labels(traces[match.id], row.new, aggregator)
                if outcome == "joined":
                    changed[match.id] = None
            self._waiting.forget(row.id)
            done.append(row.id)
            _count_outcome(aggregator, outcome)
        labelled = [(number, traces[number].dump()) for number in changed]
        return FeedbackChanges(labelled=labelled, done=done)

    def _match(self, row: StoredFeedback, aggregator: Aggregator) -> RememberedTrace | str | None:
        """Return the trace of a feedback, the outcome without one, or None to let it wait."""
        traces = self._rows.remembered_traces(row.new.trace, row.new.service)
        if traces:
            return traces[0] if len(traces) == 1 else "ambiguous"
        now = aggregator.windows.now
        if now is not None and row.new.since < self._horizon_start(now):
            return "unmatched"
        # `take` gives feedback that has waited before its trace came only if too much waits
        waited = row.id in self._waiting
        return "shed" if waited and len(self._waiting) > self._max_waiting else None

    def _count_labels(
        self, trace: FeedbackTrace, feedback: NewFeedback, aggregator: Aggregator
    ) -> str:
        if aggregator.windows.too_late(trace.timestamp):
            return "late"
        labels = trace.restrict(FeedbackLabels.load(feedback.body))
        if not labels.label_values:
            return "no_such_passage"
        scorer = feedback.scorer
        if not self._scorers.admit(scorer, aggregator.windows):
            return "too_many_scorers"
        old = trace.by_scorer.get(scorer, ScorerFeedback())
        new = old.add(labels)
        if new.label_values == old.label_values and new.probability == old.probability:
            return "repeated"
        trace.by_scorer[scorer] = new
        self._amend(trace, scorer, old, aggregator)
        return "joined"

    def _amend(
        self, trace: FeedbackTrace, scorer: str, old: ScorerFeedback, aggregator: Aggregator
    ) -> None:
        """Replace the results of a scorer in the windows as far as they changed."""
        new = trace.by_scorer[scorer]
        labels = new.labels()
        ranked = labels_by_rank(trace, labels)
        scores = label_scores(ranked, labels.answer, self._ks, labels.verdict)
        new.counted = tuple(scores.items())
        new.weighed = trace.probability * (new.probability.probability if new.probability else 1.0)
        alike = (old.weighed, old.drawn_here) == (new.weighed, new.drawn_here)
        same = set(old.counted) & set(new.counted) if alike else set()

        stratum = upstream_stratum(PEOPLE_STRATUM, trace.probability)

        def changed_results(feedback: ScorerFeedback) -> list[Score]:
            values = [value for value in feedback.counted if value not in same]
            cheap = feedback.drawn_from(trace, scorer)
            results = label_results(
                values=values,
                scorer=scorer,
                probability=feedback.weighed,
                cheap=cheap,
                stratum=stratum,
            )
            if cheap is not None and trace.sample is not None:
                results += trace.sample.results(values, feedback)
            if feedback is old and (cheap := new.drawn_from(trace, scorer)) is not None:
                # a drawn trace was counted as sampled out until its labels came
                counted = dict(old.counted) if old.probability else {}
                waiting = [m for m in scores if m not in counted]
                results += unlabelled_results(waiting, cheap, stratum)
            return results

        before, after = _partial(trace, changed_results(old)), _partial(trace, changed_results(new))
        aggregator.amend(before, after, trace.segments)

    def give_up(self, row: StoredFeedback, aggregator: Aggregator) -> FeedbackChanges:
        """Return the changes that drop a feedback which cannot be counted."""
        log.error("feedback %d cannot be counted and is dropped", row.id)
        self._waiting.forget(row.id)
        _count_outcome(aggregator, "internal_error")
        return FeedbackChanges(done=[row.id])

    def waiting_for(self, trace: bytes) -> list[StoredFeedback]:
        """Return the feedback that waits for a trace."""
        rows = map(self._rows.row, self._waiting.waiting_for(trace))
        return [row for row in rows if row is not None]


def _partial(trace: FeedbackTrace, results: list[Score]) -> ScoredTrace:
    """Return a trace with results to be added to what was counted of it."""
    return ScoredTrace(
        trace_id=trace.trace_id,
        service=trace.service,
        timestamp=trace.timestamp,
        status="ok",
        results=results,
        probability=trace.probability,
        partial=True,
    )


def _helping_scores(scored: ScoredTrace) -> dict[str, float] | None:
    """Return the value of `FeedbackTrace.cheap`."""
    if PEOPLE not in map(_scorer_of, scored.results):
        return None
    drawn = [score for score in scored.results if score.scorer == PEOPLE]
    return {score.metric: score.cheap for score in drawn if score.cheap is not None}


def _count_outcome(aggregator: Aggregator, outcome: str) -> None:
    aggregator.counters.inc("ragmeter_feedback_total", (("outcome", outcome),))


class WaitingFeedback:
    """The ids of feedback that waits for its trace; its content is in the store."""

    def __init__(self) -> None:
        self._since: dict[int, tuple[bytes, float]] = {}  # its trace, since when
        self._by_trace: dict[bytes, set[int]] = {}
        self._ready: set[int] = set()

    def __len__(self) -> int:
        return len(self._since)

    def __contains__(self, number: int) -> bool:
        return number in self._since

    def add(self, number: int, trace: bytes, since: float) -> None:
        """Add a feedback that waits since a time."""
        self._since[number] = (trace, since)
        self._by_trace.setdefault(trace, set()).add(number)

    def forget(self, number: int) -> None:
        """Remove a feedback, if it is there."""
        self._ready.discard(number)
        trace, _ = self._since.pop(number, (b"", 0.0))
        rest = self._by_trace.get(trace, set())
        rest.discard(number)
        if not rest:
            self._by_trace.pop(trace, None)

    def arrived(self, trace: bytes) -> None:
        """Mark what waits for a trace as ready."""
        if trace in self._by_trace:
            self._ready |= self._by_trace[trace]

    def ready(self, limit: int) -> list[int]:
        """Return the oldest whose trace has come."""
        return sorted(self._ready)[:limit]

    def waiting_for(self, trace: bytes) -> list[int]:
        """Return what waits for a trace, oldest first."""
        return sorted(self._by_trace.get(trace, ()))

    def waiting_since_before(self, past: float) -> list[int]:
        """Return what waits since a time before `past`."""
        return [number for number, (_, since) in self._since.items() if since < past]

    def oldest(self, count: int) -> list[int]:
        """Return the oldest, at most `count`."""
        return sorted(self._since)[:count]


class _ScorerAdmission:
    """Admits scorers of labels, each until every window has forgotten it.

    The agent's own names for people, and those of the settings, always have a place.
    """

    def __init__(self, settings: FeedbackSettings, ks: Sequence[int]) -> None:
        self._names = NameAdmission(settings.scorers, [HUMAN, PEOPLE, *settings.reserved])
        self._labelled = set(map(base_name, labelled_metric_names(ks)))

    def admit(self, scorer: str, windows: Windows) -> bool:
        if scorer not in self._names:
            alive = {
                split_scorer(name)[0]
                for service in windows.services()
                for metric, name in windows.series(service)
                if base_name(metric) in self._labelled and not is_assisted(name)
            } - RESERVED_SCORERS
            self._names.retain(alive)
            self._names.adopt(alive)
        return self._names.admit(scorer, windows.now)
