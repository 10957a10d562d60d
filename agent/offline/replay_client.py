"""Send replayed traces to a running agent in batches, with retries."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import httpx

from ragmeter.config.settings import Settings
from ragmeter.core.pacing import Pace, backoff_seconds, parse_retry_after
from ragmeter.embedded.endpoints.json_items import TRACES_PATH
from ragmeter.ingest.files import InputFile
from ragmeter.offline.replay import (
    SLACK_SECONDS,
    ReplayReporter,
    ReplayState,
    TraceShift,
    read_traffic,
)

BATCH = 256  # traces in one body, as many as the agent commits at a time from a file
BATCH_BYTES = 4 * 2**20  # of one body, or one trace that is larger
LINGER_SECONDS = 0.25  # longest wait of a trace for others of its body
AWAY_SECONDS = 300.0  # how long an agent that was there is waited for: longer than a restart takes
REMIND_SECONDS = 10.0  # how often the reason is said while it waits
_BUSY_STATUSES = (429, 503)  # the agent is there and asks to come back: for as long as it does
_AWAY_STATUSES = (408, 500, 502, 504)  # it, or what stands before it, is not
_STATUS_HINTS = {
    401: "; the token is that of http.token or http.send_token",
    403: "; the token is that of http.token or http.send_token",
    404: "; is it the port for traces (http.otlp_port)?",
}

_BatchItem = tuple[bytes, int]
"""A trace's JSON on one line, and the position behind it."""


class ReplayError(Exception):
    """Why it cannot go on, in one line."""


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
    """Send traces from `done.position` on to the agent at the base URL `base`. `done` is kept up
    to date, for whoever is interrupted. Raises OSError, `ReplayError`.
    """
    done = done or ReplayState()
    telling = ReplayReporter(source, done, say, clock)
    sender = _Sender(
        client, f"{base}{TRACES_PATH}", done, telling, rng or random.Random(), clock, sleep
    )
    most = BATCH if rate is None else max(1, min(BATCH, int(rate * LINGER_SECONDS)))
    most_bytes = min(BATCH_BYTES, settings.limits.body_bytes)
    batch: list[_BatchItem] = []
    held = 0
    items = read_traffic(
        source,
        settings.limits.trace_bytes,
        done,
        telling,
        pace=Pace(rate, clock, sleep, SLACK_SECONDS),
        moving=moving or TraceShift(),
        wall=wall,
    )
    for found in items:
        if found is not None:
            item, position = found
            # JSON has line ends between its tokens only, and a body has a trace a line
            body = item.body.replace(b"\n", b" ").replace(b"\r", b" ")
            if held + len(body) + 1 > most_bytes:
                sender.deliver(batch)
                batch, held = [], 0
            batch.append((body, position))
            held += len(body) + 1
        if found is None or len(batch) >= most:
            sender.deliver(batch)
            batch, held = [], 0
    sender.deliver(batch)
    done.finished = True
    return done


class _Sender:
    def __init__(
        self,
        client: httpx.Client,
        url: str,
        done: ReplayState,
        telling: ReplayReporter,
        rng: random.Random,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self._client, self._url, self._done, self._telling = client, url, done, telling
        self._rng, self._clock, self._sleep = rng, clock, sleep
        self._reached = False
        self._reminded: float | None = None

    def deliver(self, batch: Sequence[_BatchItem]) -> None:
        """Returns when the agent has taken it, or refused it for good."""
        if not batch:
            return
        body = b"\n".join(text for text, _ in batch)
        gone: float | None = None  # since when the agent is away
        attempt = 0
        while True:
            reply = self._post(body)
            if isinstance(reply, str):
                why, asked = reply, None
            elif reply.status_code == 413 and len(batch) > 1:  # its limits are not ours
                half = len(batch) // 2
                self.deliver(batch[:half])
                self.deliver(batch[half:])
                return
            elif self._is_decided(reply, batch):
                self._done.position = batch[-1][1]
                self._telling.report_progress()
                return
            else:
                why = f"status {reply.status_code}{_error_text(reply)}"
                asked = parse_retry_after(reply.headers, time.time())
            if isinstance(reply, httpx.Response) and reply.status_code in _BUSY_STATUSES:
                gone = None
            else:
                gone = self._clock() if gone is None else gone
                if self._clock() - gone > AWAY_SECONDS:
                    raise ReplayError(f"{self._url}: {why}, for {AWAY_SECONDS:.0f} s")
            self._remind(why)
            self._sleep(backoff_seconds(attempt, self._rng) if asked is None else asked)
            attempt += 1

    def _post(self, body: bytes) -> httpx.Response | str:
        """The reply, or why there is none."""
        try:
            reply = self._client.post(
                self._url, content=body, headers={"Content-Type": "application/json"}
            )
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            why = str(error) or type(error).__name__
            if not (self._reached and isinstance(error, httpx.TransportError)):
                raise ReplayError(f"{self._url}: {why}; is `ragmeter run` up?") from None
            return why
        self._reached = True
        return reply

    def _is_decided(self, reply: httpx.Response, batch: Sequence[_BatchItem]) -> bool:
        """Whether the agent has decided; False: it should be asked again."""
        status = reply.status_code
        found = _reply_json(reply)
        if status in (200, 400) and "rejected" in found:
            new, known, refused = (
                _count(found, name) for name in ("accepted", "duplicates", "rejected")
            )
            if new + known + refused != len(batch):
                raise ReplayError(
                    f"{self._url}: answers for {new + known + refused} of {len(batch)} traces"
                )
            self._done.sent += new + known
            self._done.known += known
            self._done.refused += refused
            self._report_refused(found.get("errors"), batch)
            return True
        if status == 413:
            self._done.refused += 1
            self._telling.report_skipped(
                batch[0][1], _error_text(reply)[2:] or "too large", "refused"
            )
            return True
        if status in (*_BUSY_STATUSES, *_AWAY_STATUSES):
            return False
        if status == 200:
            raise ReplayError(f"{self._url}: no answer of an agent")
        raise ReplayError(
            f"{self._url}: status {status}{_error_text(reply)}{_STATUS_HINTS.get(status, '')}"
        )

    def _report_refused(self, errors: Any, batch: Sequence[_BatchItem]) -> None:
        """The items that the agent has refused; what it says is bounded and not believed."""
        for error in errors if isinstance(errors, list) else ():
            index = error.get("index") if isinstance(error, dict) else None
            if isinstance(index, int) and 0 <= index < len(batch):
                why = f"{error.get('reason')}: {error.get('errors')}"
                self._telling.report_skipped(batch[index][1], why, "refused")

    def _remind(self, why: str) -> None:
        now = self._clock()
        if self._reminded is None or now - self._reminded >= REMIND_SECONDS:
            self._reminded = now
            self._telling.say(f"{self._url}: {why}; waiting")


def _reply_json(reply: httpx.Response) -> dict[str, Any]:
    try:
        found = reply.json()
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _count(found: dict[str, Any], name: str) -> int:
    value = found.get(name)
    return value if isinstance(value, int) else 0


def _error_text(reply: httpx.Response) -> str:
    text = _reply_json(reply).get("error")
    return f": {text[:300]}" if isinstance(text, str) else ""
