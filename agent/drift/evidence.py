"""Which segment is behind an alarm: read from the source when there is one."""

from __future__ import annotations

from collections.abc import Iterator

from agent.drift.alarm import Kind
from agent.drift.baseline import DAY, HOUR, MINUTE
from agent.drift.reading import Source, part_of
from agent.drift.segments import Part, SegmentMove, top_segment
from agent.drift.trackers import Tracker

__all__ = ["moved_most"]

COARSE = 600
"""Buckets of the longest window: a day of them is there to compare with."""

MOST = 64
"""Segments compared: each costs some 150 buckets, and an alarm comes once in a month."""


def moved_most(
    source: Source, tracker: Tracker, kind: Kind, since: float, at: float, cell: int
) -> SegmentMove | None:
    """The segment that moved most between the day before `since` and the time until `at`. Of
    judge drift there is none: the judge is one for all."""
    if kind == "judge":
        return None
    names = [name for name in source.segments(tracker.service) if name][:MOST]
    if not names:
        return None
    before = list(_buckets(since - since % COARSE - DAY, since - since % COARSE))
    fine = since - since % (MINUTE if at - since < HOUR * 0.75 else COARSE)
    after = list(_buckets(fine, at - at % MINUTE))

    def parts(segment: str) -> tuple[Part, Part]:
        return (
            _part(source, tracker, segment, kind, cell, before),
            _part(source, tracker, segment, kind, cell, after),
        )

    return top_segment(parts(""), {name: parts(name) for name in names})


def _buckets(start: float, end: float) -> Iterator[tuple[int, float]]:
    while start + MINUTE <= end:
        width = COARSE if start % COARSE == 0 and start + COARSE <= end else MINUTE
        yield width, start
        start += width


def _part(
    source: Source,
    tracker: Tracker,
    segment: str,
    kind: Kind,
    cell: int,
    buckets: list[tuple[int, float]],
) -> Part:
    if kind != "latency":
        args = (tracker.service, segment, tracker.metric, tracker.scorer)
        return part_of(source.bucket(*args, width, start) for width, start in buckets)
    n = above = 0.0
    for width, start in buckets:
        hist = source.bucket_latency(tracker.service, segment, tracker.metric, width, start)
        if hist is not None and hist.n:
            total = sum(hist.counts)
            kish = total * total / hist.w2
            n += kish
            above += kish * sum(hist.counts[cell:]) / total
    share = above / n if n else 0.0
    return Part(n, share, share * (1 - share))
