"""The command `ragmeter inspect`: show how OTLP spans are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from pydantic import ValidationError
from rich.console import Console

from ragmeter.cli import options
from ragmeter.console.streams import escape_json, exit_error, print_message
from ragmeter.trace import Trace

# How requests are printed.
InspectFormat = Literal["table", "json", "jsonl"]


def inspect(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Recorded OTLP requests: protobuf, JSON, or JSON lines, gzip too; a folder of"
            " them; - is stdin."
        ),
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Show what a running ragmeter reads, until Ctrl-C.")
    ] = False,
    form: Annotated[
        InspectFormat,
        typer.Option(
            "--format",
            "-f",
            help="table; json: with the spans that gave each field; jsonl: the native traces.",
        ),
    ] = "table",
    url: Annotated[
        str | None, typer.Option(help="With --live: base URL of the metrics port.")
    ] = None,
    config: options.ConfigOption = None,
) -> None:
    """Show how OTLP spans are read: which span gave which field, and why one is missing.

    Nothing is scored or stored. The exit status is 1 if no request was found.
    """
    # late: the other commands need neither protobuf nor a client
    from ragmeter.metrics.costs import list_prices
    from ragmeter.offline.inspection import (
        format_trace_lines,
        inspect_files,
        inspection_to_dict,
        print_inspection,
    )

    if live == bool(files):
        raise exit_error("give either files or --live", 2)
    settings = options.load_or_exit(config)
    out = options.stdout_console(120)
    if live:
        for item in options.stream_agent(settings, url, "/v1/inspect"):
            _show_item(item, form, out)
    with options.exit_on_error():
        inspection = inspect_files(files or [], settings.otlp)
    if form == "json":
        document = json.dumps(inspection_to_dict(inspection), indent=2, ensure_ascii=False)
        typer.echo(escape_json(document))
    elif form == "jsonl":
        for line in format_trace_lines(inspection):
            typer.echo(escape_json(line))
    else:
        prices = list_prices().with_own(settings.costs.as_rows())
        print_inspection(inspection, out, prices=prices)
    if not inspection.traces:
        raise typer.Exit(1)


def _show_item(item: dict[str, Any], form: InspectFormat, out: Console) -> None:
    """Show what an agent sent."""
    from ragmeter.ingest.requests.extraction import FieldOrigin, NotRequest
    from ragmeter.offline.inspection import describe_not_request, print_request

    try:
        if "nearest" in item:
            span = FieldOrigin(**item["nearest"])
            print_message(describe_not_request(NotRequest(**{**item, "nearest": span})))
            return
        if "trace" not in item:
            for name, value in item.items():
                print_message(f"{name.replace('_', ' ')}: {value}")
            return
        trace = Trace.model_validate(item["trace"])
        origins = {
            name: [FieldOrigin(**span) for span in spans] for name, spans in item["from"].items()
        }
    except (ValueError, TypeError, AttributeError, KeyError, ValidationError):
        print_message(options.UNREADABLE_LINE)
        return
    if form == "table":
        print_request(trace, origins, dict(item["grades"]), out)
    elif form == "json":
        typer.echo(escape_json(json.dumps(item, ensure_ascii=False)))
    else:
        typer.echo(escape_json(trace.model_dump_json(exclude_none=True)))
