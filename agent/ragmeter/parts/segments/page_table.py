"""The table of segments on the page of a service: which rows it shows, and their words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ragmeter.core.metric_specs import MetricSpec, base_name
from ragmeter.metrics.registry import metric_specs
from ragmeter.parts.segments.breakdown import Breakdown
from ragmeter.parts.segments.segment_rows import SegmentComparison, SeriesBreakdown

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


def breakdown_table(breakdown: Breakdown) -> BreakdownTable:
    """Choose the rows of a breakdown that the page shows, `MAX_SEGMENT_ROWS` at most."""
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
