"""The table of now: each metric with its interval, its samples and what is missing."""

from __future__ import annotations

from collections.abc import Sequence

from grafana_foundation_sdk.builders import table
from ragmeter.metrics.registry import metric_specs

from deploy.dashboards.panels import Column, columns, on_page
from deploy.dashboards.promql import hold_last_value, of_service, whole

__all__ = ["now"]

KEYS = ("service", "metric", "scorer", "fingerprint", "k", "instance")


def now(title: str, text: str, metrics: Sequence[str], *, size: tuple[int, int]) -> table.Panel:
    """A row for each service, metric and scorer."""
    gauges = "|".join(metric_specs()[name].gauge for name in metrics)
    stems = "|".join(metrics)

    def of(names: str, end: str, segmented: bool = True) -> str:
        series = of_service("", f'__name__=~"{names}"', 'window="$window"', 'scorer=~"$scorer"')
        series = whole(hold_last_value(series)) if segmented else hold_last_value(series)
        name = f'label_replace({series}, "metric", "$1", "__name__", "rag_(.+)_{end}")'
        return f"max by ({', '.join(KEYS)}) ({name})"

    shown = [
        Column("Service", label="service", links=(on_page(CELL),)),
        Column("Metric", label="metric"),
        Column("Scorer", label="scorer"),
        Column("k", label="k"),
        Column("Estimate", of(gauges, "(?:mean|ratio)"), decimals=3),
        Column("95 % from", of(f"rag_({stems})_ci_lower", "ci_lower"), decimals=3),
        Column("to", of(f"rag_({stems})_ci_upper", "ci_upper"), decimals=3),
        Column("Samples", of(f"rag_({stems})_effective_samples", "effective_samples"), decimals=0),
        Column(
            "Without a value",
            of(f"rag_({stems})_unscored_ratio", "unscored_ratio", segmented=False),
            "percentunit",
            1,
        ),
        Column("Fingerprint", label="fingerprint"),
        Column("Instance", label="instance"),
    ]
    return columns(title, text, shown, size=size, sort="Service")


CELL = '${__data.fields["Service"]:percentencode}'
