"""Join labels to the traces that were counted, and count them.

A commit holds the labels that were joined, those that wait for their trace, the remembered traces
and the windows together. So a process that dies repeats what was not committed, and nothing counts
twice. Merging labels does not depend on their order (`ragmeter.metrics.merged_labels`), and their
results are taken out of the windows and added anew when they change: late, repeated and corrected
labels end in the same numbers.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ragmeter.config.settings import Settings
from ragmeter.core.counters import Counters, GaugeSample
from ragmeter.core.durations import parse_window
from ragmeter.core.feedback import HUMAN, PEOPLE, RESERVED_SCORERS
from ragmeter.core.isolation import is_item_fault
from ragmeter.core.metric_specs import base_name
from ragmeter.core.name_admission import NameAdmission
from ragmeter.core.score import Score, ScoredTrace
from ragmeter.core.series import split_scorer
from ragmeter.metrics.labelled import (
    PEOPLE_STRATUM,
    label_results,
    label_scores,
    labelled_metric_names,
    unlabelled_results,
)
from ragmeter.metrics.merged_labels import GivenLabels, effective_labels, trace_key
from ragmeter.parts.contract import Arrival, CountedResults, section_of
from ragmeter.parts.labels.documents import WAITING
from ragmeter.parts.labels.settings import LabelsSettings
from ragmeter.parts.labels.traces import (
    RememberedTrace,
    RememberedTraces,
    ScorerLabels,
    TracesState,
    WaitingLabels,
    WaitingRoom,
)
from ragmeter.windows.sums import upstream_stratum
from ragmeter.windows.windows import Windows

log = logging.getLogger(__name__)

# The horizon ends at full minutes of event time, so that the result depends on event time alone and
# not on when the process started.
_MINUTE = 60.0

# Labels that wait for their trace, of all states together. They are few: feedback comes after its
# trace, but for a sender that is ahead of its own traces. Labels of traces that never come are
# bounded by it.
MOST_WAITING = 10_000

# Names of scorers with series at a time: each adds its own to every service. A house with more of
# them reserves their names.
MOST_SCORERS = 8


class _Amendment(NamedTuple):
    """The labels of a scorer as they are counted from now on, and the results that change."""

    labels: ScorerLabels
    before: list[Score]
    after: list[Score]


class LabelJoin:
    """Joins labels to the traces that were counted.

    Args:
        settings: The settings of the agent.
        counted: The windows that the results of labels enter.
        counters: Where outcomes are counted.
        states: How many such objects share the limits.

    Attributes:
        horizon: For how many seconds of event time a trace waits for labels, and they for it.
    """

    def __init__(
        self, settings: Settings, counted: CountedResults, counters: Counters, states: int = 1
    ) -> None:
        self._counted = counted
        self._counters = counters
        section = section_of(settings, LabelsSettings).feedback
        self._max_traces = -(-section.traces // states)
        self._max_waiting = -(-MOST_WAITING // states)
        self._ks = sorted(set(settings.judge.k))
        # later labels would have no window to enter
        self.horizon = float(max(map(parse_window, settings.windows)))
        self._traces = RememberedTraces()
        self._waiting = WaitingRoom()
        self._searched = -math.inf
        self._scorers = _ScorerAdmission(section.reserved, self._ks)

    @property
    def _now(self) -> float | None:
        return self._counted.windows.now

    def _horizon_start(self, now: float) -> float:
        return now // _MINUTE * _MINUTE - self.horizon

    def gauges(self) -> list[GaugeSample]:
        """Return how many labels wait and how many traces are remembered."""
        return [
            ("ragmeter_feedback_waiting", (), float(len(self._waiting))),
            ("ragmeter_feedback_traces", (), float(len(self._traces))),
        ]

    def changes(self) -> dict[str, TracesState | None]:
        """Return the rows that changed since the last call, None for those to delete."""
        return {**self._traces.changes(), **self._waiting.changes()}

    def restore(self, rows: Sequence[TracesState]) -> None:
        """Load rows as `changes` returned them; new settings may bound them otherwise."""
        self._traces.restore(rows)
        self._waiting.restore(rows)
        self._traces.shed(self._max_traces)
        self._bound_waiting()

    def remember(self, arrivals: Iterable[Arrival]) -> None:
        """Remember traces that were counted just now, and join the labels that wait for them."""
        now = self._now
        past = -math.inf if now is None else self._horizon_start(now)
        self._traces.forget_before(past)
        keys: dict[str, None] = {}
        for trace, segments, sent_as in arrivals if self._max_traces else ():
            if trace.timestamp < past or self._counted.windows.too_late(trace.timestamp):
                continue
            remembered = RememberedTrace(
                trace_id=trace.trace_id,
                service=trace.service,
                sent_as=sent_as,
                segments=segments,
                timestamp=trace.timestamp,
                probability=trace.probability,
                passages=trace.passages,
                cheap=_helping_scores(trace),
            )
            self._traces.add(remembered)
            if len(self._waiting):
                keys[trace_key(trace.trace_id).hex()] = None
        if shed := self._traces.shed(self._max_traces):
            self._counters.inc("ragmeter_feedback_traces_shed_total", by=shed)
        for row in [row for key in keys for row in self._waiting.waiting_for(key)]:
            outcome = self._join(row.trace, row.service, row.scorer, row.given)
            if outcome is not None:
                self._end(row, outcome)

    def receive(
        self, trace: str, service: str | None, scorer: str, *, at: float, given: GivenLabels
    ) -> str:
        """Count the labels of a feedback of Unix time `at`, or let it wait for its trace.

        Returns the outcome, or `WAITING`.
        """
        outcome = self._join(trace, service, scorer, given)
        if outcome is not None:
            self._count_outcome(outcome)
            return outcome
        since = at if self._now is None else self._now
        self._waiting.add(trace, service, scorer, since=since, given=given)
        self._bound_waiting()
        return WAITING

    def _bound_waiting(self) -> None:
        while len(self._waiting) > self._max_waiting:
            self._end(self._waiting.oldest(), "shed")

    def expire(self, now: float) -> None:
        """Give up the labels that have waited for the horizon."""
        past = self._horizon_start(now)
        if past > self._searched:
            self._searched = past
            for row in self._waiting.since_before(past):
                self._end(row, "unmatched")

    def _end(self, row: WaitingLabels, outcome: str) -> None:
        self._waiting.remove(row)
        self._count_outcome(outcome)

    def _count_outcome(self, outcome: str) -> None:
        self._counters.inc("ragmeter_feedback_total", (("outcome", outcome),))

    def _join(self, key: str, service: str | None, scorer: str, given: GivenLabels) -> str | None:
        """Count labels, and return the outcome; None if their trace has not come."""
        found = self._traces.find(bytes.fromhex(key))
        matching = [one for one in found if service in (None, one[1].sent_as)]
        if not matching:
            return None
        if len(matching) > 1:
            return "ambiguous"
        ((number, trace),) = matching
        if self._counted.windows.too_late(trace.timestamp):
            return "late"
        given = given.restrict(trace.passages)
        if not given.labels:
            return "no_such_passage"
        if not self._scorers.admit(scorer, self._counted.windows):
            return "too_many_scorers"
        old = trace.by_scorer.get(scorer, ScorerLabels())
        merged = old.given.merge(given)
        same = merged.probability == old.given.probability
        if merged.labels == old.given.labels and same:
            return "repeated"
        try:
            amendment = self._amendment(trace, scorer, old, merged)
        except Exception as error:
            if not is_item_fault(error):
                raise
            log.exception("labels of %s cannot be counted and are dropped", scorer)
            return "internal_error"
        trace.by_scorer[scorer] = amendment.labels
        self._traces.update(number, trace)
        self._amend(trace, amendment.before, amendment.after)
        return "joined"

    def _amendment(
        self, trace: RememberedTrace, scorer: str, old: ScorerLabels, merged: GivenLabels
    ) -> _Amendment:
        """Return the results of a scorer that replace others, as far as they change."""
        labels = effective_labels(merged.labels)
        ranked = labels.by_rank(trace.passages)
        scores = label_scores(ranked, labels.answer, self._ks, labels.verdict)
        probability = merged.probability.probability if merged.probability else 1.0
        new = ScorerLabels(merged, tuple(scores.items()), trace.probability * probability)
        alike = old.weighed == new.weighed
        same = set(old.counted) & set(new.counted) if alike else set()
        stratum = upstream_stratum(PEOPLE_STRATUM, trace.probability)

        def changed_results(one: ScorerLabels) -> list[Score]:
            values = [value for value in one.counted if value not in same]
            cheap = trace.drawn_from(one, scorer)
            return label_results(
                values=values,
                scorer=scorer,
                probability=one.weighed,
                cheap=cheap,
                stratum=stratum,
            )

        before = changed_results(old)
        cheap = trace.drawn_from(new, scorer)
        if cheap is not None:
            # a drawn trace was counted as sampled out until its labels came
            known = dict(old.counted) if old.given.probability else {}
            waiting = [metric for metric in scores if metric not in known]
            before += unlabelled_results(waiting, cheap, stratum)
        return _Amendment(new, before, changed_results(new))

    def _amend(self, trace: RememberedTrace, before: list[Score], after: list[Score]) -> None:
        old, new = _partial(trace, before), _partial(trace, after)
        self._counted.amend(old, new, trace.segments)


def _partial(trace: RememberedTrace, results: list[Score]) -> ScoredTrace:
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
    """Return the value of `RememberedTrace.cheap`."""
    drawn = [score for score in scored.results if score.scorer == PEOPLE]
    if not drawn:
        return None
    return {score.metric: score.cheap for score in drawn if score.cheap is not None}


class _ScorerAdmission:
    """Admits scorers of labels, each until every window has forgotten it.

    The agent's own names for people, and those of the settings, always have a place.
    """

    def __init__(self, reserved: Sequence[str], ks: Sequence[int]) -> None:
        self._names = NameAdmission(MOST_SCORERS, [HUMAN, PEOPLE, *reserved])
        self._labelled = set(map(base_name, labelled_metric_names(ks)))

    def admit(self, scorer: str, windows: Windows) -> bool:
        if scorer not in self._names:
            alive = {
                split_scorer(name)[0]
                for service in windows.services()
                for metric, name in windows.series(service)
                if base_name(metric) in self._labelled
            } - RESERVED_SCORERS
            self._names.retain(alive)
            self._names.adopt(alive)
        return self._names.admit(scorer, windows.now)
