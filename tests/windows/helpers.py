"""Metrics and traces for the tests of the windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ragmeter.core.metric_specs import MetricKind, MetricSpec
from ragmeter.core.score import Score, ScoredTrace, ScoreState
from ragmeter.windows.state import BucketRow
from ragmeter.windows.windows import Windows


def spec(
    name: str, kind: MetricKind, high: float | None = 1.0, good: str | None = "higher"
) -> MetricSpec:
    return MetricSpec(name, kind, "cheap", ("builtin",), "", "", "", 0.0, high, good)  # type: ignore[arg-type]


SPECS = {
    "answered": spec("answered", "ratio"),
    "error": spec("error", "ratio", good="lower"),
    "grounding": spec("grounding", "mean"),
    "relevance": spec("relevance", "mean", 3.0),
    "tokens": spec("tokens", "mean", None, None),
}

BASE = 1_700_000_400.0
"""A multiple of 600 s: the start of a bucket in every ring."""


def windows(**options: object) -> Windows:
    return Windows(specs=SPECS, **options)  # type: ignore[arg-type]


def score(
    metric: str,
    value: float | None = None,
    probability: float = 1.0,
    state: ScoreState = ScoreState.SCORED,
) -> Score:
    return Score(metric, "builtin", state, value, None, probability)


def trace(
    number: int,
    at: float,
    values: Mapping[str, float] | Sequence[Score] = (),
    probability: float = 1.0,
    timings: Mapping[str, float] | None = None,
) -> ScoredTrace:
    """A trace `at` seconds after BASE; `values` by metric, all with `probability`."""
    results = (
        [score(metric, value, probability) for metric, value in values.items()]
        if isinstance(values, Mapping)
        else list(values)
    )
    return ScoredTrace(
        f"trace-{number}", "bot", BASE + at, "ok", results, timings=dict(timings or {})
    )


def read_all(w: Windows) -> dict[str, object]:
    """Everything that can be read, for comparison."""
    out: dict[str, object] = {"now": w.now}
    for service in w.services():
        for segment in ("", *w.segments(service)):
            for name in w.names:
                at = f"{service}/{segment}/{name}"
                out[f"{at} seen"] = w.count_traces(service, segment, name)
                for stage in w.stages(service, segment):
                    out[f"{at} {stage}"] = w.quantiles(service, segment, stage, name)
                for key in w.series(service, segment):
                    out[f"{at} {key}"] = (
                        w.estimate(service, segment, *key, name),
                        w.states(service, segment, *key, name),
                        w.history(service, segment, *key, name),
                        w.worst(service, *key, name),
                    )
    return out


class Store:
    """What a state store does with drained rows."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str, int, int], bytes] = {}

    def write(self, rows: Sequence[BucketRow]) -> None:
        for service, segment, width, start, data in rows:
            if data is None:
                del self.rows[service, segment, width, start]
            else:
                self.rows[service, segment, width, start] = data

    def read(self) -> list[BucketRow]:
        return [(*key, data) for key, data in self.rows.items()]
