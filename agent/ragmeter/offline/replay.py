"""Replay of a trace file as traffic: rate limit, time shift, progress, and sending to an agent."""

from __future__ import annotations

import queue
import random
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx

from ragmeter.config.settings import Settings
from ragmeter.core.clocks import Pace, backoff_seconds, parse_duration, parse_retry_after
from ragmeter.core.errors import Unavailable, UnusableResource
from ragmeter.ingest.files import STDIN, InputFile, ReadAhead
from ragmeter.ingest.native import DecodedTrace, DecodeFailure, decode_trace
from ragmeter.server.client import TRACES_PATH, reply_object

SHIFT_TO_SENT, SHIFT_TO_LAST = "sent", "last"
MAX_SHIFT_SECONDS = 200 * 365 * 86_400  # a trace's time lies between 1970 and 2200
# Seconds of delay that a replay makes up for. With none, each late wake-up would lower the rate;
# with more, an agent that was away for minutes would get a burst.
SLACK_SECONDS = 1.0
PROGRESS_SECONDS = 5.0  # between two lines of progress
MAX_NAMED = 20  # items named on the terminal, so that a wrong file does not fill it
_MAX_REASON_CHARS = 300


def parse_shift(text: str) -> str | float:
    """Return `SHIFT_TO_SENT`, `SHIFT_TO_LAST` or seconds. Raises ValueError."""
    if text in (SHIFT_TO_SENT, SHIFT_TO_LAST):
        return text
    seconds = parse_duration(text.removeprefix("-"))
    if seconds > MAX_SHIFT_SECONDS:
        raise ValueError("at most 200 years")
    return -seconds if text.startswith("-") else seconds


@dataclass(frozen=True, slots=True)
class TraceShift:
    """How a replay changes traces.

    Args:
        seconds: Seconds to add to the time of each trace; None sets it to the time of sending.
        suffix: Text to append to each trace id.
    """

    seconds: float | None = 0.0
    suffix: str = ""

    def __call__(self, item: DecodedTrace, now: float, limit: int) -> DecodedTrace | DecodeFailure:
        """Return the trace to send instead."""
        if self.seconds == 0 and not self.suffix:
            return item
        trace = item.trace
        if self.seconds is None:
            timestamp = datetime.fromtimestamp(now, UTC)
        else:
            timestamp = trace.timestamp + timedelta(seconds=self.seconds)
        changes = {"timestamp": timestamp, "trace_id": trace.trace_id + self.suffix}
        body = trace.model_copy(update=changes).model_dump_json(exclude_none=True).encode()
        # validate again: the id may be too long now, the time out of range
        return decode_trace(body, limit)

    def command_options(self) -> str:
        """Return the options that repeat this shift in another call."""
        shift = suffix = ""
        if self.seconds is None:
            shift = f" --shift={SHIFT_TO_SENT}"
        elif self.seconds:
            shift = f" --shift={self.seconds:.0f}s"
        if self.suffix:
            suffix = f" --id-suffix={shlex.quote(self.suffix)}"
        return shift + suffix


@dataclass(slots=True)
class ReplayState:
    """The progress of a replay.

    Args:
        sent: Traces that the target has stored.
        bad: Items that are not traces, and were not sent.
        position: Position in the file; all items before it are done with.
        finished: Whether the file was read to its end.
        known: Traces of `sent` that the agent reported as counted before.
        refused: Traces that the target rejected.
    """

    sent: int = 0
    bad: int = 0
    position: int = 0
    finished: bool = False
    known: int = 0
    refused: int = 0


class ReplayReporter:
    """Prints skipped items, and every few seconds the progress."""

    def __init__(
        self,
        source: InputFile,
        done: ReplayState,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.say = say
        self._source = source
        self._done = done
        self._clock = clock
        self._started = self._reported = clock()
        self._named = 0

    def report_skipped(self, position: int, reason: str, outcome: str) -> None:
        """Report an item that ends at a position and was left out."""
        self._named += 1
        if self._named <= MAX_NAMED:
            self.say(
                f"{self._source.name}, before {position}: {reason[:_MAX_REASON_CHARS]}; {outcome}"
            )
        if self._named == MAX_NAMED:
            self.say("further ones are counted only")

    def report_progress(self) -> None:
        """Report the progress if it is time to."""
        now = self._clock()
        if now - self._reported < PROGRESS_SECONDS:
            return
        self._reported = now
        done = self._done
        size = self._source.size
        share = f", {100 * done.position / size:.0f} %" if size else ""
        # if the process is killed, this line has the position to resume from
        at = f", at {done.position}" if self._source.identity is not None else ""
        self.say(f"{done.sent} sent, {done.sent / (now - self._started):.0f}/s{share}{at}")


def read_traffic(
    source: InputFile,
    limit: int,
    done: ReplayState,
    reporter: ReplayReporter,
    *,
    pace: Pace,
    moving: TraceShift,
    wall: Callable[[], float] = time.time,
) -> Iterator[tuple[DecodedTrace, int] | None]:
    """Yield the traces to send now, with the position behind each, from `done.position` on.

    Yields None if no item comes for a while, so that an incomplete batch can be sent. Raises
    OSError if the file cannot be read.
    """
    reader = ReadAhead(source, limit, done.position)
    try:
        while True:
            try:
                entry = reader.get()
            except queue.Empty:
                yield None
                continue
            if isinstance(entry, Exception):
                raise entry
            if entry is None:
                return
            item, position = entry
            if isinstance(item, DecodedTrace):
                pace.wait()
                item = moving(item, wall(), limit)
            if isinstance(item, DecodeFailure):
                done.bad += 1
                parts = [f"{field}: {why}" if field else why for field, why in item.errors]
                reason = ": ".join(filter(None, (item.reason, "; ".join(parts))))
                reporter.report_skipped(position, reason, "not sent")
            else:
                yield item, position
    finally:
        reader.stop()


def latest_timestamp(source: InputFile, limit: int) -> float | None:
    """Return the latest time of the traces in a file, in Unix seconds. Raises OSError."""
    times = (
        item.trace.timestamp for item, _ in source.read(limit) if isinstance(item, DecodedTrace)
    )
    newest = max(times, default=None)
    return None if newest is None else newest.timestamp()


def resume_hint(path: Path, done: ReplayState, moving: TraceShift) -> str:
    """Describe how to resume a replay that ended early."""
    if path == STDIN:
        return f"{done.sent} were sent"
    options = f"--start {done.position}{moving.command_options()}"
    return f"{done.sent} were sent; {options} goes on behind them"


BATCH = 256  # traces in one body
BATCH_BYTES = 4 * 2**20  # of one body, unless a single trace is larger
LINGER_SECONDS = 0.25  # the longest that a trace waits for others of its body
AWAY_SECONDS = 300.0  # wait for an agent that was reached before: longer than a restart takes
REMIND_SECONDS = 10.0  # between two lines on why the replay waits
_BUSY_STATUSES = (429, 503)  # the agent is up and asks to come back; there is no time limit
_AWAY_STATUSES = (408, 500, 502, 504)  # the agent, or a proxy before it, is down
_STATUS_HINTS = {
    401: "; the token is that of http.token or http.send_token",
    403: "; the token is that of http.token or http.send_token",
    404: "; is it the port for traces (http.otlp_port)?",
}

_BatchItem = tuple[bytes, int]  # the JSON of a trace on one line, and the position behind it


class AgentAway(Unavailable):
    """The agent does not answer, or not for too long; the text says why in one line."""


class AgentRefused(UnusableResource):
    """What answers is no agent, or does not take the traces; the text says why in one line."""


def replay_to_agent(
    source: InputFile,
    settings: Settings,
    client: httpx.Client,
    base: str,
    say: Callable[[str], None],
    *,
    rate: float | None = None,
    moving: TraceShift | None = None,
    done: ReplayState | None = None,
    rng: random.Random | None = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    wall: Callable[[], float] = time.time,
) -> ReplayState:
    """Send the traces of a file to a running agent.

    `base` is the base URL of the agent's port for traces, `rate` in traces a second (None: as fast
    as possible). `done` says where to start; it is updated all the time, so that an interrupted
    replay can resume.

    Raises:
        AgentAway: The agent cannot be reached.
        AgentRefused: It does not take the traces.
        OSError: The file cannot be read.
    """
    done = done or ReplayState()
    reporter = ReplayReporter(source, done, say, clock)
    sender = _Sender(
        client=client,
        url=f"{base}{TRACES_PATH}",
        done=done,
        reporter=reporter,
        rng=rng or random.Random(),
        clock=clock,
        sleep=sleep,
    )
    most = BATCH if rate is None else max(1, min(BATCH, int(rate * LINGER_SECONDS)))
    most_bytes = min(BATCH_BYTES, settings.limits.body_bytes)
    batch: list[_BatchItem] = []
    held = 0
    items = read_traffic(
        source,
        settings.limits.trace_bytes,
        done,
        reporter,
        pace=Pace(rate, clock, sleep, SLACK_SECONDS),
        moving=moving or TraceShift(),
        wall=wall,
    )
    for entry in items:
        if entry is not None:
            item, position = entry
            # JSON has line ends only between tokens, and a body has one trace a line
            body = item.body.replace(b"\n", b" ").replace(b"\r", b" ")
            if held + len(body) + 1 > most_bytes:
                sender.deliver(batch)
                batch = []
                held = 0
            batch.append((body, position))
            held += len(body) + 1
        if entry is None or len(batch) >= most:
            sender.deliver(batch)
            batch = []
            held = 0
    sender.deliver(batch)
    done.finished = True
    return done


class _Sender:
    def __init__(
        self,
        client: httpx.Client,
        url: str,
        done: ReplayState,
        reporter: ReplayReporter,
        rng: random.Random,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self._client = client
        self._url = url
        self._done = done
        self._reporter = reporter
        self._rng = rng
        self._clock = clock
        self._sleep = sleep
        self._reached = False
        self._reminded: float | None = None

    def deliver(self, batch: Sequence[_BatchItem]) -> None:
        """Send a batch until the agent has accepted or finally refused each trace."""
        if not batch:
            return
        body = b"\n".join(text for text, _ in batch)
        away_since: float | None = None
        attempt = 0
        while True:
            reply = self._post(body)
            if isinstance(reply, str):
                why = reply
                pause = None
            elif reply.status_code == 413 and len(batch) > 1:  # the agent has lower limits
                half = len(batch) // 2
                self.deliver(batch[:half])
                self.deliver(batch[half:])
                return
            elif self._is_decided(reply, batch):
                self._done.position = batch[-1][1]
                self._reporter.report_progress()
                return
            else:
                why = f"status {reply.status_code}{_error_text(reply)}"
                pause = parse_retry_after(reply.headers, time.time())
            if isinstance(reply, httpx.Response) and reply.status_code in _BUSY_STATUSES:
                away_since = None
            else:
                away_since = self._clock() if away_since is None else away_since
                if self._clock() - away_since > AWAY_SECONDS:
                    raise AgentAway(f"{self._url}: {why}, for {AWAY_SECONDS:.0f} s")
            self._remind(why)
            self._sleep(backoff_seconds(attempt, self._rng) if pause is None else pause)
            attempt += 1

    def _post(self, body: bytes) -> httpx.Response | str:
        """Return the reply, or why there is none."""
        try:
            reply = self._client.post(
                self._url, content=body, headers={"Content-Type": "application/json"}
            )
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            why = str(error) or type(error).__name__
            if not (self._reached and isinstance(error, httpx.TransportError)):
                raise AgentAway(f"{self._url}: {why}; is `ragmeter run` up?") from None
            return why
        self._reached = True
        return reply

    def _is_decided(self, reply: httpx.Response, batch: Sequence[_BatchItem]) -> bool:
        """Return whether the agent has decided; if not, the batch is sent again."""
        status = reply.status_code
        document = reply_object(reply) or {}
        if status in (200, 400) and "rejected" in document:
            new, known, refused = (
                _count(document, name) for name in ("accepted", "duplicates", "rejected")
            )
            if new + known + refused != len(batch):
                raise AgentRefused(
                    f"{self._url}: answers for {new + known + refused} of {len(batch)} traces"
                )
            self._done.sent += new + known
            self._done.known += known
            self._done.refused += refused
            self._report_refused(document.get("errors"), batch)
            return True
        if status == 413:
            self._done.refused += 1
            self._reporter.report_skipped(
                batch[0][1], _error_text(reply)[2:] or "too large", "refused"
            )
            return True
        if status in (*_BUSY_STATUSES, *_AWAY_STATUSES):
            return False
        if status == 200:
            raise AgentRefused(f"{self._url}: no answer of an agent")
        raise AgentRefused(
            f"{self._url}: status {status}{_error_text(reply)}{_STATUS_HINTS.get(status, '')}"
        )

    def _report_refused(self, errors: Any, batch: Sequence[_BatchItem]) -> None:
        """Report refused items; the errors of the agent are bounded and not trusted."""
        for error in errors if isinstance(errors, list) else ():
            index = error.get("index") if isinstance(error, dict) else None
            if isinstance(index, int) and 0 <= index < len(batch):
                why = f"{error.get('reason')}: {error.get('errors')}"
                self._reporter.report_skipped(batch[index][1], why, "refused")

    def _remind(self, why: str) -> None:
        now = self._clock()
        if self._reminded is None or now - self._reminded >= REMIND_SECONDS:
            self._reminded = now
            self._reporter.say(f"{self._url}: {why}; waiting")


def _count(document: dict[str, Any], name: str) -> int:
    value = document.get(name)
    return value if isinstance(value, int) else 0


def _error_text(reply: httpx.Response) -> str:
    text = (reply_object(reply) or {}).get("error")
    return f": {text[:300]}" if isinstance(text, str) else ""
