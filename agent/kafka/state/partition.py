"""The aggregate state of one partition of the scores topic, and its steps.

The aggregate half of one partition of the scores: what it holds, and what a step has changed.

Pure but for the clocks it is given. What it counts depends on the records of its partition and
their order alone: batches, crashes and redeliveries leave no trace in it.

    state = PartitionState(...); state.load(recovered.rows, recovered.head)
    state.apply(records); step = state.step(); (make `step` durable); acknowledge the records
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ragmeter.aggregate.aggregator import Aggregator, evidence_trace_ids, take_changes
from ragmeter.alerts.alert import Alert
from ragmeter.alerts.rules import AlertRule
from ragmeter.config.settings import Settings
from ragmeter.core.clocks import EventClock
from ragmeter.core.counters import Counters, GaugeSample
from ragmeter.core.errors import UnknownVersion
from ragmeter.core.score import Score, ScoredTrace, ScoreState
from ragmeter.core.tiers import MetricScorer
from ragmeter.ingest.content_policy import ContentPolicy
from ragmeter.kafka.score_records import FeedbackRecord, IndexRecord, ScoreRecord
from ragmeter.kafka.state.duplicates import RedeliveryGuard, SeenIdRows
from ragmeter.kafka.state.feedback import PartitionFeedback
from ragmeter.kafka.state.ledger import LedgerError
from ragmeter.kafka.state.rows import (
    AggregatorRows,
    EvidenceRows,
    OutboxRows,
    Rows,
    TraceKey,
    row_key,
    split_row_key,
)
from ragmeter.metrics.canary.scores import expected_canary_pairs
from ragmeter.sampling.control import SamplingControl
from ragmeter.store.rows import OutboxItem


def _reconcile_pairs(
    scored: ScoredTrace, expected: Sequence[MetricScorer], counters: Counters
) -> ScoredTrace:
    """While settings change, workers with other scorers send what this one does not expect: it is
    dropped, and what is missing is said to be. Else a trace would be seen, and in no state."""
    pairs = [(score.metric, score.scorer) for score in scored.results]
    if pairs == expected:
        return scored
    found, known = set(pairs), set(expected)
    results = list(scored.results)
    if found - known:
        results = [score for score in results if (score.metric, score.scorer) in known]
        counters.inc("ragmeter_unexpected_results_total", by=len(pairs) - len(results))
    if known - found:
        results += [
            Score(
                *pair, ScoreState.UNSCORED, reason="not_configured", probability=scored.probability
            )
            for pair in expected
            if pair not in found
        ]
    return replace(scored, results=results)


log = logging.getLogger("ragmeter.kafka")

ScoresRecord = ScoreRecord | IndexRecord | FeedbackRecord
"""What stage 1 sends."""

_SAVE_IDLE_SECONDS = 60.0  # how often event time is written down when nothing else changed


class PartitionStep(NamedTuple):
    """For `Ledger.begin` and `Ledger.marker`; `transitions` are the alerts that moved,
    `orders` how many promotions are in it and the steps before."""

    rows: Rows
    head: bytes
    transitions: Sequence[Alert]
    promotions: int


class PartitionState:
    """`expected` are the pairs that every record has one result for; `width` is that of the replay
    guard, 2K; `dedupe` seconds of event time an id is known, at least.

    An exception of `apply` spoils the state: it must be loaded anew, then the records applied one
    by one, each with its step, and the one that fails given up (`give_up`).
    """

    def __init__(
        self,
        settings: Settings,
        rules: Sequence[AlertRule],
        expected: Sequence[MetricScorer],
        *,
        width: int,
        dedupe: float,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
        notify: Callable[[Alert, float], Sequence[OutboxItem]] = lambda alert, now: (),
    ) -> None:
        self.aggregator = Aggregator(settings, rules, expected)
        self.time = EventClock()
        self.outbox = OutboxRows()
        self._expected = list(expected)
        judged = settings.judge.budget.canaries > 0
        self._canaries = list(expected_canary_pairs(settings.judge.k, expected, judged))
        self._guard = RedeliveryGuard(width)
        self._ids = SeenIdRows(dedupe)
        self.labels = PartitionFeedback(settings, width)
        self._rows = AggregatorRows()
        self._clock = clock
        self._monotonic = monotonic
        self._notify = notify
        self.promotions = 0
        """Promotions since this object was made."""
        self._evidence = EvidenceRows(
            ContentPolicy(settings.privacy), settings.kafka.evidence_bytes
        )
        self._notes: dict[str, Any] = {}
        self._noted: Rows = {}  # since the last step
        self._done: dict[TraceKey, ScoreRecord] = {}
        self._transitions: list[Alert] = []
        self._changed = False
        self._spoiled = False
        self._saved_at = monotonic()

    # Records in ---------------------------------------------------------------------------------

    def apply(self, records: Sequence[ScoresRecord]) -> None:
        """Count the records of the partition, in its order. They become the state's own."""
        self._spoiled = True
        for record in records:
            if isinstance(record, IndexRecord):  # what came again is known by its id
                self.aggregator.index(record.event, record.at)
                self._changed = True
            elif isinstance(record, FeedbackRecord):
                self._changed |= self.labels.accept(record, self.aggregator)
            else:
                self._apply(record)
        self.aggregator.settle()
        self._spoiled = False
        self.time.observe(self.aggregator.windows.now, self._monotonic())

    def _apply(self, record: ScoreRecord) -> None:
        aggregator, scored, source = self.aggregator, record.scored, record.source
        now = aggregator.windows.now
        if source is None:  # of a probe: at the time that has been reached here, if any
            if self._ids.add(scored.service, scored.trace_id, scored.timestamp):
                self._changed = True
                at = scored.timestamp if now is None else now
                aggregator.add_extra(replace(scored, timestamp=at, partial=True))
            return
        if not self._guard.accept(source):
            aggregator.counters.inc("ragmeter_replayed_total")
            return
        self._changed = True
        if not self._ids.add(scored.service, scored.trace_id, scored.timestamp):
            label = (("source", "kafka"),)
            aggregator.counters.inc("ragmeter_traces_duplicate_total", label)
            return
        scored = _reconcile_pairs(
            scored, self._canaries if scored.canary else self._expected, aggregator.counters
        )
        applied = aggregator.apply(scored)
        self._transitions += applied.alerts
        self.labels.add_trace(scored.service, record.passages, applied, aggregator)
        self._done[applied.trace.service, scored.trace_id] = replace(record, scored=applied.trace)

    def give_up(self, record: ScoresRecord) -> None:
        """It cannot be counted: it became a dead letter, and is not counted again."""
        if isinstance(record, FeedbackRecord):
            new = self.labels.give_up(record.source, self.aggregator)
        else:
            source = record.source if isinstance(record, ScoreRecord) else None
            new = source is None or self._guard.accept(source)
        if new:
            self._changed = True
            label = (("reason", "internal_error"),)
            self.aggregator.counters.inc("ragmeter_dead_letters_total", label)

    def give_up_feedback(self, record: ScoresRecord) -> bool:
        """Whether labels waited for this trace. They are given up: it may be for them that it
        cannot be counted."""
        if not isinstance(record, ScoreRecord):
            return False
        found = self.labels.give_up_waiting(record.scored.trace_id, self.aggregator)
        self._changed |= bool(found)
        return bool(found)

    def tick(self) -> None:
        """Move event time on by the time that passed while nothing arrived."""
        event = self.time.now(self._monotonic())
        if event is None:
            return
        transitions = self.aggregator.advance(event)
        self._transitions += transitions
        moved = self.labels.join_waiting(self.aggregator) or bool(transitions)
        if moved or self._monotonic() - self._saved_at >= _SAVE_IDLE_SECONDS:
            self._changed = True

    def promote(self, service: str | None) -> dict[str, Any] | None:
        """A new drift baseline, as `Aggregator.promote`."""
        found = self.aggregator.promote(service)
        if found is None:
            return None
        self._transitions += found[1]
        self._changed = True
        self.promotions += 1
        return found[0]

    def gauges(self) -> list[GaugeSample]:
        return [*self.aggregator.gauges(), *self.labels.gauges()]

    @property
    def control(self) -> SamplingControl:
        """What stage 1 should know; its version says whether it is new."""
        return self.aggregator.control(1)

    # Notes --------------------------------------------------------------------------------------

    def note(self, name: str) -> Any:
        """What was last kept under this name; None without."""
        return self._notes.get(name)

    def save_note(self, name: str, value: Any) -> None:
        """Something small and JSON-able that is to live where this partition does. From the next
        step on it is durable; `value` must not change any more."""
        data = json.dumps(value, separators=(",", ":")).encode()
        self._notes[name] = json.loads(data)
        self._noted[row_key("n", name)] = data
        self._changed = True

    # Evidence -----------------------------------------------------------------------------------

    def missing_texts(
        self, most: int | None = None, but: Container[TraceKey] = ()
    ) -> list[tuple[TraceKey, ScoreRecord]]:
        """The worst traces whose text is not kept yet: `KeptEvidence.wanted`."""
        return self._evidence.missing_texts(most, but)

    def save_text(self, key: TraceKey, body: bytes | None) -> None:
        """From the next step on it is durable: `KeptEvidence.keep_text`."""
        self._evidence.save_text(key, body)

    def evidence(self, key: TraceKey) -> bytes | None:
        """What is known of a worst trace, in the form of `ragmeter.aggregate.evidence`."""
        return self._evidence.get(key)

    def _collect(self) -> None:
        for key in self.aggregator.windows.take_new_worst():
            record = self._done.get(key)
            if record is not None:
                self._evidence.add(key, record)
        self._done.clear()
        self._evidence.collect(
            self.aggregator.windows.now, lambda: evidence_trace_ids(self.aggregator)
        )

    # State --------------------------------------------------------------------------------------

    @property
    def changed(self) -> bool:
        """Whether there is anything to make durable. Records that were all counted before need no
        step: they may be acknowledged at once."""
        return self._changed or self.outbox.changed or self._evidence.changed

    def step(self) -> PartitionStep:
        """All that changed since the last call. If it cannot be made durable, this object must be
        given up and loaded anew."""
        if self._spoiled:
            raise RuntimeError("a record has failed half-way: the state must be loaded anew")
        now = self._clock()
        self._collect()
        transitions, self._transitions = self._transitions, []
        for alert in transitions:
            self.outbox.add(self._notify(alert, now))
        rows = self._rows.of(take_changes(self.aggregator))
        rows.update(self._evidence.drain())
        rows.update(self.labels.drain())
        rows.update(self._noted)
        rows.update((row_key("o", name), data) for name, data in self.outbox.drain().items())
        rows.update((row_key("s", *key), data) for key, data in self._ids.drain().items())
        head = {
            "guard": self._guard.dump(),
            "seen": self._ids.dump(),
            "labels": self.labels.dump(),
            "wall_time": now,
            "content": self._evidence.mode,
        }
        self._noted, self._changed = {}, False
        self._saved_at = self._monotonic()
        return PartitionStep(
            rows, json.dumps(head, separators=(",", ":")).encode(), transitions, self.promotions
        )

    def load(self, rows: Mapping[bytes, bytes], head: bytes | None) -> None:
        """What a ledger has recovered, into a new object. Raises `UnknownVersion` for what a newer
        program has written, `LedgerError` for what makes no sense."""
        if head is None:
            return
        try:
            self._load(rows, json.loads(head))
        except UnknownVersion:
            raise
        except (ValueError, KeyError, TypeError, AssertionError, AttributeError) as error:
            raise LedgerError(f"rows of the state that make no sense: {error!r}") from None

    def _load(self, rows: Mapping[bytes, bytes], head: dict[str, Any]) -> None:
        by_kind: dict[str, list[tuple[list[Any], bytes]]] = {}
        for row, data in rows.items():
            kind, parts = split_row_key(row)
            by_kind.setdefault(kind, []).append((parts, data))
        self._rows.load(self.aggregator, by_kind)
        self.outbox.load([(name, data) for (name,), data in by_kind.get("o", ())])
        seen = [((generation, chunk), data) for (generation, chunk), data in by_kind.get("s", ())]
        self._ids.load(head["seen"], seen)
        self._guard = RedeliveryGuard.load(self._guard.width, head["guard"])
        self._notes = {name: json.loads(data) for (name,), data in by_kind.get("n", ())}
        kept = [((service, name), data) for (service, name), data in by_kind.get("e", ())]
        self._evidence.load(kept, str(head.get("content", "full")))
        if "labels" in head:  # not in what the version before has written
            self._changed = self.labels.load(head["labels"], by_kind, self.aggregator)
        down = self._clock() - head["wall_time"]
        self.time.restore(self.aggregator.windows.now, down, self._monotonic())
