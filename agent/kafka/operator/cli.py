"""The commands `ragmeter kafka ...`: for the operator, apart from the workers.

Exit 0 done, 1 failed, 2 a mistake in the call or the configuration, 3 topics differ from the
settings.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from agent.config import ConfigError, load
from agent.kafka.operator.clients import Failed, guarded
from agent.settings import Settings
from agent.terminal import plain, say, talk

__all__ = ["kafka_app"]

kafka_app = typer.Typer(help="Topics, lag, replay and dead letters on Kafka.", no_args_is_help=True)

Config = Annotated[Path | None, typer.Option("--config", "-c", help="YAML file with settings.")]

DIFFERENT = 3


class Shown(StrEnum):
    TABLE = "table"
    JSON = "json"


def _fail(message: str, code: int = 1) -> typer.Exit:
    talk.print(plain(f"ragmeter: {message}"), style="red", markup=False, emoji=False)
    return typer.Exit(code)


@contextmanager
def _kafka(config: Path | None) -> Iterator[Settings]:
    """The settings, with brokers that answer."""
    try:
        settings = load(config)
    except ConfigError as error:
        raise _fail(f"configuration: {error}", 2) from None
    try:
        with guarded(settings.kafka):
            yield settings
    except BrokenPipeError:
        raise  # the reader has seen enough
    except (Failed, OSError) as error:
        raise _fail(str(error)) from None


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

    with _kafka(config) as settings:
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
    """Show how far the workers are behind in each partition of the traces and the scores.

    `age`: seconds since the oldest record that waits was written. `lost`: records that the
    retention deleted before they were counted.
    """
    from agent.kafka.operator.lag import read_lag

    with _kafka(config) as settings:
        rows = read_lag(settings.kafka)
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
    file: Annotated[
        Path, typer.Argument(help="Traces: JSON lines or array, gzip too; - is stdin.")
    ],
    rate: Annotated[
        float | None, typer.Option("--rate", min=0.001, help="Traces a second; none: all at once.")
    ] = None,
    start: Annotated[
        int, typer.Option("--start", min=0, help="Go on here: what an interrupted replay named.")
    ] = 0,
    config: Config = None,
) -> None:
    """Send the traces of a file to the topic of the traces, keyed by trace id.

    A trace id that the workers have counted in the last `kafka.dedupe_hours` is not counted again.
    """
    from agent.kafka.operator.replay import Replayed, replay, resume_hint

    done = Replayed()
    try:
        with _kafka(config) as settings:
            replay(file, settings, say, rate=rate, start=start, done=done)
    finally:
        if not done.finished and (done.sent or done.bad):
            say(f"interrupted: {resume_hint(file, done)}")
    say(f"{done.sent} traces sent, {done.bad} items unreadable")
    if done.bad and not done.sent:
        raise typer.Exit(1)


dlq_app = typer.Typer(
    help="The dead letters: what the workers could not read.", no_args_is_help=True
)
kafka_app.add_typer(dlq_app, name="dlq")

Reason = Annotated[str | None, typer.Option("--reason", help="Only letters with this reason.")]


@dlq_app.command("list")
def dlq_list(
    reason: Reason = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="The newest so many.")] = 50,
    config: Config = None,
    form: Annotated[Shown, typer.Option("--format", "-f", help="table or json.")] = Shown.TABLE,
) -> None:
    """List dead letters: offset, time, reason, where they were read, bytes, whether sent again."""
    from agent.kafka.operator.dead_letters import read_letters

    with _kafka(config) as settings:
        found = read_letters(settings.kafka)
    letters = [one for one in found.letters if reason in (None, one.reason)]
    if form is Shown.JSON:
        rows = [asdict(one) | {"sent_again": one.offset in found.sent} for one in letters[-limit:]]
        typer.echo(json.dumps(rows, indent=2))
        return
    for one in letters[-limit:]:
        again = "  sent again" if one.offset in found.sent else ""
        attempt = f"  attempt {one.attempt}" if one.attempt > 1 else ""
        line = f"{one.offset}  {_time(one.time)}  {one.reason}  {one.source}  {one.bytes} B"
        typer.echo(_line(f"{line}{attempt}{again}  {one.error}"))
    open_ones = sum(one.offset not in found.sent for one in letters)
    say(f"{len(letters)} dead letters, {open_ones} not sent again; {found.strangers} other records")


@dlq_app.command("show")
def dlq_show(
    offset: Annotated[int, typer.Argument(min=0, help="Of the letter, as `dlq list` names it.")],
    most: Annotated[int, typer.Option("--bytes", min=1, help="Show at most so many.")] = 4096,
    config: Config = None,
) -> None:
    """Show one dead letter: headers, key and body as they came, with control characters escaped."""
    from agent.kafka.operator.tailing import escaped, one_record

    with _kafka(config) as settings:
        record = one_record(settings.kafka, settings.kafka.topics.dead, offset)
    typer.echo(f"written {_time(record.timestamp / 1000)}")
    for name, value in record.headers:
        typer.echo(f"{escaped(name.encode(), 100)}: {escaped(value, 1000)}")
    typer.echo(f"key: {escaped(record.key, 1000)}")
    typer.echo(f"{len(record.value or b'')} bytes:")
    typer.echo(escaped(record.value, most))


@dlq_app.command("redrive")
def dlq_redrive(
    reason: Reason = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="The oldest so many.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be sent.")
    ] = False,
    config: Config = None,
) -> None:
    """Send dead letters to the topic of the traces again, after a fix; each of them once.

    May be interrupted and run again.
    """
    from agent.kafka.operator.redrive import redrive

    with _kafka(config) as settings:
        done = redrive(settings, say, reason=reason, limit=limit, dry_run=dry_run)
    for name, count in sorted(done.reasons.items()):
        typer.echo(_line(f"{name}: {count}"))
    if dry_run:
        say(f"{done.reasons.total()} would be sent, {done.left} cannot be")
        return
    say(
        f"{done.sent} sent, {done.already} had been sent before an interruption,"
        f" {done.left} cannot be"
    )


class Tailed(StrEnum):
    TRACES = "traces"
    SCORES = "scores"
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

    with _kafka(config) as settings:
        name = getattr(settings.kafka.topics, topic.value)
        for record in newest(settings.kafka, name, last, follow=follow):
            where = f"{record.partition}/{record.offset}  {_time(record.timestamp / 1000)}"
            headers = " ".join(f"{k}={escaped(v, 60)}" for k, v in record.headers)
            parts = [where, escaped(record.key, 80), headers, escaped(record.value, most)]
            typer.echo(_line("  ".join(part for part in parts if part)))


def _line(text: str) -> str:
    return plain(text).replace("\n", "\\n")


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(max(0.0, seconds), UTC).strftime("%Y-%m-%d %H:%M:%S")
