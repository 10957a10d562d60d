"""`ragmeter replay`: a file of traces sent as traffic. Exit 0 done, 1 failed or nothing of the file
got in, 2 a mistake in the call or the configuration, 130 interrupted.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from agent.config import ConfigError, Settings, load
from agent.terminal import failed, say

__all__ = ["Call", "File", "Rate", "Shift", "Start", "Suffix", "replay", "to_kafka"]

SECONDS = 70.0  # longer than the agent waits for its own disk

File = Annotated[Path, typer.Argument(help="Traces: JSON lines or array, gzip too; - is stdin.")]
Rate = Annotated[
    float | None, typer.Option("--rate", min=0.001, help="Traces a second; none: all at once.")
]
Start = Annotated[
    int, typer.Option("--start", min=0, help="Go on here: what an interrupted replay named.")
]
Shift = Annotated[
    str | None,
    typer.Option(
        "--shift",
        metavar="sent|last|DURATION",
        help="Move the traces' times: each to when it is sent; all by as much as makes the latest"
        " one now; by a duration (30d). None: they stay as recorded.",
    ),
]
Suffix = Annotated[
    str,
    typer.Option("--id-suffix", help="Put this behind each trace id: the same file as new traces."),
]


class Target(StrEnum):
    HTTP = "http"
    KAFKA = "kafka"


@dataclass(frozen=True, slots=True)
class Call:
    """What is to be sent, wherever to."""

    file: Path
    rate: float | None
    start: int
    shift: str | None
    suffix: str


def replay(
    file: File,
    to: Annotated[
        Target,
        typer.Option("--to", help="http: a running agent; kafka: the topic of the traces."),
    ],
    rate: Rate = None,
    start: Start = 0,
    shift: Shift = None,
    id_suffix: Suffix = "",
    url: Annotated[
        str | None,
        typer.Option(
            "--url", help="With http: the agent's port for traces; none: as the settings say."
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="YAML file with settings.")
    ] = None,
) -> None:
    """Send the traces of a file as traffic, to a running agent or to Kafka.

    A trace id that has been counted there before is not counted again. Where the agent is full or
    restarts, this waits; what it was told to send it neither drops nor sends faster afterwards.
    """
    call = Call(file, rate, start, shift, id_suffix)
    if to is Target.HTTP:
        _to_agent(call, url, config)
    elif url is not None:
        raise failed("--url is for --to http; brokers are kafka.bootstrap_servers", 2)
    else:
        to_kafka(call, config)


def to_kafka(call: Call, config: Path | None) -> None:
    from agent.kafka.operator.command import connected
    from agent.kafka.operator.replay import replay as replay_to_kafka

    with _Run(call) as run, connected(config) as settings:
        run.move(settings)
        replay_to_kafka(run.source, settings, say, rate=call.rate, moving=run.moving, done=run.done)


def _to_agent(call: Call, url: str | None, config: Path | None) -> None:
    from agent.listener.client import agent_client, agent_url
    from agent.replay.agent import ReplayError, replay_to_agent

    try:
        settings = load(config)
        http = settings.http
        if url is None and http.otlp_port == 0:
            raise failed("--url is needed: http.otlp_port is 0, any free port", 2)
        base = (url or agent_url(http, http.otlp_port)).rstrip("/")
        _check(base)
        client = agent_client(http, base, SECONDS, sending=True)
    except ConfigError as error:
        raise failed(f"configuration: {error}", 2) from None
    with _Run(call) as run, client:
        try:
            run.move(settings)
            replay_to_agent(
                run.source, settings, client, base, say,
                rate=call.rate, moving=run.moving, done=run.done,
            )  # fmt: skip
        except (ReplayError, OSError) as error:
            raise failed(str(error)) from None


def _check(base: str) -> None:
    import httpx

    try:
        url = httpx.URL(base)
    except httpx.InvalidURL as error:
        raise failed(f"--url: {error}", 2) from None
    if url.scheme not in ("http", "https") or not url.host:
        raise failed("--url: http:// or https:// and a host are needed", 2)


class _Run:
    """One call from its file to its last line, which is said however it ends."""

    def __init__(self, call: Call) -> None:
        # late: other commands need none of it
        from agent.replay.moving import LAST, Moving, parse_shift
        from agent.replay.traffic import Replayed
        from agent.sources.files import Source

        try:
            shift = parse_shift(call.shift) if call.shift is not None else 0.0
        except ValueError as error:
            raise failed(f"--shift: {error}; or `sent`, or `last`", 2) from None
        try:
            self.source = Source(call.file)
        except OSError as error:
            raise failed(str(error)) from None
        once = self.source.identity is None
        if once and (call.start or shift == LAST):
            what = "--start" if call.start else "--shift last"
            raise failed(f"{what} needs a file; {self.source.name} can be read once only", 2)
        if self.source.size is not None and call.start > self.source.size:
            raise failed(f"--start: {self.source.name} ends at {self.source.size}", 2)
        self.done = Replayed(position=call.start)
        self._last = shift == LAST
        self.moving = Moving(shift if isinstance(shift, float) else None, call.suffix)

    def move(self, settings: Settings) -> None:
        """Reads the file for `--shift last`. Raises OSError."""
        from agent.replay.moving import Moving
        from agent.replay.traffic import latest

        if not self._last:
            return
        newest = latest(self.source, settings.limits.trace_bytes)
        # whole seconds, and never ahead of now: they are said, to go on with
        seconds = 0.0 if newest is None else float(math.floor(time.time() - newest))
        self.moving = Moving(seconds, self.moving.suffix)
        say(f"times are moved by {seconds:.0f}s")

    def __enter__(self) -> _Run:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        from agent.replay.traffic import resume_hint

        done = self.done
        if not done.finished:
            if done.sent or done.bad:
                say(f"interrupted: {resume_hint(self.source.path, done, self.moving)}")
            return
        known = f" ({done.known} of them were known)" if done.known else ""
        refused = f", {done.refused} refused" if done.refused else ""
        say(f"{done.sent} traces sent{known}, {done.bad} items unreadable{refused}")
        if kind is None and (done.bad or done.refused) and not done.sent:
            raise typer.Exit(1)
