"""Send a replay to a running agent."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import httpx

from ragmeter.config.settings import Settings
from ragmeter.core.errors import Unavailable, UnusableResource
from ragmeter.core.pacing import Pace
from ragmeter.core.retries import backoff_seconds, parse_retry_after
from ragmeter.ingest.files import InputFile
from ragmeter.ingest.replay import (
    SLACK_SECONDS,
    ReplayReporter,
    ReplayState,
    TraceShift,
    read_traffic,
)
from ragmeter.server.client import reply_object
from ragmeter.server.paths import TRACES_PATH

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
    as possible). `done` is updated all the time, for a caller that is interrupted.

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
        headers = {"Content-Type": "application/json", "Content-Length": str(len(body))}
        try:
            # httpx's reply and its stream refer to each other, and to the request: given as bytes,
            # each body would stay until the garbage collector runs; an iterator lets it go
            reply = self._client.post(self._url, content=iter((body,)), headers=headers)
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
