"""The commands `ragmeter kafka ...`: for the operator, apart from the workers.

Exit 0 done, 1 failed, 2 a mistake in the call or the configuration, 3 topics differ from the
settings.
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated

import typer

from agent.kafka.operator.command import Config, Shown, connected, moment, one_line
from agent.kafka.operator.dlq_cli import dlq_app
from agent.replay.cli import Call, File, Rate, Shift, Start, Suffix, to_kafka
from agent.terminal import say

__all__ = ["kafka_app"]

kafka_app = typer.Typer(help="Topics, lag, replay and dead letters on Kafka.", no_args_is_help=True)
kafka_app.add_typer(dlq_app, name="dlq")

DIFFERENT = 3


@kafka_app.command("init")
def init(
    config: Config = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Also change what differs, where that does no harm.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what is missing or differs.")
    ] = False,
) -> None:
    """Create the topics that are missing, Faust's own too; say what differs and what it costs.

    Exit 3 where something differs from the settings (or, with --dry-run, is missing).
    """
    from agent.kafka.operator.provisioning import provision

    with connected(config) as settings:
        done = provision(settings, apply=apply, dry_run=dry_run)
    for word, topics in (
        ("is as it should be", done.sound),
        ("was created", done.created),
        ("is missing", done.missing),
    ):
        for topic in topics:
            kept = topic.configs.get("cleanup.policy", "")
            say(f"{topic.name} ({topic.what}, {topic.partitions} partitions, {kept}) {word}")
    for row in done.applied:
        say(f"{row.topic}: {row.key} was {row.found} and is {row.wanted} now")
    for row in done.differ:
        hint = " (--apply does it)" if row.safe else ""
        say(f"{row}{hint}")
    if done.differ or done.missing:
        raise typer.Exit(DIFFERENT)


@kafka_app.command("lag")
def lag(
    config: Config = None,
    form: Annotated[Shown, typer.Option("--format", "-f", help="table or json.")] = Shown.TABLE,
) -> None:
    """Show how far the workers are behind in each partition of traces, spans, scores and feedback.

    `age`: seconds since the oldest record that waits was written. `lost`: records that the
    retention deleted before they were counted.
    """
    from agent.kafka.operator.lag import read_lag

    with connected(config) as settings:
        rows = read_lag(settings)
    if form is Shown.JSON:
        found = {
            "group": settings.kafka.group,
            "lag": sum(row.lag for row in rows),
            "partitions": [row.to_dict() for row in rows],
        }
        typer.echo(json.dumps(found, indent=2))
        return
    columns = ("topic", "partition", "end", "committed", "lag", "age_seconds", "lost")
    cells = [[name.removesuffix("_seconds") for name in columns]]
    for row in rows:
        values = row.to_dict()
        cells.append(["-" if values[name] is None else str(values[name]) for name in columns])
    widths = [max(len(line[column]) for line in cells) for column in range(len(columns))]
    for line in cells:
        padded = [line[0].ljust(widths[0])]
        padded += [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]
        typer.echo("  ".join(padded))
    typer.echo(f"{sum(row.lag for row in rows)} records wait for the group {settings.kafka.group}")


@kafka_app.command("replay")
def replay_file(
    file: File,
    rate: Rate = None,
    start: Start = 0,
    shift: Shift = None,
    id_suffix: Suffix = "",
    config: Config = None,
) -> None:
    """Send the traces of a file to the topic of the traces: `ragmeter replay FILE --to kafka`.

    They are keyed by trace id. A trace id that the workers have counted in the last
    `kafka.dedupe_hours` is not counted again.
    """
    to_kafka(Call(file, rate, start, shift, id_suffix), config)


class Tailed(StrEnum):
    TRACES = "traces"
    SCORES = "scores"
    FEEDBACK = "feedback"
    DEAD = "dead"


@kafka_app.command("tail")
def tail(
    topic: Annotated[Tailed, typer.Argument(help="Which topic.")] = Tailed.TRACES,
    last: Annotated[int, typer.Option("--last", "-n", min=0, help="Of each partition.")] = 10,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until Ctrl-C.")] = False,
    most: Annotated[int, typer.Option("--bytes", min=1, help="Of each body, at most.")] = 300,
    config: Config = None,
) -> None:
    """Show the newest records of a topic, a line each, with control characters escaped."""
    from agent.kafka.operator.tailing import escaped, newest

    with connected(config) as settings:
        name = getattr(settings.kafka.topics, topic.value)
        for record in newest(settings.kafka, name, last, follow=follow):
            where = f"{record.partition}/{record.offset}  {moment(record.timestamp / 1000)}"
            headers = " ".join(f"{k}={escaped(v, 60)}" for k, v in record.headers)
            parts = [where, escaped(record.key, 80), headers, escaped(record.value, most)]
            typer.echo(one_line("  ".join(part for part in parts if part)))
