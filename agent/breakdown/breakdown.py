"""The breakdown of one service: all its series by segment, and one budget of false discoveries."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from agent.breakdown.discoveries import FDR, q_values
from agent.breakdown.reading import Source
from agent.breakdown.rows import Row, Series, rows_of
from agent.breakdown.sample import Kind
from agent.metrics import METRICS
from agent.metrics.names import base, spec_of
from agent.metrics.spec import MetricSpec
from agent.presentation import GROUPS, rank
from agent.windows.stratified import is_assisted

__all__ = ["Against", "Breakdown", "NoPast", "Options", "breakdown_of"]

LEFT_OUT = frozenset(GROUPS["Judge"])
"""What is measured on the judge and not on the service."""


class Against(StrEnum):
    """What a segment is compared with: its own past, and how the rest has moved since; or the rest
    as it is now."""

    BEFORE = "before"
    REST = "rest"


class NoPast(ValueError):
    """The past was asked for and there is none."""


@dataclass(frozen=True, slots=True)
class Options:
    """`metric` None: all of the service that have a better side. `against` None: the past where
    there is one, else the rest. `fdr` is the budget of false discoveries."""

    metric: str | None = None
    against: Against | None = None
    fdr: float = FDR


@dataclass(slots=True)
class Breakdown:
    """`past` says in words what the past is, None where each segment is compared with the rest.
    `comparisons` share the budget `fdr`; `findings` of them are findings."""

    service: str
    past: str | None
    fdr: float
    series: list[Series] = field(default_factory=list)
    comparisons: int = 0
    findings: int = 0


def breakdown_of(source: Source, options: Options | None = None) -> Breakdown:
    """Raises `NoPast`."""
    options = options or Options()
    if options.against is Against.BEFORE and source.past is None:
        raise NoPast(f"of {source.service} nothing lies before that window")
    past = None if options.against is Against.REST else source.past
    tags: dict[str, list[str]] = {}
    for name in source.segments():
        tags.setdefault(name.partition("=")[0], []).append(name)
    found = Breakdown(source.service, past, options.fdr)
    for metric, scorer in sorted(source.series(), key=lambda pair: (rank(pair[0]), pair)):
        spec = spec_of(METRICS, metric)
        if spec is None or not _wanted(metric, spec, options.metric):
            continue
        kind = Kind(spec.kind == "ratio", spec.low, spec.high, is_assisted(scorer))
        now, before = source.periods(metric, scorer)
        name = source.named(metric, scorer)
        series = rows_of(metric, name, kind, tags, now, before if past else None)
        if series is not None:
            found.series.append(series)
    _spend(found)
    return found


def _wanted(metric: str, spec: MetricSpec, asked: str | None) -> bool:
    """A metric is asked for by its whole name or without its cut-off."""
    if asked is not None:
        return asked in (metric, base(metric))
    return spec.good is not None and spec.name not in LEFT_OUT


def _spend(found: Breakdown) -> None:
    """Every difference is a question, that of the whole service too: all share one budget."""
    rows = [row for series in found.series for row in series.rows]
    asked = [(row, one) for row in rows for one in (row.change, row.unlike) if one is not None]
    for (row, one), q in zip(asked, q_values([one.p for _, one in asked]), strict=True):
        _note(row, one is row.change, q, found.fdr)
        found.findings += q <= found.fdr
    found.comparisons = len(asked)
    for series in found.series:
        for tag in series.tags:
            tag.rows.sort(key=lambda row: (*row.order, row.segment))


def _note(row: Row, own: bool, q: float, fdr: float) -> None:
    if own:
        row.q_change, row.moved = q, q <= fdr
    else:
        row.q_unlike, row.stands_out = q, q <= fdr
