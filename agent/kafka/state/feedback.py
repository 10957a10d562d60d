"""Hold and join the feedback of one partition, saved as rows.

What a partition keeps so that labels find their traces: frames, feedback that waits, and the
rows of both.

A record of a changelog costs a recovery some 150 us, and there is a frame of every trace: so frames
are gathered in rows of `CHUNK`, and a row is written again only when a frame enters or leaves it. A
frame that has labels has a row of its own beside that: a label then costs one small row.

Labels in the aggregate half of one partition: the joining of the embedded agent
(`ragmeter.aggregate`), record by record.

What it counts hangs on the records and their order alone. So each label, and each trace, is joined
to what it belongs to before the next record is counted, whatever the batch.
"""

from __future__ import annotations

import heapq
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ragmeter.aggregate.aggregator import Aggregator, AppliedTrace
from ragmeter.aggregate.feedback_join import CountedTrace, FeedbackJoin
from ragmeter.aggregate.feedback_records import FeedbackTrace, trace_key
from ragmeter.config.settings import Settings
from ragmeter.core.counters import GaugeSample
from ragmeter.kafka.score_records import FeedbackRecord, SourceOffset
from ragmeter.kafka.state.duplicates import RedeliveryGuard
from ragmeter.kafka.state.rows import Rows, row_key
from ragmeter.store.pending import (
    FeedbackChanges,
    NewFeedback,
    NewRememberedTrace,
    RememberedTrace,
    StoredFeedback,
)

CHUNK = 64
"""Frames a row: some 8 kB compressed. A step writes the open one again, so 4 kB on average, and
100,000 frames are 1,600 rows to recover."""
_LEVEL = 1  # the hashes of passages do not shrink, the rest does at any level

_FRAMES, _LABELLED, _FEEDBACK = "f", "l", "i"
"""The kinds of rows: frames without labels, a frame with its labels, feedback that waits."""

RowsByKind = Mapping[str, Iterable[tuple[list[Any], bytes]]]


class FeedbackStateRows:
    """`ragmeter.store.pending.LabelStore` in memory; says what to write, and can be loaded."""

    def __init__(self) -> None:
        self._frames: dict[int, NewRememberedTrace] = {}
        self._of: dict[bytes, tuple[int, ...]] = {}  # ids of frames by trace
        self._ages: list[tuple[float, int]] = []  # a heap: frames go in its order only
        self._feedback: dict[int, NewFeedback] = {}
        self._next_frame = self._next_row = 1
        self._touched: set[int] = set()  # chunks, since the last `drain`
        self._labelled: set[int] = set()  # frames with a row of their own
        self._changed: set[int] = set()  # of these, since the last `drain`
        self._heard: set[int] = set()  # feedback, since the last `drain`
        self._written: set[int] = set()  # feedback with a row

    # LabelStore ---------------------------------------------------------------------------------

    def rows(self, after: int, limit: int) -> list[StoredFeedback]:
        if self._next_row - after <= len(self._feedback):  # the usual case: few are new
            ids = [one for one in range(after + 1, self._next_row) if one in self._feedback]
        else:
            ids = sorted(one for one in self._feedback if one > after)
        return [StoredFeedback(one, self._feedback[one]) for one in ids[:limit]]

    def row(self, number: int) -> StoredFeedback | None:
        found = self._feedback.get(number)
        return None if found is None else StoredFeedback(number, found)

    def count_feedback(self, after: int = 0, upto: int = 2**62) -> int:
        if not after and upto >= self._next_row:
            return len(self._feedback)
        return sum(after < one <= upto for one in self._feedback)

    def remembered_traces(self, trace: bytes, service: str | None) -> list[RememberedTrace]:
        found: dict[str, RememberedTrace] = {}
        for number in self._of.get(trace, ()):
            one = self._frames[number]
            found[one.service] = RememberedTrace(number, one.service, one.body)
        return [one for one in found.values() if service in (None, one.service)]

    def count_remembered(self, before: float | None = None) -> int:
        if before is None:
            return len(self._frames)
        if not self._ages or self._ages[0][0] >= before:
            return 0
        return sum(at < before for at, _ in self._ages)

    # Changes ------------------------------------------------------------------------------------

    def add(self, new: NewFeedback) -> None:
        """Feedback that has come."""
        self._feedback[self._next_row] = new
        self._heard.add(self._next_row)
        self._next_row += 1

    def apply(self, step: FeedbackChanges) -> None:
        """As a commit of the embedded agent does."""
        while step.before is not None and self._ages and self._ages[0][0] < step.before:
            self._drop_oldest()
        for new in step.frames:
            self._enter(self._next_frame, new)
            self._touched.add(self._next_frame // CHUNK)
            self._next_frame += 1
        for _ in range(min(step.shed, len(self._ages))):
            self._drop_oldest()
        for number, body in step.labelled:
            old = self._frames[number]
            self._frames[number] = NewRememberedTrace(old.trace, old.service, old.at, body)
            self._labelled.add(number)
            self._changed.add(number)
        for number in step.done:
            if self._feedback.pop(number, None) is not None:
                self._heard.add(number)

    def _enter(self, number: int, new: NewRememberedTrace) -> None:
        self._frames[number] = new
        self._of[new.trace] = (*self._of.get(new.trace, ()), number)
        heapq.heappush(self._ages, (new.at, number))

    def _drop_oldest(self) -> None:
        _, number = heapq.heappop(self._ages)
        trace = self._frames.pop(number).trace
        rest = tuple(one for one in self._of[trace] if one != number)
        if rest:
            self._of[trace] = rest
        else:
            del self._of[trace]
        self._touched.add(number // CHUNK)
        if number in self._labelled:
            self._labelled.discard(number)
            self._changed.add(number)

    # State --------------------------------------------------------------------------------------

    def drain(self) -> Rows:
        """The rows that changed since the last call; None for one that goes."""
        rows: Rows = {
            row_key(_FRAMES, chunk): self._chunk(chunk) for chunk in sorted(self._touched)
        }
        for number in sorted(self._changed):
            frame = self._frames.get(number)
            rows[row_key(_LABELLED, number)] = None if frame is None else frame.body
        for number in sorted(self._heard):
            row = self._feedback.get(number)
            if row is not None:
                rows[row_key(_FEEDBACK, number)] = _dumped(
                    row.trace, row.service, row.scorer, row.since, row.body
                )
                self._written.add(number)
            elif number in self._written:  # else it came and was done with since
                rows[row_key(_FEEDBACK, number)] = None
                self._written.discard(number)
        self._touched, self._changed, self._heard = set(), set(), set()
        return rows

    def _chunk(self, chunk: int) -> bytes | None:
        found = []
        for number in range(chunk * CHUNK, (chunk + 1) * CHUNK):
            if (one := self._frames.get(number)) is not None:
                body = _unlabelled(one.body) if number in self._labelled else one.body
                found.append([number, one.trace.hex(), one.service, one.at, body.decode("ascii")])
        return zlib.compress(_dumped(*found), _LEVEL) if found else None

    def dump(self) -> list[int]:
        """JSON-able; belongs to the rows of the same step."""
        return [self._next_frame, self._next_row]

    def load(self, saved: Iterable[int], rows: RowsByKind) -> None:
        """Into an empty object."""
        self._next_frame, self._next_row = map(int, saved)
        for _, data in rows.get(_FRAMES, ()):
            for number, trace, service, at, body in json.loads(zlib.decompress(data)):
                self._enter(
                    number, NewRememberedTrace(bytes.fromhex(trace), service, at, body.encode())
                )
        for (number,), data in rows.get(_LABELLED, ()):
            old = self._frames[number]
            self._frames[number] = NewRememberedTrace(old.trace, old.service, old.at, data)
            self._labelled.add(number)
        for (number,), data in sorted(rows.get(_FEEDBACK, ()), key=lambda row: int(row[0][0])):
            trace, service, scorer, since, body = json.loads(data)
            self._feedback[number] = NewFeedback(bytes.fromhex(trace), service, scorer, since, body)
            self._written.add(number)
        # chunks are read in no order, and of a trace that came twice the latest frame holds
        self._of = {trace: tuple(sorted(numbers)) for trace, numbers in self._of.items()}


def _dumped(*parts: Any) -> bytes:
    fields = [one.hex() if isinstance(one, bytes) else one for one in parts]
    return json.dumps(fields, separators=(",", ":")).encode("ascii")


def _unlabelled(body: bytes) -> bytes:
    frame = FeedbackTrace.load(body)
    frame.by_scorer = {}
    return frame.dump()


BATCH = 200  # feedback that is joined at a time: what one record can set free
_SOURCE = (("source", "kafka"),)


class PartitionFeedback:
    """`width` is that of the guard against repetitions, as for traces: labels come from a topic of
    their own, by a sender that makes the same promise."""

    def __init__(self, settings: Settings, width: int) -> None:
        self._kept = FeedbackStateRows()
        self._labelling = FeedbackJoin(settings, self._kept, share=settings.kafka.partitions)
        self._guard = RedeliveryGuard(width)

    def gauges(self) -> Sequence[GaugeSample]:
        return self._labelling.gauges()

    def add_trace(
        self,
        service: str,
        passages: tuple[str, ...] | None,
        applied: AppliedTrace,
        aggregator: Aggregator,
    ) -> None:
        """A trace was counted just now: remember it, and count the labels that wait for it.
        `service` is its name as it was sent."""
        one = CountedTrace(service, passages, applied.trace, applied.segments)
        self._kept.apply(self._labelling.remember([one], aggregator))
        self.join_waiting(aggregator)

    def accept(self, record: FeedbackRecord, aggregator: Aggregator) -> bool:
        """Whether the feedback is a new one; then it is joined, or waits."""
        if not self._guard.accept(record.source):
            aggregator.counters.inc("ragmeter_replayed_total")
            return False
        self._receive(record, aggregator)
        self.join_waiting(aggregator)
        return True

    def _receive(self, record: FeedbackRecord, aggregator: Aggregator) -> None:
        aggregator.counters.inc("ragmeter_feedback_received_total", _SOURCE)
        now = aggregator.windows.now
        self._kept.add(record.row if now is None else replace(record.row, since=now))

    def join_waiting(self, aggregator: Aggregator) -> bool:
        """Join what can be joined now, let go whose time is up; whether anything was."""
        moved = False
        while rows := self._labelling.take(BATCH, aggregator.windows.now):
            step = self._labelling.join(rows, aggregator)
            self._kept.apply(step)
            self._labelling.mark_read()
            moved = moved or bool(step.done)
        return moved

    def give_up(self, source: SourceOffset, aggregator: Aggregator) -> bool:
        """A label that cannot be counted, for a mistake of ours. Whether it was counted as that
        just now."""
        if not self._guard.accept(source):
            return False
        aggregator.counters.inc("ragmeter_feedback_received_total", _SOURCE)
        aggregator.counters.inc("ragmeter_feedback_total", (("outcome", "internal_error"),))
        return True

    def give_up_waiting(self, trace_id: str, aggregator: Aggregator) -> int:
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

    def load(self, saved: dict[str, Any], rows: RowsByKind, aggregator: Aggregator) -> bool:
        """Into an empty object; whether that has changed anything, as other settings do."""
        self._guard = RedeliveryGuard.load(self._guard.width, saved["guard"])
        self._kept.load(saved["next"], rows)
        self._labelling.restore()
        kept = self._kept.count_remembered()
        self._kept.apply(self._labelling.remember([], aggregator))
        return self.join_waiting(aggregator) or self._kept.count_remembered() != kept
