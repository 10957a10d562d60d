"""Labels in the aggregate half of one partition: the joining of the embedded agent
(`agent.labelling`), record by record.

What it counts hangs on the records and their order alone. So each label, and each trace, is joined
to what it belongs to before the next record is counted, whatever the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from agent.aggregate import Aggregator
from agent.config import Settings
from agent.counters import Gauge
from agent.feedback.frames import trace_key
from agent.kafka.messages.feedback_records import FeedbackRecord
from agent.kafka.messages.source import Source
from agent.kafka.state.kept_labels import ByKind, KeptLabels
from agent.kafka.state.replay_guard import ReplayGuard
from agent.kafka.state.state_rows import Rows
from agent.labelling.labelling import Labelling
from agent.labelling.placed import Placed
from agent.trace import ScoredTrace

__all__ = ["PartitionLabels"]

BATCH = 200  # feedback that is joined at a time: what one record can set free
SOURCE = (("source", "kafka"),)


class PartitionLabels:
    """`width` is that of the guard against repetitions, as for traces: labels come from a topic of
    their own, by a sender that makes the same promise."""

    def __init__(self, settings: Settings, width: int) -> None:
        self._kept = KeptLabels()
        self._labelling = Labelling(settings, self._kept, share=settings.kafka.partitions)
        self._guard = ReplayGuard(width)

    def gauges(self) -> Sequence[Gauge]:
        return self._labelling.gauges()

    def placed(
        self,
        service: str,
        passages: tuple[str, ...] | None,
        scored: ScoredTrace,
        aggregator: Aggregator,
    ) -> None:
        """A trace was counted just now: remember it, and count the labels that wait for it.
        `service` is its name as it was sent."""
        one = Placed(service, passages, scored, aggregator.segments_of(scored))
        self._kept.apply(self._labelling.remember([one], aggregator))
        self.look(aggregator)

    def hear(self, record: FeedbackRecord, aggregator: Aggregator) -> bool:
        """Whether the feedback is a new one; then it is joined, or waits."""
        if not self._guard.first(record.source):
            aggregator.counters.inc("ragmeter_replayed_total")
            return False
        self._receive(record, aggregator)
        self.look(aggregator)
        return True

    def _receive(self, record: FeedbackRecord, aggregator: Aggregator) -> None:
        aggregator.counters.inc("ragmeter_feedback_received_total", SOURCE)
        now = aggregator.windows.now
        self._kept.add(record.row if now is None else replace(record.row, since=now))

    def look(self, aggregator: Aggregator) -> bool:
        """Join what can be joined now, let go whose time is up; whether anything was."""
        moved = False
        while rows := self._labelling.take(BATCH, aggregator.windows.now):
            step = self._labelling.join(rows, aggregator)
            self._kept.apply(step)
            self._labelling.looked()
            moved = moved or bool(step.done)
        return moved

    def give_up(self, source: Source, aggregator: Aggregator) -> bool:
        """A label that cannot be counted, for a mistake of ours. Whether it was counted as that
        just now."""
        if not self._guard.first(source):
            return False
        aggregator.counters.inc("ragmeter_feedback_received_total", SOURCE)
        aggregator.counters.inc("ragmeter_feedback_total", (("outcome", "internal_error"),))
        return True

    def forsake(self, trace_id: str, aggregator: Aggregator) -> int:
        """Give up what waits for a trace that cannot be counted: it may be for the labels. How
        many there were."""
        rows = self._labelling.waiting_for(trace_key(trace_id))
        for row in rows:
            self._kept.apply(self._labelling.give_up(row, aggregator))
        return len(rows)

    # State --------------------------------------------------------------------------------------

    def drain(self) -> Rows:
        return self._kept.drain()

    def dump(self) -> dict[str, Any]:
        """JSON-able; belongs to the rows of the same step."""
        return {"guard": self._guard.dump(), "next": self._kept.dump()}

    def load(self, saved: dict[str, Any], rows: ByKind, aggregator: Aggregator) -> bool:
        """Into an empty object; whether that has changed anything, as other settings do."""
        self._guard = ReplayGuard.load(self._guard.width, saved["guard"])
        self._kept.load(saved["next"], rows)
        self._labelling.restore()
        kept = self._kept.number_of_frames()
        self._kept.apply(self._labelling.remember([], aggregator))
        return self.look(aggregator) or self._kept.number_of_frames() != kept
