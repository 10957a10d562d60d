"""Explain a change of a mean: what happened within segments, and what is a shift of shares.

The comparisons are those of the page (`segment_rows`). An alert names a segment once, so a claim
must hold at `SEGMENT_LEVEL` over all comparisons of the alert (Bonferroni). What no comparison
supports is not written: neither that a segment moved nor that it did not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from ragmeter.alerts.explanation import Explanation
from ragmeter.parts.segments.segment_rows import (
    SegmentComparison,
    SeriesBreakdown,
    TagBreakdown,
    build_series_breakdown,
    segments_by_tag,
)
from ragmeter.windows.contrasts import (
    SHARE,
    CellPair,
    Contrast,
    SeriesKind,
    compare_means,
    estimate_sample,
)
from ragmeter.windows.estimators import join_limits
from ragmeter.windows.shares import share_sums

# Chance, over all comparisons of an alert, of a claim about a segment that did nothing.
SEGMENT_LEVEL = 0.01

# Segments compared: each costs some 150 buckets, and an alarm comes once in a month.
MAX_COMPARED_SEGMENTS = 64

# The least part of a change that a shift of shares must make to be named: from hour to hour shares
# always move a little, and with much traffic that is beyond chance.
_LEAST_PART = 0.25

_TagRow = tuple[TagBreakdown, SegmentComparison]


def compare_segments(
    names: Iterable[str],
    read: Callable[[str], CellPair],
    kind: SeriesKind = SHARE,
) -> SeriesBreakdown | None:
    """Compare the segments `names` of one series, without a past with the rest.

    Args:
        names: Segments, without "".
        read: Returns the sums of a segment before and now.
        kind: Kind of the series.

    Returns:
        The comparison, None with too few samples now.
    """
    tags = segments_by_tag(names)
    pairs = {name: read(name) for name in ("", *(one for tag in tags.values() for one in tag))}
    before, now = ({name: pair[i] for name, pair in pairs.items()} for i in (0, 1))
    return build_series_breakdown(
        metric="", scorer="", kind=kind, tags=tags, now=now, before=before
    ) or build_series_breakdown(metric="", scorer="", kind=kind, tags=tags, now=now, before=None)


def explain_change(series: SeriesBreakdown, direction: int) -> Explanation:
    """Explain why a mean moved in a `direction`, 1 up or -1 down.

    Without a past the segment is named that is furthest that way from the rest.
    """
    change = series.whole.change
    # traffic without the tag counts in the sums and is no segment to be named
    rows = [(tag, row) for tag in series.tags for row in tag.rows if row.segment != f"{tag.name}="]
    moves = [_share_move(row, series.whole) for _, row in rows]
    compared = sum(row.unlike is not None for _, row in rows) + sum(p is not None for p in moves)
    level = SEGMENT_LEVEL / max(1, compared)
    apart = [
        (tag, row)
        for tag, row in rows
        if row.unlike and row.unlike.p <= level and row.unlike.value * direction > 0
    ]
    if change is None:
        return _explain_level([row for _, row in apart])
    if change.value * direction <= 0:
        return Explanation()
    moved = [
        (tag, row)
        for tag, row in apart
        if row.change and row.change.p <= SEGMENT_LEVEL and row.change.value * direction > 0
    ]
    shifted = [
        (tag, row)
        for (tag, row), p in zip(rows, moves, strict=True)
        if p is not None
        and p <= level
        and row.mix * direction > 0
        and _certain_shift(tag, direction) >= _LEAST_PART * abs(change.value)
    ]
    if not moved and not shifted:
        alike = sorted(tag.name for tag in series.tags if _moved_alike(tag, change, direction))
        return Explanation("", f"all segments of {', '.join(alike)} moved alike" if alike else "")
    return _describe_change(change.value, moved, shifted)


def _describe_change(
    change: float, moved: Sequence[_TagRow], shifted: Sequence[_TagRow]
) -> Explanation:
    """Describe a change by the segments that changed most and those whose share moved."""
    sentences = []
    bad = []
    if moved:
        tag, row = min(moved, key=lambda one: (_p(one[1]), -abs(one[1].rate)))
        before, now = (side.value if side else 0.0 for side in (row.before, row.now))
        sentences.append(f"{row.segment} changed more than the others, {before:.3g} to {now:.3g}")
        bad.append((abs(row.rate), row.segment))
    if shifted:
        tag = max((tag for tag, _ in shifted), key=lambda one: abs(one.mix))
        own = sorted(
            (row for other, row in shifted if other is tag),
            key=lambda row: (not row.new, -abs(row.mix), row.segment),
        )
        mostly = (
            "because traffic moved" if abs(tag.mix) > 2 * abs(tag.rate) else "traffic moved too"
        )
        # a share that moved pushes others the other way: the two that matter most, or the new one
        shown = own[:1] if own[0].new else own[:2]
        sentences.insert(0, f"{mostly}: {', '.join(map(_describe_share, shown))}")
        bad += [(abs(row.mix), row.segment) for row in shown if row.new]
    # all with the decimals of the change, so that they can be added up
    decimals = max(0, 1 - math.floor(math.log10(abs(change))))
    total, within, mix, rest = (
        f"{round(value, decimals) + 0.0:+.{decimals}f}"
        for value in (change, tag.rate, tag.mix, tag.unattributed)
    )
    few = f", {rest} of too few samples" if abs(tag.unattributed) > 0.1 * abs(change) else ""
    sentences.append(
        f"of the change of {total}, {within} is within segments of {tag.name} and {mix} comes from"
        f" traffic between them{few}"
    )
    return Explanation(max(bad)[1] if bad else "", "; ".join(sentences))


def _explain_level(apart: Sequence[SegmentComparison]) -> Explanation:
    """Name the segment that is furthest from the rest."""
    pairs = [(row, row.unlike) for row in apart if row.now and row.unlike]
    if not pairs:
        return Explanation()
    row, unlike = min(pairs, key=lambda pair: (pair[1].p, -abs(pair[1].value)))
    if row.now is None:
        raise RuntimeError("now is missing")
    rest = row.now.value - unlike.value
    text = f"{row.segment} is at {row.now.value:.3g}, the rest at {rest:.3g}"
    return Explanation(row.segment, text)


def _share_move(row: SegmentComparison, whole: SegmentComparison) -> float | None:
    """Return the p value of no change of a segment's share of the traffic."""
    if row.share_before is None or whole.now is None or whole.before is None:
        return None
    now, before = (
        estimate_sample(share_sums(share, side.effective), SHARE)
        for share, side in ((row.share, whole.now), (row.share_before, whole.before))
    )
    return compare_means((now, before)).p if now and before else None


def _certain_shift(tag: TagBreakdown, direction: int) -> float:
    """Return how far shares moved the mean in a direction; 0 if it may be none.

    Its interval takes the shares as they were: that they moved is tested by `_share_move`.
    """
    terms = []
    for row in tag.rows:
        past = None if row.new else row.before
        sides = [side for side in (row.now, past) if side is not None]
        if row.added is not None and row.share_before is not None:
            step = (row.share - row.share_before) / len(sides)
            terms += [(step, *side[:3]) for side in sides]
    _, lower, upper = join_limits(terms)
    return tag.mix * direction if lower > 0 or upper < 0 else 0.0


def _moved_alike(tag: TagBreakdown, change: Contrast, direction: int) -> bool:
    """Return whether there is evidence that all segments of a tag moved, and by about the same."""
    return len(tag.rows) > 1 and all(
        row.change is not None
        and row.unlike is not None
        and (row.change.lower > 0 if direction > 0 else row.change.upper < 0)
        and max(abs(row.unlike.lower), abs(row.unlike.upper)) <= abs(change.value) / 2
        for row in tag.rows
    )


def _p(row: SegmentComparison) -> float:
    return row.unlike.p if row.unlike else 1.0


def _describe_share(row: SegmentComparison) -> str:
    before, now = (f"{100 * (share or 0.0):.0f} %" for share in (row.share_before, row.share))
    if row.now is None:
        return f"{row.segment} is gone ({before} of the traffic before)"
    moved = f"is new, with {now}" if row.new else f"from {before} to {now}"
    return f"{row.segment} {moved} of the traffic (at {row.now.value:.3g})"
