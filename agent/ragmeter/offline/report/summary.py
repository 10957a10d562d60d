"""The report as data and as a JSON document.

A report holds what each run measured, how the other runs differ from the first, and the worst
traces. Terminal tables, the JSON document, the HTML page and its charts are all built from it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ragmeter.core.label_bounds import bound_label
from ragmeter.core.metric_specs import MetricSpec, base_name, display_rank, parse_cutoff
from ragmeter.metrics.registry import custom_metrics
from ragmeter.offline.report.comparison import RunComparison, compare_runs, describe_difference
from ragmeter.offline.report.run import RunSeries, ScoredRun
from ragmeter.windows.series import Quantile

ANSWERED = "answered"
# What a report shows unless it is asked for more, one metric for each question: is there an answer,
# is it right, grounded and complete, and does what was found and cited help?
DEFAULT_METRICS = (
    "answered",
    "answer_correctness",
    "grounding",
    "relevance",
    "citation_f1",
    "nugget_vital",
)


MAX_NAME = 40  # characters of a run's name in a line of text


@dataclass(frozen=True, slots=True)
class ReportColumn:
    """What a report shows of one run.

    Args:
        series: The series of the metrics that are shown.
        latency: Quantiles, in seconds, by stage.
        hidden: Number of further metrics with a value, which the report leaves out.
        groups: Parts of the run by the value of a tag.
    """

    run: ScoredRun
    series: Sequence[RunSeries]
    latency: Sequence[tuple[str, Sequence[Quantile]]]
    hidden: int
    groups: Sequence[ReportColumn]

    def find(self, key: tuple[str, str]) -> list[RunSeries]:
        """List the series of a (metric, scorer): one for each version of the scorer."""
        return [s for s in self.series if (s.metric, s.scorer) == key]


@dataclass(frozen=True, slots=True)
class ScoreReport:
    """Runs, their comparisons with the first, and the order of display.

    Args:
        columns: The runs in the order of the call.
        comparisons: Comparisons of later runs with the first.
        keys: Each (metric, scorer) with a value in any run, in the order of display.
        missing: Each (metric, scorer) without a value in every run.
        paired_by: `trace_id`, `query` or `tag:NAME`.
        seed: Seed of the randomisation tests.
    """

    columns: Sequence[ReportColumn]
    comparisons: Sequence[RunComparison]
    keys: Sequence[tuple[str, str]]
    missing: Sequence[tuple[str, str]]
    paired_by: str
    seed: int

    @property
    def tests(self) -> int:
        """Number of p values that were adjusted together."""
        return sum(item.p is not None for item in self.comparisons)

    def comparison(self, run: int, series: RunSeries) -> RunComparison | None:
        """Return the comparison of run number `run` with the first in a series of the first."""
        key = (run, series.metric, series.scorer, series.fingerprint)
        for item in self.comparisons:
            if (item.run, item.metric, item.scorer, item.fingerprint) == key:
                return item
        return None


def build_report(
    runs: Sequence[ScoredRun],
    *,
    paired_by: str,
    seed: int = 0,
    worst: int = 5,
    metrics: Collection[str] = (),
    latency: bool = True,
) -> ScoreReport:
    """Build the report of one or more runs.

    Args:
        runs: The runs; later ones are compared with the first.
        paired_by: `trace_id`, `query` or `tag:NAME`, as used for the keys of the runs.
        seed: Seed of the randomisation tests.
        worst: Most worst traces of a series.
        metrics: The only metrics to show and test; empty for all.
        latency: Whether to show the times of the stages.
    """

    def column(run: ScoredRun) -> ReportColumn:
        every = list(run.series(worst))
        shown = [s for s in every if not metrics or _is_named(s.metric, metrics)]
        hidden = len(_valued(every) - _valued(shown))
        stages = run.latency() if latency else []
        return ReportColumn(
            run=run,
            series=shown,
            latency=stages,
            hidden=hidden,
            groups=list(map(column, run.groups)),
        )

    columns = list(map(column, runs))
    series = [one for each in columns for one in each.series]
    keys = {(one.metric, one.scorer) for one in series}
    scored = {(one.metric, one.scorer) for one in series if one.estimate is not None}
    ordered = sorted(
        keys,
        key=lambda key: (
            display_rank(key[0]),
            base_name(key[0]),
            int(parse_cutoff(key[0]) or 0),
            key,
        ),
    )
    return ScoreReport(
        columns=columns,
        comparisons=compare_runs(
            [(one.run, one.series) for one in columns], paired_by == "trace_id", seed
        ),
        keys=[key for key in ordered if key in scored],
        missing=[key for key in ordered if key not in scored],
        paired_by=paired_by,
        seed=seed,
    )


def default_metrics() -> tuple[str, ...]:
    """Return the metrics that a report shows by default: `DEFAULT_METRICS` and the user's own."""
    return (*DEFAULT_METRICS, *(one.spec.name for one in custom_metrics()))


def has_default_metrics(runs: Sequence[ScoredRun]) -> bool:
    """Return whether a run has a value of one of the metrics that are shown by default."""
    return any(run.measured & {*default_metrics()} for run in runs)


def _is_named(metric: str, names: Collection[str]) -> bool:
    return metric in names or base_name(metric) in names


def _valued(series: Sequence[RunSeries]) -> set[str]:
    return {one.metric for one in series if one.estimate is not None}


def report_headline(report: ScoreReport) -> list[str]:
    """Say in a line for each later run what is better and what is worse than in the first run.

    Each difference has its 95 % interval and its p, adjusted for all tests of the report.
    """
    lines = []
    first = report.columns[0]
    for number, column in enumerate(report.columns[1:], start=1):
        found: dict[str, list[str]] = {}
        for series in first.series:
            item = report.comparison(number, series)
            if item is None or item.p is None or item.difference is None:
                continue
            verdict = describe_difference(item, series.spec.good)
            label = f"{metric_title(series.metric)} ({series.scorer})"
            size, *ends = (
                "?" if value is None else format_metric_value(value, series.spec, True)
                for value in (item.difference, item.lower, item.upper)
            )
            sure = f"[{' … '.join(ends)}], p {format_p_value(item.adjusted)}"
            found.setdefault(verdict, []).append(f"{label} by {size} {sure}")
        parts = [
            f"{verdict} on {', '.join(found[verdict])}"
            for verdict in ("better", "worse", "higher", "lower")
            if verdict in found
        ]
        alike = len(found.get("no difference shown", ()))
        if alike:
            what = f"{'other ' if parts else ''}metric{'s' if alike > 1 else ''}"
            parts.append(f"no difference shown on {alike} {what}")
        methods = {item.method for item in report.comparisons if item.run == number}
        nothing = "nothing to compare"
        if "constant" in methods:
            nothing = "the same in every score"
        elif "other_instrument" in methods:
            nothing = "scored by another judge or model, so nothing to compare"
        name = bound_label(column.run.name, MAX_NAME)
        base = bound_label(first.run.name, MAX_NAME)
        lines.append(f"{name} against {base}: {'; '.join(parts) or nothing}")
    return lines


def report_title(report: ScoreReport) -> str:
    """Name the runs, such as `llama against gpt-4`."""
    first, *others = (bound_label(column.run.name, MAX_NAME) for column in report.columns)
    return f"{', '.join(others)} against {first}" if others else first


def format_p_value(p: float | None) -> str:
    """Format a p value; empty without a test."""
    if p is None:
        return ""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def metric_title(metric: str) -> str:
    """Format the name of a metric with its cut-off, such as `precision@5`."""
    name = base_name(metric)
    k = parse_cutoff(metric)
    return name.removesuffix("_at_k") + f"@{k}" if k else name


def format_metric_value(value: float, spec: MetricSpec, signed: bool = False) -> str:
    """Format a value of a metric, ratios in percent, or if `signed` a difference of values."""
    sign = "+" if signed else ""
    if spec.kind == "ratio":  # a difference of shares is in percentage points
        return f"{100 * value:{sign}.1f} {'pp' if signed else '%'}"
    if spec.high is None:
        return f"{value:{sign},.4g}"
    return f"{value:{sign}.3f}"


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
