"""Rows of the tables of segments and repeated answers on the pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ragmeter.aggregate.consistency import Agreement, AnswerComparison
from ragmeter.breakdown.breakdown import Breakdown
from ragmeter.breakdown.segment_rows import SegmentComparison, SeriesBreakdown
from ragmeter.core.metric_specs import MetricSpec, base_name
from ragmeter.metrics.consistency import EMBEDDING_SIMILARITY, SIMILARITIES
from ragmeter.metrics.registry import metric_specs

from ragmeter_exporters.page.numbers import THIN, format_share

MAX_UNREPORTED = 3  # segments of a tag shown without a finding, by what they add to a moved mean
MAX_SEGMENT_ROWS = 40  # the rest is in the JSON

SIMILARITY_NAMES = {
    "rouge1": "ROUGE-1",
    "rouge2": "ROUGE-2",
    "rouge_l": "ROUGE-L",
    "embedding": "Embeddings (cosine)",
}


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
    table, room = BreakdownTable(breakdown), MAX_SEGMENT_ROWS
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


def similarity_rows(
    compared: Mapping[str, AnswerComparison], windows: Sequence[str]
) -> list[tuple[str, list[Agreement | None]]]:
    """Return the similarities of repeated answers by window; none where no question came again."""
    if not any(comparison.several for comparison in compared.values()):
        return []
    return [
        (SIMILARITY_NAMES[name], [compared[window].by.get(name) for window in windows])
        for name in SIMILARITIES
        if name != EMBEDDING_SIMILARITY or any(name in item.by for item in compared.values())
    ]


def format_percent(share: float | None) -> str:
    """Format a share in percent with one decimal, a dash for None."""
    return "—" if share is None else f"{100 * share:.1f}{THIN}%"
