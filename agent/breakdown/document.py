"""A breakdown as JSON: what `/api/segments.json` gives and `ragmeter segments --json` prints."""

from __future__ import annotations

from math import isfinite
from typing import Any

from agent.breakdown.breakdown import Breakdown
from agent.breakdown.contrasts import Contrast
from agent.breakdown.rows import Row, Series
from agent.breakdown.sample import LEAST, Sample
from agent.fingerprints import series_labels

__all__ = ["document"]


def document(found: Breakdown) -> dict[str, Any]:
    """JSON-able; absent is null."""
    return {
        "service": found.service,
        "past": found.past,
        "fdr": found.fdr,
        "comparisons": found.comparisons,
        "findings": found.findings,
        "least_samples": LEAST,
        "series": [_series(series) for series in found.series],
    }


def _series(series: Series) -> dict[str, Any]:
    return {
        **series_labels(series.metric, series.scorer),
        "whole": _row(series.whole),
        "tags": [
            {
                "tag": tag.name,
                "unattributed": _number(tag.unattributed),
                "segments": [_row(row) for row in tag.rows],
            }
            for tag in series.tags
        ],
    }


def _row(row: Row) -> dict[str, Any]:
    added = row.added
    return {
        "segment": row.segment,
        "finding": row.finding,
        "moved": row.moved,
        "unlike_the_rest": row.stands_out,
        "new": row.new,
        "gone": row.gone,
        "too_few": row.few,
        "told": row.told,
        "share": _number(row.share),
        "share_before": _number(row.share_before),
        "now": _sample(row.now),
        "before": _sample(row.before),
        "change": _contrast(row.change, row.q_change),
        "from_rest": _contrast(row.unlike, row.q_unlike),
        "contribution": None
        if added is None
        else {name: _number(value) for name, value in added._asdict().items()},
    }


def _sample(sample: Sample | None) -> dict[str, Any] | None:
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


def _contrast(contrast: Contrast | None, q: float | None) -> dict[str, Any] | None:
    if contrast is None:
        return None
    return {**{name: _number(v) for name, v in contrast._asdict().items()}, "q": _number(q)}


def _number(value: float | None) -> float | None:
    """JSON has no NaN and no infinity."""
    return value if value is not None and isfinite(value) else None
