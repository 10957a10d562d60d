"""The breakdown of one service under one budget of false discoveries, and its JSON document.

One budget of false discoveries: Benjamini and Hochberg (1995, J. R. Stat. Soc. B 57: 289).

All comparisons of a look are one family: each segment with its own past and with the rest, for
each metric. Segments of different tags overlap, segments of one tag are compared with rests that
hold each other, and metrics are of the same answers, so the p values depend on one another.
Benjamini and Yekutieli (2001, Ann. Stat. 29: 1165) hold under any dependence, for which they divide
the budget by 1 + 1/2 + ... + 1/m, 5 to 7 here. Benjamini and Hochberg are proven for independent
and for positively dependent p values only, so what they do with the dependence that there is here
is measured (benchmarks/segments.py): the budget holds, and twice as much is found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import isfinite
from typing import Any

from ragmeter.breakdown.contrasts import MIN_SAMPLES, Contrast, MeanSample, SeriesKind
from ragmeter.breakdown.segment_rows import (
    SegmentComparison,
    SeriesBreakdown,
    build_series_breakdown,
)
from ragmeter.breakdown.sources import BreakdownSource
from ragmeter.core.metric_specs import METRIC_GROUPS, MetricSpec, base_name, display_rank, find_spec
from ragmeter.core.series import series_labels
from ragmeter.metrics.registry import METRICS
from ragmeter.windows.intervals import is_assisted

DEFAULT_FDR = 0.05
"""The expected share of false ones among the findings of a look. Not .1: a page that is left open
is looked at all day."""


def adjust_p_values(ps: Sequence[float]) -> list[float]:
    """The adjusted p values, in the order of `ps`: findings are those of at most the budget."""
    m = len(ps)
    found = [1.0] * m
    lowest = 1.0
    for rank, index in enumerate(sorted(range(m), key=lambda i: -ps[i])):
        lowest = min(lowest, ps[index] * m / (m - rank))
        found[index] = lowest
    return found


_EXCLUDED_METRICS = frozenset(METRIC_GROUPS["Judge"])
"""What is measured on the judge and not on the service."""


class ComparedWith(StrEnum):
    """What a segment is compared with: its own past, and how the rest has moved since; or the rest
    as it is now."""

    BEFORE = "before"
    REST = "rest"


class NoPastError(ValueError):
    """The past was asked for and there is none."""


@dataclass(frozen=True, slots=True)
class BreakdownOptions:
    """`metric` None: all of the service that have a better side. `against` None: the past where
    there is one, else the rest. `fdr` is the budget of false discoveries."""

    metric: str | None = None
    against: ComparedWith | None = None
    fdr: float = DEFAULT_FDR


@dataclass(slots=True)
class Breakdown:
    """`past` says in words what the past is, None where each segment is compared with the rest.
    `comparisons` share the budget `fdr`; `findings` of them are findings."""

    service: str
    past: str | None
    fdr: float
    series: list[SeriesBreakdown] = field(default_factory=list)
    comparisons: int = 0
    findings: int = 0


def build_breakdown(source: BreakdownSource, options: BreakdownOptions | None = None) -> Breakdown:
    """Raises `NoPast`."""
    options = options or BreakdownOptions()
    if options.against is ComparedWith.BEFORE and source.past is None:
        raise NoPastError(f"of {source.service} nothing lies before that window")
    past = None if options.against is ComparedWith.REST else source.past
    tags: dict[str, list[str]] = {}
    for name in source.segments():
        tags.setdefault(name.partition("=")[0], []).append(name)
    found = Breakdown(source.service, past, options.fdr)
    for metric, scorer in sorted(source.series(), key=lambda pair: (display_rank(pair[0]), pair)):
        spec = find_spec(METRICS, metric)
        if spec is None or not _wanted(metric, spec, options.metric):
            continue
        kind = SeriesKind(spec.kind == "ratio", spec.low, spec.high, is_assisted(scorer))
        now, before = source.periods(metric, scorer)
        name = source.current_scorer(metric, scorer)
        series = build_series_breakdown(metric, name, kind, tags, now, before if past else None)
        if series is not None:
            found.series.append(series)
    _adjust_comparisons(found)
    return found


def _wanted(metric: str, spec: MetricSpec, asked: str | None) -> bool:
    """A metric is asked for by its whole name or without its cut-off."""
    if asked is not None:
        return asked in (metric, base_name(metric))
    return spec.good is not None and spec.name not in _EXCLUDED_METRICS


def _adjust_comparisons(found: Breakdown) -> None:
    """Every difference is a question, that of the whole service too: all share one budget."""
    rows = [row for series in found.series for row in series.rows]
    asked = [(row, one) for row in rows for one in (row.change, row.unlike) if one is not None]
    for (row, one), q in zip(asked, adjust_p_values([one.p for _, one in asked]), strict=True):
        _set_q_value(row, one is row.change, q, found.fdr)
        found.findings += q <= found.fdr
    found.comparisons = len(asked)
    for series in found.series:
        for tag in series.tags:
            tag.rows.sort(key=lambda row: (*row.order, row.segment))


def _set_q_value(row: SegmentComparison, own: bool, q: float, fdr: float) -> None:
    if own:
        row.q_change, row.moved = q, q <= fdr
    else:
        row.q_unlike, row.stands_out = q, q <= fdr


def build_document(found: Breakdown) -> dict[str, Any]:
    """JSON-able; absent is null."""
    return {
        "service": found.service,
        "past": found.past,
        "fdr": found.fdr,
        "comparisons": found.comparisons,
        "findings": found.findings,
        "least_samples": MIN_SAMPLES,
        "series": [_series_document(series) for series in found.series],
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
    added = row.added
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
        "contribution": None
        if added is None
        else {name: _number(value) for name, value in added._asdict().items()},
    }


def _sample_document(sample: MeanSample | None) -> dict[str, Any] | None:
    """Of a side that is too few only how few."""
    if sample is None:
        return None
    found: dict[str, Any] = {
        "samples": sample.scored,
        "effective_samples": _number(sample.effective),
    }
    if sample.enough:
        found |= {name: _number(getattr(sample, name)) for name in ("value", "lower", "upper")}
    return found


def _contrast_document(contrast: Contrast | None, q: float | None) -> dict[str, Any] | None:
    if contrast is None:
        return None
    return {**{name: _number(v) for name, v in contrast._asdict().items()}, "q": _number(q)}


def _number(value: float | None) -> float | None:
    """JSON has no NaN and no infinity."""
    return value if value is not None and isfinite(value) else None
