"""What the state of a partition keeps of the worst: where each trace lies, then its texts."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Container, Iterable, Set
from dataclasses import replace
from itertools import islice
from typing import Any

from agent.kafka.messages.records import ScoreRecord, TooLarge, decode_record, encode_record
from agent.kafka.state.state_rows import Rows, key_of
from agent.privacy.content import Content

__all__ = ["GONE", "PENDING", "KeptEvidence", "TraceKey"]

COLLECT_SECONDS = 60.0  # of event time: how often what is no longer among the worst is let go
COLLECT_ROWS = 5_000  # or after so many more were kept

TraceKey = tuple[str, str]
"""(service by its bounded name, trace id)"""

GONE, PENDING, CROWDED = "gone", "pending", "crowded"
"""In place of what `privacy.content` says of a trace whose texts are not there: it lies nowhere any
more, it was not read yet, there is no room for it now."""

_RECORD, _TEXT = b"r", b"z"  # the scores alone, or the text as well, compressed
LEVEL = 1  # English passages shrink to 36 %; at the default 6 to 34 %


class KeptEvidence:
    """Rows by trace. Pure. Of texts at most about `room` bytes are kept: a service has some 300
    worst traces by default, and all of this is in memory, in the table of the state once more."""

    def __init__(self, content: Content, room: int) -> None:
        self._content = content
        self._room = room
        self._bytes = 0
        self._kept: dict[TraceKey, bytes] = {}
        self._given: Rows = {}  # since the last `drain`
        self._added = 0
        self._collected: float | None = None

    @property
    def changed(self) -> bool:
        return bool(self._given)

    def keep(self, key: TraceKey, record: ScoreRecord) -> None:
        """A trace has become one of the worst."""
        try:
            data = encode_record(replace(record, passages=None))  # their place is among the frames
        except TooLarge:  # from a worker that knew no such limit: it counts, and is not shown
            return
        self._put(key, _RECORD + data)
        self._added += 1

    def _put(self, key: TraceKey, data: bytes | None) -> None:
        self._bytes += _size(data) - _size(self._kept.pop(key, None))
        if data is not None:
            self._kept[key] = data
        self._given[key_of("e", *key)] = data

    def collect(self, now: float | None, worst: Callable[[], Set[TraceKey]]) -> None:
        """Let go what is no longer among the worst. By event time, for what is kept must not
        depend on batches."""
        if now is None:
            return
        if self._collected is None:
            self._collected = now
        if now - self._collected >= COLLECT_SECONDS or self._added >= COLLECT_ROWS:
            self._collected, self._added = now, 0
            for key in self._kept.keys() - worst():
                self._put(key, None)

    # Texts --------------------------------------------------------------------------------------

    def wanted(
        self, most: int | None = None, but: Container[TraceKey] = ()
    ) -> list[tuple[TraceKey, ScoreRecord]]:
        """Those whose text is not kept yet, and their records: where to read it. At most so many,
        those that have waited longest, and none of `but`; none while there is no room."""
        if self._bytes >= self._room:
            return []
        waiting = (
            (key, data)
            for key, data in self._kept.items()
            if data[:1] == _RECORD and key not in but
        )
        return [(key, decode_record(data[1:])) for key, data in islice(waiting, most)]

    def keep_text(self, key: TraceKey, body: bytes | None) -> None:
        """What was read, by `agent.evidence.evidence_body`; None: it is gone from the topic. One
        that is no longer among the worst is left out."""
        kept = self._kept.get(key)
        if kept is not None and kept[:1] == _RECORD:
            if body is None:
                body = json.dumps(self._bare(key, kept, GONE)).encode()
            self._put(key, _TEXT + zlib.compress(body, LEVEL))

    def get(self, key: TraceKey) -> bytes | None:
        """What is known of a worst trace, in the form of `agent.evidence`."""
        kept = self._kept.get(key)
        if kept is None:
            return None
        if kept[:1] == _TEXT:
            return zlib.decompress(kept[1:])
        why = PENDING if self._bytes < self._room else CROWDED
        return json.dumps(self._bare(key, kept, why)).encode()

    def _bare(self, key: TraceKey, kept: bytes, why: str) -> dict[str, Any]:
        results = [score.to_dict() for score in decode_record(kept[1:]).scored.results]
        service, trace_id = key
        trace = {"trace_id": trace_id, "service": service, "passages": None, "content": why}
        return {"trace": trace, "results": self._content.results(results)}

    # State --------------------------------------------------------------------------------------

    @property
    def mode(self) -> str:
        """For `load`: under which setting the rows were made."""
        return self._content.mode

    def drain(self) -> Rows:
        """The rows that changed since the last call."""
        given, self._given = self._given, {}
        return given

    def load(self, rows: Iterable[tuple[TraceKey, bytes]], mode: str) -> None:
        """All rows that were not deleted, and the mode of whoever made them: what must not be kept
        any longer is let go, and compaction takes away the last of it."""
        self._kept = dict(rows)
        self._bytes = sum(map(_size, self._kept.values()))
        if self._content.changed(mode):
            for key in list(self._kept):
                self._put(key, None)


def _size(data: bytes | None) -> int:
    """Of what counts for the room."""
    return len(data) if data is not None and data[:1] == _TEXT else 0
