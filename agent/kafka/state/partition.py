"""The aggregate state of one partition of the scores topic, and its steps.

What it counts depends on the records of its partition and their order alone: batches, crashes and
redeliveries leave no trace in it.

    state = PartitionState(...); state.load(rows)
    state.apply(record) ...; rows = state.step().rows  (commit them with the offset of the record)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ragmeter.aggregate.aggregator import (
    SAVE_IDLE_SECONDS,
    Aggregator,
    evidence_trace_ids,
    take_changes,
)
from ragmeter.aggregate.evidence import EvidenceKey, quote_unsupported, scores_in_evidence
from ragmeter.alerts.alert import Alert
from ragmeter.alerts.rules import AlertRule
from ragmeter.config.settings import Settings
from ragmeter.core.clocks import EventClock
from ragmeter.core.counters import Counters, GaugeSample
from ragmeter.core.score import Score, ScoredTrace, ScoreState
from ragmeter.core.tiers import MetricScorer
from ragmeter.ingest.content_policy import ContentPolicy
from ragmeter.kafka.score_records import SOURCE_LABELS, FeedbackRecord, IndexRecord, ScoreRecord
from ragmeter.kafka.state.feedback import PartitionFeedback
from ragmeter.kafka.state.rows import (
    HEAD,
    STATE_VERSION,
    AggregatorRows,
    EvidenceRows,
    OutboxRows,
    Rows,
    SeenIdRows,
    StateStep,
    dump_json,
    load_rows,
    row_key,
    split_row_key,
)
from ragmeter.metrics.canary.scores import expected_canary_pairs
from ragmeter.sampling.control import SamplingControl
from ragmeter.store.rows import OutboxItem

ScoresRecord = ScoreRecord | IndexRecord | FeedbackRecord
"""Any record of the scores topic."""


class PartitionState:
    """Windows, alerts, drift, feedback, evidence and notifications of a partition.

    An exception of `apply` spoils the state: it must be loaded anew, and the record given up
    (`give_up`). `promotions` counts promotions since this object was made.

    `expected` are the pairs for which every record has a result, `dedupe` is how many seconds of
    event time an id is known at least, and `notify` makes the notifications of an alert that has
    moved.
    """

    def __init__(
        self,
        settings: Settings,
        rules: Sequence[AlertRule],
        expected: Sequence[MetricScorer],
        *,
        dedupe: float,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
        notify: Callable[[Alert, float], Sequence[OutboxItem]] = lambda alert, now: (),
    ) -> None:
        # no partition knows the services of the others: each has an equal share of false alarms
        share = 1 / settings.kafka.partitions
        self.aggregator = Aggregator(settings, rules, expected, share)
        self.time = EventClock()
        self.outbox = OutboxRows()
        self._expected = list(expected)
        judged = settings.judge.budget.canaries > 0
        self._canaries = list(expected_canary_pairs(settings.judge.k, expected, judged))
        self._ids = SeenIdRows(dedupe)
        self.labels = PartitionFeedback(settings)
        self._rows = AggregatorRows()
        self._clock = clock
        self._monotonic = monotonic
        self._notify = notify
        self.promotions = 0
        self._promoted = 0  # with the last step
        self.evidence = EvidenceRows(ContentPolicy(settings.privacy), settings.kafka.evidence_bytes)
        self._notes: dict[str, Any] = {}
        self._note_rows: Rows = {}  # since the last step
        self._counted: dict[EvidenceKey, ScoreRecord] = {}
        self._transitions: list[Alert] = []
        self._changed = False
        self._spoiled = False
        self._saved_at = monotonic()

    def apply(self, record: ScoresRecord) -> None:
        """Count a record, in the order of the partition. It becomes the state's own."""
        self._spoiled = True
        if isinstance(record, IndexRecord):  # repetitions are recognised by their id
            self.aggregator.index(record.event, record.at)
        elif isinstance(record, FeedbackRecord):
            self.labels.accept(record, self.aggregator)
        else:
            self._apply(record)
        self._changed = True
        self._spoiled = False

    def settle(self) -> None:
        """Bring counters and clock up to date with what was applied, once for many records."""
        self.aggregator.settle()
        self.time.observe(self.aggregator.windows.now, self._monotonic())

    def _apply(self, record: ScoreRecord) -> None:
        aggregator, scored = self.aggregator, record.scored
        now = aggregator.windows.now
        new = self._ids.add(scored.service, scored.trace_id, scored.timestamp)
        if record.source is None:  # of a probe: counted at the present event time, if any
            if new:
                at = scored.timestamp if now is None else now
                aggregator.add_extra(replace(scored, timestamp=at, partial=True))
            return
        if not new:
            aggregator.counters.inc("ragmeter_traces_duplicate_total", SOURCE_LABELS)
            return
        scored = _reconcile_pairs(
            scored, self._canaries if scored.canary else self._expected, aggregator.counters
        )
        applied = aggregator.apply(scored)
        wording = applied.trace.wording
        if wording is not None and record.embedding is not None:
            aggregator.embedded(scored.service, wording, scored.timestamp, *record.embedding)
        self._transitions += applied.alerts
        self.labels.add_trace(scored.service, record.passages, applied, aggregator)
        key = applied.trace.service, scored.trace_id
        self._counted[key] = ScoreRecord(applied.trace, record.source)

    def give_up(self, record: ScoresRecord) -> None:
        """Count a record that fails as a dead letter."""
        if isinstance(record, FeedbackRecord):
            self.labels.give_up(self.aggregator)
        label = (("reason", "internal_error"),)
        self.aggregator.counters.inc("ragmeter_dead_letters_total", label)
        self._changed = True

    def give_up_feedback(self, record: ScoresRecord) -> bool:
        """Give up feedback that waits for a trace that fails, perhaps because of it.

        Returns whether there was any.
        """
        if not isinstance(record, ScoreRecord):
            return False
        given_up = self.labels.give_up_waiting(record.scored.trace_id, self.aggregator) > 0
        self._changed |= given_up
        return given_up

    def tick(self) -> None:
        """Advance event time by the time that passed while nothing arrived."""
        event = self.time.now(self._monotonic())
        if event is None:
            return
        transitions = self.aggregator.advance(event)
        self._transitions += transitions
        moved = self.labels.join_waiting(self.aggregator) or bool(transitions)
        if moved or self._monotonic() - self._saved_at >= SAVE_IDLE_SECONDS:
            self._changed = True

    def promote(self, service: str | None) -> dict[str, Any] | None:
        """Make new drift baselines, as `Aggregator.promote`."""
        promoted = self.aggregator.promote(service)
        if promoted is None:
            return None
        document, transitions = promoted
        self._transitions += transitions
        self._changed = True
        self.promotions += 1
        return document

    def gauges(self) -> list[GaugeSample]:
        """Return the gauges of aggregator and feedback."""
        return [*self.aggregator.gauges(), *self.labels.gauges()]

    @property
    def dedupe_window(self) -> float:
        """Seconds of event time for which a trace id is known for sure."""
        return self._ids.window(self.aggregator.windows.now)

    @property
    def control(self) -> SamplingControl:
        """What the score processors should know; its version tells whether it is new."""
        return self.aggregator.control(1)

    def note(self, name: str) -> Any:
        """Return the value that was last saved under a name, or None."""
        return self._notes.get(name)

    def save_note(self, name: str, value: Any) -> None:
        """Save a small JSON-able value with the next step; it moves with the partition."""
        data = dump_json(value)
        self._notes[name] = json.loads(data)
        self._note_rows[row_key("n", name)] = data
        self._changed = True

    def _collect_evidence(self) -> None:
        for key in self.aggregator.windows.take_new_worst():
            record = self._counted.get(key)
            if record is not None:
                self.evidence.add(key, record)
        self._counted.clear()
        self.evidence.collect(
            self.aggregator.windows.now, lambda: evidence_trace_ids(self.aggregator)
        )

    @property
    def spoiled(self) -> bool:
        """Whether `apply` has failed half-way."""
        return self._spoiled

    @property
    def moved(self) -> bool:
        """Whether the next step has what somebody waits for: alerts, notifications, promotions."""
        return bool(self._transitions) or self.outbox.changed or self.promotions > self._promoted

    @property
    def changed(self) -> bool:
        """Whether there is anything to make durable."""
        return self._changed or self.outbox.changed or self.evidence.changed

    def step(self) -> StateStep:
        """Return all that changed since the last call.

        If it cannot be made durable, this object must be given up and loaded anew.
        """
        if self._spoiled:
            raise RuntimeError("a record has failed half-way: the state must be loaded anew")
        now = self._clock()
        self._collect_evidence()
        transitions, self._transitions = self._transitions, []
        changes = take_changes(self.aggregator)
        for alert in changes.notifications:
            quote_unsupported(
                alert,
                lambda service, trace: scores_in_evidence(self.evidence.get((service, trace))),
            )
            self.outbox.add(self._notify(alert, now))
        rows = self._rows.of(changes)
        rows.update(self.evidence.drain())
        rows.update(self.labels.drain())
        rows.update(self._note_rows)
        rows.update(self.outbox.drain())
        rows.update(self._ids.drain())
        rows[HEAD] = dump_json(
            {
                "v": STATE_VERSION,
                "seen": self._ids.dump(),
                "labels": self.labels.dump(),
                "wall_time": now,
                "content": self.evidence.mode,
            }
        )
        self._note_rows, self._changed = {}, False
        self._saved_at, self._promoted = self._monotonic(), self.promotions
        return StateStep(rows, transitions, self.promotions)

    def load(self, rows: Mapping[bytes, bytes]) -> None:
        """Restore the rows of all steps, in a new object; raises as `load_rows`."""
        load_rows(rows, "the state", lambda head: self._load(rows, head))

    def _load(self, rows: Mapping[bytes, bytes], head: dict[str, Any]) -> None:
        by_kind: dict[str, list[tuple[list[Any], bytes]]] = {}
        for row, data in rows.items():
            if row == HEAD:
                continue
            kind, parts = split_row_key(row)
            by_kind.setdefault(kind, []).append((parts, data))
        self._rows.load(self.aggregator, by_kind)
        self.outbox.load(by_kind.get("o", ()))
        self._ids.load(head["seen"], by_kind.get("s", ()))
        self._notes = {name: json.loads(data) for (name,), data in by_kind.get("n", ())}
        self.evidence.load(by_kind.get("e", ()), str(head.get("content", "full")))
        self._changed = self.labels.load(head["labels"], by_kind, self.aggregator)
        down = self._clock() - head["wall_time"]
        self.time.restore(self.aggregator.windows.now, down, self._monotonic())


def _reconcile_pairs(
    scored: ScoredTrace, expected: Sequence[MetricScorer], counters: Counters
) -> ScoredTrace:
    """Return a trace with one result for each of the expected pairs and no other.

    While settings change, workers with other scorers send results that this one does not expect:
    they are dropped, and missing ones are added as unscored, so that each trace is in one state.
    """
    pairs = [(score.metric, score.scorer) for score in scored.results]
    if pairs == expected:
        return scored
    present, wanted = set(pairs), set(expected)
    results = list(scored.results)
    if present - wanted:
        results = [score for score in results if (score.metric, score.scorer) in wanted]
        counters.inc("ragmeter_unexpected_results_total", by=len(pairs) - len(results))
    if wanted - present:
        results += [
            Score(
                *pair, ScoreState.UNSCORED, reason="not_configured", probability=scored.probability
            )
            for pair in expected
            if pair not in present
        ]
    return replace(scored, results=results)
