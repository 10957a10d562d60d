"""The few worst traces of a bucket, as a mergeable and order-free set.

Entries are ordered by how bad the value is, then by a keyed hash of the trace id: among equal
values (a thousand answers with the score 0) each trace has the same chance whenever it came. The
five smallest of a union are the five smallest of the five smallest of its parts, so merging in
any order and any grouping gives the same five.
"""

from __future__ import annotations

import json
import math
from bisect import insort
from collections.abc import Mapping
from hashlib import blake2b
from typing import NamedTuple

from agent.metrics.names import spec_of
from agent.metrics.spec import MetricSpec

__all__ = [
    "KEEP",
    "LATENCY",
    "UNSCORED",
    "Entry",
    "Packed",
    "direction",
    "direction_of",
    "keep",
    "merge",
    "packed",
    "tie_break",
    "unpacked",
]

KEEP = 5
"""Per bucket: an alert and the page show five."""


LATENCY = "latency"
"""The metric of the slowest traces; its scorer is the stage."""

UNSCORED = "unscored"
"""The metric of traces with a result that failed; its scorer is `failures.place_of`'s."""

_KEY = b"ragmeter worst traces"
"""A hash of our own: with one that a sampler uses, ids that it prefers would win every tie."""


class Entry(NamedTuple):
    """Smaller is worse. `rank` is the value, negated where lower values are good."""

    rank: float
    tie: int
    trace_id: str
    timestamp: float


_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode

Packed = list[Entry] | bytes
"""Entries in order; as bytes (JSON) where they are kept long: a fifth of the memory."""


def packed(entries: Packed) -> bytes:
    if isinstance(entries, bytes):
        return entries
    return _encode(entries).encode("ascii")


def unpacked(entries: Packed) -> list[Entry]:
    if isinstance(entries, bytes):
        return [Entry(*fields) for fields in json.loads(entries)]
    return entries


def tie_break(trace_id: str) -> int:
    """64 bits that know nothing of the arrival order. Ids may hold any character."""
    text = trace_id.encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(text, digest_size=8, key=_KEY).digest(), "little")


def direction_of(metric: str, specs: Mapping[str, MetricSpec]) -> int:
    """The sign of `direction` by the metric's name; `latency` (by stage) is worst when longest, and
    `unscored` is 1 of each trace it has."""
    return -1 if metric in (LATENCY, UNSCORED) else direction(spec_of(specs, metric))[0]


def direction(spec: MetricSpec | None) -> tuple[int, float]:
    """(sign, bar): rank = sign * value, kept only if rank <= bar. Sign 0: no worst traces.

    Of a ratio only the bad outcomes are kept; of a graded score whatever is not the best possible:
    a service that makes no mistakes has no worst traces.
    """
    if spec is None or spec.good is None:
        return 0, 0.0
    if spec.good == "higher":
        if spec.kind == "ratio":
            return 1, 0.0
        return 1, math.inf if spec.high is None else math.nextafter(spec.high, -math.inf)
    return -1, -1.0 if spec.kind == "ratio" else math.nextafter(-spec.low, -math.inf)


def keep(entries: list[Entry], entry: Entry) -> None:
    """Put `entry` into the sorted list if it is among the `KEEP` worst and not yet there."""
    if len(entries) == KEEP and entry >= entries[-1]:
        return
    if entry not in entries:
        insort(entries, entry)
        del entries[KEEP:]


def merge(mine: Packed, other: Packed) -> Packed:
    """The `KEEP` worst of both, both sorted; `mine` itself if nothing changes."""
    mine, other = unpacked(mine), unpacked(other)
    if len(mine) == KEEP and other[0] >= mine[-1]:
        return mine
    return sorted({*mine, *other})[:KEEP]
