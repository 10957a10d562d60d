"""The commands `ragmeter kafka dlq ...`: dead letters seen, and sent again."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from agent.kafka.operator.command import Config, Shown, connected, moment, one_line
from agent.terminal import say

__all__ = ["dlq_app"]

dlq_app = typer.Typer(
    help="The dead letters: what the workers could not read.", no_args_is_help=True
)
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

    with connected(config) as settings:
        found = read_letters(settings.kafka)
    letters = [one for one in found.letters if reason in (None, one.reason)]
    if form is Shown.JSON:
        rows = [asdict(one) | {"sent_again": one.offset in found.sent} for one in letters[-limit:]]
        typer.echo(json.dumps(rows, indent=2))
        return
    for one in letters[-limit:]:
        again = "  sent again" if one.offset in found.sent else ""
        attempt = f"  attempt {one.attempt}" if one.attempt > 1 else ""
        line = f"{one.offset}  {moment(one.time)}  {one.reason}  {one.source}  {one.bytes} B"
        typer.echo(one_line(f"{line}{attempt}{again}  {one.error}"))
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

    with connected(config) as settings:
        record = one_record(settings.kafka, settings.kafka.topics.dead, offset)
    typer.echo(f"written {moment(record.timestamp / 1000)}")
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
    """Send dead letters to the topic of the traces or the feedback again, after a fix; each once.

    May be interrupted and run again.
    """
    from agent.kafka.operator.redrive import redrive

    with connected(config) as settings:
        done = redrive(settings, say, reason=reason, limit=limit, dry_run=dry_run)
    for name, count in sorted(done.reasons.items()):
        typer.echo(one_line(f"{name}: {count}"))
    for why, count in sorted(done.left.items()):
        typer.echo(one_line(f"not sent, {why}: {count}"))
    left = f"{done.left.total()} cannot be"
    if dry_run:
        say(f"{done.reasons.total()} would be sent, {left}")
        return
    say(f"{done.sent} sent, {done.already} had been sent before an interruption, {left}")
