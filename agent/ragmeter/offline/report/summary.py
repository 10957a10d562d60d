"""The report as data.

A report holds what each run measured, how the other runs differ from the first, and the worst
traces. Terminal tables, the JSON document, the HTML page and its charts are all built from it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ragmeter.core.label_bounds import bound_label
from ragmeter.core.metric_specs import (
    MetricSpec,
    base_name,
    display_rank,
    parse_cutoff,
    spoken_name,
)
from ragmeter.metrics.registry import custom_metrics
from ragmeter.offline.report.comparison import RunComparison, compare_runs, describe_difference
from ragmeter.offline.report.run import RunSeries, ScoredRun
from ragmeter.windows.series import Quantile

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
    return name.removesuffix("_at_k") + f"@{k}" if k else spoken_name(name)


def format_metric_value(value: float, spec: MetricSpec, signed: bool = False) -> str:
    """Format a value of a metric, ratios in percent, or if `signed` a difference of values."""
    sign = "+" if signed else ""
    if spec.kind == "ratio":  # a difference of shares is in percentage points
        return f"{100 * value:{sign}.1f} {'pp' if signed else '%'}"
    if spec.high is None:
        return f"{value:{sign},.4g}"
    return f"{value:{sign}.3f}"
