"""The commands `ragmeter worker` and `ragmeter kafka`: run and operate a Kafka deployment.

The commands `ragmeter kafka ...`: for the operator, apart from the workers.

Exit 0 done, 1 failed, 2 a mistake in the call or the configuration, 3 topics differ from the
settings.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ragmeter.cli.options import (
    KafkaConfigOption,
    KafkaFormat,
    connected_settings,
    escape_line,
    format_time,
)
from ragmeter.cli.replay import (
    RateOption,
    ReplayCall,
    ReplayFile,
    ShiftOption,
    StartOption,
    SuffixOption,
    replay_to_kafka,
)
from ragmeter.config.loader import ConfigError, load_settings
from ragmeter.console.terminal import exit_error, print_message


def worker(
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="YAML file with settings.")
    ] = None,
) -> None:
    """Run one worker of the cluster: traces from Kafka in, gauges, alerts and the page out.

    SIGTERM ends it (exit 0), SIGHUP reads sampling and redaction again. Exit 1: it could not go
    on, and a restart goes on where it stopped; 2: a mistake in the configuration.
    """
    try:
        import faust  # noqa: F401
        import uvloop
    except ModuleNotFoundError:
        raise exit_error("this needs the extra: pip install 'ragmeter[kafka]'", 2) from None
    from ragmeter.alerts.rule_sets import load_configured_rules
    from ragmeter.alerts.rules import RuleError
    from ragmeter.app.kafka_worker import run_worker
    from ragmeter.kafka.connection import KafkaSecurityError
    from ragmeter.scorers.hhem.model import ModelError
    from ragmeter.server.listener import ListenError

    try:
        settings = load_settings(config)
        rules = load_configured_rules(settings)
        # a turn of its loop, and a task, take half the time that asyncio's do
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            status = runner.run(
                run_worker(settings, rules, reread=lambda: load_settings(config), say=print_message)
            )
    except RuleError as error:
        raise exit_error(str(error), 2) from None
    except (ConfigError, KafkaSecurityError) as error:
        raise exit_error(f"configuration: {error}", 2) from None
    except ModelError as error:
        raise exit_error(f"hhem.path: {error}", 1) from None
    except (ListenError, OSError) as error:
        raise exit_error(str(error), 1) from None
    if status:
        # a thread of Faust that hangs must not keep a failed worker from being restarted
        logging.shutdown()
        sys.stdout.flush()
        os._exit(status)


dlq_app = typer.Typer(
    help="The dead letters: what the workers could not read.", no_args_is_help=True
)
ReasonOption = Annotated[
    str | None, typer.Option("--reason", help="Only letters with this reason.")
]


@dlq_app.command("list")
def dlq_list(
    reason: ReasonOption = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="The newest so many.")] = 50,
    config: KafkaConfigOption = None,
    form: Annotated[
        KafkaFormat, typer.Option("--format", "-f", help="table or json.")
    ] = KafkaFormat.TABLE,
) -> None:
    """List dead letters: offset, time, reason, where they were read, bytes, whether sent again."""
    from ragmeter.kafka.operator.dead_letters import read_letters

    with connected_settings(config) as settings:
        found = read_letters(settings.kafka)
    letters = [one for one in found.letters if reason in (None, one.reason)]
    if form is KafkaFormat.JSON:
        rows = [asdict(one) | {"sent_again": one.offset in found.sent} for one in letters[-limit:]]
        typer.echo(json.dumps(rows, indent=2))
        return
    for one in letters[-limit:]:
        again = "  sent again" if one.offset in found.sent else ""
        attempt = f"  attempt {one.attempt}" if one.attempt > 1 else ""
        line = f"{one.offset}  {format_time(one.time)}  {one.reason}  {one.source}  {one.bytes} B"
        typer.echo(escape_line(f"{line}{attempt}{again}  {one.error}"))
    open_ones = sum(one.offset not in found.sent for one in letters)
    print_message(
        f"{len(letters)} dead letters, {open_ones} not sent again; {found.strangers} other records"
    )


@dlq_app.command("show")
def dlq_show(
    offset: Annotated[int, typer.Argument(min=0, help="Of the letter, as `dlq list` names it.")],
    most: Annotated[int, typer.Option("--bytes", min=1, help="Show at most so many.")] = 4096,
    config: KafkaConfigOption = None,
) -> None:
    """Show one dead letter: headers, key and body as they came, with control characters escaped."""
    from ragmeter.kafka.operator.clients import escape_record, read_record

    with connected_settings(config) as settings:
        record = read_record(settings.kafka, settings.kafka.topics.dead, offset)
    typer.echo(f"written {format_time(record.timestamp / 1000)}")
    for name, value in record.headers:
        typer.echo(f"{escape_record(name.encode(), 100)}: {escape_record(value, 1000)}")
    typer.echo(f"key: {escape_record(record.key, 1000)}")
    typer.echo(f"{len(record.value or b'')} bytes:")
    typer.echo(escape_record(record.value, most))


@dlq_app.command("redrive")
def dlq_redrive(
    reason: ReasonOption = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="The oldest so many.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be sent.")
    ] = False,
    config: KafkaConfigOption = None,
) -> None:
    """Send dead letters to the topic of the traces or the feedback again, after a fix; each once.

    May be interrupted and run again.
    """
    from ragmeter.kafka.operator.dead_letters import redrive

    with connected_settings(config) as settings:
        done = redrive(settings, print_message, reason=reason, limit=limit, dry_run=dry_run)
    for name, count in sorted(done.reasons.items()):
        typer.echo(escape_line(f"{name}: {count}"))
    for why, count in sorted(done.left.items()):
        typer.echo(escape_line(f"not sent, {why}: {count}"))
    left = f"{done.left.total()} cannot be"
    if dry_run:
        print_message(f"{done.reasons.total()} would be sent, {left}")
        return
    print_message(f"{done.sent} sent, {done.already} had been sent before an interruption, {left}")


kafka_app = typer.Typer(help="Topics, lag, replay and dead letters on Kafka.", no_args_is_help=True)
kafka_app.add_typer(dlq_app, name="dlq")

DIFFERENT_EXIT_CODE = 3


@kafka_app.command("init")
def init(
    config: KafkaConfigOption = None,
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
    from ragmeter.kafka.operator.administration import provision

    with connected_settings(config) as settings:
        done = provision(settings, apply=apply, dry_run=dry_run)
    for word, topics in (
        ("is as it should be", done.sound),
        ("was created", done.created),
        ("is missing", done.missing),
    ):
        for topic in topics:
            kept = topic.configs.get("cleanup.policy", "")
            print_message(
                f"{topic.name} ({topic.what}, {topic.partitions} partitions, {kept}) {word}"
            )
    for row in done.applied:
        print_message(f"{row.topic}: {row.key} was {row.found} and is {row.wanted} now")
    for row in done.differ:
        hint = " (--apply does it)" if row.safe else ""
        print_message(f"{row}{hint}")
    if done.differ or done.missing:
        raise typer.Exit(DIFFERENT_EXIT_CODE)


@kafka_app.command("lag")
def lag(
    config: KafkaConfigOption = None,
    form: Annotated[
        KafkaFormat, typer.Option("--format", "-f", help="table or json.")
    ] = KafkaFormat.TABLE,
) -> None:
    """Show how far the workers are behind in each partition of traces, spans, scores and feedback.

    `age`: seconds since the oldest record that waits was written. `lost`: records that the
    retention deleted before they were counted.
    """
    from ragmeter.kafka.operator.administration import read_lag

    with connected_settings(config) as settings:
        rows = read_lag(settings)
    if form is KafkaFormat.JSON:
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
    file: ReplayFile,
    rate: RateOption = None,
    start: StartOption = 0,
    shift: ShiftOption = None,
    id_suffix: SuffixOption = "",
    config: KafkaConfigOption = None,
) -> None:
    """Send the traces of a file to the topic of the traces: `ragmeter replay FILE --to kafka`.

    They are keyed by trace id. A trace id that the workers have counted in the last
    `kafka.dedupe_hours` is not counted again.
    """
    replay_to_kafka(ReplayCall(file, rate, start, shift, id_suffix), config)


class TailedTopic(StrEnum):
    TRACES = "traces"
    SCORES = "scores"
    FEEDBACK = "feedback"
    DEAD = "dead"


@kafka_app.command("tail")
def tail(
    topic: Annotated[TailedTopic, typer.Argument(help="Which topic.")] = TailedTopic.TRACES,
    last: Annotated[int, typer.Option("--last", "-n", min=0, help="Of each partition.")] = 10,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until Ctrl-C.")] = False,
    most: Annotated[int, typer.Option("--bytes", min=1, help="Of each body, at most.")] = 300,
    config: KafkaConfigOption = None,
) -> None:
    """Show the newest records of a topic, a line each, with control characters escaped."""
    from ragmeter.kafka.operator.clients import escape_record, read_newest

    with connected_settings(config) as settings:
        name = getattr(settings.kafka.topics, topic.value)
        for record in read_newest(settings.kafka, name, last, follow=follow):
            where = f"{record.partition}/{record.offset}  {format_time(record.timestamp / 1000)}"
            headers = " ".join(f"{k}={escape_record(v, 60)}" for k, v in record.headers)
            parts = [
                where,
                escape_record(record.key, 80),
                headers,
                escape_record(record.value, most),
            ]
            typer.echo(escape_line("  ".join(part for part in parts if part)))
