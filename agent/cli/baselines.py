"""The commands `ragmeter baseline`: show and promote drift baselines."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from ragmeter.config.loader import ConfigError, load_settings
from ragmeter.console.terminal import escape_control, exit_error

baseline_app = typer.Typer(
    help="What drift is measured against in a running agent.", no_args_is_help=True
)

REQUEST_HEADERS = {"Content-Type": "application/json"}
TIMEOUT_SECONDS = 70.0  # longer than the agent waits for its own disk

UrlOption = Annotated[
    str | None, typer.Option("--url", help="The agent's metrics port; none: as the settings say.")
]
ConfigFileOption = Annotated[
    Path | None, typer.Option("--config", "-c", help="YAML file with the agent's settings.")
]
ServiceOption = Annotated[str | None, typer.Option("--service", help="This service only.")]


def _query_baselines(
    method: str, url: str | None, config: Path | None, path: str, key: str, body: Any = None
) -> Any:
    """What the agent answers under `key`."""
    # late: the other commands need no client
    import httpx

    from ragmeter.server.client import agent_client, agent_url

    try:
        http = load_settings(config).http
        base = (url or agent_url(http)).rstrip("/")
        client = agent_client(http, base, TIMEOUT_SECONDS)
    except ConfigError as error:
        raise exit_error(f"configuration: {error}", 2) from None
    where = f"{base}{path}"
    nobody = f"{where}: no answer of an agent"
    try:
        with client:
            # ASCII: a name on the command line may hold bytes that are no text
            content = None if body is None else json.dumps(body)
            reply = client.request(method, where, content=content, headers=REQUEST_HEADERS)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise exit_error(f"{where}: {error}") from None
    try:
        found = reply.json()
    except (ValueError, RecursionError):
        raise exit_error(f"{nobody} (status {reply.status_code})") from None
    if reply.status_code != 200 or not isinstance(found, dict):
        what = found.get("error") if isinstance(found, dict) else None
        raise exit_error(f"{where}: {what or f'status {reply.status_code}'}")
    if key not in found:
        raise exit_error(nobody)
    return found[key]


@baseline_app.command("promote")
def promote(
    service: ServiceOption = None, url: UrlOption = None, config: ConfigFileOption = None
) -> None:
    """Take what is normal now as the new baseline, after a deploy or an alarm that is accepted."""
    body = {} if service is None else {"service": service}
    done = _query_baselines("POST", url, config, "/v1/baselines/promote", "services", body)
    for name, found in done.items():
        learning = found["learning"]
        typer.echo(
            escape_control(
                f"{name}: version {found['version']} holds for {found['promoted']} series"
                + (f"; {learning} are silent until six hours are known" if learning else "")
            )
        )
    if not done:
        typer.echo("no service is watched yet")


@baseline_app.command("show")
def show(
    service: ServiceOption = None,
    url: UrlOption = None,
    config: ConfigFileOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Every series, as JSON.")] = False,
) -> None:
    """Print the version of each service's baseline, what it was learned over, and since when."""
    rows = _query_baselines("GET", url, config, "/v1/baselines", "baselines")
    rows = [row for row in rows if service in (None, row["service"])]
    if as_json:
        typer.echo(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    for line in _baseline_lines(rows):
        typer.echo(escape_control(line))
    if not rows:
        raise exit_error("no series is watched" + (f" of {service!r}" if service else ""))


def _baseline_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line for the series of a service that share a version and what it is."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        bare = row["since"] is None
        key = (row["service"], row["version"], bare, row["hours_of_day"], row["provisional"])
        groups.setdefault(key, []).append(row)
    lines = []
    for (service, version, bare, by_hour, provisional), group in sorted(groups.items()):
        count = f"{len(group)} series"
        if bare:
            lines.append(f"{service}: no baseline yet, {count} learning")
            continue
        first, last = (
            f(r[name] for r in group) for f, name in ((min, "learned_from"), (max, "learned_until"))
        )
        hours = max((r["learned_until"] - r["learned_from"]) / 3600 for r in group)
        notes = [count]
        notes += ["by the hour of the day"] if by_hour else []
        notes += ["provisional"] if provisional else []
        for state in ("alarmed", "learning"):
            number = sum(r["state"] == state for r in group)
            notes += [f"{number} {state}"] if number else []
        lines.append(
            f"{service}: version {version}, learned over {hours:.0f} h ({_format_time(first)} to"
            f" {_format_time(last)}), since {_format_time(max(r['since'] for r in group))}; {', '.join(notes)}"
        )
    return lines


def _format_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")
