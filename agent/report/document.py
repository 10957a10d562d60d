"""A report as one JSON object. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from agent.metrics.names import base, cutoff
from agent.report.compare import Comparison, verdict
from agent.report.run import Series
from agent.report.summary import Column, Report

__all__ = ["document"]

VERSION = 1


def document(report: Report) -> str:
    """ASCII only: no name from outside steers a terminal. Every key is there, null where nothing
    is known."""
    out = {
        "version": VERSION,
        "paired_by": report.paired_by,
        "seed": report.seed,
        "tests": report.tests,
        "adjustment": "holm",
        "runs": [_run(column) for column in report.columns],
        "comparisons": [_comparison(item, report) for item in report.comparisons],
    }
    return json.dumps(out, ensure_ascii=True, allow_nan=False, indent=1) + "\n"


def _run(column: Column) -> dict[str, Any]:
    return {
        "name": column.name,
        "traces": column.traces,
        "services": list(column.services),
        "notes": list(column.notes),
        "series": [_series(series, column) for series in column.series],
        "latency": [
            {"stage": stage, **asdict(item)} for stage, items in column.latency for item in items
        ],
    }


def _named(item: Series | Comparison) -> Iterator[tuple[str, Any]]:
    yield "metric", base(item.metric)
    k = cutoff(item.metric)
    if k:
        yield "k", int(k)
    yield "scorer", item.scorer
    if item.fingerprint:
        yield "fingerprint", item.fingerprint


def _series(series: Series, column: Column) -> dict[str, Any]:
    found, box = series.estimate, series.box
    return {
        **dict(_named(series)),
        "kind": series.spec.kind,
        "value": found and found.value,
        "lower": found and found.lower,
        "upper": found and found.upper,
        "samples": found.samples if found else 0,
        "effective_samples": found and found.effective_samples,
        "unscored": found and found.unscored,
        "weighted": series.weighted,
        "box": box and {**asdict(box), "outliers": list(box.outliers)},
        "states": dict(series.states),
        "reasons": {state: dict(_most(counts)) for state, counts in series.reasons.items()},
        "worst": [
            {"trace_id": item.trace_id, "value": item.value, **_text(item.trace_id, column)}
            for item in series.worst
        ],
    }


def _most(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _text(trace_id: str, column: Column) -> dict[str, str]:
    known = column.texts.get(trace_id)
    return asdict(known) if known else {}


def _comparison(item: Comparison, report: Report) -> dict[str, Any]:
    first = next(
        s
        for s in report.columns[0].series
        if (s.metric, s.scorer, s.fingerprint) == (item.metric, item.scorer, item.fingerprint)
    )
    return {
        "run": report.columns[item.run].name,
        "against": report.columns[0].name,
        **dict(_named(item)),
        "method": item.method,
        "pairs": item.pairs,
        "difference": item.difference,
        "lower": item.lower,
        "upper": item.upper,
        "p": item.p,
        "p_adjusted": item.adjusted,
        "verdict": verdict(item, first.spec.good),
    }
