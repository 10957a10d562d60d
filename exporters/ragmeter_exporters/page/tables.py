"""Rows of the tables of segments on the pages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ragmeter.core.metric_specs import MetricSpec, base_name
from ragmeter.metrics.registry import metric_specs
from ragmeter.parts.segments.breakdown import Breakdown
from ragmeter.parts.segments.segment_rows import SegmentComparison, SeriesBreakdown

from ragmeter_exporters.page.numbers import THIN, format_share

MAX_UNREPORTED = 3  # segments of a tag shown without a finding, by what they add to a moved mean
MAX_SEGMENT_ROWS = 40  # the rest is in the JSON


@dataclass(slots=True)
class BreakdownGroup:
    """The rows of one series: the whole service first, then segments."""

    series: SeriesBreakdown
    spec: MetricSpec
    rows: list[SegmentComparison]


@dataclass(slots=True)
class BreakdownTable:
    """A breakdown as the page shows it; `hidden` counts rows beyond the limit."""

    breakdown: Breakdown
    groups: list[BreakdownGroup] = field(default_factory=list)
    hidden: int = 0


def breakdown_table(breakdown: Breakdown | None) -> BreakdownTable | None:
    """Choose the rows of a breakdown that the page shows, `MAX_SEGMENT_ROWS` at most."""
    if breakdown is None:
        return None
    table = BreakdownTable(breakdown)
    room = MAX_SEGMENT_ROWS
    for series in breakdown.series:
        rows = list(_shown_rows(series))
        if rows or series.whole.moved:
            spec = metric_specs()[base_name(series.metric)]
            table.groups.append(BreakdownGroup(series, spec, rows[:room]))
            table.hidden += max(0, len(rows) - room)
            room = max(0, room - len(rows))
    return table


def _shown_rows(series: SeriesBreakdown) -> Iterator[SegmentComparison]:
    """Yield findings, and of a mean that has moved the segments that add most to it."""
    for tag in series.tags:
        for rank, row in enumerate(tag.rows):
            if row.reported or (series.whole.moved and rank < MAX_UNREPORTED and not row.too_few):
                yield row


def segment_name(segment: str) -> str:
    """Return a segment as `tag=value`, or `no tag` for traffic without the tag."""
    tag, _, value = segment.partition("=")
    return segment if value else f"no {tag}"


def traffic_shares(row: SegmentComparison, past: bool) -> str:
    """Return the share of the traffic that a segment has, and had before."""
    now = format_share(row.share)
    return f"{format_share(row.share_before or 0.0)} → {now}" if past else now


def adjusted_p(row: SegmentComparison) -> str:
    """Return the largest adjusted p-value that a finding rests on."""
    pairs = ((row.moved, row.q_change), (row.stands_out, row.q_unlike))
    q = max(q for reported, q in pairs if reported and q is not None)
    return f"q {q:.2g}" if q >= 1e-4 else "q < 0.0001"


def format_percent(share: float | None) -> str:
    """Format a share in percent with one decimal, a dash for None."""
    return "—" if share is None else f"{100 * share:.1f}{THIN}%"
