"""The feedback of one partition and the traces that may get some, saved as rows.

A record of a changelog costs a recovery some 150 us, and every trace is remembered for its labels:
so remembered traces are gathered in rows of `CHUNK`, and a row is written again only when a trace
enters or leaves it. A trace that has labels has a row of its own beside that: a label then costs
one small row.
"""

from __future__ import annotations

import heapq
import json
import zlib
from collections.abc import Iterable

from ragmeter.aggregate.feedback_records import FeedbackTrace
from ragmeter.kafka.state.rows import Rows, RowsByKind, dump_json, row_key
from ragmeter.store.pending import (
    FeedbackChanges,
    NewFeedback,
    NewRememberedTrace,
    RememberedTrace,
    StoredFeedback,
)

# Remembered traces a row: some 8 kB compressed. A step writes the open one again, so 4 kB on
# average, and 100,000 traces are 1,600 rows to recover.
CHUNK = 64
_LEVEL = 1  # the hashes of passages do not shrink, the rest does at any level
# kinds of rows: traces without their labels, a trace with its labels, feedback that waits
_TRACES, _LABELLED, _FEEDBACK = "f", "l", "i"


class FeedbackStateRows:
    """A `ragmeter.store.pending.FeedbackStore` in memory that is saved as rows."""

    def __init__(self) -> None:
        self._traces: dict[int, NewRememberedTrace] = {}
        self._ids: dict[bytes, tuple[int, ...]] = {}  # of remembered traces, by hashed trace id
        self._ages: list[tuple[float, int]] = []  # a heap: traces are dropped in its order only
        self._feedback: dict[int, NewFeedback] = {}
        self._next_trace = self._next_feedback = 1
        self._labelled: set[int] = set()  # traces with a row of their own
        self._written: set[int] = set()  # feedback with a row
        # since the last `drain`:
        self._changed_chunks: set[int] = set()
        self._changed_labels: set[int] = set()
        self._changed_feedback: set[int] = set()

    def rows(self, after: int, limit: int) -> list[StoredFeedback]:
        """Return feedback with ids above `after`, oldest first."""
        if self._next_feedback - after <= len(self._feedback):  # the usual case: few are new
            ids = [one for one in range(after + 1, self._next_feedback) if one in self._feedback]
        else:
            ids = sorted(one for one in self._feedback if one > after)
        return [StoredFeedback(one, self._feedback[one]) for one in ids[:limit]]

    def row(self, number: int) -> StoredFeedback | None:
        """Return the feedback of an id."""
        feedback = self._feedback.get(number)
        return None if feedback is None else StoredFeedback(number, feedback)

    def count_feedback(self, after: int = 0, upto: int = 2**62) -> int:
        """Count feedback with ids above `after`, up to `upto`."""
        if not after and upto >= self._next_feedback:
            return len(self._feedback)
        return sum(after < one <= upto for one in self._feedback)

    def remembered_traces(self, trace: bytes, service: str | None) -> list[RememberedTrace]:
        """Return the latest trace of an id in each service, or in the one given."""
        latest: dict[str, RememberedTrace] = {}
        for number in self._ids.get(trace, ()):
            one = self._traces[number]
            latest[one.service] = RememberedTrace(number, one.service, one.body)
        return [one for one in latest.values() if service in (None, one.service)]

    def count_remembered(self, before: float | None = None) -> int:
        """Count remembered traces, or those before an event time."""
        if before is None:
            return len(self._traces)
        if not self._ages or self._ages[0][0] >= before:
            return 0
        return sum(at < before for at, _ in self._ages)

    def add(self, new: NewFeedback) -> None:
        """Keep new feedback."""
        self._feedback[self._next_feedback] = new
        self._changed_feedback.add(self._next_feedback)
        self._next_feedback += 1

    def apply(self, changes: FeedbackChanges) -> None:
        """Apply changes, as a commit of the embedded agent does."""
        while changes.before is not None and self._ages and self._ages[0][0] < changes.before:
            self._drop_oldest()
        for new in changes.frames:
            self._enter(self._next_trace, new)
            self._changed_chunks.add(self._next_trace // CHUNK)
            self._next_trace += 1
        for _ in range(min(changes.shed, len(self._ages))):
            self._drop_oldest()
        for number, body in changes.labelled:
            old = self._traces[number]
            self._traces[number] = NewRememberedTrace(old.trace, old.service, old.at, body)
            self._labelled.add(number)
            self._changed_labels.add(number)
        for number in changes.done:
            if self._feedback.pop(number, None) is not None:
                self._changed_feedback.add(number)

    def _enter(self, number: int, new: NewRememberedTrace) -> None:
        self._traces[number] = new
        self._ids[new.trace] = (*self._ids.get(new.trace, ()), number)
        heapq.heappush(self._ages, (new.at, number))

    def _drop_oldest(self) -> None:
        _, number = heapq.heappop(self._ages)
        trace = self._traces.pop(number).trace
        rest = tuple(one for one in self._ids[trace] if one != number)
        if rest:
            self._ids[trace] = rest
        else:
            del self._ids[trace]
        self._changed_chunks.add(number // CHUNK)
        if number in self._labelled:
            self._labelled.discard(number)
            self._changed_labels.add(number)

    def drain(self) -> Rows:
        """Return the rows that changed since the last call."""
        rows: Rows = {
            row_key(_TRACES, chunk): self._chunk(chunk) for chunk in sorted(self._changed_chunks)
        }
        for number in sorted(self._changed_labels):
            trace = self._traces.get(number)
            rows[row_key(_LABELLED, number)] = None if trace is None else trace.body
        for number in sorted(self._changed_feedback):
            row = self._feedback.get(number)
            if row is not None:
                fields = [row.trace.hex(), row.service, row.scorer, row.since, row.body]
                rows[row_key(_FEEDBACK, number)] = dump_json(fields)
                self._written.add(number)
            elif number in self._written:  # else it came and was done with since
                rows[row_key(_FEEDBACK, number)] = None
                self._written.discard(number)
        self._changed_chunks, self._changed_labels, self._changed_feedback = set(), set(), set()
        return rows

    def _chunk(self, chunk: int) -> bytes | None:
        traces = []
        for number in range(chunk * CHUNK, (chunk + 1) * CHUNK):
            if (one := self._traces.get(number)) is not None:
                body = _without_labels(one.body) if number in self._labelled else one.body
                traces.append([number, one.trace.hex(), one.service, one.at, body.decode("ascii")])
        return zlib.compress(dump_json(traces), _LEVEL) if traces else None

    def dump(self) -> list[int]:
        """Return JSON-able state, which belongs to the rows of the same step."""
        return [self._next_trace, self._next_feedback]

    def load(self, saved: Iterable[int], rows: RowsByKind) -> None:
        """Restore saved state and rows, in an empty object."""
        self._next_trace, self._next_feedback = map(int, saved)
        for _, data in rows.get(_TRACES, ()):
            for number, trace, service, at, body in json.loads(zlib.decompress(data)):
                self._enter(
                    number, NewRememberedTrace(bytes.fromhex(trace), service, at, body.encode())
                )
        for (number,), data in rows.get(_LABELLED, ()):
            old = self._traces[number]
            self._traces[number] = NewRememberedTrace(old.trace, old.service, old.at, data)
            self._labelled.add(number)
        for (number,), data in sorted(rows.get(_FEEDBACK, ()), key=lambda row: int(row[0][0])):
            trace, service, scorer, since, body = json.loads(data)
            self._feedback[number] = NewFeedback(
                trace=bytes.fromhex(trace), service=service, scorer=scorer, since=since, body=body
            )
            self._written.add(number)
        # chunks come in no order, and of a trace that came twice the latest counts
        self._ids = {trace: tuple(sorted(numbers)) for trace, numbers in self._ids.items()}


def _without_labels(body: bytes) -> bytes:
    trace = FeedbackTrace.load(body)
    trace.by_scorer = {}
    return trace.dump()
