"""The aggregate state of one partition of the scores topic, and its steps.

What it counts depends on the records of its partition and their order alone: batches, crashes and
redeliveries leave no trace in it.

    state = PartitionState(...); state.load(rows)
    state.apply(record) ...; rows = state.step()  (commit them with the offset of the record)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

from ragmeter.aggregate.evidence import Results, scores_in_evidence
from ragmeter.aggregate.service_state import MakeNotifications, ServiceState
from ragmeter.alerts.rules import AlertRule
from ragmeter.config.settings import Settings
from ragmeter.core.clocks import FUTURE_SECONDS, Clocks
from ragmeter.core.counters import Counters
from ragmeter.core.score import Score, ScoredTrace, ScoreState
from ragmeter.core.tiers import MetricScorer
from ragmeter.ingest.content_policy import ContentPolicy
from ragmeter.kafka.origins import Origin, SourceMarks
from ragmeter.kafka.score_records import SOURCE_LABELS, ScoreRecord
from ragmeter.kafka.scores_topic import DocumentRecord
from ragmeter.kafka.state.evidence_rows import EvidenceRows
from ragmeter.kafka.state.rows import (
    HEAD,
    STATE_VERSION,
    CommitRows,
    Rows,
    RowsByKind,
    dump_json,
    load_rows,
    row_key,
)
from ragmeter.kafka.state.seen_ids import SeenIdRows
from ragmeter.metrics.canary.scores import expected_canary_pairs
from ragmeter.parts.collection import PartKinds
from ragmeter.parts.contract import Document
from ragmeter.parts.views import ControlSource
from ragmeter.reasons import Reason
from ragmeter.sampling.control import SamplingControl

_KAFKA = "kafka"  # the source of documents

ScoresRecord = ScoreRecord | DocumentRecord
"""Any record of the scores topic."""


class PartitionState(ServiceState):
    """The state of the services of a partition, with all that belongs to it as rows.

    An exception of `apply` spoils the state: it must be loaded anew, and the record given up
    (`give_up`).

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
        notify: MakeNotifications = lambda alert, now: (),
        parts: PartKinds = (),
    ) -> None:
        share = settings.kafka.partitions
        super().__init__(
            settings,
            rules,
            expected,
            clocks=Clocks(clock, monotonic),
            notify=notify,
            share=share,
            parts=parts,
            stored_scores=self._stored_scores,
        )
        self._expected = list(expected)
        judged = settings.judge.budget.canaries > 0
        self._canaries = list(expected_canary_pairs(settings.judge.k, expected, judged))
        self._ids = SeenIdRows(dedupe)
        self._sources = SourceMarks()
        self._rows = CommitRows()
        self._commands = self._stepped = self._durable = 0  # so far, in a step, committed
        self.evidence = EvidenceRows(ContentPolicy(settings.privacy))
        self._notes: dict[str, Any] = {}
        self._note_rows: Rows = {}  # since the last step
        self._counted: list[tuple[ScoredTrace, ScoreRecord]] = []  # as counted, since the last step
        self._changed = False
        self._spoiled = False

    def take_new(
        self, records: Sequence[ScoreRecord] | DocumentRecord, origin: Origin | None
    ) -> list[ScoresRecord]:
        """Return what of a message of the topic has not come before; it is to be counted next."""
        if isinstance(records, DocumentRecord):
            return [records] if self._sources.take(origin) else []
        return [
            one
            for one in records
            if one.source is None or self._sources.take(origin, one.source.offset)
        ]

    def apply(self, record: ScoresRecord) -> None:
        """Count a record, in the order of the partition. It becomes the state's own."""
        self._spoiled = True
        if isinstance(record, DocumentRecord):  # the part recognises repetitions
            self.aggregator.receive(record.part, record.document, at=record.at, source=_KAFKA)
        elif record.source is None:
            self._count_probe(record.scored)
        else:
            self._count([record])
        self._changed = True
        self._spoiled = False

    def apply_all(self, records: Sequence[ScoreRecord]) -> None:
        """Do as `apply` with each of the traces of a record, at about half the cost."""
        if any(one.source is None for one in records):
            for record in records:
                self.apply(record)
            return
        self._spoiled = True
        self._count(records)
        self._changed = True
        self._spoiled = False

    def _is_new(self, scored: ScoredTrace) -> bool:
        return self._ids.add(scored.service, scored.trace_id, scored.timestamp)

    def _count_probe(self, scored: ScoredTrace) -> None:
        """Count a result of a probe at the present event time, if there is one."""
        if self._is_new(scored):
            now = self.aggregator.windows.now
            at = scored.timestamp if now is None else now
            self.aggregator.add_extra(scored._replace(timestamp=at, partial=True))

    def _count(self, records: Sequence[ScoreRecord]) -> None:
        """Count new traces, and remember them as evidence."""
        counters = self.aggregator.counters
        new = [one for one in records if self._is_new(one.scored)]
        if repeated := len(records) - len(new):
            counters.inc("ragmeter_traces_duplicate_total", SOURCE_LABELS, repeated)
        left = iter(new)
        for applied in self.count_all([self._reconcile(one.scored) for one in new]):
            self._counted += [(one.trace, next(left)) for one in applied.traces]

    def _reconcile(self, scored: ScoredTrace) -> ScoredTrace:
        expected = self._canaries if scored.canary else self._expected
        return _reconcile_pairs(scored, expected, self.aggregator.counters)

    def give_up(self, record: ScoresRecord) -> None:
        """Count a record that fails as a dead letter."""
        counters = self.aggregator.counters
        counters.inc("ragmeter_dead_letters_total", (("reason", "internal_error"),))
        self._changed = True

    def tick(self) -> None:
        """Advance event time by the time that passed while nothing arrived."""
        event = self.time.now(self.clocks.monotonic())
        if event is not None:
            self.transitions += self.aggregator.advance(event)
            self._changed |= self.due

    def promote(self, service: str | None) -> dict[str, Any] | None:
        """Make new baselines, as `BaselineKeeper.promote`."""
        document = super().promote(service)
        if document is not None:
            self._changed = True
            self._commands += 1
        return document

    def receive(self, part: str, documents: Sequence[Document], source: str) -> list[str]:
        """Count documents that were given here; they are durable with the next step."""
        self._spoiled = True
        now = self.clocks.wall()
        outcomes = []
        for document in documents:
            at = document.timestamp.timestamp()
            at = at if at <= now + FUTURE_SECONDS else now
            outcomes.append(self.aggregator.receive(part, document, at=at, source=source))
        self.settle()
        self._changed = True
        self._spoiled = False
        self._commands += 1
        return outcomes

    def _stored_scores(self, service: str, trace_id: str) -> Results:
        return scores_in_evidence(self.evidence.get((service, trace_id)))

    @property
    def dedupe_window(self) -> float:
        """Seconds of event time for which a trace id is known for sure."""
        return self._ids.window(self.aggregator.windows.now)

    @property
    def control(self) -> SamplingControl:
        """What the score processors should know; its version tells whether it is new."""
        return self.aggregator.view(ControlSource).latest_control

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
        named = self.take_new_evidence()
        counted = {
            key: ScoreRecord(trace, record.source)
            for trace, record in self._counted
            if (key := (trace.service, trace.trace_id)) in named
        }
        for key, found in counted.items():
            self.evidence.add(key, found)
        self._counted.clear()
        self.evidence.collect(self.aggregator.windows.now, self.evidence_keys)

    @property
    def spoiled(self) -> bool:
        """Whether `apply` has failed half-way."""
        return self._spoiled

    @property
    def moved(self) -> bool:
        """Whether the next step has what somebody waits for: alerts, notifications, commands."""
        return bool(self.transitions) or self.outbox.changed or self._commands > self._stepped

    @property
    def changed(self) -> bool:
        """Whether there is anything to make durable."""
        changed = self._changed or self.outbox.changed or self.aggregator.parts.touched
        return changed or bool(self.evidence.changes)

    def step(self) -> Rows:
        """Return all that changed since the last call.

        If it cannot be made durable, this object must be given up and loaded anew.
        """
        if self._spoiled:
            raise RuntimeError("a record has failed half-way: the state must be loaded anew")
        self._collect_evidence()
        changes = self.changes()
        self.add_notifications(changes, lambda *key: self.evidence.get(key))
        small = ("wall_time", "content")
        head = {
            "v": STATE_VERSION,
            "seen": self._ids.dump(),
            "sources": self._sources.saved(),
            **{name: changes.meta.pop(name) for name in small},
        }
        rows = self._rows.of(changes)
        rows |= self.evidence.changes | self._ids.drain()
        rows |= {**self._note_rows, HEAD: dump_json(head)}
        self.evidence.changes = {}
        self._note_rows = {}
        self._changed = False
        self._stepped = self._commands
        return rows

    def committed(self) -> None:
        """Release what waits until the last step is durable."""
        super().committed()
        self._durable = self._stepped

    @property
    def unsaved_commands(self) -> bool:
        """Whether a promotion, or a document that was given here, is not durable yet."""
        return self._durable < self._commands

    def load(self, rows: Mapping[bytes, bytes]) -> None:
        """Restore the rows of all steps, in a new object; raises as `load_rows`."""
        load_rows(rows, "the state", self._load)

    def _load(self, head: dict[str, Any], rows: RowsByKind) -> None:
        saved = self._rows.load(rows)
        saved.meta["wall_time"] = head["wall_time"]
        self.restore(saved)
        self._ids.load(head["seen"], rows.get("s", ()))
        self._sources.restore(head["sources"])
        self._notes = {name: json.loads(data) for (name,), data in rows.get("n", ())}
        self.evidence.load(rows.get("e", ()), str(head["content"]))


_pair_of = attrgetter("metric", "scorer")


def _reconcile_pairs(
    scored: ScoredTrace, expected: Sequence[MetricScorer], counters: Counters
) -> ScoredTrace:
    """Return a trace with one result for each of the expected pairs and no other.

    While settings change, workers with other scorers send results that this one does not expect:
    they are dropped, and missing ones are added as unscored, so that each trace is in one state.
    """
    pairs = list(map(_pair_of, scored.results))
    if pairs == expected:
        return scored
    by_pair = dict(zip(pairs, scored.results, strict=True))
    if unexpected := len(by_pair.keys() - set(expected)):
        counters.inc("ragmeter_unexpected_results_total", by=unexpected)
    missing = partial(
        Score,
        state=ScoreState.UNSCORED,
        reason=Reason.NOT_CONFIGURED,
        probability=scored.probability,
    )
    return scored._replace(results=[by_pair.get(pair) or missing(*pair) for pair in expected])
