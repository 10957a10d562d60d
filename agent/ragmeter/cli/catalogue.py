"""The commands `ragmeter metrics`, `ragmeter rules` and `ragmeter schema`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from pydantic import BaseModel
from rich import box
from rich.table import Table
from rich.text import Text

from ragmeter.app.settings import load_settings
from ragmeter.cli import options
from ragmeter.console.streams import escape_control, exit_error
from ragmeter.core import feedback
from ragmeter.core.feedback import Feedback
from ragmeter.metrics.registry import metric_specs
from ragmeter.trace import SCHEMA, Trace

if TYPE_CHECKING:
    from ragmeter.alerts.rules import AlertRule

METRICS_WIDTH = 160  # columns where stdout is no terminal

metrics_app = typer.Typer(help="List and describe the metrics.", no_args_is_help=True)


@metrics_app.command("list")
def metrics_list() -> None:
    """Print every metric: its tier, scorers, range, needs, and default rule.

    Metrics of installed packages are included (docs/python.md).
    """
    from ragmeter.alerts.rule_sets import describe_rule

    specs = list(metric_specs().values())
    rules = _default_rules()
    table = Table(box=box.SIMPLE_HEAD)
    for name in ("metric", "tier", "scorers", "range", "better", "needs", "default rule"):
        table.add_column(name, overflow="fold", no_wrap=name == "metric")
    for spec in specs:
        cells = (
            spec.name,
            spec.tier,
            ", ".join(spec.scorers),
            spec.range,
            spec.good or "neither",
            spec.needs,
            "\n".join(map(describe_rule, rules.get(spec.name, ()))),
        )
        table.add_row(*(Text(escape_control(cell)) for cell in cells))
    options.stdout_console(METRICS_WIDTH).print(table)


@metrics_app.command("show")
def metrics_show(
    name: Annotated[str, typer.Argument(help="A name from `ragmeter metrics list`.")],
) -> None:
    """Print one metric: its meaning, its formula and the source of the formula."""
    from ragmeter.alerts.rule_sets import describe_rule
    from ragmeter.core.metric_specs import find_spec

    spec = find_spec(metric_specs(), name)
    if spec is None:
        raise exit_error(f"metric {name!r} is not known; `ragmeter metrics list` prints all", 2)
    rules = _default_rules()
    lines = {
        "metric": spec.name,
        "meaning": spec.meaning,
        "formula": spec.formula,
        "needs": spec.needs,
        "source": spec.source,
        "tier": spec.tier,
        "scorers": ", ".join(spec.scorers),
        "range": spec.range,
        "better": spec.good or "neither",
        "gauge": spec.gauge,
        "labels": ", ".join(spec.labels),
        "default rule": "; ".join(map(describe_rule, rules.get(spec.name, ()))) or "none",
    }
    for key, text in lines.items():
        if text:
            typer.echo(f"{key + ':':<14}{escape_control(text)}")


def _default_rules() -> dict[str, list[AlertRule]]:
    """Return the default rules by metric."""
    from ragmeter.alerts.rule_sets import load_default_rules
    from ragmeter.core.metric_specs import base_name

    by_metric: dict[str, list[AlertRule]] = {}
    with options.exit_on_error():
        for rule in load_default_rules():
            if rule.metric is not None:
                by_metric.setdefault(base_name(rule.metric), []).append(rule)
    return by_metric


rules_app = typer.Typer(help="The alert rules, for other programs.", no_args_is_help=True)


@rules_app.callback()
def _rules_callback() -> None:
    """Keep `prometheus` a subcommand although it is the only one."""


@rules_app.command("prometheus")
def prometheus(config: options.ConfigOption = None) -> None:
    """Print rules for Prometheus: burn rates of the objectives, and the health of the agent."""
    from ragmeter.app.exports import prometheus_rules

    with options.exit_on_error(2):
        text = prometheus_rules(load_settings(config))
    typer.echo(text, nl=False)


# The documents that have a JSON Schema.
SchemaKind = Literal["trace", "feedback"]

SCHEMAS: dict[SchemaKind, tuple[str, type[BaseModel]]] = {
    "trace": (SCHEMA, Trace),
    "feedback": (feedback.SCHEMA, Feedback),
}


def schema(of: Annotated[SchemaKind, typer.Argument(help="What to describe.")] = "trace") -> None:
    """Print the JSON Schema of a native trace or of feedback."""
    name, model = SCHEMAS[of]
    document = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": name,
        **model.model_json_schema(),
    }
    typer.echo(json.dumps(document, indent=2, ensure_ascii=False))
