"""The worst traces of a bucket as a mergeable set that does not depend on arrival order.

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
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

from ragmeter.core.metric_specs import MetricSpec, find_spec


@dataclass(frozen=True, slots=True)
class RankedTrace:
    trace_id: str
    value: float
    timestamp: float


WORST_PER_BUCKET = 5
"""Per bucket: an alert and the page show five."""


LATENCY_METRIC = "latency"
"""The metric of the slowest traces; its scorer is the stage."""

UNSCORED_METRIC = "unscored"
"""The metric of traces with a result that failed; its scorer is `failures.place_of`'s."""

_KEY = b"ragmeter worst traces"
"""A hash of our own: with one that a sampler uses, ids that it prefers would win every tie."""


class WorstEntry(NamedTuple):
    """Smaller is worse. `rank` is the value, negated where lower values are good."""

    rank: float
    tie: int
    trace_id: str
    timestamp: float


_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode

PackedEntries = list[WorstEntry] | bytes
"""Entries in order; as bytes (JSON) where they are kept long: a fifth of the memory."""


def pack_entries(entries: PackedEntries) -> bytes:
    if isinstance(entries, bytes):
        return entries
    return _encode(entries).encode("ascii")


def unpack_entries(entries: PackedEntries) -> list[WorstEntry]:
    if isinstance(entries, bytes):
        return [WorstEntry(*fields) for fields in json.loads(entries)]
    return entries


def tie_break(trace_id: str) -> int:
    """64 bits that know nothing of the arrival order. Ids may hold any character."""
    text = trace_id.encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(text, digest_size=8, key=_KEY).digest(), "little")


def worst_sign(metric: str, specs: Mapping[str, MetricSpec]) -> int:
    """The sign of `direction` by the metric's name; `latency` (by stage) is worst when longest, and
    `unscored` is 1 of each trace it has."""
    return (
        -1
        if metric in (LATENCY_METRIC, UNSCORED_METRIC)
        else worst_direction(find_spec(specs, metric))[0]
    )


def worst_direction(spec: MetricSpec | None) -> tuple[int, float]:
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


def insert_entry(entries: list[WorstEntry], entry: WorstEntry) -> None:
    """Put `entry` into the sorted list if it is among the `KEEP` worst and not yet there."""
    if len(entries) == WORST_PER_BUCKET and entry >= entries[-1]:
        return
    if entry not in entries:
        insort(entries, entry)
        del entries[WORST_PER_BUCKET:]


def merge_entries(mine: PackedEntries, other: PackedEntries) -> PackedEntries:
    """The `KEEP` worst of both, both sorted; `mine` itself if nothing changes."""
    mine, other = unpack_entries(mine), unpack_entries(other)
    if len(mine) == WORST_PER_BUCKET and other[0] >= mine[-1]:
        return mine
    return sorted({*mine, *other})[:WORST_PER_BUCKET]
