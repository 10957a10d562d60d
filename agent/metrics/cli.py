"""The commands `ragmeter metrics ...`: what can be measured, by name."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from agent.terminal import failed, plain

if TYPE_CHECKING:
    from agent.alerts import Rule
    from agent.metrics.spec import MetricSpec

__all__ = ["metrics_app"]

WIDTH = 160  # columns where stdout is no terminal

metrics_app = typer.Typer(help="What can be measured: every metric by name.", no_args_is_help=True)

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, with all that is known.")]
ProfileOption = Annotated[
    str, typer.Option("--profile", help="Alert profile that the default rules are shown in.")
]


@metrics_app.command("list")
def metrics_list(
    tier: Annotated[
        str | None, typer.Option("--tier", help="Only cheap, judge or feedback.")
    ] = None,
    scorer: Annotated[
        str | None, typer.Option("--scorer", help="Only what this scorer measures.")
    ] = None,
    profile: ProfileOption = "balanced",
    as_json: JsonOption = False,
) -> None:
    """Print every metric: tier, scorers, range, what it needs, and the rule that holds by default.
    Yours are among them (docs/own-metrics.md)."""
    from agent.metrics import METRICS
    from agent.rules import in_words

    specs = list(METRICS.values())
    _known("tier", tier, {spec.tier for spec in specs})
    _known("scorer", scorer, {name for spec in specs for name in spec.scorers})
    found = [
        spec
        for spec in specs
        if tier in (None, spec.tier) and (scorer is None or scorer in spec.scorers)
    ]
    rules = _rules(profile)
    if as_json:
        typer.echo(json.dumps([_entry(spec, rules) for spec in found], indent=2))
        return
    table = Table(box=box.SIMPLE_HEAD)
    for name in ("metric", "tier", "scorers", "range", "better", "needs", "default rule"):
        table.add_column(name, overflow="fold", no_wrap=name == "metric")
    for spec in found:
        cells = (
            spec.name, spec.tier, ", ".join(spec.scorers), spec.range, spec.good or "neither",
            spec.needs, "\n".join(map(in_words, rules.get(spec.name, ()))),
        )  # fmt: skip
        table.add_row(*(Text(plain(cell)) for cell in cells))
    Console(width=None if sys.stdout.isatty() else WIDTH, highlight=False).print(table)


@metrics_app.command("show")
def metrics_show(
    name: Annotated[str, typer.Argument(help="Its name, as `ragmeter metrics list` has it.")],
    profile: ProfileOption = "balanced",
    as_json: JsonOption = False,
) -> None:
    """Print one metric: what it means, its formula and where that is from."""
    from agent.metrics import METRICS
    from agent.metrics.names import spec_of
    from agent.rules import in_words

    spec = spec_of(METRICS, name)
    if spec is None:
        raise failed(f"metric {name!r} is not known; `ragmeter metrics list` has them all", 2)
    rules = _rules(profile)
    if as_json:
        typer.echo(json.dumps(_entry(spec, rules), indent=2))
        return
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
        "default rule": "; ".join(map(in_words, rules.get(spec.name, ()))) or "none",
    }
    for key, text in lines.items():
        if text:
            typer.echo(f"{key + ':':<14}{plain(text)}")


def _rules(profile: str) -> dict[str, list[Rule]]:
    """The default rules by metric."""
    from agent.alerts import RuleError
    from agent.metrics.names import base
    from agent.rules import default_rules

    found: dict[str, list[Rule]] = {}
    try:
        for rule in default_rules(profile):
            if rule.metric is not None:
                found.setdefault(base(rule.metric), []).append(rule)
    except RuleError as error:
        raise failed(str(error), 2) from None
    return found


def _entry(spec: MetricSpec, rules: dict[str, list[Rule]]) -> dict[str, Any]:
    told = [rule.model_dump(mode="json", by_alias=True, exclude_defaults=True)
            for rule in rules.get(spec.name, ())]  # fmt: skip
    return {**asdict(spec), "gauge": spec.gauge, "default_rules": told}


def _known(what: str, name: str | None, names: set[str]) -> None:
    if name is not None and name not in names:
        raise failed(f"{what} {name!r} is not known; allowed: {', '.join(sorted(names))}", 2)
