"""What a partition keeps so that labels find their traces: frames, feedback that waits, and the
rows of both.

A record of a changelog costs a recovery some 150 us, and there is a frame of every trace: so frames
are gathered in rows of `CHUNK`, and a row is written again only when a frame enters or leaves it. A
frame that has labels has a row of its own beside that: a label then costs one small row.
"""

from __future__ import annotations

import heapq
import json
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

from agent.feedback.frames import Frame
from agent.kafka.state.state_rows import Rows, key_of
from agent.store.feedback import FeedbackStep, Kept, NewFrame, NewRow, Row

__all__ = ["CHUNK", "KeptLabels"]

CHUNK = 64
"""Frames a row: some 8 kB compressed. A step writes the open one again, so 4 kB on average, and
100,000 frames are 1,600 rows to recover."""
LEVEL = 1  # the hashes of passages do not shrink, the rest does at any level

FRAMES, LABELLED, FEEDBACK = "f", "l", "i"
"""The kinds of rows: frames without labels, a frame with its labels, feedback that waits."""

ByKind = Mapping[str, Iterable[tuple[list[Any], bytes]]]


class KeptLabels:
    """`agent.store.feedback.LabelStore` in memory; says what to write, and can be loaded."""

    def __init__(self) -> None:
        self._frames: dict[int, NewFrame] = {}
        self._of: dict[bytes, tuple[int, ...]] = {}  # ids of frames by trace
        self._ages: list[tuple[float, int]] = []  # a heap: frames go in its order only
        self._feedback: dict[int, NewRow] = {}
        self._next_frame = self._next_row = 1
        self._touched: set[int] = set()  # chunks, since the last `drain`
        self._labelled: set[int] = set()  # frames with a row of their own
        self._changed: set[int] = set()  # of these, since the last `drain`
        self._heard: set[int] = set()  # feedback, since the last `drain`
        self._written: set[int] = set()  # feedback with a row

    # LabelStore ---------------------------------------------------------------------------------

    def rows(self, after: int, limit: int) -> list[Row]:
        if self._next_row - after <= len(self._feedback):  # the usual case: few are new
            ids = [one for one in range(after + 1, self._next_row) if one in self._feedback]
        else:
            ids = sorted(one for one in self._feedback if one > after)
        return [Row(one, self._feedback[one]) for one in ids[:limit]]

    def row(self, number: int) -> Row | None:
        found = self._feedback.get(number)
        return None if found is None else Row(number, found)

    def number(self, after: int = 0, upto: int = 2**62) -> int:
        if not after and upto >= self._next_row:
            return len(self._feedback)
        return sum(after < one <= upto for one in self._feedback)

    def frames(self, trace: bytes, service: str | None) -> list[Kept]:
        found: dict[str, Kept] = {}
        for number in self._of.get(trace, ()):
            one = self._frames[number]
            found[one.service] = Kept(number, one.service, one.body)
        return [one for one in found.values() if service in (None, one.service)]

    def number_of_frames(self, before: float | None = None) -> int:
        if before is None:
            return len(self._frames)
        if not self._ages or self._ages[0][0] >= before:
            return 0
        return sum(at < before for at, _ in self._ages)

    # Changes ------------------------------------------------------------------------------------

    def add(self, new: NewRow) -> None:
        """Feedback that has come."""
        self._feedback[self._next_row] = new
        self._heard.add(self._next_row)
        self._next_row += 1

    def apply(self, step: FeedbackStep) -> None:
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
            self._frames[number] = NewFrame(old.trace, old.service, old.at, body)
            self._labelled.add(number)
            self._changed.add(number)
        for number in step.done:
            if self._feedback.pop(number, None) is not None:
                self._heard.add(number)

    def _enter(self, number: int, new: NewFrame) -> None:
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
        rows: Rows = {key_of(FRAMES, chunk): self._chunk(chunk) for chunk in sorted(self._touched)}
        for number in sorted(self._changed):
            frame = self._frames.get(number)
            rows[key_of(LABELLED, number)] = None if frame is None else frame.body
        for number in sorted(self._heard):
            row = self._feedback.get(number)
            if row is not None:
                rows[key_of(FEEDBACK, number)] = _dumped(
                    row.trace, row.service, row.scorer, row.since, row.body
                )
                self._written.add(number)
            elif number in self._written:  # else it came and was done with since
                rows[key_of(FEEDBACK, number)] = None
                self._written.discard(number)
        self._touched, self._changed, self._heard = set(), set(), set()
        return rows

    def _chunk(self, chunk: int) -> bytes | None:
        found = []
        for number in range(chunk * CHUNK, (chunk + 1) * CHUNK):
            if (one := self._frames.get(number)) is not None:
                body = _unlabelled(one.body) if number in self._labelled else one.body
                found.append([number, one.trace.hex(), one.service, one.at, body.decode("ascii")])
        return zlib.compress(_dumped(*found), LEVEL) if found else None

    def dump(self) -> list[int]:
        """JSON-able; belongs to the rows of the same step."""
        return [self._next_frame, self._next_row]

    def load(self, saved: Iterable[int], rows: ByKind) -> None:
        """Into an empty object."""
        self._next_frame, self._next_row = map(int, saved)
        for _, data in rows.get(FRAMES, ()):
            for number, trace, service, at, body in json.loads(zlib.decompress(data)):
                self._enter(number, NewFrame(bytes.fromhex(trace), service, at, body.encode()))
        for (number,), data in rows.get(LABELLED, ()):
            old = self._frames[number]
            self._frames[number] = NewFrame(old.trace, old.service, old.at, data)
            self._labelled.add(number)
        for (number,), data in sorted(rows.get(FEEDBACK, ()), key=lambda row: int(row[0][0])):
            trace, service, scorer, since, body = json.loads(data)
            self._feedback[number] = NewRow(bytes.fromhex(trace), service, scorer, since, body)
            self._written.add(number)
        # chunks are read in no order, and of a trace that came twice the latest frame holds
        self._of = {trace: tuple(sorted(numbers)) for trace, numbers in self._of.items()}


def _dumped(*parts: Any) -> bytes:
    fields = [one.hex() if isinstance(one, bytes) else one for one in parts]
    return json.dumps(fields, separators=(",", ":")).encode("ascii")


def _unlabelled(body: bytes) -> bytes:
    frame = Frame.load(body)
    frame.said = {}
    return frame.dump()
