"""An estimate over time in the band of its 95 % interval, and what stands beside it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from grafana_foundation_sdk.builders import timeseries
from grafana_foundation_sdk.models.dashboard import DynamicConfigValue
from ragmeter.core.score import BUILTIN_SCORER, REFERENCE_SCORER
from ragmeter.metrics.canary.specs import is_canary_scorer
from ragmeter.metrics.registry import metric_specs
from ragmeter.windows.intervals import ASSISTED_SUFFIX

from deploy.dashboards import thresholds
from deploy.dashboards.panels import fixed, lines, on_page
from deploy.dashboards.promql import of_service, whole
from deploy.dashboards.thresholds import Lines

__all__ = ["Estimate", "band", "latency_band", "metric_band", "scorers"]

COLOURS = {
    "builtin": "blue",
    "hhem": "purple",
    "hhem_fulltext": "dark-purple",
    "mini": "light-purple",
    "umbrela": "orange",
    "judge": "orange",
    "autonuggetizer": "orange",
    "annotation": "dark-orange",
    # of people, and of those who wrote down what is right
    "human": "dark-yellow",
    "people": "semi-dark-yellow",
    "reference": "yellow",
    # carried to all traces with the help of the cheap score
    f"hhem{ASSISTED_SUFFIX}": "green",
    f"hhem_fulltext{ASSISTED_SUFFIX}": "dark-green",
    f"mini{ASSISTED_SUFFIX}": "semi-dark-green",
    f"umbrela{ASSISTED_SUFFIX}": "green",
    f"judge{ASSISTED_SUFFIX}": "green",
    f"annotation{ASSISTED_SUFFIX}": "green",
    f"human{ASSISTED_SUFFIX}": "dark-green",
    f"people{ASSISTED_SUFFIX}": "light-green",
    "p50": "green",
    "p95": "blue",
    "p99": "purple",
}
"""By scorer or quantile: the same on every panel."""

WINDOW = 'window="$window"'
SCORER = 'scorer=~"$scorer"'
ENVELOPE = (
    "The band is the 95 % interval; with several agents of one service it holds the intervals of"
    " all, and each has a line of its own. A gap: too few samples, or a scrape that failed."
)


@dataclass(frozen=True, slots=True)
class Estimate:
    """Three series that belong together. `by` is the label that names the line, if one does."""

    value: str
    lower: str
    upper: str
    by: str = ""


def band(
    title: str,
    text: str,
    estimates: dict[str, Estimate],
    names: Iterable[str],
    *,
    unit: str,
    size: tuple[int, int],
    limits: Lines,
    alerts: Sequence[str] = (),
    top: float | None = None,
    decimals: int | None = None,
) -> timeseries.Panel:
    """Lines in bands. `estimates` are by their legend, `names` are what the legends can become."""
    queries = {}
    for legend, one in estimates.items():
        grouped = f"by ({one.by}) " if one.by else ""
        queries[legend] = one.value
        queries[f"{legend} upper"] = f"max {grouped}({one.upper})"
        queries[f"{legend} lower"] = f"min {grouped}({one.lower})"
    panel = lines(
        title, f"{text} {ENVELOPE}", queries, unit=unit, size=size, limits=limits, alerts=alerts,
        top=top, decimals=decimals, links=[on_page()],
    )  # fmt: skip
    edge = [
        DynamicConfigValue("custom.lineWidth", 0),
        DynamicConfigValue("custom.showPoints", "never"),
        DynamicConfigValue("custom.hideFrom", {"legend": True, "tooltip": False, "viz": False}),
    ]
    for name in names:
        colour = fixed(COLOURS[name])
        fill = [
            DynamicConfigValue("custom.fillBelowTo", f"{name} lower"),
            DynamicConfigValue("custom.fillOpacity", 20),
        ]
        panel.override_by_name(name, [colour, DynamicConfigValue("custom.lineWidth", 2)])
        panel.override_by_name(f"{name} upper", [colour, *edge, *fill])
        panel.override_by_name(f"{name} lower", [colour, *edge])
    return panel


def metric_band(
    name: str,
    title: str,
    text: str,
    *,
    size: tuple[int, int],
    chosen: bool = True,
) -> timeseries.Panel:
    """A quality metric by scorer. `chosen`: the variable says which scorers."""
    spec = metric_specs()[name]
    stem = f"rag_{name}"
    where = (WINDOW, *((SCORER,) if chosen else ()))

    def of(gauge: str) -> str:
        return whole(of_service(gauge, *where))

    found = Estimate(of(spec.gauge), of(f"{stem}_ci_lower"), of(f"{stem}_ci_upper"), "scorer")
    units = {"usd": "currencyUSD", "tokens": "short"}
    unit = "percentunit" if spec.kind == "ratio" else units.get(spec.unit, "none")
    return band(
        title, f"{text} Range: {spec.low:g} to {'any' if spec.high is None else f'{spec.high:g}'}.",
        {"{{scorer}}": found}, scorers(name), unit=unit, size=size,
        limits=thresholds.metric(name),
        top=spec.high if spec.high is not None and spec.good == "higher" else None,
    )  # fmt: skip


def latency_band(
    stage: str, title: str, text: str, *quantiles: float, size: tuple[int, int]
) -> timeseries.Panel:
    """Quantiles of a stage; the line of a rule is that of the quantile which it looks at."""
    found, limits = {}, Lines()
    for quantile in quantiles:
        where = (f'stage="{stage}"', f'quantile="{quantile:g}"', WINDOW)
        stem = "rag_latency_quantile"
        found[f"p{quantile * 100:g}"] = Estimate(
            whole(of_service(f"{stem}_seconds", *where)),
            whole(of_service(f"{stem}_ci_lower_seconds", *where)),
            whole(of_service(f"{stem}_ci_upper_seconds", *where)),
        )
        rules = thresholds.latency(stage, quantile)
        limits = rules if rules.lines else limits
    return band(title, text, found, list(found), unit="s", size=size, limits=limits)


def scorers(name: str) -> list[str]:
    """Under which names a metric can come: a slow scorer also with the help of the cheap one. What
    judges say of canaries has a line in no colour of its own."""
    own = [
        one
        for one in metric_specs()[name].scorers
        if one == REFERENCE_SCORER or not is_canary_scorer(one)
    ]
    helped = [
        f"{one}{ASSISTED_SUFFIX}" for one in own if one != BUILTIN_SCORER and BUILTIN_SCORER in own
    ]
    return [*own, *helped]
