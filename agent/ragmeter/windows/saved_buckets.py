"""The saved form of buckets, of the journal and of the stream time.

A saved bucket is one version byte, then JSON: the sums are whole numbers of any size, reading it
can run no code, and it has no byte order. Keys are sorted, so equal buckets give equal bytes. The
encoder is C: a bucket of 16 metrics takes some 50 us.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from ragmeter.core.errors import UnknownVersion
from ragmeter.windows.buckets import Bucket, SeriesSlots
from ragmeter.windows.log_histogram import SparseLogHistogram, cell_weights
from ragmeter.windows.sums import WIDTH, StratumSums
from ragmeter.windows.worst import WorstEntry, tie_break, unpack_entries

Content = TypeVar("Content")

# (service, segments, start, sum): the traces with these segments in a bucket of the finest grain,
# which begins at Unix second `start`.
JournalEntry = tuple[str, tuple[str, ...], int, Bucket]

BUCKET_VERSION = 1
JOURNAL_VERSION = 1

_encode_json = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


def encode_bucket(bucket: Bucket, slots: SeriesSlots) -> bytes:
    """Encode a bucket as it is saved; `slots` are those that it was built with."""
    return _pack(BUCKET_VERSION, _encode_content(bucket, slots))


def _encode_content(bucket: Bucket, slots: SeriesSlots) -> list[Any]:
    cells = []
    counts = bucket.counts
    strata = bucket.strata
    for key, offset in slots.items():
        row = counts[offset : offset + WIDTH]
        weighted = strata.get(offset) if strata else None
        if weighted or any(row[:5]):
            cells.append([*key, row or [0] * WIDTH, sorted(weighted.items()) if weighted else []])
    return [bucket.trace_count, cells, *_encode_others(bucket)]


def _encode_others(bucket: Bucket) -> tuple[list[Any], list[Any], list[Any]]:
    sketches = [
        [stage, sketch.n, sketch.w2, *sketch.content()]
        for stage, sketch in sorted(bucket.sketches.items())
    ]
    worst = [
        [*key, [[e.rank, e.trace_id, e.timestamp] for e in unpack_entries(entries)]]
        for key, entries in sorted(bucket.worst.items())
    ]
    failures = [
        [*key, sorted(reasons.items())] for key, reasons in sorted((bucket.failures or {}).items())
    ]
    return sketches, worst, failures


def decode_bucket(data: bytes, slots: SeriesSlots) -> Bucket:
    """Decode a saved bucket; its series get slots.

    Raises:
        UnknownVersion: It is in the format of another version.
        ValueError: The data is not a bucket.
    """
    return _unpack(data, BUCKET_VERSION, lambda content: _decode_content(content, slots))


def _decode_content(content: Any, slots: SeriesSlots) -> Bucket:
    bucket = Bucket()
    bucket.trace_count, cells, sketches, worst, failures = content
    for metric, scorer, counts, weighted in cells:
        offset, _, _ = slots.column((metric, scorer))
        if len(counts) != WIDTH:
            raise ValueError("wrong number of sums")
        bucket.counts += [0] * (offset + WIDTH - len(bucket.counts))
        bucket.counts[offset : offset + WIDTH] = counts
        if weighted:
            bucket.strata[offset] = {name: StratumSums.load(sums) for name, sums in weighted}
    for stage, n, w2, shift, filled, weights in sketches:
        counts = dict(cell_weights(shift, filled, weights))
        bucket.sketches[stage] = SparseLogHistogram(n, w2, counts)
    for metric, scorer, entries in worst:
        bucket.worst[metric, scorer] = [
            WorstEntry(rank, tie_break(trace_id), trace_id, timestamp)
            for rank, trace_id, timestamp in entries
        ]
    bucket.failures = {
        (metric, scorer): dict(reasons) for metric, scorer, reasons in failures
    } or None
    return bucket


def encode_journal(entries: Sequence[JournalEntry], slots: SeriesSlots) -> bytes:
    """Encode what a commit has added: the names of all series once, then the sums as they are."""
    rows = [
        (
            *place,
            delta.trace_count,
            delta.counts,
            [(offset, list(strata.items())) for offset, strata in delta.strata.items()],
            *_encode_others(delta),
        )
        for *place, delta in entries
    ]
    return _pack(JOURNAL_VERSION, [list(slots.columns), rows])


def decode_journal(data: bytes, slots: SeriesSlots) -> list[JournalEntry]:
    """Decode a row of the journal, as `decode_bucket` does a bucket."""
    return _unpack(data, JOURNAL_VERSION, lambda content: list(_decode_entries(content, slots)))


def _decode_entries(content: Any, slots: SeriesSlots) -> Iterator[JournalEntry]:
    keys, rows = content
    for service, segments, start, trace_count, counts, strata, *others in rows:
        weighted = dict(strata)
        places = range(0, len(counts), WIDTH)
        cells = [
            (*key, counts[at : at + WIDTH], weighted.get(at))
            for at, key in zip(places, keys, strict=False)
        ]
        bucket = _decode_content([trace_count, cells, *others], slots)
        yield service, tuple(segments), start, bucket


def encode_clock(now: float) -> bytes:
    """Encode the stream time (Unix seconds) as it is saved."""
    return _pack(BUCKET_VERSION, {"now": now})


def decode_clock(data: bytes) -> float:
    """Decode the stream time; raises ValueError if the data is none."""
    return _unpack(data, BUCKET_VERSION, lambda content: float(content["now"]))


def _pack(version: int, content: object) -> bytes:
    return bytes([version]) + _encode_json(content).encode("ascii")


def _unpack(data: bytes, version: int, decode: Callable[[Any], Content]) -> Content:
    """Return what `decode` makes of the content."""
    if data and data[0] not in (0, version):
        raise UnknownVersion(
            f"window state of format version {data[0]}; this program reads version {version}"
        )
    try:
        if not data or not data[0]:
            raise ValueError("it has no format version")
        return decode(json.loads(data[1:]))
    except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
        raise ValueError(f"window state that cannot be read: {error}") from None
