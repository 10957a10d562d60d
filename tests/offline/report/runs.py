"""Runs of a few scores, for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from ragmeter.config.inputs import PrivacySettings
from ragmeter.core.score import ScoredTrace
from ragmeter.ingest.redaction import Redactor
from ragmeter.offline.report.run import RunSeries, ScoredRun

from tests.scored import line_of, result

__all__ = ["run_of", "series_of"]


def run_of(
    values: Sequence[float | None] | Mapping[str, float | None],
    metric: str = "grounding",
    name: str = "a",
    probabilities: Sequence[float] = (),
    **more: Any,
) -> ScoredRun:
    """A run of one metric; values by id, or in order (then `t0`, `t1`, ...). None is unscored."""
    named = values if isinstance(values, Mapping) else {f"t{n}": v for n, v in enumerate(values)}
    run = ScoredRun(name, Redactor(PrivacySettings()))
    for number, (trace_id, value) in enumerate(named.items()):
        extra: dict[str, Any] = {"probability": probabilities[number]} if probabilities else {}
        if value is None:
            extra["reason"] = "judge_timeout"
        if extra or more:
            line = line_of(number, result(metric, value, **extra, **more), trace_id=trace_id)
            run.add(line.trace, trace_id)
        else:
            plain = _plain_trace(metric)
            results = [replace(plain.results[0], value=value)]
            at = plain.timestamp + number
            run.add(plain._replace(trace_id=trace_id, timestamp=at, results=results), trace_id)
    return run


@cache
def _plain_trace(metric: str) -> ScoredTrace:
    """A trace to be copied: a line is read in more time than most tests take for its trace."""
    return line_of(0, result(metric, 0.5)).trace


def series_of(run: ScoredRun, metric: str = "grounding") -> RunSeries:
    (found,) = [series for series in run.series(5) if series.metric == metric]
    return found
