"""The breakdown of one service under one budget of false discoveries, and its JSON document.

All comparisons of a breakdown are one family: each segment with its own past and with the rest,
for each metric. Segments of different tags overlap, segments of one tag are compared with rests
that share traffic, and metrics are of the same answers, so the p values depend on one another.
Benjamini and Yekutieli (2001, Ann. Stat. 29: 1165) hold under any dependence, for which they divide
the budget by 1 + 1/2 + ... + 1/m, 5 to 7 here. Benjamini and Hochberg (1995, J. R. Stat. Soc. B 57:
289) are proven for independent and positively dependent p values only; with the dependence here
the budget holds by measurement (benchmarks/segments.py), and twice as much is found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from ragmeter.core.errors import UsageError
from ragmeter.core.metric_specs import METRIC_GROUPS, MetricSpec, base_name, display_rank, find_spec
from ragmeter.core.series import series_labels
from ragmeter.metrics.registry import metric_specs
from ragmeter.parts.contract import PageHome
from ragmeter.parts.segments.segment_rows import (
    SegmentComparison,
    SeriesBreakdown,
    build_series_breakdown,
    segments_by_tag,
)
from ragmeter.parts.segments.sources import BreakdownSource, WindowBreakdownSource
from ragmeter.parts.views import ComparedWith
from ragmeter.windows.contrasts import MIN_SAMPLES, Contrast, MeanSample, series_kind

# The expected share of false ones among the findings of a breakdown. Not 0.1: a page that is left
# open is looked at all day.
DEFAULT_FDR = 0.05

# Metrics that measure the judge and not the service.
_EXCLUDED_METRICS = frozenset(METRIC_GROUPS["Judge"])


class NoPastError(UsageError, ValueError):
    """A comparison with the past was requested and there is no past."""


@dataclass(frozen=True, slots=True)
class BreakdownOptions:
    """The choice of comparisons.

    Args:
        metric: A metric with or without its cut-off; None: all that have a better side.
        against: None: the past if there is one, else the rest.
        fdr: The budget of false discoveries, 0..1.
    """

    metric: str | None = None
    against: ComparedWith | None = None
    fdr: float = DEFAULT_FDR


@dataclass(slots=True)
class Breakdown:
    """The breakdown of a service: `comparisons` share the budget `fdr`, some are `findings`.

    `past` describes the past; None: each segment is compared with the rest.
    """

    service: str
    past: str | None
    fdr: float
    series: list[SeriesBreakdown] = field(default_factory=list)
    comparisons: int = 0
    findings: int = 0


def build_breakdown(source: BreakdownSource, options: BreakdownOptions | None = None) -> Breakdown:
    """Compare the segments of a service.

    Raises:
        NoPastError: A comparison with the past was requested and there is no past.
    """
    options = options or BreakdownOptions()
    if options.against is ComparedWith.BEFORE and source.past is None:
        raise NoPastError(f"{source.service} has no traffic before that window")
    past = None if options.against is ComparedWith.REST else source.past
    tags = segments_by_tag(source.segments())
    breakdown = Breakdown(source.service, past, options.fdr)
    for metric, scorer in sorted(source.series(), key=lambda pair: (display_rank(pair[0]), pair)):
        spec = find_spec(metric_specs(), metric)
        if spec is None or not _is_included(metric, spec, options.metric):
            continue
        now, before = source.periods(metric, scorer)
        series = build_series_breakdown(
            metric=metric,
            scorer=source.current_scorer(metric, scorer),
            kind=series_kind(metric, scorer),
            tags=tags,
            now=now,
            before=before if past else None,
        )
        if series is not None:
            breakdown.series.append(series)
    _find_discoveries(breakdown)
    return breakdown


def service_breakdown(
    home: PageHome, service: str, window: str, options: BreakdownOptions | None = None
) -> Breakdown:
    """Break down the means of a service of a running agent, taking the lock for each series.

    Raises:
        NoPastError: The options compare with a time before the window, and there is none.
    """
    source = WindowBreakdownSource(lambda: home.windows, service, window, home.lock)
    return build_breakdown(source, options)


def _is_included(metric: str, spec: MetricSpec, requested: str | None) -> bool:
    if requested is not None:
        return requested in (metric, base_name(metric))
    return spec.good is not None and spec.name not in _EXCLUDED_METRICS


def _find_discoveries(breakdown: Breakdown) -> None:
    """Mark the findings. Every difference shares the budget, those of the whole service too."""
    rows = [row for series in breakdown.series for row in series.rows]
    contrasts = [(row, one) for row in rows for one in (row.change, row.unlike) if one is not None]
    qs = adjust_p_values([contrast.p for _, contrast in contrasts])
    for (row, contrast), q in zip(contrasts, qs, strict=True):
        finding = q <= breakdown.fdr
        if contrast is row.change:
            row.q_change, row.moved = q, finding
        else:
            row.q_unlike, row.stands_out = q, finding
        breakdown.findings += finding
    breakdown.comparisons = len(contrasts)
    for series in breakdown.series:
        for tag in series.tags:
            tag.rows.sort(key=lambda row: (*row.order, row.segment))


def adjust_p_values(ps: Sequence[float]) -> list[float]:
    """Return the p values adjusted by Benjamini and Hochberg (1995), in the order of `ps`.

    Findings are those of at most the budget.
    """
    m = len(ps)
    adjusted = [1.0] * m
    lowest = 1.0
    for rank, index in enumerate(sorted(range(m), key=lambda i: -ps[i])):
        lowest = min(lowest, ps[index] * m / (m - rank))
        adjusted[index] = lowest
    return adjusted


def build_document(breakdown: Breakdown) -> dict[str, Any]:
    """Return the breakdown as JSON-able values; absent ones are None."""
    return {
        "service": breakdown.service,
        "past": breakdown.past,
        "fdr": breakdown.fdr,
        "comparisons": breakdown.comparisons,
        "findings": breakdown.findings,
        "least_samples": MIN_SAMPLES,
        "series": [_series_document(series) for series in breakdown.series],
    }


def _series_document(series: SeriesBreakdown) -> dict[str, Any]:
    return {
        **series_labels(series.metric, series.scorer),
        "whole": _row_document(series.whole),
        "tags": [
            {
                "tag": tag.name,
                "unattributed": _number(tag.unattributed),
                "segments": [_row_document(row) for row in tag.rows],
            }
            for tag in series.tags
        ],
    }


def _row_document(row: SegmentComparison) -> dict[str, Any]:
    return {
        "segment": row.segment,
        "finding": row.finding,
        "moved": row.moved,
        "unlike_the_rest": row.stands_out,
        "new": row.new,
        "gone": row.gone,
        "too_few": row.too_few,
        "told": row.reported,
        "share": _number(row.share),
        "share_before": _number(row.share_before),
        "now": _sample_document(row.now),
        "before": _sample_document(row.before),
        "change": _contrast_document(row.change, row.q_change),
        "from_rest": _contrast_document(row.unlike, row.q_unlike),
        "contribution": None if row.added is None else _numbers(row.added._asdict()),
    }


def _sample_document(sample: MeanSample | None) -> dict[str, Any] | None:
    """Describe a side; one of too few samples only by their number."""
    if sample is None:
        return None
    document: dict[str, Any] = {
        "samples": sample.scored,
        "effective_samples": _number(sample.effective),
    }
    if sample.enough:
        document |= {name: _number(getattr(sample, name)) for name in ("value", "lower", "upper")}
    return document


def _contrast_document(contrast: Contrast | None, q: float | None) -> dict[str, Any] | None:
    return None if contrast is None else {**_numbers(contrast._asdict()), "q": _number(q)}


def _numbers(values: dict[str, float]) -> dict[str, float | None]:
    return {name: _number(value) for name, value in values.items()}


def _number(value: float | None) -> float | None:
    """JSON has no NaN and no infinity."""
    return value if value is not None and isfinite(value) else None
