"""The table of now: each metric with its interval, its samples and what is missing."""

from __future__ import annotations

from collections.abc import Sequence

from grafana_foundation_sdk.builders import stat, table
from ragmeter.metrics.registry import metric_specs

from deploy.dashboards.panels import Column, columns, number, on_page
from deploy.dashboards.promql import hold_last_value, of_service, target, whole

__all__ = ["JUDGE", "instruments", "now"]

JUDGE = "No judge is configured (judge.base_url), or it has said nothing of this yet"

# What shows that an agent has it. A counter is there from the start, so it must have counted.
INSTRUMENTS = {
    "Judge": "ragmeter_judge_up",
    "Spans (OTLP)": "ragmeter_otlp_spans_total > 0",
    "Kafka": "ragmeter_kafka_lag_messages",
    "Feedback": "ragmeter_feedback_received_total > 0",
    "Canaries": "rag_canary_failed_effective_samples",
}

KEYS = ("service", "metric", "scorer", "fingerprint", "k", "instance")


def now(
    title: str, text: str, metrics: Sequence[str], *, size: tuple[int, int], services: bool
) -> table.Panel:
    """A row for each metric and scorer (and service, where there may be several)."""
    gauges = "|".join(metric_specs()[name].gauge for name in metrics)
    stems = "|".join(metrics)

    def of(names: str, end: str, segmented: bool = True) -> str:
        series = of_service("", f'__name__=~"{names}"', 'window="$window"', 'scorer=~"$scorer"')
        series = whole(hold_last_value(series)) if segmented else hold_last_value(series)
        name = f'label_replace({series}, "metric", "$1", "__name__", "rag_(.+)_{end}")'
        return f"max by ({', '.join(KEYS)}) ({name})"

    shown = [
        *([Column("Service", label="service", links=(on_page(CELL),))] if services else []),
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
    hidden = [] if services else ["service"]
    sort = "Service" if services else "Metric"
    return columns(title, text, shown, size=size, sort=sort, hidden=hidden)


def instruments(size: tuple[int, int] = (24, 3)) -> stat.Panel:
    """What the chosen agents have: panels that need what they lack are empty, rows folded."""

    def has(name: str, series: str) -> str:
        metric, _, condition = series.partition(" ")
        there = f"clamp_max(count({target(metric)} {condition}) or vector(0), 1)"
        return f'label_replace({there}, "instrument", "{name}", "", "")'

    return number(
        "What the chosen agents have",
        "Panels that need what is not there are empty and say so; their rows open folded, with"
        " the name of what they need.",
        " or ".join(has(name, series) for name, series in INSTRUMENTS.items()),
        size=size,
        legend="{{instrument}}",
        mapped={"0": ("not configured, or nothing yet", "text"), "1": ("yes", "green")},
    )


CELL = '${__data.fields["Service"]:percentencode}'
