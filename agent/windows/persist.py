"""Buckets as bytes: one version byte, then JSON.

JSON because the sums are whole numbers of any size, because reading it can run no code, and
because it has no byte order; the encoder is C, so a bucket of 16 metrics takes some 20 us. Keys
are sorted: equal buckets give equal bytes.
"""

from __future__ import annotations

import json
from typing import Any

from agent.windows.bucket import Bucket
from agent.windows.loghist import Sketch
from agent.windows.sums import FIELDS, Cell
from agent.windows.worst import Entry, tie_break

__all__ = ["VERSION", "decode_bucket", "decode_clock", "encode_bucket", "encode_clock"]

VERSION = 1


def _pack(content: object) -> bytes:
    return bytes([VERSION]) + json.dumps(content, separators=(",", ":")).encode("ascii")


def _unpack(data: bytes) -> Any:
    if not data or data[0] != VERSION:
        found = data[0] if data else "none"
        raise ValueError(
            f"window state of format version {found}; this program reads version {VERSION}"
        )
    try:
        return json.loads(data[1:])
    except ValueError as error:
        raise ValueError(f"window state that cannot be read: {error}") from None


def encode_bucket(bucket: Bucket) -> bytes:
    cells = [
        [
            *key,
            cell.not_applicable,
            cell.sampled_out,
            cell.unscored,
            cell.shed,
            cell.n,
            cell.y,
            cell.yy,
            sorted(cell.strata.items()) if cell.strata else [],
        ]
        for key, cell in sorted(bucket.cells.items())
    ]
    sketches = [
        [stage, sketch.n, sketch.w2, sketch.flat()]
        for stage, sketch in sorted(bucket.sketches.items())
    ]
    worst = [
        [*key, [[e.trace_id, e.timestamp, e.value, e.rank] for e in entries]]
        for key, entries in sorted(bucket.worst.items())
    ]
    return _pack([bucket.seen, cells, sketches, worst])


def decode_bucket(data: bytes) -> Bucket:
    """ValueError for another version and for content that is no bucket."""
    content = _unpack(data)
    try:
        return _bucket(content)
    except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
        raise ValueError(f"window state that is no bucket: {error}") from None


def _bucket(content: Any) -> Bucket:
    bucket = Bucket()
    bucket.seen, cells, sketches, worst = content
    for metric, scorer, *counts, strata in cells:
        cell = bucket.cells[metric, scorer] = Cell()
        cell.not_applicable, cell.sampled_out, cell.unscored, cell.shed = counts[:4]
        cell.n, cell.y, cell.yy = counts[4:]
        if strata:
            cell.strata = {name: sums for name, sums in strata if len(sums) == len(FIELDS)}
    for stage, n, w2, flat in sketches:
        bucket.sketches[stage] = Sketch.of(n, w2, flat)
    for metric, scorer, entries in worst:
        bucket.worst[metric, scorer] = [
            Entry(rank, tie_break(trace_id), trace_id, timestamp, value)
            for trace_id, timestamp, value, rank in entries
        ]
    return bucket


def encode_clock(now: float) -> bytes:
    return _pack({"now": now})


def decode_clock(data: bytes) -> float:
    content = _unpack(data)
    try:
        return float(content["now"])
    except (TypeError, ValueError, KeyError) as error:
        raise ValueError(f"window state without a clock: {error}") from None
