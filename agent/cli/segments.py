"""The command `ragmeter segments`: show which segment moves a mean."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from ragmeter.breakdown.breakdown import DEFAULT_FDR, BreakdownOptions, ComparedWith
from ragmeter.cli.options import (
    AgentUrlOption,
    ConfigOption,
    JsonOption,
    ServiceOption,
    exit_on_error,
    load_or_exit,
    query_agent,
    stdout_console,
)
from ragmeter.config.settings import Settings
from ragmeter.console.terminal import exit_error, print_message

TIMEOUT_SECONDS = 60.0  # an agent with 100 segments answers within a second


def segments(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Files that `ragmeter score` wrote, in place of a running agent. One: each segment"
            " against the rest; two: the second against the first."
        ),
    ] = None,
    service: ServiceOption = None,
    metric: Annotated[
        str | None,
        typer.Option(help="This metric only; none: all with a better direction."),
    ] = None,
    window: Annotated[str | None, typer.Option(help="A window of the agent; none: 1h.")] = None,
    against: Annotated[
        ComparedWith | None,
        typer.Option(
            help="before: the segment's past, and how the rest has moved since; rest: the rest as"
            " it is now. None: before, if there is a past.",
        ),
    ] = None,
    fdr: Annotated[
        float,
        typer.Option(help="Expected share of false findings.", min=0, max=1),
    ] = DEFAULT_FDR,
    tag: Annotated[
        list[str] | None,
        typer.Option(help="With files: a tag to divide by, instead of those of the settings."),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Show every metric and segment, not only findings.")
    ] = False,
    as_json: JsonOption = False,
    url: AgentUrlOption = None,
    config: ConfigOption = None,
) -> None:
    """Show which segment moves a mean: estimates, shares and significance by segment.

    All comparisons of a service share one budget of false discoveries. The exit status is 1 if
    there is no segment to compare.
    """
    if files and (url or window):
        raise exit_error("--url and --window apply to a running agent, but files were given", 2)
    if tag and not files:
        raise exit_error("--tag needs files; a running agent has the setting `segments`", 2)
    if files and len(files) > 2:
        raise exit_error("give one file, or two: before and now", 2)
    if not 0 < fdr < 1:
        raise exit_error("--fdr: a number between 0 and 1 is needed", 2)
    settings = load_or_exit(config, {"segments": tag} if tag else None)
    if files:
        document = _segments_of_files(
            files, settings, service, BreakdownOptions(metric, against, fdr)
        )
    else:
        query = {"service": service, "metric": metric, "window": window, "against": against}
        document = query_agent(
            settings, url, "/api/segments.json", "services", seconds=TIMEOUT_SECONDS,
            params={k: v for k, v in query.items() if v is not None} | {"fdr": repr(fdr)},
        )  # fmt: skip
    if as_json:
        typer.echo(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        _print_segments(document, every or metric is not None)
    if not document["segments"]:
        how = "give --tag model, or" if files else "set"
        raise exit_error(f"there are no segments; {how} `segments: [model]` in the settings")
    if not document["services"]:
        raise exit_error(
            f"nothing is known of {service!r}" if service else "no trace is in any window"
        )


def _segments_of_files(
    files: list[Path], settings: Settings, service: str | None, options: BreakdownOptions
) -> dict[str, Any]:
    from ragmeter.core.metric_specs import find_spec
    from ragmeter.metrics.registry import metric_specs
    from ragmeter.offline.whole_file import break_down_files

    if options.metric is not None and find_spec(metric_specs(), options.metric) is None:
        raise exit_error(f"metric {options.metric!r} is not known", 2)
    with exit_on_error():
        document = break_down_files(files, settings, service, options, print_message)
    if document is None:
        raise exit_error("no scored trace could be read")
    return document


def _print_segments(document: dict[str, Any], every: bool) -> None:
    from ragmeter.breakdown.terminal_table import build_segments_table, describe_breakdown

    out = stdout_console(140)
    for service in document["services"]:
        table = build_segments_table(service, document["window"], every)
        if table is None:
            out.print(describe_breakdown(service, document["window"]), markup=False)
        else:
            out.print(table)
