"""Buckets as bytes: one version byte, then JSON.

JSON because the sums are whole numbers of any size, because reading it can run no code, and
because it has no byte order; the encoder is C, so a bucket of 16 metrics takes some 20 us. Keys
are sorted: equal buckets give equal bytes.
"""

from __future__ import annotations

import json
from typing import Any

from agent.errors import UnknownVersion
from agent.windows.bucket import Bucket, Slots
from agent.windows.exact import WEIGHT_ONE
from agent.windows.loghist import Sketch
from agent.windows.sums import FIELDS, WIDTH
from agent.windows.worst import Entry, tie_break, unpacked

__all__ = ["VERSION", "decode_bucket", "decode_clock", "encode_bucket", "encode_clock"]

VERSION = 3
"""1 had 14 sums a stratum, its N and SF in counts of traces; 2 had no failures."""


_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


def _pack(content: object) -> bytes:
    return bytes([VERSION]) + _encode(content).encode("ascii")


def _unpack(data: bytes) -> tuple[int, Any]:
    """(version, content)"""
    if data and data[0] > VERSION:
        raise UnknownVersion(
            f"window state of format version {data[0]}; this program reads up to {VERSION}"
        )
    try:
        if not data or not data[0]:
            raise ValueError("its version is none of ours")
        return data[0], json.loads(data[1:])
    except ValueError as error:
        raise ValueError(f"window state that cannot be read: {error}") from None


def encode_bucket(bucket: Bucket, slots: Slots) -> bytes:
    cells = []
    counts, strata = bucket.counts, bucket.strata
    for key, place in slots.items():
        row = counts[place : place + WIDTH]
        weighted = strata.get(place) if strata else None
        if weighted or any(row[:5]):
            cells.append([*key, row or [0] * WIDTH, sorted(weighted.items()) if weighted else []])
    sketches = [
        [stage, sketch.n, sketch.w2, *sketch.content()]
        for stage, sketch in sorted(bucket.sketches.items())
    ]
    worst = [
        [*key, [[e.rank, e.trace_id, e.timestamp] for e in unpacked(entries)]]
        for key, entries in sorted(bucket.worst.items())
    ]
    failures = [
        [*key, sorted(reasons.items())] for key, reasons in sorted((bucket.failures or {}).items())
    ]
    return _pack([bucket.seen, cells, sketches, worst, failures])


def decode_bucket(data: bytes, slots: Slots) -> Bucket:
    """ValueError for another version and for content that is no bucket."""
    version, content = _unpack(data)
    try:
        return _bucket(content, slots, version)
    except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
        raise ValueError(f"window state that is no bucket: {error}") from None


def _bucket(content: Any, slots: Slots, version: int) -> Bucket:
    bucket = Bucket()
    bucket.seen, cells, sketches, worst, *later = content
    if version == 1:
        cells = [(*cell, [_from_1(*named) for named in weighted]) for *cell, weighted in cells]
    for metric, scorer, counts, weighted in cells:
        place, _, _ = slots.column((metric, scorer))
        missing = place + WIDTH - len(bucket.counts)
        if len(counts) != WIDTH or any(len(sums) != len(FIELDS) for _, sums in weighted):
            raise ValueError("wrong number of sums")
        if missing > 0:
            bucket.counts += [0] * missing
        bucket.counts[place : place + WIDTH] = counts
        if weighted:
            bucket.strata[place] = dict(weighted)
    for stage, n, w2, *counted in sketches:
        shift, filled, weights = counted
        bucket.sketches[stage] = Sketch.of(n, w2, (shift, filled, weights))
    for metric, scorer, entries in worst:
        bucket.worst[metric, scorer] = [
            Entry(rank, tie_break(trace_id), trace_id, timestamp)
            for rank, trace_id, timestamp in entries
        ]
    failures = {(metric, scorer): dict(found) for metric, scorer, found in (later or [[]])[0]}
    bucket.failures = failures or None
    return bucket


def _from_1(name: str, sums: list[int]) -> tuple[str, list[int]]:
    return name, [sums[0] * WEIGHT_ONE, sums[1] * WEIGHT_ONE, *sums[2:], 0, 0]


def encode_clock(now: float) -> bytes:
    return _pack({"now": now})


def decode_clock(data: bytes) -> float:
    _, content = _unpack(data)
    try:
        return float(content["now"])
    except (TypeError, ValueError, KeyError) as error:
        raise ValueError(f"window state without a clock: {error}") from None
