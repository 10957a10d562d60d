"""The report as a JSON document."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from ragmeter.core.metric_specs import base_name, parse_cutoff
from ragmeter.offline.report.comparison import RunComparison, describe_difference
from ragmeter.offline.report.run import RunSeries, ScoredRun
from ragmeter.offline.report.summary import ReportColumn, ScoreReport, report_headline

VERSION = 1


def report_document(report: ScoreReport) -> str:
    """Render the report as a JSON document.

    The text is ASCII only, so that names from input files cannot control a terminal. Every key is
    present, null where there is no value.
    """
    out = {
        "version": VERSION,
        "paired_by": report.paired_by,
        "seed": report.seed,
        "tests": report.tests,
        "adjustment": "holm",
        "runs": [_run(column) for column in report.columns],
        "comparisons": [_comparison(item, report) for item in report.comparisons],
        "headline": report_headline(report),
        "groups": [list(map(_run, column.groups)) for column in report.columns if column.groups],
    }
    return json.dumps(out, ensure_ascii=True, allow_nan=False, indent=1) + "\n"


def _run(column: ReportColumn) -> dict[str, Any]:
    run = column.run
    return {
        "name": run.name,
        "traces": run.traces,
        "from": run.times[0],
        "to": run.times[1],
        "services": sorted(run.services),
        "notes": run.notes,
        "questions": [asdict(answer) for answer in run.answers],
        "series": [_series(series, run) for series in column.series],
        "latency": [
            {"stage": stage, **item._asdict()} for stage, items in column.latency for item in items
        ],
        "consistency": run.consistency and asdict(run.consistency),
        "judging": run.judging.to_dict() if run.judging.traces else None,
        "agreement": [row._asdict() for row in run.agreement],
    }


def _named(item: RunSeries | RunComparison) -> Iterator[tuple[str, Any]]:
    yield "metric", base_name(item.metric)
    k = parse_cutoff(item.metric)
    if k:
        yield "k", int(k)
    yield "scorer", item.scorer
    if item.fingerprint:
        yield "fingerprint", item.fingerprint


def _series(series: RunSeries, run: ScoredRun) -> dict[str, Any]:
    estimate = series.estimate
    box = series.box
    return {
        **dict(_named(series)),
        "kind": series.spec.kind,
        "value": estimate and estimate.value,
        "lower": estimate and estimate.lower,
        "upper": estimate and estimate.upper,
        "samples": estimate.samples if estimate else 0,
        "effective_samples": estimate and estimate.effective_samples,
        "unscored": estimate and estimate.unscored,
        "weighted": series.weighted,
        "repeats": series.repeats
        and {**asdict(series.repeats), "variation": series.repeats.variation},
        "box": box and {**asdict(box), "outliers": list(box.outliers)},
        "states": dict(series.states),
        "reasons": {state: dict(_most(counts)) for state, counts in series.reasons.items()},
        "worst": [
            {
                **asdict(item),
                **(asdict(run.texts[item.trace_id]) if item.trace_id in run.texts else {}),
            }
            for item in series.worst
        ],
    }


def _most(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _comparison(item: RunComparison, report: ScoreReport) -> dict[str, Any]:
    first = next(
        s
        for s in report.columns[0].series
        if (s.metric, s.scorer, s.fingerprint) == (item.metric, item.scorer, item.fingerprint)
    )
    return {
        "run": report.columns[item.run].run.name,
        "against": report.columns[0].run.name,
        **dict(_named(item)),
        "method": item.method,
        "pairs": item.pairs,
        "difference": item.difference,
        "lower": item.lower,
        "upper": item.upper,
        "p": item.p,
        "p_adjusted": item.adjusted,
        "verdict": describe_difference(item, first.spec.good),
    }
