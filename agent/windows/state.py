"""The mutable state of the windows: pending traces, rings, expiry, and its form as saved rows.

Buckets as bytes: one version byte, then JSON.

JSON because the sums are whole numbers of any size, because reading it can run no code, and
because it has no byte order; the encoder is C, so a bucket of 16 metrics takes some 20 us. Keys
are sorted: equal buckets give equal bytes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ragmeter.core.arithmetic import WEIGHT_ONE
from ragmeter.core.clocks import bucket_seconds, parse_window
from ragmeter.core.errors import UnknownVersion
from ragmeter.core.metric_specs import MetricSpec
from ragmeter.core.score import ScoredTrace
from ragmeter.windows.bucket_builder import build_bucket
from ragmeter.windows.buckets import (
    Bucket,
    BucketRing,
    SegmentKey,
    SeriesKey,
    SeriesSlots,
    WindowSpan,
    WindowTotal,
)
from ragmeter.windows.log_histogram import SparseLogHistogram
from ragmeter.windows.sums import FIELDS, WIDTH
from ragmeter.windows.worst import PackedEntries, WorstEntry, tie_break, unpack_entries

BucketRow = tuple[str, str, int, int, bytes | None]
"""(service, segment, width, start, data): key and content of a saved bucket; None: delete it.
The row ("", "", 0, 0) holds the stream time."""


BUCKET_VERSION = 3
"""1 had 14 sums a stratum, its N and SF in counts of traces; 2 had no failures."""


_encode_json = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


def _pack(content: object) -> bytes:
    return bytes([BUCKET_VERSION]) + _encode_json(content).encode("ascii")


def _unpack(data: bytes) -> tuple[int, Any]:
    """(version, content)"""
    if data and data[0] > BUCKET_VERSION:
        raise UnknownVersion(
            f"window state of format version {data[0]}; this program reads up to {BUCKET_VERSION}"
        )
    try:
        if not data or not data[0]:
            raise ValueError("its version is none of ours")
        return data[0], json.loads(data[1:])
    except ValueError as error:
        raise ValueError(f"window state that cannot be read: {error}") from None


def encode_bucket(bucket: Bucket, slots: SeriesSlots) -> bytes:
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
        [*key, [[e.rank, e.trace_id, e.timestamp] for e in unpack_entries(entries)]]
        for key, entries in sorted(bucket.worst.items())
    ]
    failures = [
        [*key, sorted(reasons.items())] for key, reasons in sorted((bucket.failures or {}).items())
    ]
    return _pack([bucket.seen, cells, sketches, worst, failures])


def decode_bucket(data: bytes, slots: SeriesSlots) -> Bucket:
    """ValueError for another version and for content that is no bucket."""
    version, content = _unpack(data)
    try:
        return _decode_content(content, slots, version)
    except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
        raise ValueError(f"window state that is no bucket: {error}") from None


def _decode_content(content: Any, slots: SeriesSlots, version: int) -> Bucket:
    bucket = Bucket()
    bucket.seen, cells, sketches, worst, *later = content
    if version == 1:
        cells = [
            (*cell, [_upgrade_stratum_name(*named) for named in weighted])
            for *cell, weighted in cells
        ]
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
        bucket.sketches[stage] = SparseLogHistogram.of(n, w2, (shift, filled, weights))
    for metric, scorer, entries in worst:
        bucket.worst[metric, scorer] = [
            WorstEntry(rank, tie_break(trace_id), trace_id, timestamp)
            for rank, trace_id, timestamp in entries
        ]
    failures = {(metric, scorer): dict(found) for metric, scorer, found in (later or [[]])[0]}
    bucket.failures = failures or None
    return bucket


def _upgrade_stratum_name(name: str, sums: list[int]) -> tuple[str, list[int]]:
    return name, [sums[0] * WEIGHT_ONE, sums[1] * WEIGHT_ONE, *sums[2:], 0, 0]


def encode_clock(now: float) -> bytes:
    return _pack({"now": now})


def decode_clock(data: bytes) -> float:
    _, content = _unpack(data)
    try:
        return float(content["now"])
    except (TypeError, ValueError, KeyError) as error:
        raise ValueError(f"window state without a clock: {error}") from None


_MAX_STAGES = 8
"""Latency stages per service: `total`, `retrieval`, `generation` and some of the user's own.
Stage names come from outside, and each has histograms in every window."""

_WORST_GRAIN = 60
"""Seconds. Five traces per ten-second bucket would be most of a small service's traffic."""

_MAX_DRAFTED = 1024
"""Fold when so many traces wait: bounds memory, and the time of the next reading."""

_CLOCK = ("", "", 0, 0)
_NO_STAGES: frozenset[str] = frozenset()


class WindowState:
    """Writing, expiring, saving and restoring."""

    def __init__(
        self,
        windows: Sequence[str],
        specs: Mapping[str, MetricSpec],
        name_worst: bool,
        worst_of: Collection[str] = (),
    ) -> None:
        if not windows or len(set(windows)) != len(windows):
            raise ValueError("windows: at least one, and each once")
        self.names: tuple[str, ...] = tuple(windows)
        self.now: float | None = None
        self.ignored_stages = 0
        """Timings dropped because their service already has `MAX_STAGES` stages."""
        by_width: dict[int, list[WindowSpan]] = {}
        for name in windows:
            seconds = parse_window(name)
            width = bucket_seconds(seconds)
            by_width.setdefault(width, []).append(WindowSpan(name, seconds, seconds // width))
        coarsest = max(by_width)
        self._rings = [
            BucketRing(width, by_width[width], worst=width >= _WORST_GRAIN or width == coarsest)
            for width in sorted(by_width)
        ]
        self._spans = {span.name: (ring, span) for ring in self._rings for span in ring.spans}
        self._longest = max((s for _, s in self._spans.values()), key=lambda span: span.seconds)
        self.changes = 0
        """Grows whenever an estimate may have changed: traces came in, or a bucket expired."""
        self._finest = math.gcd(*by_width)
        self._since = -math.inf
        self._edge = -math.inf
        self._slots = SeriesSlots(specs)
        self._drafts: dict[tuple[str, tuple[str, ...], int], list[ScoredTrace]] = {}
        self._drafted = 0
        self._stages: dict[str, set[str]] = {}
        self._name_worst = name_worst
        self._worst_of = frozenset(worst_of)
        self._named: set[tuple[str, str]] = set()
        self._saved_now: float | None = None
        self._stray: list[tuple[str, str, int, int]] = []

    def advance(self, now: float) -> None:
        """Move stream time to `now` (Unix seconds) and expire buckets; never goes back."""
        if not math.isfinite(now):
            raise ValueError("stream time must be finite")
        if self.now is not None and now <= self.now:
            return
        self.now = now
        if now < self._edge:
            return
        self._edge = (now // self._finest + 1) * self._finest
        ring, _ = self._spans[self._longest.name]
        forget = ring.newest is not None and int(now // ring.width) > ring.newest
        if forget:
            self._fold()  # what waits must enter first, or its stages would be forgotten
        for ring in self._rings:
            self.changes += ring.advance(int(now // ring.width))
        if forget:
            self._recall_stages()
        self._since = min(float(ring.oldest * ring.width) for ring in self._rings)

    def _recall_stages(self) -> None:
        """The stages that the longest window holds are those that keep their places."""
        self._stages = {
            service: set(total.sketches)
            for (service, segment), total in self._longest.totals.items()
            if not segment
        }

    def add(self, scored: ScoredTrace, service: str, segments: Sequence[str] = ()) -> bool:
        """Count a trace in its bucket, for the whole service and for each of `segments`.

        Each window takes it if its bucket is still inside; False if it is too late for all. The
        caller advances the time first and has bounded `service` and `segments`. The trace is read
        at the next fold and must not be changed afterwards.
        """
        timestamp = scored.timestamp
        if not math.isfinite(timestamp):
            raise ValueError("the time of a trace must be finite")
        if not 0 < scored.probability <= 1:
            raise ValueError("the probability of a trace must be in (0, 1]")
        if self.now is None or timestamp > self.now:
            self.advance(timestamp)
        if self.too_late(timestamp):
            return False
        index = int(timestamp // self._finest)
        if not scored.timings.keys() <= self._stages.get(service, _NO_STAGES):
            scored = self._with_known_stages(service, scored)
        key = (service, tuple(segments), index)
        draft = self._drafts.get(key)
        if draft is None:
            self._drafts[key] = [scored]
        else:
            draft.append(scored)
        self._drafted += 1
        self.changes += 1
        if self._drafted >= _MAX_DRAFTED:
            self._fold()
        return True

    def retract(self, scored: ScoredTrace, service: str, segments: Sequence[str] = ()) -> None:
        """Undo `add` of a partial trace, given the same again: what it was counted as turned out
        to be otherwise."""
        assert scored.partial
        assert not scored.timings
        self._fold()
        if self.now is None or self.too_late(scored.timestamp):
            return
        index = int(scored.timestamp // self._finest)
        delta = build_bucket([scored], self._slots)
        for segment in dict.fromkeys(("", *segments)):
            for ring in self._rings:
                ring.retract(index * self._finest // ring.width, (service, segment), delta)
        self.changes += 1

    def too_late(self, timestamp: float) -> bool:
        """Whether every window has closed for an event of this time."""
        return timestamp // self._finest * self._finest < self._since

    def _with_known_stages(self, service: str, scored: ScoredTrace) -> ScoredTrace:
        """Learn the stages of a trace while there is room; without the others."""
        known = self._stages.setdefault(service, set())
        for stage, seconds in scored.timings.items():
            if seconds >= 0 and len(known) < _MAX_STAGES:
                known.add(stage)
        timings = {stage: t for stage, t in scored.timings.items() if stage in known}
        self.ignored_stages += len(scored.timings) - len(timings)
        return replace(scored, timings=timings)

    def _fold(self) -> None:
        """Bring what waits into the rings."""
        if not self._drafts:
            return
        drafts, self._drafts, self._drafted = self._drafts, {}, 0
        for (service, segments, index), traces in drafts.items():
            delta = build_bucket(traces, self._slots)
            worst = delta.worst
            rings = [(ring, index * self._finest // ring.width) for ring in self._rings]
            for ring, at in reversed(rings):
                alone = ring is self._rings[0] and not segments
                ring.fold(at, (service, ""), delta, give=alone)
            if self._name_worst:
                self._remember_worst((service, ""), worst, rings)
            for segment in dict.fromkeys(segments):
                kept = segment.partition("=")[0] in self._worst_of
                delta.worst = worst if kept else {}
                for ring, at in rings:
                    ring.fold(at, (service, segment), delta)
                if kept and self._name_worst:
                    self._remember_worst((service, segment), worst, rings)

    def _remember_worst(
        self,
        owner: SegmentKey,
        worst: dict[SeriesKey, PackedEntries],
        rings: list[tuple[BucketRing, int]],
    ) -> None:
        """Remember which of the `worst` of a fold a bucket has kept."""
        for ring, at in rings:
            if ring.worst and at >= ring.oldest:
                kept = ring.rows[at][owner].worst
                for key, entries in worst.items():
                    here = set(unpack_entries(kept[key]))
                    self._named.update(
                        (owner[0], entry.trace_id)
                        for entry in unpack_entries(entries)
                        if entry in here
                    )

    def take_new_worst(self) -> set[tuple[str, str]]:
        """(service, trace id) of every trace that a bucket has named as one of its worst since
        the last call: whose evidence to store. Cheap, unlike `worst_ids`; needs `name_worst`."""
        self._fold()
        named, self._named = self._named, set()
        return named

    def _total(self, service: str, segment: str, window: str) -> WindowTotal | None:
        if self._drafts:
            self._fold()
        return self._spans[window][1].totals.get((service, segment))

    def drain(self) -> list[BucketRow]:
        """Rows that changed since the last drain, whole; writing one twice is harmless.

        What was drained counts as saved: if writing fails, this object must be given up and the
        state loaded anew. A row costs 100 to 200 us, so drain per second rather than per trace.
        """
        return list(self._drain())

    def _drain(self) -> Iterator[BucketRow]:
        self._fold()
        if self.now is not None and self.now != self._saved_now:
            self._saved_now = self.now
            yield (*_CLOCK, encode_clock(self.now))
        for key in self._stray:
            yield (*key, None)
        self._stray.clear()
        for ring in self._rings:
            for index, (service, segment), bucket in ring.drain():
                data = None if bucket is None else encode_bucket(bucket, self._slots)
                yield (service, segment, ring.width, index * ring.width, data)

    def load(self, rows: Iterable[BucketRow]) -> None:
        """Restore from all saved rows, into an empty object; then everything is as it was.

        Rows of no window (the windows were configured otherwise) are given up: the next drain
        deletes them. ValueError for rows that cannot be read.
        """
        if self.now is not None:
            raise ValueError("window state can only be loaded into empty windows")
        kept = [row for row in rows if row[4] is not None]
        clocks = [decode_clock(data) for *key, data in kept if tuple(key) == _CLOCK and data]
        buckets = [row for row in kept if row[:4] != _CLOCK]
        now = max(clocks, default=max((float(row[3]) for row in buckets), default=None))
        if now is None:
            return
        self.advance(now)
        self._saved_now = clocks[0] if clocks else None
        by_width = {ring.width: ring for ring in self._rings}
        saved: dict[int, list[tuple[SegmentKey, int, Bucket]]] = {}
        for service, segment, width, start, data in buckets:
            ring = by_width.get(width)
            index, offset = divmod(start, width) if width else (0, 1)
            bucket = decode_bucket(data or b"", self._slots)
            saved.setdefault(width, []).append(((service, segment), start, bucket))
            if ring is None or offset or not ring.oldest <= index <= (ring.newest or 0):
                self._stray.append((service, segment, width, start))
            else:
                ring.restore(index, (service, segment), bucket)
        for ring in self._rings:
            if ring.width not in saved:
                self._fill(ring, saved)
        self._recall_stages()

    @staticmethod
    def _fill(ring: BucketRing, saved: dict[int, list[tuple[SegmentKey, int, Bucket]]]) -> None:
        """A window that is new in the configuration begins with what finer buckets still hold."""
        finer = [width for width in saved if width and ring.width % width == 0]
        for owner, start, bucket in saved[max(finer)] if finer else ():
            ring.fold(start // ring.width, owner, bucket)
