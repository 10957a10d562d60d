"""The command `ragmeter replay`: send a file of traces as traffic."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Annotated, Literal

import typer

from ragmeter.cli import options
from ragmeter.config.settings import Settings
from ragmeter.console.streams import exit_error, print_message

TIMEOUT_SECONDS = 70.0  # longer than the agent waits for its own disk

# The receivers of replayed traces.
ReplayTarget = Literal["http", "kafka"]


def replay(
    file: Annotated[
        Path, typer.Argument(help="Traces: JSON lines or array, gzip too; - is stdin.")
    ],
    to: Annotated[
        ReplayTarget, typer.Option(help="http: a running agent; kafka: the topic of the traces.")
    ],
    rate: Annotated[
        float | None, typer.Option(min=0.001, help="Traces a second; none: as fast as possible.")
    ] = None,
    shift: Annotated[
        str | None,
        typer.Option(
            metavar="sent|last|DURATION",
            help="Change the times of the traces: sent: each to the time of sending; last: all by"
            " the same, the latest to now; or by a duration (30d). None: leave them.",
        ),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(help="With http: the agent's port for traces; none: as the settings say."),
    ] = None,
    config: options.ConfigOption = None,
) -> None:
    """Send the traces of a file as traffic, to a running agent or to Kafka.

    A trace id that was counted before is not counted again. While the agent is full or restarts,
    the command waits; it drops no trace and does not catch up with a burst.
    """
    run = _ReplayRun(file, shift)
    if to == "http":
        _replay_to_agent(run, rate, url, config)
        return
    from ragmeter.kafka.operator.clients import send_traces

    if url is not None:
        raise exit_error("--url is for --to http; brokers are kafka.bootstrap_servers", 2)
    with run, options.connected_settings(config) as settings:
        run.move(settings)
        send_traces(
            run.source, settings, print_message, rate=rate, moving=run.moving, done=run.done
        )


def _replay_to_agent(
    run: _ReplayRun, rate: float | None, url: str | None, config: Path | None
) -> None:
    from ragmeter.offline.replay_to_agent import replay_to_agent
    from ragmeter.server.client import agent_client, agent_url

    settings = options.load_or_exit(config)
    http = settings.http
    if url is None and http.otlp_port == 0:
        raise exit_error("--url is needed: http.otlp_port is 0, any free port", 2)
    base = (url or agent_url(http, http.otlp_port)).rstrip("/")
    options.check_url("--url", base)
    with options.exit_on_error():
        client = agent_client(http, base, TIMEOUT_SECONDS, sending=True)
    with run, client, options.exit_on_error():
        run.move(settings)
        replay_to_agent(
            source=run.source,
            settings=settings,
            client=client,
            base=base,
            say=print_message,
            rate=rate,
            moving=run.moving,
            done=run.done,
        )


class _ReplayRun:
    """A replay from opening its file to the last line printed, however it ends."""

    def __init__(self, file: Path, shift: str | None) -> None:
        # late: other commands need neither
        from ragmeter.ingest.files import InputFile
        from ragmeter.ingest.replay import SHIFT_TO_LAST, ReplayState, TraceShift, parse_shift

        try:
            moved = parse_shift(shift) if shift is not None else 0.0
        except ValueError as error:
            raise exit_error(f"--shift: {error}; or `sent`, or `last`", 2) from None
        with options.exit_on_error():
            self.source = InputFile(file)
        self._last = moved == SHIFT_TO_LAST
        if self._last and self.source.identity is None:
            raise exit_error(
                f"--shift last needs a file; {self.source.name} can be read only once", 2
            )
        self.done = ReplayState()
        self.moving = TraceShift(moved if isinstance(moved, float) else None)

    def move(self, settings: Settings) -> None:
        """Read the file for `--shift last`. Raises OSError."""
        from ragmeter.ingest.replay import TraceShift, latest_timestamp

        if not self._last:
            return
        newest = latest_timestamp(self.source, settings.limits.trace_bytes)
        # never in the future
        seconds = 0.0 if newest is None else float(math.floor(time.time() - newest))
        self.moving = TraceShift(seconds)
        print_message(f"times are moved by {seconds:.0f}s")

    def __enter__(self) -> _ReplayRun:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        done = self.done
        if not done.finished:
            if done.sent or done.bad:
                print_message(f"interrupted: {done.sent} traces were sent")
            return
        known = f" ({done.known} of them were known)" if done.known else ""
        refused = f", {done.refused} refused" if done.refused else ""
        print_message(f"{done.sent} traces sent{known}, {done.bad} items unreadable{refused}")
        if kind is None and (done.bad or done.refused) and not done.sent:
            raise typer.Exit(1)
