"""The commands `ragmeter worker` and `ragmeter kafka`: run and operate a Kafka deployment.

Exit 0 done, 1 failed, 2 a mistake in the call or the configuration, 3 topics differ from the
settings.
"""

from __future__ import annotations

import asyncio
import json
from typing import Annotated

import typer

from ragmeter.app.settings import load_settings
from ragmeter.cli import options
from ragmeter.console.streams import exit_error, print_message

DIFFERENT_EXIT_CODE = 3
_LISTED = 50  # dead letters of a table: a terminal has some lines, and the newest matter most
_SHOWN_BYTES = 4096  # of the body of a dead letter: what is wrong with it is seen at its begin

kafka_app = typer.Typer(help="Topics, lag, replay and dead letters on Kafka.", no_args_is_help=True)
dlq_app = typer.Typer(
    help="The dead letters: what the workers could not read.", no_args_is_help=True
)
kafka_app.add_typer(dlq_app, name="dlq")

ReasonOption = Annotated[
    str | None, typer.Option("--reason", help="Only letters with this reason.")
]
FormatOption = Annotated[options.TableFormat, typer.Option("--format", "-f", help="table or json.")]


def worker(config: options.ConfigOption = None) -> None:
    """Run one worker of the cluster: traces from Kafka in, gauges, alerts and the page out.

    SIGTERM ends it (exit 0), SIGHUP reads sampling and redaction again. Exit 1: it could not go
    on, and a restart goes on where it stopped; 2: a mistake in the configuration.
    """
    try:
        import faust  # noqa: F401
        import uvloop
    except ModuleNotFoundError:
        raise exit_error(
            "this needs the extra: pip install '.[kafka]' in a clone of ragmeter", 2
        ) from None
    from ragmeter.alerts.rule_sets import load_configured_rules
    from ragmeter.app.kafka_worker import run_worker

    with options.exit_on_error():
        settings = load_settings(config)
        options.warn_unused_settings(settings, "worker")
        rules = load_configured_rules(settings)
        # a turn of uvloop, and a task, take half the time that asyncio's do
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            status = runner.run(
                run_worker(settings, rules, reread=lambda: load_settings(config), say=print_message)
            )
    if status:
        raise typer.Exit(status)


@dlq_app.command("list")
def dlq_list(reason: ReasonOption = None, config: options.ConfigOption = None) -> None:
    """List the newest 50 dead letters: offset, time (UTC), reason, place, bytes, if sent again."""
    from ragmeter.kafka.operator.dead_letters import read_letters

    with options.connected_settings(config) as settings:
        contents = read_letters(settings.kafka)
    letters = [one for one in contents.letters if reason in (None, one.reason)]
    sent = contents.sent
    for one in letters[-_LISTED:]:
        again = "  sent again" if one.offset in sent else ""
        attempt = f"  attempt {one.attempt}" if one.attempt > 1 else ""
        time = options.format_time(one.time)
        line = f"{one.offset}  {time}  {one.reason}  {one.source}  {one.bytes} B"
        typer.echo(options.escape_line(f"{line}{attempt}{again}  {one.error}"))
    unsent = sum(one.offset not in sent for one in letters)
    print_message(
        f"{len(letters)} dead letters, {unsent} not sent again; {contents.strangers} other records"
    )


@dlq_app.command("show")
def dlq_show(
    offset: Annotated[int, typer.Argument(min=0, help="Of the letter, as `dlq list` names it.")],
    config: options.ConfigOption = None,
) -> None:
    """Show one dead letter: headers, key and body as they came, with control characters escaped."""
    from ragmeter.kafka.operator.clients import escape_record
    from ragmeter.kafka.operator.dead_letters import read_letter

    with options.connected_settings(config) as settings:
        record = read_letter(settings.kafka, offset)
    typer.echo(f"written {options.format_time(record.timestamp / 1000)} UTC")
    for name, value in record.headers:
        typer.echo(f"{escape_record(name.encode(), 100)}: {escape_record(value, 1000)}")
    typer.echo(f"key: {escape_record(record.key, 1000)}")
    typer.echo(f"{len(record.value or b'')} bytes:")
    typer.echo(escape_record(record.value, _SHOWN_BYTES))


@dlq_app.command("redrive")
def dlq_redrive(
    reason: ReasonOption = None,
    config: options.ConfigOption = None,
) -> None:
    """Send dead letters to the topic of the traces or the feedback again, after a fix; each once.

    May be interrupted and run again.
    """
    from ragmeter.kafka.operator.dead_letters import redrive

    with options.connected_settings(config) as settings:
        result = redrive(settings, print_message, reason=reason)
    for name, count in sorted(result.reasons.items()):
        typer.echo(options.escape_line(f"{name}: {count}"))
    for why, count in sorted(result.left.items()):
        typer.echo(options.escape_line(f"not sent, {why}: {count}"))
    print_message(f"{result.sent} sent, {result.left.total()} cannot be")


@kafka_app.command("init")
def init(
    config: options.ConfigOption = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Also change what differs, where that does no harm.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what is missing or differs.")
    ] = False,
) -> None:
    """Create the topics that are missing; say what differs and what it costs.

    Exit 3 where something differs from the settings (or, with --dry-run, is missing).
    """
    from ragmeter.app.parts import PARTS
    from ragmeter.kafka.operator.administration import provision

    with options.connected_settings(config) as settings:
        result = provision(settings, PARTS, apply=apply, dry_run=dry_run)
    for outcome, topics in (
        ("is as it should be", result.sound),
        ("was created", result.created),
        ("is missing", result.missing),
    ):
        for topic in topics:
            policy = topic.configs.get("cleanup.policy", "")
            spec = f"{topic.what}, {topic.partitions} partitions, {policy}"
            print_message(f"{topic.name} ({spec}) {outcome}")
    for row in result.applied:
        print_message(f"{row.topic}: {row.key} was {row.actual} and is {row.wanted} now")
    for row in result.differ:
        hint = " (--apply does it)" if row.safe else ""
        print_message(f"{row}{hint}")
    if result.differ or result.missing:
        raise typer.Exit(DIFFERENT_EXIT_CODE)


@kafka_app.command("rebuild")
def rebuild(config: options.ConfigOption = None) -> None:
    """Count anew what the topic of the scores holds, after its state was lost.

    Deletes what is left of the state; all workers must be stopped.
    """
    from ragmeter.app.parts import PARTS
    from ragmeter.kafka.operator import administration

    with options.connected_settings(config) as settings:
        waiting = administration.rebuild(settings, PARTS)
    print_message(f"up to {waiting} messages of the scores will be counted anew; start the workers")


@kafka_app.command("lag")
def lag(
    config: options.ConfigOption = None,
    form: FormatOption = "table",
    every: Annotated[
        bool, typer.Option("--all", help="Show partitions in which nothing waits, too.")
    ] = False,
) -> None:
    """Show how far the workers are behind in partitions of traces, spans, scores and feedback.

    `age`: seconds since the oldest record that waits was written. `lost`: records that the
    retention deleted before they were counted.
    """
    from ragmeter.app.parts import PARTS
    from ragmeter.kafka.operator.administration import read_lag

    with options.connected_settings(config) as settings:
        rows = read_lag(settings, PARTS)
    if form == "json":
        document = {
            "group": settings.kafka.group,
            "lag": sum(row.lag for row in rows),
            "partitions": [row.to_dict() for row in rows],
        }
        typer.echo(json.dumps(document, indent=2))
        return
    columns = ("topic", "partition", "end", "committed", "lag", "age_seconds", "lost")
    cells = [[name.removesuffix("_seconds") for name in columns]]
    shown = [row for row in rows if every or row.lag or row.lost or row.beyond_end]
    for row in shown:
        values = row.to_dict()
        cells.append(["-" if values[name] is None else str(values[name]) for name in columns])
    widths = [max(len(line[column]) for line in cells) for column in range(len(columns))]
    for line in cells if shown else ():
        padded = [line[0].ljust(widths[0])]
        padded += [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]
        typer.echo("  ".join(padded))
    for row in rows:
        if row.beyond_end:
            typer.echo(
                f"{row.topic}/{row.partition}: offset {row.committed} is committed, which lies"
                " beyond the end of the topic: its end was lost, or it was made anew"
            )
    typer.echo(f"{sum(row.lag for row in rows)} records wait for the group {settings.kafka.group}")
