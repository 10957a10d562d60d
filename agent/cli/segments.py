"""The command `ragmeter segments`: show which segment moves a mean."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from ragmeter.breakdown.breakdown import DEFAULT_FDR, BreakdownOptions, ComparedWith, NoPastError
from ragmeter.config.loader import ConfigError, load_settings
from ragmeter.config.settings import Settings
from ragmeter.console.terminal import exit_error, print_message

TIMEOUT_SECONDS = 60.0  # of a hundred segments of all metrics it is a second


def segments(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            help="What `ragmeter score` wrote instead of a running agent: one file, each segment"
            " against the rest; or two, the second against the first."
        ),
    ] = None,
    service: Annotated[str | None, typer.Option("--service", help="This service only.")] = None,
    metric: Annotated[
        str | None,
        typer.Option("--metric", help="This metric only; none: all that have a better side."),
    ] = None,
    window: Annotated[
        str | None, typer.Option("--window", help="A window of the agent; none: 1h.")
    ] = None,
    against: Annotated[
        ComparedWith | None,
        typer.Option(
            "--against",
            help="before: its own past, and how the rest has moved since; rest: the rest as it is"
            " now. None: before, where there is a past.",
        ),
    ] = None,
    fdr: Annotated[
        float,
        typer.Option(
            "--fdr", help="Expected share of false ones among the findings.", min=0, max=1
        ),
    ] = DEFAULT_FDR,
    tag: Annotated[
        list[str] | None,
        typer.Option("--tag", help="With files: a tag to divide by instead of the settings' own."),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Every metric and segment, not the findings alone.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Everything, as JSON.")] = False,
    url: Annotated[
        str | None,
        typer.Option("--url", help="The agent's metrics port; none: as the settings say."),
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="YAML file with settings.")
    ] = None,
) -> None:
    """Show which segment moves a mean: estimates by segment, what each adds, and what is no chance.

    All comparisons of a service share one budget of false discoveries. The exit status is 1 where
    there is no segment to compare.
    """
    if files and (url or window):
        raise exit_error("--url and --window are of a running agent; files were given", 2)
    if tag and not files:
        raise exit_error("--tag goes with files; a running agent has its setting `segments`", 2)
    if files and len(files) > 2:
        raise exit_error("one file, or two: before and now", 2)
    if not 0 < fdr < 1:
        raise exit_error("--fdr: a number between 0 and 1 is needed", 2)
    try:
        settings = load_settings(config, overrides={"segments": tag} if tag else None)
    except ConfigError as error:
        raise exit_error(f"configuration: {error}", 2) from None
    if files:
        found = _segments_of_files(files, settings, service, BreakdownOptions(metric, against, fdr))
    else:
        query = {"service": service, "metric": metric, "window": window, "against": against}
        found = _query_segments(
            settings, url, {k: v for k, v in query.items() if v is not None}, fdr
        )
    if as_json:
        typer.echo(json.dumps(found, indent=2, ensure_ascii=False))
    else:
        _print_segments(found, every or metric is not None)
    if not found["segments"]:
        how = "give --tag model, or" if files else "set"
        raise exit_error(f"there are no segments; {how} `segments: [model]` in the settings")
    if not found["services"]:
        raise exit_error(
            f"nothing is known of {service!r}" if service else "no trace is in any window"
        )


def _segments_of_files(
    files: list[Path], settings: Settings, service: str | None, options: BreakdownOptions
) -> dict[str, Any]:
    from ragmeter.core.metric_specs import find_spec
    from ragmeter.metrics.registry import metric_specs
    from ragmeter.offline.file_breakdown import break_down_files

    if options.metric is not None and find_spec(metric_specs(), options.metric) is None:
        raise exit_error(f"metric {options.metric!r} is not known", 2)
    try:
        found = break_down_files(files, settings, service, options, print_message)
    except NoPastError as error:
        raise exit_error(str(error), 2) from None
    except OSError as error:
        raise exit_error(str(error)) from None
    if found is None:
        raise exit_error("no scored trace could be read")
    return found


def _query_segments(
    settings: Settings, url: str | None, query: dict[str, str], fdr: float
) -> dict[str, Any]:
    """What the agent answers."""
    # late: no other command needs a client
    import httpx

    from ragmeter.server.client import agent_client, agent_url

    http = settings.http
    base = (url or agent_url(http)).rstrip("/")
    where = f"{base}/api/segments.json"
    try:
        with agent_client(http, base, TIMEOUT_SECONDS) as client:
            reply = client.get(where, params={**query, "fdr": repr(fdr)})
    except ConfigError as error:
        raise exit_error(f"configuration: {error}", 2) from None
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise exit_error(
            f"{where}: {error or type(error).__name__}; is `ragmeter run` up?"
        ) from None
    try:
        found = reply.json()
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise exit_error(f"{where}: no answer of an agent (status {reply.status_code})")
    if reply.status_code != 200 or "services" not in found:
        raise exit_error(f"{where}: {found.get('error') or f'status {reply.status_code}'}")
    return found


def _print_segments(found: dict[str, Any], every: bool) -> None:
    from ragmeter.breakdown.terminal_table import build_segments_table, describe_breakdown

    out = Console(width=None if sys.stdout.isatty() else 140, highlight=False)
    for service in found["services"]:
        table = build_segments_table(service, found["window"], every)
        if table is None:
            out.print(describe_breakdown(service, found["window"]), markup=False)
        else:
            out.print(table)
