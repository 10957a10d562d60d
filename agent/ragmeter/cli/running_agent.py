"""The commands that ask a running agent: `watch` and `tail` show it live, `baseline` promotes."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from functools import cache
from typing import Any

import typer
from pydantic import TypeAdapter
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from ragmeter.cli import options
from ragmeter.cli.question_table import fleet_table, service_lines
from ragmeter.console.streams import escape_control, escape_json, exit_error, print_message
from ragmeter.core.label_bounds import bound_label
from ragmeter.core.metric_specs import display_rank
from ragmeter.parts.views import Answer, Incident

_TIMEOUT_SECONDS = 10.0
_LOOK_SECONDS = 2.0  # between two looks of `watch`
_MAX_ID = 60  # characters of a trace id


@cache
def _reader_of(kind: type) -> TypeAdapter[Any]:
    """Return what reads a list of a class; made where it is needed, as no other command has one."""
    return TypeAdapter(list[kind])  # type: ignore[valid-type]


def watch(
    service: options.ServiceOption = None,
    url: options.AgentUrlOption = None,
    config: options.ConfigOption = None,
) -> None:
    """Watch services, incidents and questions of a running agent or worker until Ctrl-C.

    One service is shown with its incidents and questions, of several each is a line, the one that
    is worst off first. Into a pipe or file one look is printed.
    """
    settings = options.load_or_exit(config)
    out = options.stdout_console(100)

    def look() -> Group:
        document = options.query_agent(
            settings, url, "/api/questions.json", "services", seconds=_TIMEOUT_SECONDS
        )
        try:
            return _render(document, service)
        except (ValueError, TypeError, AttributeError, KeyError):
            raise exit_error("the agent is of another version") from None

    if not sys.stdout.isatty():
        out.print(look())
        return
    with Live(look(), console=out, screen=True, auto_refresh=False) as live:
        while True:
            time.sleep(_LOOK_SECONDS)
            live.update(look(), refresh=True)


def _render(document: Mapping[str, Any], service: str | None) -> Group:
    answers = {
        name: _reader_of(Answer).validate_python(known["questions"])
        for name, known in document["services"].items()
    }
    if service is not None and service not in answers:
        raise exit_error(f"no trace of {service!r} is in any window")
    incidents = _reader_of(Incident).validate_python(document["incidents"])
    now = document["stream_time"]
    problems = "; ".join(document["problems"])
    head = "no request yet" if now is None else f"data up to {options.format_time(now)} UTC"
    shown: list[RenderableType] = [
        Text(f"{head}; {problems or 'ready'}", "red" if problems else "")
    ]
    names = sorted(answers) if service is None else [service]
    if len(names) > 1:
        shown.append(fleet_table(answers, incidents))
    for name in names if len(names) == 1 else ():
        seen = document["services"][name]["requests"]
        window = document["window"]
        shown += service_lines(
            name=name,
            requests=f"{seen:,} requests in the last {window}",
            answers=answers[name],
            incidents=[one for one in incidents if one.service == name],
            now=now,
            judge_usd=(document["judge"] or {}).get("usd_per_answer"),
        )
    return Group(*shown)


def tail(
    service: options.ServiceOption = None,
    as_json: options.JsonOption = False,
    url: options.AgentUrlOption = None,
    config: options.ConfigOption = None,
) -> None:
    """Print traces with their scores as a running agent commits them, until Ctrl-C.

    Scores of a judge or model come later, in a line of their own that begins with a plus sign.
    """
    settings = options.load_or_exit(config)
    for item in options.stream_agent(settings, url, "/v1/results"):
        try:
            if "missed" in item:
                print_message(f"missed: {item['missed']}")
            elif service in (None, item["service"]):
                line = json.dumps(item, ensure_ascii=False) if as_json else _describe(item)
                typer.echo(escape_json(line))
        except (ValueError, TypeError, AttributeError, KeyError):
            print_message(options.UNREADABLE_LINE)


def _describe(item: Mapping[str, Any]) -> str:
    """Format a trace as one line: what was scored, and why something could not be."""
    parts = [
        "+" if item["partial"] else " ",
        options.format_time(item["timestamp"])[11:],
        bound_label(item["service"], _MAX_ID),
        bound_label(item["trace_id"], _MAX_ID),
        item["status"],
    ]
    for one in sorted(item["results"], key=lambda one: display_rank(one["metric"])):
        if one["metric"] in ("error", "timeout"):
            continue  # the status says so
        if one["state"] == "scored":
            parts.append(f"{one['metric']}={one['value']:.3g}")
        elif one["state"] == "unscored":
            parts.append(f"{one['metric']}=unscored({one.get('reason', '')})")
    return "  ".join(parts)


baseline_app = typer.Typer(
    help="Show what a running agent takes as usual, and have it learned anew.",
    no_args_is_help=True,
)

_BASELINE_SECONDS = 70.0  # longer than the agent waits for its own disk


@baseline_app.command("promote")
def promote(
    service: options.ServiceOption = None,
    url: options.AgentUrlOption = None,
    config: options.ConfigOption = None,
) -> None:
    """Learn the usual from now on, after a deploy or a change that is accepted."""
    body = {} if service is None else {"service": service}
    settings = options.load_or_exit(config)
    document = options.query_agent(
        settings, url, "/v1/baselines/promote", "services", seconds=_BASELINE_SECONDS, post=body
    )
    for name in document["services"]:
        typer.echo(escape_control(f"{name}: its usual is learned from now on"))
    if not document["services"]:
        typer.echo("no service is watched yet")


@baseline_app.command("show")
def show(
    service: options.ServiceOption = None,
    url: options.AgentUrlOption = None,
    config: options.ConfigOption = None,
) -> None:
    """Print what is usual of each question of a service."""
    settings = options.load_or_exit(config)
    document = options.query_agent(
        settings, url, "/v1/baselines", "baselines", seconds=_BASELINE_SECONDS
    )
    rows = [row for row in document["baselines"] if service in (None, row["service"])]
    for row in rows:
        typer.echo(escape_control(f"{row['service']}: {row['question']} {_describe_usual(row)}"))
    if not rows:
        raise exit_error("nothing is watched yet" + (f" of {service!r}" if service else ""))


def _describe_usual(row: Mapping[str, Any]) -> str:
    away = "; it is away from its usual" if row["state"] == "away" else ""
    if row["usual"] is None:
        return f"has no usual yet{away}"
    return (
        f"is usually {row['usual']:.3g}, known from {row['requests']:,.0f} independent requests "
        f"of {row['days']:.1f} days{away}"
    )
