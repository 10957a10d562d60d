"""A report: what each run measured, how the others differ from the first, the worst traces. Pure.

It is what the table, the JSON document, the page and the picture are made of.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from agent.metrics import METRICS
from agent.metrics.names import base, cutoff
from agent.metrics.spec import MetricSpec
from agent.presentation import rank
from agent.report.compare import Comparison, compared
from agent.report.run import Run, Series
from agent.windows import Quantile

__all__ = ["Column", "Report", "Text", "asked", "number", "report_of", "title"]

ANSWERED = "answered"


@dataclass(frozen=True, slots=True)
class Text:
    """What a trace said, cut short, for who reads about its score."""

    query: str = ""
    answer: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """One run as it is shown. `texts` are known by trace id; two runs may have other answers to
    the same one."""

    name: str
    traces: int
    services: Sequence[str]
    series: Sequence[Series]
    latency: Sequence[tuple[str, Sequence[Quantile]]]
    notes: Sequence[str] = ()
    texts: Mapping[str, Text] = field(default_factory=dict)

    def find(self, key: tuple[str, str]) -> list[Series]:
        """The series of a (metric, scorer): one for each version of the scorer."""
        return [s for s in self.series if (s.metric, s.scorer) == key]


@dataclass(frozen=True, slots=True)
class Report:
    """`keys` are the (metric, scorer) that any run has, in the order they are shown; `missing`
    those of which no run has a value."""

    columns: Sequence[Column]
    comparisons: Sequence[Comparison]
    keys: Sequence[tuple[str, str]]
    missing: Sequence[tuple[str, str]]
    paired_by: str
    seed: int

    @property
    def tests(self) -> int:
        """How many p were adjusted together."""
        return sum(item.p is not None for item in self.comparisons)

    def comparison(self, run: int, series: Series) -> Comparison | None:
        """Of run number `run` with the first, in the series of the first."""
        key = (run, series.metric, series.scorer, series.fingerprint)
        for item in self.comparisons:
            if (item.run, item.metric, item.scorer, item.fingerprint) == key:
                return item
        return None


def asked(metric: str, wanted: Collection[str]) -> bool:
    """Whether a metric is among those wanted (none: all), by its whole name or without cut-off."""
    return not wanted or metric in wanted or base(metric) in wanted


def report_of(
    runs: Sequence[Run],
    *,
    paired_by: str,
    seed: int = 0,
    worst: int = 5,
    metrics: Collection[str] = (),
    notes: Sequence[Sequence[str]] = (),
) -> Report:
    """`metrics` are the only ones shown and tested (none: all); `notes[i]` is what must be said of
    run i."""
    series = [[s for s in run.series(worst) if asked(s.metric, metrics)] for run in runs]
    columns = [
        Column(
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
    ordered = sorted(keys, key=lambda key: (rank(key[0]), key[0].partition(":")[0], _k(key), key))
    return Report(
        columns,
        compared(list(zip(runs, series, strict=True)), paired_by == "trace_id", seed),
        [key for key in ordered if key in known],
        [key for key in ordered if key not in known],
        paired_by,
        seed,
    )


def _k(key: tuple[str, str]) -> int:
    return int(cutoff(key[0]) or 0)


def title(metric: str) -> str:
    """`precision@5` for people."""
    name, k = base(metric), cutoff(metric)
    return name.removesuffix("_at_k") + f"@{k}" if k else name


def number(value: float, spec: MetricSpec, signed: bool = False) -> str:
    """A value of a metric, or a difference of two."""
    sign = "+" if signed else ""
    if spec.kind == "ratio":  # a difference of shares is in percentage points
        return f"{100 * value:{sign}.1f} {'pp' if signed else '%'}"
    if spec.high is None:
        return f"{value:{sign},.4g}"
    return f"{value:{sign}.3f}"


assert ANSWERED in METRICS  # its share heads every report
