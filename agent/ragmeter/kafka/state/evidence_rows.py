"""The worst traces of a partition, as rows of its state."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Container, Iterable, Set
from itertools import islice
from typing import Any

from ragmeter.aggregate.evidence import CollectionPace, EvidenceKey
from ragmeter.ingest.content_policy import ContentPolicy
from ragmeter.kafka.score_records import ScoreRecord, decode_score, encode_score
from ragmeter.kafka.state.rows import Rows, row_key
from ragmeter.kafka.wire import RecordTooLarge

# In place of what `privacy.content` says of a trace without its texts: they are no longer in the
# topic, were not read yet, or there is no room for them.
_GONE = "gone"
_PENDING = "pending"
_CROWDED = "crowded"
_RECORD = b"r"  # the scores alone
_TEXT = b"z"  # the text as well, compressed
_LEVEL = 1  # English passages shrink to 36 %; at the default 6 to 34 %

# Compressed texts that a partition keeps, of the worst traces and of those to label. All of it is
# in memory, and in the table of the state once more; a service has some 300 worst traces by
# default, of 2 kB each when they are short.
TEXT_BYTES = 32 * 2**20


class EvidenceRows:
    """The worst traces, by (bounded service name, trace id).

    At most about `TEXT_BYTES` of texts are kept. `changes` are the rows that have changed since
    whoever writes them took them.
    """

    def __init__(self, content: ContentPolicy) -> None:
        self._content = content
        self._bytes = 0
        self._bodies: dict[EvidenceKey, bytes] = {}
        self.changes: Rows = {}
        self._pace = CollectionPace()

    def add(self, key: EvidenceKey, record: ScoreRecord) -> None:
        """Keep a trace that has become one of the worst."""
        try:
            # whoever joins labels to a trace remembers the hashes of its passages
            data = encode_score(ScoreRecord(record.scored._replace(passages=None), record.source))
        except RecordTooLarge:  # from a worker without this limit: it counts, and is not shown
            return
        self._put(key, _RECORD + data)
        self._pace.added += 1

    def _put(self, key: EvidenceKey, data: bytes | None) -> None:
        self._bytes += _text_bytes(data) - _text_bytes(self._bodies.pop(key, None))
        if data is not None:
            self._bodies[key] = data
        self.changes[row_key("e", *key)] = data

    def collect(self, now: float | None, worst: Callable[[], Set[EvidenceKey]]) -> None:
        """Drop traces that are no longer among the worst, now and then.

        `now` is event time: what is kept must not depend on batches.
        """
        if now is not None and self._pace.due(now):
            for key in self._bodies.keys() - worst():
                self._put(key, None)

    def missing_texts(
        self, most: int | None = None, but: Container[EvidenceKey] = ()
    ) -> list[tuple[EvidenceKey, ScoreRecord]]:
        """Return up to `most` traces without a text, longest waiting first, and none of `but`.

        There are none while there is no room. Their records tell where the text can be read.
        """
        if self._bytes >= TEXT_BYTES:
            return []
        waiting = (
            (key, data)
            for key, data in self._bodies.items()
            if data[:1] == _RECORD and key not in but
        )
        return [(key, decode_score(data[1:])) for key, data in islice(waiting, most)]

    def save_text(self, key: EvidenceKey, body: bytes | None) -> None:
        """Keep what `encode_evidence` made of the text, or None where it is gone from the topic.

        A trace that is no longer among the worst is left out.
        """
        data = self._bodies.get(key)
        if data is not None and data[:1] == _RECORD:
            if body is None:
                body = json.dumps(self._without_text(key, data, _GONE)).encode()
            self._put(key, _TEXT + zlib.compress(body, _LEVEL))

    def get(self, key: EvidenceKey) -> bytes | None:
        """Return what is known of a worst trace, in the form of `ragmeter.aggregate.evidence`."""
        data = self._bodies.get(key)
        if data is None:
            return None
        if data[:1] == _TEXT:
            return zlib.decompress(data[1:])
        why = _PENDING if self._bytes < TEXT_BYTES else _CROWDED
        return json.dumps(self._without_text(key, data, why)).encode()

    def _without_text(self, key: EvidenceKey, data: bytes, why: str) -> dict[str, Any]:
        results = [score.to_dict() for score in decode_score(data[1:]).scored.results]
        service, trace_id = key
        trace = {"trace_id": trace_id, "service": service, "passages": None, "content": why}
        return {"trace": trace, "results": self._content.results(results)}

    def load(self, rows: Iterable[tuple[list[Any], bytes]], mode: str) -> None:
        """Restore all rows, made under `mode`; where that has changed since, they are deleted."""
        self._bodies = {(service, name): data for (service, name), data in rows}
        self._bytes = sum(map(_text_bytes, self._bodies.values()))
        if self._content.changed(mode):
            for key in list(self._bodies):
                self._put(key, None)


def _text_bytes(data: bytes | None) -> int:
    """Return the size that counts for the room."""
    return len(data) if data is not None and data[:1] == _TEXT else 0
