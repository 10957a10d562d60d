"""The mutable state of the windows: pending traces, rings, expiry, and its form as saved rows.

With many segments a commit changes nearly all buckets, a little each. So between two writings of
whole buckets the sums of the traces themselves are saved, one row a commit, as a journal.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from ragmeter.core.durations import parse_window
from ragmeter.core.metric_specs import MetricSpec
from ragmeter.core.score import ScoredTrace
from ragmeter.windows.bucket_builder import build_bucket
from ragmeter.windows.bucket_width import bucket_seconds
from ragmeter.windows.buckets import (
    Bucket,
    BucketRing,
    SegmentKey,
    SeriesSlots,
    WindowSpan,
    WindowTotal,
)
from ragmeter.windows.saved_buckets import (
    JournalEntry,
    decode_bucket,
    decode_clock,
    decode_journal,
    encode_bucket,
    encode_clock,
    encode_journal,
)
from ragmeter.windows.worst import unpack_entries

# (service, segment, width, start, data): key and content of a saved bucket; data None: delete it.
# The row ("", "", 0, 0) holds the stream time; ("", "", 0, n) are the journal, from n = 1 on.
BucketRow = tuple[str, str, int, int, bytes | None]

_CLOCK = ("", "", 0, 0)

# What has left the longest window stays for charts: of whole services, in coarse buckets. Two weeks
# show whether Monday was like this, too. 56 buckets of 16 metrics and a latency take some 100 kB a
# service. Saved rows have a width of their own, as a window may have buckets of six hours.
ARCHIVE_SECONDS = 14 * 86_400
_ARCHIVE_WIDTH = 6 * 3600
_ARCHIVE_ROWS = _ARCHIVE_WIDTH + 1

# Latency stages per service: `total`, `retrieval`, `generation` and some of the user's own. Stage
# names come from outside, and each has histograms in every window.
_MAX_STAGES = 8
_NO_STAGES: frozenset[str] = frozenset()

# Least seconds of a bucket with worst traces (unless no window has such a grain): five per
# ten-second bucket would be most of a small service's traffic.
_WORST_GRAIN = 60

# Fold when so many traces wait: bounds memory, and the time of the next reading.
_MAX_PENDING = 1024

# Fold the segments when so many sums wait for a reader: 10 MB, and 0.2 s with 20 segments each.
_MAX_UNREAD = 2048

# Sums of some kB each that may wait to be saved in the journal: those of several commits. Whoever
# saves less often, or never, as of a file, gets whole buckets.
_MAX_UNSAVED = 4096

# Write whole buckets, and begin the journal anew, when it has so many bytes. A start after a crash
# adds them up, which takes 4 s where each trace has 20 segments.
_JOURNAL_BYTES = 8 * 2**20


class WindowState:
    """Writing, expiring, saving and restoring of the buckets of all windows.

    The arguments are those of `Windows`. `now` is stream time in Unix seconds (None before the
    first trace), `slots` the offsets of all series, `rings` the rings by rising width, `longest`
    the longest window. `additions` counts calls of `add`.
    """

    def __init__(
        self,
        windows: Sequence[str],
        specs: Mapping[str, MetricSpec],
        name_worst: bool,
        worst_of: Collection[str],
    ) -> None:
        if not windows or len(set(windows)) != len(windows):
            raise ValueError("windows: name at least one, and none twice")
        self.names: tuple[str, ...] = tuple(windows)
        self.now: float | None = None
        self.additions = 0
        self._ignored_stages = 0
        self.worst_of = frozenset(worst_of)
        self.slots = SeriesSlots(specs)
        by_width: dict[int, list[WindowSpan]] = {}
        for name in windows:
            seconds = parse_window(name)
            width = bucket_seconds(seconds)
            by_width.setdefault(width, []).append(WindowSpan(name, seconds, seconds // width))
        coarsest = max(by_width)
        self.rings = [
            BucketRing(width, by_width[width], worst=width >= _WORST_GRAIN or width == coarsest)
            for width in sorted(by_width)
        ]
        self._spans = {span.name: (ring, span) for ring in self.rings for span in ring.spans}
        self.longest = max((s for _, s in self._spans.values()), key=lambda span: span.seconds)
        self._archive = BucketRing(
            _ARCHIVE_WIDTH, [], worst=False, capacity=ARCHIVE_SECONDS // _ARCHIVE_WIDTH
        )
        if self.longest.seconds < ARCHIVE_SECONDS:
            self._spans[self.longest.name][0].archive = self._archive
        self._finest = math.gcd(*by_width)
        self._oldest_open = -math.inf  # start of the oldest bucket of any ring
        self._next_edge = -math.inf  # when the next bucket of the finest grain begins
        self._pending: dict[tuple[str, tuple[str, ...], int], list[ScoredTrace]] = {}
        self._pending_count = 0
        self._added: set[str] = set()  # services with traces since `take_changed`
        self._expired: dict[str, set[str]] = {}  # windows that lost traces since, by service
        self._stages: dict[str, set[str]] = {}
        self._name_worst = name_worst
        self._new_worst: set[tuple[str, str]] = set()
        # sums of segments that wait for a reader, by owner and index of the finest grain
        self._unread: dict[SegmentKey, dict[int, list[Bucket]]] = {}
        self._unread_count = 0
        self._journal: list[JournalEntry] = []  # what was added since the last drain
        self._journal_rows = self._journal_bytes = 0  # saved since whole buckets were
        self._whole_due = False  # something changed that a journal cannot say
        self._saved_now: float | None = None
        self._stray_rows: list[tuple[str, str, int, int]] = []

    def advance(self, now: float) -> None:
        """Move stream time to `now` (Unix seconds) and expire buckets; it never goes back."""
        if not math.isfinite(now):
            raise ValueError("stream time must be finite")
        if self.now is not None and now <= self.now:
            return
        self.now = now
        if now < self._next_edge:
            return
        self._next_edge = (now // self._finest + 1) * self._finest
        ring, _ = self._spans[self.longest.name]
        forget = ring.newest is not None and int(now // ring.width) > ring.newest
        if forget:
            self._fold_pending()  # first, or the stages of these traces would be forgotten
        for ring in self.rings:
            for service, window in ring.advance(int(now // ring.width)):
                self._expired.setdefault(service, set()).add(window)
        if forget:
            self._restore_stages()
        self._oldest_open = min(float(ring.oldest * ring.width) for ring in self.rings)

    def _restore_stages(self) -> None:
        """Let each service keep the stages that the longest window holds, and no others."""
        self._stages = {
            service: set(total.sketches)
            for (service, segment), total in self.longest.totals.items()
            if not segment
        }

    def add(self, scored: ScoredTrace, service: str, segments: Sequence[str] = ()) -> bool:
        """Count a trace in its bucket, for the whole service and for each segment.

        The trace is read at the next fold and must not be changed afterwards.

        Returns:
            False if it is too late for all windows.

        Raises:
            ValueError: The trace's time is not finite, or its probability outside (0, 1].
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
        if not scored.timings.keys() <= self._stages.get(service, _NO_STAGES):
            scored = self._with_known_stages(service, scored)
        self._add_pending([scored], service, tuple(segments))
        return True

    def _add_pending(
        self, traces: Sequence[ScoredTrace], service: str, segments: tuple[str, ...]
    ) -> None:
        for scored in traces:
            key = (service, segments, int(scored.timestamp // self._finest))
            pending = self._pending.get(key)
            if pending is None:
                self._pending[key] = [scored]
            else:
                pending.append(scored)
        self._pending_count += len(traces)
        self.additions += len(traces)
        self._added.add(service)
        if self._pending_count >= _MAX_PENDING:
            self._fold_pending()

    def add_all(
        self, traces: Sequence[ScoredTrace], service: str, segments: Sequence[Sequence[str]]
    ) -> None:
        """Do as `add` with many traces and the segments of each; none is late or ahead of `now`."""
        stages = set[str]().union(*[trace.timings for trace in traces])
        if any(segments) or not stages <= self._stages.get(service, _NO_STAGES):
            for trace, names in zip(traces, segments, strict=True):
                self.add(trace, service, names)
        else:
            self._add_pending(traces, service, ())

    def retract(self, scored: ScoredTrace, service: str, segments: Sequence[str] = ()) -> None:
        """Undo `add` of a partial trace without timings, given the same arguments again."""
        if not scored.partial or scored.timings:
            raise ValueError("only results without timings can be taken back")
        self.fold()
        if self.now is None or self.too_late(scored.timestamp):
            return
        index = int(scored.timestamp // self._finest)
        delta = build_bucket([scored], self.slots)
        for segment in dict.fromkeys(("", *segments)):
            for ring in self.rings:
                ring.retract(index * self._finest // ring.width, (service, segment), delta)
        self._added.add(service)
        self._whole_due = True

    def take_ignored_stages(self) -> int:
        """Return how many timings were dropped since the last call: their service has too many."""
        taken, self._ignored_stages = self._ignored_stages, 0
        return taken

    def next_expiry(self) -> float:
        """Return when traces next leave a window if none come, infinity without any."""
        self.fold(segments=False)
        return min(ring.next_expiry() for ring in self.rings)

    def take_changed(self) -> dict[str, Collection[str]]:
        """Return the windows whose estimates may have changed since the last call, by service."""
        expired, self._expired = self._expired, {}
        added, self._added = self._added, set()
        return {**expired, **dict.fromkeys(added, self.names)}

    def open_range(self) -> tuple[float, float]:
        """Return from when on traces are not too late, and when the next bucket begins."""
        return self._oldest_open, self._next_edge

    def too_late(self, timestamp: float) -> bool:
        """Return whether every window has closed for an event of this time (Unix seconds)."""
        return timestamp // self._finest * self._finest < self._oldest_open

    def _with_known_stages(self, service: str, scored: ScoredTrace) -> ScoredTrace:
        """Learn the stages of a trace while there is room; return it without the others."""
        stages = self._stages.setdefault(service, set())
        for stage, seconds in scored.timings.items():
            if seconds >= 0 and len(stages) < _MAX_STAGES:
                stages.add(stage)
        timings = {stage: t for stage, t in scored.timings.items() if stage in stages}
        self._ignored_stages += len(scored.timings) - len(timings)
        return scored._replace(timings=timings)

    def fold(self, segments: bool = True) -> None:
        """Bring what waits into the rings; that of segments only if a reader needs them."""
        if self._pending:
            self._fold_pending()
        if segments and self._unread:
            self._fold_segments()

    def _fold_pending(self) -> None:
        """Sum the pending traces, and bring the sums of whole services into the rings.

        Those of segments wait for a reader: mostly there is none between two commits, and one fold
        of many sums costs less than many folds of a few.
        """
        pending = self._pending
        self._pending = {}
        self._pending_count = 0
        entries: list[JournalEntry] = []
        for (service, segments, index), traces in pending.items():
            delta = build_bucket(traces, self.slots)
            entries.append((service, segments, index * self._finest, delta))
        self._journal += entries
        if len(self._journal) > _MAX_UNSAVED:
            self._journal = []
            self._whole_due = True
        self._fold_services(entries)
        if self._unread_count >= _MAX_UNREAD:
            self._fold_segments()

    def _fold_services(self, entries: Iterable[JournalEntry]) -> None:
        services: dict[SegmentKey, dict[int, list[Bucket]]] = {}
        for service, segments, start, delta in entries:
            index = start // self._finest
            services.setdefault((service, ""), {}).setdefault(index, []).append(delta)
            for segment in dict.fromkeys(segments):
                by_index = self._unread.setdefault((service, segment), {})
                by_index.setdefault(index, []).append(delta)
            self._unread_count += bool(segments)
        for owner, by_index in services.items():
            self._fold_owner(owner, by_index)

    def _fold_segments(self) -> None:
        unread = self._unread
        self._unread = {}
        self._unread_count = 0
        for owner, by_index in unread.items():
            self._fold_owner(owner, by_index)

    def _fold_owner(self, owner: SegmentKey, by_index: Mapping[int, Sequence[Bucket]]) -> None:
        """Fold the sums of one owner, by index of the finest grain.

        First they are added up: a bucket of a ring and a total take longer to change than a sum.
        """
        with_worst = not owner[1] or owner[1].partition("=")[0] in self.worst_of
        # a sum of one part is also the journal's, and one in one bucket another ring's
        finest = {
            index: (Bucket.total(parts, with_worst), True) if len(parts) > 1 else (parts[0], False)
            for index, parts in by_index.items()
        }
        for ring in reversed(self.rings):
            by_bucket: dict[int, list[tuple[Bucket, bool]]] = {}
            for index, delta in finest.items():
                by_bucket.setdefault(index * self._finest // ring.width, []).append(delta)
            for at, deltas in by_bucket.items():
                parts = [delta for delta, _ in deltas]
                if len(parts) > 1:
                    ring.fold(at, owner, Bucket.total(parts, with_worst), True, with_worst)
                else:
                    adopt = deltas[0][1] and ring is self.rings[0]
                    ring.fold(at, owner, parts[0], adopt, with_worst)
                if with_worst and self._name_worst and ring.worst:
                    self._remember_worst(owner, ring, at, parts)

    def _remember_worst(
        self,
        owner: SegmentKey,
        ring: BucketRing,
        at: int,
        deltas: Sequence[Bucket],
    ) -> None:
        """Remember which of the worst traces of `deltas` became entries of a bucket."""
        if at < ring.oldest:
            return
        of_bucket = ring.rows[at][owner].worst
        for delta in deltas:
            for key, entries in delta.worst.items():
                present = set(unpack_entries(of_bucket[key]))
                self._new_worst.update(
                    (owner[0], entry.trace_id)
                    for entry in unpack_entries(entries)
                    if entry in present
                )

    def take_new_worst(self) -> set[tuple[str, str]]:
        """Return (service, trace id) of new worst traces of buckets since the last call."""
        self.fold(bool(self.worst_of))
        taken, self._new_worst = self._new_worst, set()
        return taken

    def total(self, service: str, segment: str, window: str) -> WindowTotal | None:
        """Return the running total of a window, None without traces; KeyError for its name."""
        if self._pending or (segment and self._unread):
            self.fold(bool(segment))
        return self._spans[window][1].totals.get((service, segment))

    def past(self, service: str, segment: str) -> WindowTotal | None:
        """Return the running total of the longest window."""
        return self.total(service, segment, self.longest.name)

    def segments(self) -> dict[str, list[str]]:
        """Return the segments with a trace in the longest window, "" among them, by service."""
        self.fold()
        return self.longest.segments()

    def past_buckets(
        self, owner: SegmentKey, seconds: int
    ) -> tuple[int, range, list[tuple[int, Bucket]]]:
        """Find the buckets of the last `seconds`, as fine as they are held.

        Returns:
            (seconds of a bucket, numbers of all buckets, (start, bucket) of the filled ones). With
            the archive those of the longest window are finer than that.
        """
        self.fold(bool(owner[1]))
        rings = [ring for ring in self.rings if ring.capacity * ring.width >= seconds][:1]
        if not rings:
            longest = self._spans[self.longest.name][0]
            rings = [longest] if longest.archive is None else [longest.archive, longest]
        coarse = rings[0]
        if coarse.newest is None:
            return coarse.width, range(0), []
        oldest = coarse.newest - seconds // coarse.width + 1
        return (
            coarse.width,
            range(oldest, coarse.newest + 1),
            [
                (start, row[owner])
                for ring in rings
                for start, row in ring.buckets_since(oldest * coarse.width)
                if owner in row
            ],
        )

    def newest_trace(self, service: str) -> float | None:
        """Return when the newest trace came, at the latest: the end of the bucket that has it."""
        self.fold(segments=False)
        for ring in self.rings:
            for index in sorted(ring.rows, reverse=True):
                bucket = ring.rows[index].get((service, ""))
                if bucket is not None and bucket.trace_count:
                    return min(self.now or 0.0, float((index + 1) * ring.width))
        return None

    def services(self) -> list[str]:
        """Return the services with a trace in the longest window, sorted."""
        self.fold(segments=False)
        return list(self.longest.segments())

    def span(self, window: str, owner: SegmentKey) -> tuple[BucketRing, WindowSpan]:
        """Return a window and the ring that holds its buckets, to be read for an owner."""
        self.fold(bool(owner[1]))
        return self._spans[window]

    def buckets_between(self, owner: SegmentKey, width: int, start: float) -> Iterator[Bucket]:
        """Iterate over the filled buckets of [start, start + width), as coarse as possible."""
        self.fold(bool(owner[1]))
        for ring in reversed(self.rings):
            first, offset = divmod(start, ring.width)
            if width % ring.width or offset or ring.newest is None or first < ring.oldest:
                continue
            for index in range(int(first), int(first) + width // ring.width):
                bucket = ring.rows.get(index, {}).get(owner)
                if bucket is not None:
                    yield bucket
            return

    def known_from(self, width: int) -> float:
        """Return when the first of the buckets began that `buckets_between` finds."""
        return min(
            (
                float(ring.oldest * ring.width)
                for ring in self.rings
                if width % ring.width == 0 and ring.newest is not None
            ),
            default=-math.inf,
        )

    def buckets_within(self, owner: SegmentKey, start: float, end: float) -> Iterator[Bucket]:
        """Iterate over the filled buckets that lie in [start, end), as fine as there are any.

        A bucket that `start` cuts is left out, one that `end` cuts is in: it is the open one.
        """
        self.fold(bool(owner[1]))
        coarsest = self.rings[-1]
        for ring in self.rings:
            if ring.newest is None:
                return
            edge = float(ring.oldest * ring.width)
            if ring is not coarsest:  # what is older begins where a bucket of the coarsest ends
                edge = math.ceil(edge / coarsest.width) * coarsest.width
            edge = max(start, edge)
            for index in range(math.ceil(edge / ring.width), math.ceil(end / ring.width)):
                bucket = ring.rows.get(index, {}).get(owner)
                if bucket is not None:
                    yield bucket
            end = min(end, edge)

    def drain(self, whole: bool = True) -> list[BucketRow]:
        """Return rows that changed since the last drain; writing one twice is harmless.

        Drained rows count as saved: if writing fails, discard this object and load the state anew.
        A bucket costs 50 to 100 us.

        Args:
            whole: Return all changed buckets. Else a row of the journal will do, until that is
                long.
        """
        return list(self._drain(whole))

    def _drain(self, whole: bool) -> Iterator[BucketRow]:
        self.fold(segments=False)
        if self.now is not None and self.now != self._saved_now:
            self._saved_now = self.now
            yield (*_CLOCK, encode_clock(self.now))
        for key in self._stray_rows:
            yield (*key, None)
        self._stray_rows.clear()
        journal, self._journal = self._journal, []
        whole = whole or self._whole_due or self._journal_bytes >= _JOURNAL_BYTES
        if whole:
            self._fold_segments()
        elif journal:
            data = encode_journal(journal, self.slots)
            self._journal_rows += 1
            self._journal_bytes += len(data)
            yield ("", "", 0, self._journal_rows, data)
        for width, ring in self._saved_rings().items():
            # what has left the longest window is in the archive, and in no journal
            for index, (service, segment), bucket in ring.drain(whole or ring is self._archive):
                row = None if bucket is None else encode_bucket(bucket, self.slots)
                yield (service, segment, width, index * ring.width, row)
        if whole:
            for number in range(1, self._journal_rows + 1):
                yield ("", "", 0, number, None)
            self._journal_rows = self._journal_bytes = 0
            self._whole_due = False

    def _saved_rings(self) -> dict[int, BucketRing]:
        """Return the rings by the width in the keys of their rows."""
        return {ring.width: ring for ring in self.rings} | {_ARCHIVE_ROWS: self._archive}

    def load(self, rows: Iterable[BucketRow]) -> None:
        """Restore all saved rows into an empty object.

        Rows of a window that is no longer configured are dropped: the next drain deletes them. A
        new window begins with what finer buckets still hold.

        Raises:
            UnknownVersion: A row is in the format of another version.
            ValueError: A row cannot be read, or this object is not empty.
        """
        if self.now is not None:
            raise ValueError("window state can only be loaded into empty windows")
        filled = [row for row in rows if row[4] is not None]
        clocks = [decode_clock(data) for *key, data in filled if tuple(key) == _CLOCK and data]
        journal = sorted(
            (row[3], row[4] or b"") for row in filled if row[:3] == _CLOCK[:3] and row[3]
        )
        buckets = [row for row in filled if row[:3] != _CLOCK[:3]]
        now = max(clocks, default=max((float(row[3]) for row in buckets), default=None))
        if now is None:
            return
        self.advance(now)
        self._saved_now = clocks[0] if clocks else None
        by_width = self._saved_rings()
        saved: dict[int, list[tuple[SegmentKey, int, Bucket]]] = {}
        for service, segment, width, start, data in buckets:
            ring = by_width.get(width)
            index, offset = divmod(start, ring.width) if ring else (0, 1)
            bucket = decode_bucket(data or b"", self.slots)
            saved.setdefault(width, []).append(((service, segment), start, bucket))
            held = not offset and ring is not None and ring.newest is not None
            if ring is None or not held or not ring.oldest <= index <= (ring.newest or 0):
                self._stray_rows.append((service, segment, width, start))
            else:
                ring.restore(index, (service, segment), bucket)
        for ring in self.rings:
            finer = [width for width in saved if width and ring.width % width == 0]
            if ring.width not in saved and finer:
                for owner, start, bucket in saved[max(finer)]:
                    ring.fold(start // ring.width, owner, bucket)
        for number, data in journal:
            self._journal_rows = number
            self._journal_bytes += len(data)
            self._fold_services(decode_journal(data, self.slots))
        self._fold_segments()
        self._new_worst.clear()  # they were taken before the rows were saved
        self._restore_stages()
        self._added.update(service for service, _ in self.longest.totals)
