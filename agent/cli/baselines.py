"""The commands `ragmeter baseline`: show and promote drift baselines."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from ragmeter.cli.options import (
    AgentUrlOption,
    ConfigOption,
    ServiceOption,
    format_time,
    load_or_exit,
    query_agent,
)
from ragmeter.console.terminal import escape_control, exit_error

baseline_app = typer.Typer(
    help="Show and promote the baselines that a running agent measures drift against.",
    no_args_is_help=True,
)

TIMEOUT_SECONDS = 70.0  # longer than the agent waits for its own disk


@baseline_app.command("promote")
def promote(
    service: ServiceOption = None, url: AgentUrlOption = None, config: ConfigOption = None
) -> None:
    """Make the recent past the new baseline, after a deploy or an alarm that is accepted."""
    body = {} if service is None else {"service": service}
    settings = load_or_exit(config)
    document = query_agent(
        settings, url, "/v1/baselines/promote", "services", seconds=TIMEOUT_SECONDS, post=body
    )
    for name, promoted in document["services"].items():
        learning = promoted["learning"]
        typer.echo(
            escape_control(
                f"{name}: version {promoted['version']} holds for {promoted['promoted']} series"
                + (f"; {learning} are silent until six hours are known" if learning else "")
            )
        )
    if not document["services"]:
        typer.echo("no service is watched yet")


@baseline_app.command("show")
def show(
    service: ServiceOption = None,
    url: AgentUrlOption = None,
    config: ConfigOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Every series, as JSON.")] = False,
) -> None:
    """Print each service's baseline: its version, the time it was learned from, and its age."""
    settings = load_or_exit(config)
    document = query_agent(settings, url, "/v1/baselines", "baselines", seconds=TIMEOUT_SECONDS)
    rows = [row for row in document["baselines"] if service in (None, row["service"])]
    if as_json:
        typer.echo(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    for line in _baseline_lines(rows):
        typer.echo(escape_control(line))
    if not rows:
        raise exit_error("no series is watched" + (f" of {service!r}" if service else ""))


def _baseline_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Describe the series of each service that share a version and its properties."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        missing = row["since"] is None
        key = (row["service"], row["version"], missing, row["hours_of_day"], row["provisional"])
        groups.setdefault(key, []).append(row)
    lines = []
    for (service, version, missing, by_hour, provisional), group in sorted(groups.items()):
        count = f"{len(group)} series"
        if missing:
            lines.append(f"{service}: no baseline yet, {count} learning")
            continue
        first = format_time(min(r["learned_from"] for r in group), "minutes")
        last = format_time(max(r["learned_until"] for r in group), "minutes")
        since = format_time(max(r["since"] for r in group), "minutes")
        hours = max((r["learned_until"] - r["learned_from"]) / 3600 for r in group)
        notes = [count]
        notes += ["by the hour of the day"] if by_hour else []
        notes += ["provisional"] if provisional else []
        for state in ("alarmed", "learning"):
            number = sum(r["state"] == state for r in group)
            notes += [f"{number} {state}"] if number else []
        lines.append(
            f"{service}: version {version}, learned over {hours:.0f} h ({first} to {last}),"
            f" since {since}; {', '.join(notes)}"
        )
    return lines
