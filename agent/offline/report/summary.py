"""The report as data and as a JSON document.

A report: what each run measured, how the others differ from the first, the worst traces. Pure.

It is what the table, the JSON document, the page and the picture are made of.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ragmeter.core.metric_specs import MetricSpec, base_name, display_rank, parse_cutoff
from ragmeter.offline.report.comparison import RunComparison, compare_runs, describe_difference
from ragmeter.offline.report.run import RunSeries, ScoredRun
from ragmeter.windows.series import Quantile

ANSWERED = "answered"


@dataclass(frozen=True, slots=True)
class TraceText:
    """What a trace said, cut short, for who reads about its score."""

    query: str = ""
    answer: str = ""


@dataclass(frozen=True, slots=True)
class ReportColumn:
    """One run as it is shown. `texts` are known by trace id; two runs may have other answers to
    the same one."""

    name: str
    traces: int
    services: Sequence[str]
    series: Sequence[RunSeries]
    latency: Sequence[tuple[str, Sequence[Quantile]]]
    notes: Sequence[str] = ()
    texts: Mapping[str, TraceText] = field(default_factory=dict)

    def find(self, key: tuple[str, str]) -> list[RunSeries]:
        """The series of a (metric, scorer): one for each version of the scorer."""
        return [s for s in self.series if (s.metric, s.scorer) == key]


@dataclass(frozen=True, slots=True)
class ScoreReport:
    """`keys` are the (metric, scorer) that any run has, in the order they are shown; `missing`
    those of which no run has a value."""

    columns: Sequence[ReportColumn]
    comparisons: Sequence[RunComparison]
    keys: Sequence[tuple[str, str]]
    missing: Sequence[tuple[str, str]]
    paired_by: str
    seed: int

    @property
    def tests(self) -> int:
        """How many p were adjusted together."""
        return sum(item.p is not None for item in self.comparisons)

    def comparison(self, run: int, series: RunSeries) -> RunComparison | None:
        """Of run number `run` with the first, in the series of the first."""
        key = (run, series.metric, series.scorer, series.fingerprint)
        for item in self.comparisons:
            if (item.run, item.metric, item.scorer, item.fingerprint) == key:
                return item
        return None


def _is_wanted(metric: str, wanted: Collection[str]) -> bool:
    """Whether a metric is among those wanted (none: all), by its whole name or without cut-off."""
    return not wanted or metric in wanted or base_name(metric) in wanted


def build_report(
    runs: Sequence[ScoredRun],
    *,
    paired_by: str,
    seed: int = 0,
    worst: int = 5,
    metrics: Collection[str] = (),
    notes: Sequence[Sequence[str]] = (),
) -> ScoreReport:
    """`metrics` are the only ones shown and tested (none: all); `notes[i]` is what must be said of
    run i."""
    series = [[s for s in run.series(worst) if _is_wanted(s.metric, metrics)] for run in runs]
    columns = [
        ReportColumn(
            run.name,
            run.traces,
            sorted(run.services),
            found,
            run.latency() if not metrics else [],
            tuple(notes[number]) if notes else (),
        )
        for number, (run, found) in enumerate(zip(runs, series, strict=True))
    ]
    keys = {(s.metric, s.scorer) for found in series for s in found}
    known = {(s.metric, s.scorer) for found in series for s in found if s.estimate is not None}
    ordered = sorted(
        keys,
        key=lambda key: (display_rank(key[0]), key[0].partition(":")[0], _cutoff_number(key), key),
    )
    return ScoreReport(
        columns,
        compare_runs(list(zip(runs, series, strict=True)), paired_by == "trace_id", seed),
        [key for key in ordered if key in known],
        [key for key in ordered if key not in known],
        paired_by,
        seed,
    )


def _cutoff_number(key: tuple[str, str]) -> int:
    return int(parse_cutoff(key[0]) or 0)


def metric_title(metric: str) -> str:
    """`precision@5` for people."""
    name, k = base_name(metric), parse_cutoff(metric)
    return name.removesuffix("_at_k") + f"@{k}" if k else name


def format_metric_value(value: float, spec: MetricSpec, signed: bool = False) -> str:
    """A value of a metric, or a difference of two."""
    sign = "+" if signed else ""
    if spec.kind == "ratio":  # a difference of shares is in percentage points
        return f"{100 * value:{sign}.1f} {'pp' if signed else '%'}"
    if spec.high is None:
        return f"{value:{sign},.4g}"
    return f"{value:{sign}.3f}"


VERSION = 1


def report_document(report: ScoreReport) -> str:
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


def _run(column: ReportColumn) -> dict[str, Any]:
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


def _named(item: RunSeries | RunComparison) -> Iterator[tuple[str, Any]]:
    yield "metric", base_name(item.metric)
    k = parse_cutoff(item.metric)
    if k:
        yield "k", int(k)
    yield "scorer", item.scorer
    if item.fingerprint:
        yield "fingerprint", item.fingerprint


def _series(series: RunSeries, column: ReportColumn) -> dict[str, Any]:
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
            {"trace_id": item.trace_id, "value": item.value, **_text_item(item.trace_id, column)}
            for item in series.worst
        ],
    }


def _most(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _text_item(trace_id: str, column: ReportColumn) -> dict[str, str]:
    known = column.texts.get(trace_id)
    return asdict(known) if known else {}


def _comparison(item: RunComparison, report: ScoreReport) -> dict[str, Any]:
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
        "verdict": describe_difference(item, first.spec.good),
    }
