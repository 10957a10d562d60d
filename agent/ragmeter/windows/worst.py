"""The worst traces of a bucket as a mergeable set that does not depend on arrival order.

Entries are ordered by how bad the value is, then by a keyed hash of the trace id, so that among
equal values each trace has the same chance whenever it came. The five smallest of a union are
among the five smallest of its parts, so merging in any order gives the same five.
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

# Entries that a bucket holds for each series: an alert and the page show five.
WORST_PER_BUCKET = 5

# The metric of the slowest traces; its scorer is the stage.
LATENCY_METRIC = "latency"

# The metric of traces with a failed result; `failures.failed_worst_key` makes its scorer.
UNSCORED_METRIC = "unscored"

# Our own hash key: with one that a sampler uses, ids that it prefers would win every tie.
_KEY = b"ragmeter worst traces"

_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


@dataclass(frozen=True, slots=True)
class RankedTrace:
    """One of the worst traces of a window; `timestamp` is event time in Unix seconds."""

    trace_id: str
    value: float
    timestamp: float


class WorstEntry(NamedTuple):
    """A trace in a bucket's worst; smaller is worse.

    `rank` is the value, negated if lower values are good; `tie` is `tie_break` of the trace id.
    """

    rank: float
    tie: int
    trace_id: str
    timestamp: float


# Entries in order; sealed buckets hold them as JSON bytes, in a fifth of the memory.
PackedEntries = list[WorstEntry] | bytes


def pack_entries(entries: PackedEntries) -> bytes:
    """Encode entries as JSON; packed ones are returned as they are."""
    return entries if isinstance(entries, bytes) else _encode(entries).encode("ascii")


def unpack_entries(entries: PackedEntries) -> list[WorstEntry]:
    """Undo `pack_entries`; an unpacked list is returned itself, not copied."""
    if isinstance(entries, bytes):
        return [WorstEntry(*fields) for fields in json.loads(entries)]
    return entries


def tie_break(trace_id: str) -> int:
    """Return a 64-bit keyed hash of a trace id, which may hold any character."""
    text = trace_id.encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(text, digest_size=8, key=_KEY).digest(), "little")


def worst_direction(spec: MetricSpec | None) -> tuple[int, float]:
    """Return which values of a metric are bad.

    Returns:
        (sign, bar): rank = sign * value, and only ranks up to the bar are held: bad outcomes of a
        ratio, whatever is not the best possible of a graded score. Sign 0: no worst traces.
    """
    if spec is None or spec.good is None:
        return 0, 0.0
    if spec.good == "higher":
        if spec.kind == "ratio":
            return 1, 0.0
        return 1, math.inf if spec.high is None else math.nextafter(spec.high, -math.inf)
    return -1, -1.0 if spec.kind == "ratio" else math.nextafter(-spec.low, -math.inf)


def worst_sign(metric: str, specs: Mapping[str, MetricSpec]) -> int:
    """Return the sign of `worst_direction` for a metric's name, latency and failures included."""
    if metric in (LATENCY_METRIC, UNSCORED_METRIC):
        return -1  # the longest latency is worst; a failed trace has the value 1
    return worst_direction(find_spec(specs, metric))[0]


def insert_entry(entries: list[WorstEntry], entry: WorstEntry) -> None:
    """Insert `entry` into the sorted list if it is new and among the `WORST_PER_BUCKET` worst."""
    if len(entries) == WORST_PER_BUCKET and entry >= entries[-1]:
        return
    if entry not in entries:
        insort(entries, entry)
        del entries[WORST_PER_BUCKET:]


def merge_entries(first: PackedEntries, second: PackedEntries) -> PackedEntries:
    """Return the `WORST_PER_BUCKET` worst of both, sorted; `second` is not empty."""
    first, second = unpack_entries(first), unpack_entries(second)
    if len(first) == WORST_PER_BUCKET and second[0] >= first[-1]:
        return first
    return sorted({*first, *second})[:WORST_PER_BUCKET]
