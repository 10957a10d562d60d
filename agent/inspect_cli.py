"""`ragmeter inspect`: recorded requests, or what a running ragmeter reads."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import ValidationError
from rich.console import Console

from agent.config import ConfigError, load
from agent.terminal import failed, plain, say, talk
from agent.trace import Trace

if TYPE_CHECKING:
    import httpx

__all__ = ["inspect"]

SILENT_SECONDS = 30.0  # a running agent says something every ten


class Form(StrEnum):
    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"


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
        Form,
        typer.Option(
            "--format",
            "-f",
            help="table; json: with the spans that gave each field; jsonl: the native traces.",
        ),
    ] = Form.TABLE,
    count: Annotated[
        int | None, typer.Option("--count", min=1, help="With --live: end after so many requests.")
    ] = None,
    url: Annotated[
        str | None, typer.Option("--url", help="With --live: base URL of the metrics port.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="YAML file with settings.")
    ] = None,
) -> None:
    """Show how OTLP spans are read: which span gave which field, and why one is missing.

    Nothing is scored or kept. The exit status is 1 where no request was found.
    """
    # late: the other commands need neither protobuf nor a client
    from agent.inspecting import inspect_files, lines, show, to_dict
    from agent.listener.client import agent_client, agent_url

    if live == bool(files):
        raise failed("give either files or --live", 2)
    try:
        settings = load(config)
    except ConfigError as error:
        raise failed(f"configuration: {error}", 2) from None
    out = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
    if live:
        base = (url or agent_url(settings.http)).rstrip("/")
        try:
            client = agent_client(settings.http, base, SILENT_SECONDS)
        except ConfigError as error:
            raise failed(f"configuration: {error}", 2) from None
        _watch(client, base, form, count, out)
        return
    try:
        found = inspect_files(files or [], settings.otlp)
    except OSError as error:
        raise failed(str(error), 1) from None
    if form is Form.JSON:
        typer.echo(json.dumps(to_dict(found), indent=2, ensure_ascii=False))
    elif form is Form.JSONL:
        for line in lines(found):
            typer.echo(line)
    else:
        show(found, out)
    if not found.traces:
        raise typer.Exit(1)


def _watch(client: httpx.Client, base: str, form: Form, count: int | None, out: Console) -> None:
    import httpx

    shown = 0
    try:
        with client, client.stream("GET", f"{base}/v1/inspect") as reply:
            if reply.status_code != 200:
                raise failed(f"{base}: {reply.status_code} {reply.reason_phrase}", 1)
            talk.print(plain(f"watching {base}; send traffic"), markup=False)
            for line in reply.iter_lines():
                if line.strip() and _show(line, form, out):
                    shown += 1
                if shown == count:
                    return
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise failed(f"{base}: {error or type(error).__name__}; is `ragmeter run` up?", 1) from None
    raise failed(f"{base}: the agent has ended", 1)


def _show(line: str, form: Form, out: Console) -> bool:
    """Whether the line was a request."""
    from agent.ingest.requests import Origin
    from agent.inspecting import show_request

    try:
        item = json.loads(line)
        if "trace" not in item:
            for name, value in item.items():
                say(f"{name.replace('_', ' ')}: {value}")
            return False
        trace = Trace.model_validate(item["trace"])
        origins = {name: [Origin(**one) for one in spans] for name, spans in item["from"].items()}
    except (ValueError, TypeError, AttributeError, KeyError, ValidationError):
        say("a line of the agent that this version cannot read")
        return False
    if form is Form.TABLE:
        show_request(trace, origins, out)
    elif form is Form.JSON:
        typer.echo(line)
    else:
        typer.echo(trace.model_dump_json(exclude_none=True))
    return True
